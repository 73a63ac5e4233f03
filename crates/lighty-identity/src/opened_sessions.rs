//! Cache of opened sessions. Opening a cookie of 1.3 KB and parsing its claims takes twice as long
//! as serving a small file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use crate::session::Session;

/// Maximum number of sessions that are kept for one set of keys.
pub(crate) const OPENED_MAX: usize = 1024;

/// Maximum size of a sealed session that is kept, with its context, in bytes.
const SEALED_BYTES_MAX: usize = 8 * 1024;

/// Sessions by their sealed texts and contexts, which one set of keys has opened.
#[derive(Default)]
pub(crate) struct OpenedSessions(Mutex<RecentSessions>);

type SessionsBySeal = HashMap<Box<[u8]>, Arc<Session>, RandomState>;

/// Sessions that were used lately move to the newer half. When it is full, the older one goes.
#[derive(Default)]
struct RecentSessions {
    newer: SessionsBySeal,
    older: SessionsBySeal,
}

impl OpenedSessions {
    /// The session, opened if it is not known. Failures are not kept.
    pub(crate) fn find(
        &self,
        sealed: &[u8],
        context: &[u8],
        open: impl FnOnce() -> Option<Session>,
    ) -> Option<Arc<Session>> {
        // The context begins with the lengths of its parts, so no other pair has this key.
        let key = [context, sealed].concat();
        let known = {
            let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            recent.find(&key)
        };
        if known.is_some() {
            return known;
        }
        let session = Arc::new(open()?);
        if key.len() <= SEALED_BYTES_MAX {
            let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            recent.keep(key.into(), &session);
        }
        Some(session)
    }
}

impl RecentSessions {
    fn find(&mut self, key: &[u8]) -> Option<Arc<Session>> {
        if let Some(known) = self.newer.get(key) {
            return Some(Arc::clone(known));
        }
        let (key, session) = self.older.remove_entry(key)?;
        self.keep(key, &session);
        Some(session)
    }

    fn keep(&mut self, key: Box<[u8]>, session: &Arc<Session>) {
        if self.newer.len() >= OPENED_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, Arc::clone(session));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn number_of_sessions_has_a_limit() {
        let (opened, count) = (OpenedSessions::default(), Cell::new(0));
        let find = |number: usize, bytes: usize| {
            let mut sealed = number.to_be_bytes().to_vec();
            sealed.resize(bytes, 0);
            let session = opened.find(&sealed, b"", || {
                count.set(count.get() + 1);
                Some(Session { user: number.to_string(), ..Session::default() })
            });
            assert_eq!(session.expect("a session").user, number.to_string());
        };
        let held = || {
            let recent = opened.0.lock().expect("unpoisoned");
            recent.newer.len() + recent.older.len()
        };
        (0..OPENED_MAX).for_each(|number| find(number, 8));
        assert_eq!((held(), count.get()), (OPENED_MAX, OPENED_MAX));
        find(OPENED_MAX - 1, 8);
        find(0, 8);
        assert_eq!(count.get(), OPENED_MAX, "both halves are known");
        find(OPENED_MAX, 8);
        assert!(held() <= OPENED_MAX && count.get() == OPENED_MAX + 1);
        for (bytes, again) in [(SEALED_BYTES_MAX, 1), (SEALED_BYTES_MAX + 1, 2)] {
            count.set(0);
            (0..2).for_each(|_| find(7, bytes));
            assert_eq!(count.get(), again, "{bytes} bytes");
        }
    }

    #[test]
    fn failures_are_not_kept() {
        let opened = OpenedSessions::default();
        assert!(opened.find(b"x", b"", || None).is_none());
        assert!(opened.find(b"x", b"", || Some(Session::default())).is_some());
        assert!(opened.find(b"x", b"", || None).is_some());
        assert!(opened.find(b"x", b"other", || None).is_none());
    }
}
