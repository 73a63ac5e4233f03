//! Sessions that have ended before their time, and sign-ins that have been used.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// Maximum number of ended sessions, and of used sign-ins, that are remembered.
pub const REVOCATIONS_MAX: usize = 10_000;

/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 2048;

/// The beginning of the names of single sessions.
pub const SESSION_PREFIX: &str = "id:";

/// True if an end of `name` at a second concerns what began at another one. A single session has
/// ended in any case, even if clocks disagree.
pub(crate) fn ends(name: &str, at_s: i64, began_s: i64) -> bool {
    began_s <= at_s || name.starts_with(SESSION_PREFIX)
}

/// Names with the times from which they count and until which they are remembered. Without room,
/// the oldest one goes, and everything that began before it counts as ended: a flood of
/// entries ends sessions, and revives none.
#[derive(Default)]
pub struct Revocations(Mutex<RevokedNames>);

#[derive(Default)]
struct RevokedNames {
    names: HashMap<Box<str>, Revocation, RandomState>,
    /// Everything that began at or before this second is ended.
    watermark_s: i64,
}

#[derive(Clone, Copy)]
struct Revocation {
    at_s: i64,
    until_s: i64,
}

impl Revocations {
    /// Ends what has this name and began until now. Returns false if it was ended already.
    pub fn add(&self, name: &str, now_s: i64, until_s: i64) -> bool {
        let mut revoked = self.revoked();
        let known = revoked.names.get(name).copied();
        let is_new = known.is_none_or(|known| known.until_s <= now_s);
        if revoked.names.len() >= REVOCATIONS_MAX && known.is_none() {
            revoked.names.retain(|_, one| one.until_s > now_s);
        }
        if revoked.names.len() >= REVOCATIONS_MAX && known.is_none() {
            let oldest = revoked.names.iter().min_by_key(|(_, one)| one.at_s);
            if let Some((oldest, at_s)) = oldest.map(|(name, one)| (name.clone(), one.at_s)) {
                revoked.names.remove(&oldest);
                revoked.watermark_s = revoked.watermark_s.max(at_s);
            }
        }
        let until_s = until_s.max(known.map_or(0, |known| known.until_s));
        revoked.names.insert(name.into(), Revocation { at_s: now_s, until_s });
        is_new
    }

    /// True if something with one of these names, begun at this second, has been ended.
    pub fn has_ended<'n>(&self, names: impl IntoIterator<Item = &'n str>, began_s: i64) -> bool {
        let revoked = self.revoked();
        let has_ended =
            |name: &str| revoked.names.get(name).is_some_and(|one| ends(name, one.at_s, began_s));
        began_s <= revoked.watermark_s || names.into_iter().any(has_ended)
    }

    fn revoked(&self) -> MutexGuard<'_, RevokedNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_began_before_are_ended() {
        let revocations = Revocations::default();
        assert!(revocations.add("sid:a", 100, 200));
        assert!(!revocations.add("sid:a", 101, 150), "known");
        assert!(revocations.has_ended(["sub:x", "sid:a"], 101));
        assert!(!revocations.has_ended(["sub:x", "sid:a"], 102), "a later session");
        assert!(!revocations.has_ended(["sid:b"], 1));
        assert!(revocations.add("sid:a", 200, 300), "forgotten");
        revocations.add("id:x", 100, 200);
        assert!(revocations.has_ended(["id:x"], 105), "a session is one, by whatever clock");
    }

    #[test]
    fn full_list_revives_no_session() {
        let revocations = Revocations::default();
        for number in 0..REVOCATIONS_MAX as i64 {
            revocations.add(&number.to_string(), number, 1_000_000);
        }
        assert!(!revocations.has_ended(["other"], 1));
        revocations.add("one more", 20_000, 1_000_000);
        assert_eq!(revocations.revoked().names.len(), REVOCATIONS_MAX);
        assert!(revocations.has_ended(["0"], 0), "the oldest one still counts");
        revocations.add("late", 2_000_000, 3_000_000);
        assert_eq!(revocations.revoked().names.len(), 1, "expired ones make room");
    }
}
