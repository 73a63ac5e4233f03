//! Limits the log of failed handshakes: each kind of cause is logged once in a while.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

/// Seconds after which a cause is logged again, with the number of handshakes since.
const AGAIN_S: u32 = 60;

/// Limit on the number of distinct kinds.
const KINDS_MAX: usize = 64;

/// Causes of failed handshakes so far.
#[derive(Default)]
pub(crate) struct Causes {
    met: RefCell<HashMap<Box<str>, LoggedCause>>,
    unlogged: Cell<UnloggedCauses>,
}

struct LoggedCause {
    logged_s: u32,
    /// Number of handshakes that failed for it and were not logged.
    count: u32,
}

/// Failed handshakes of kinds beyond the limit.
#[derive(Clone, Copy, Default)]
struct UnloggedCauses {
    since_s: u32,
    count: u32,
}

impl Causes {
    /// Returns the log line for a cause, unless it was logged recently.
    pub(crate) fn meet(&self, cause: &str, now_s: u32) -> Option<String> {
        let kind = kind(cause);
        let mut all = self.met.borrow_mut();
        if let Some(met) = all.get_mut(&*kind) {
            if now_s.saturating_sub(met.logged_s) < AGAIN_S {
                met.count = met.count.saturating_add(1);
                return None;
            }
            let count = std::mem::take(&mut met.count);
            met.logged_s = now_s;
            return Some(match count {
                0 => cause.to_owned(),
                count => format!("{cause} ({count} more since the last line)"),
            });
        }
        if all.len() >= KINDS_MAX {
            all.retain(|_, met| now_s.saturating_sub(met.logged_s) < AGAIN_S);
        }
        if all.len() >= KINDS_MAX {
            let UnloggedCauses { since_s, count } = self.unlogged.get();
            let since_s = if count > 0 { since_s } else { now_s };
            self.unlogged.set(UnloggedCauses { since_s, count: count.saturating_add(1) });
            return None;
        }
        all.insert(kind.into(), LoggedCause { logged_s: now_s, count: 0 });
        Some(cause.to_owned())
    }

    /// Returns a log line about unlogged handshakes, if one is due.
    pub(crate) fn settle(&self, now_s: u32) -> Option<String> {
        let UnloggedCauses { since_s, count } = self.unlogged.get();
        if count == 0 || now_s.saturating_sub(since_s) < AGAIN_S {
            return None;
        }
        self.unlogged.take();
        let plural = if count > 1 { "s" } else { "" };
        Some(format!("{count} more TLS handshake{plural} failed for other reasons, not logged"))
    }
}

/// Returns the distinct tokens of a cause, without its numbers, which clients choose.
fn kind(cause: &str) -> String {
    let tokens = cause.split(|character: char| !character.is_ascii_alphanumeric());
    let is_word = |word: &&str| word.starts_with(|first: char| first.is_ascii_alphabetic());
    let tokens: BTreeSet<&str> = tokens.filter(is_word).collect();
    tokens.into_iter().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_a_minute_with_its_count() {
        let causes = Causes::default();
        let logged: Vec<_> = [0, 1, 59, 60].map(|now_s| causes.meet("a", now_s)).into();
        let again = "a (2 more since the last line)".to_owned();
        assert_eq!(logged, [Some("a".to_owned()), None, None, Some(again)]);
        assert_eq!(causes.meet("b", 60).as_deref(), Some("b"));
    }

    #[test]
    fn a_clients_numbers_make_no_other_kind() {
        let causes = Causes::default();
        let first = "corrupt: DuplicateExtension(17)";
        assert_eq!(causes.meet(first, 0).as_deref(), Some(first));
        assert_eq!(causes.meet("corrupt: DuplicateExtension(4660)", 0), None);
        for (one, other) in [
            ("gave up: AlertDescription(0x37)", "gave up: AlertDescription(0xab)"),
            ("algorithm [48, 3, 2]", "algorithm []"),
            ("presented: [Client, Other, Other]", "presented: [Other, Client]"),
        ] {
            assert_eq!(kind(one), kind(other));
        }
        assert_ne!(kind("gave up: UnknownCA"), kind("gave up: CertificateExpired"));
    }

    #[test]
    fn causes_beyond_the_limit_are_counted_and_logged_a_minute_later() {
        let causes = Causes::default();
        let meet = |number: usize, now_s| causes.meet(&format!("k{number}"), now_s).is_some();
        assert!((0..KINDS_MAX).all(|number| meet(number, 0)));
        assert_eq!(causes.settle(100), None, "all were said");
        assert!(!meet(KINDS_MAX, 1));
        assert!(!meet(KINDS_MAX + 1, 59));
        assert_eq!(causes.settle(60), None);
        let logged = causes.settle(61);
        let wanted = "2 more TLS handshakes failed for other reasons, not logged";
        assert_eq!(logged.as_deref(), Some(wanted));
        assert_eq!(causes.settle(200), None, "said once");
        assert!(meet(KINDS_MAX, AGAIN_S));
    }
}
