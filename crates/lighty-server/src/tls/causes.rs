//! Why handshakes fail, each cause said once in a while.

use std::cell::RefCell;
use std::collections::HashMap;

/// Seconds after which a cause is said again, with how often it was met meanwhile.
const AGAIN_S: u32 = 60;

/// Causes that are told apart. Clients choose their words, so they are bounded.
const CAUSES_MAX: usize = 64;

/// What has gone wrong so far.
#[derive(Default)]
pub(crate) struct Causes(RefCell<HashMap<Box<str>, Met>>);

struct Met {
    said_s: u32,
    /// Times that it was met and not said.
    count: u32,
}

impl Causes {
    /// What to say of a cause now, if anything.
    pub(crate) fn meet(&self, cause: &str, now_s: u32) -> Option<String> {
        let mut all = self.0.borrow_mut();
        if let Some(met) = all.get_mut(cause) {
            if now_s.saturating_sub(met.said_s) < AGAIN_S {
                met.count = met.count.saturating_add(1);
                return None;
            }
            let count = std::mem::take(&mut met.count);
            met.said_s = now_s;
            return Some(match count {
                0 => cause.to_owned(),
                count => format!("{cause} ({count} more since the last line)"),
            });
        }
        if all.len() >= CAUSES_MAX {
            all.retain(|_, met| now_s.saturating_sub(met.said_s) < AGAIN_S);
        }
        if all.len() >= CAUSES_MAX {
            return None;
        }
        all.insert(cause.into(), Met { said_s: now_s, count: 0 });
        Some(cause.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_a_minute_with_its_count() {
        let causes = Causes::default();
        let said: Vec<_> = [0, 1, 59, 60].map(|now_s| causes.meet("a", now_s)).into();
        let again = "a (2 more since the last line)".to_owned();
        assert_eq!(said, [Some("a".to_owned()), None, None, Some(again)]);
        assert_eq!(causes.meet("b", 60).as_deref(), Some("b"));
    }

    #[test]
    fn as_many_are_told_apart_as_there_is_room_for() {
        let causes = Causes::default();
        let meet = |number: usize, now_s| causes.meet(&number.to_string(), now_s).is_some();
        assert!((0..CAUSES_MAX).all(|number| meet(number, 0)));
        assert!(!meet(CAUSES_MAX, 0));
        assert!(meet(CAUSES_MAX, AGAIN_S));
    }
}
