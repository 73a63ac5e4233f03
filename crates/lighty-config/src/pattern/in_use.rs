//! Table of compiled patterns in use, by source.
//!
//! During a reload the old and the new configuration exist side by side and mostly have the same
//! patterns. A compiled pattern takes tens of kilobytes, so both share it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regex::Regex;

/// Minimum length of the table before dead entries are removed.
const SWEEP_LEN_MIN: usize = 64;

/// A table of patterns. An entry does not keep its pattern alive.
#[derive(Default)]
pub(super) struct InUse {
    by_source: HashMap<Box<str>, Weak<Regex>>,
    /// Length at which dead entries are removed.
    sweep_len: usize,
}

impl InUse {
    fn get(&self, source: &str) -> Option<Arc<Regex>> {
        self.by_source.get(source).and_then(Weak::upgrade)
    }

    fn insert(&mut self, source: &str, regex: &Arc<Regex>) {
        if self.by_source.len() >= self.sweep_len {
            self.by_source.retain(|_, regex| regex.strong_count() > 0);
            self.sweep_len = (self.by_source.len() * 2).max(SWEEP_LEN_MIN);
        }
        self.by_source.insert(source.into(), Arc::downgrade(regex));
    }
}

/// The pattern with this source: the one in use, or the result of `compile`.
pub(super) fn get_or_compile<E>(
    source: &str,
    compile: impl FnOnce() -> Result<Regex, E>,
) -> Result<Arc<Regex>, E> {
    static TABLE: Mutex<Option<InUse>> = Mutex::new(None);
    let lock = || TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = lock().as_ref().and_then(|table| table.get(source)) {
        return Ok(found);
    }
    // Not under the lock: a large pattern takes milliseconds.
    let compiled = Arc::new(compile()?);
    lock().get_or_insert_default().insert(source, &compiled);
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_in_use_is_compiled_once() {
        let compile = || Regex::new("^in-use$");
        let one = get_or_compile("in use", compile).expect("a pattern");
        let never = || -> Result<Regex, regex::Error> { panic!("compiled twice") };
        let other = get_or_compile("in use", never).expect("the same");
        assert!(Arc::ptr_eq(&one, &other));
        drop((one, other));
        let is_bad = || Err(regex::Error::CompiledTooBig(1));
        get_or_compile("in use", is_bad).expect_err("it is gone and compiled again");
    }

    #[test]
    fn patterns_that_are_gone_leave_the_table() {
        let mut table = InUse::default();
        let kept = Arc::new(Regex::new("a").expect("a pattern"));
        table.insert("kept", &kept);
        let other = Regex::new("b").expect("a pattern");
        for number in 0..1_000 {
            table.insert(&format!("{number}"), &Arc::new(other.clone()));
        }
        assert!(table.by_source.len() <= SWEEP_LEN_MIN, "{}", table.by_source.len());
        assert!(table.get("kept").is_some() && table.get("7").is_none());
    }
}
