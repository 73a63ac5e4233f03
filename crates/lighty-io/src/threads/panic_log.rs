//! Logs and counts panics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::panics;
use crate::clock::Clock;

/// Maximum number of panics logged per second; all are counted.
pub const REPORTED_PER_SECOND_MAX: u64 = 20;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The current second, and the number of panics in it.
static REPORTED: Mutex<(i64, u64)> = Mutex::new((0, 0));

/// Passes each panic as a line to `tell` from now on, which must not panic or block. With
/// `RUST_BACKTRACE`, standard error gets it as well.
pub fn report_to(tell: impl Fn(&str) + Send + Sync + 'static) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        let text = panics::describe(info);
        if may_be_reported(Clock::start().unix_s()) {
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            tell(&format!("thread '{name}' panicked at {text}"));
        }
        panics::remember(text);
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wish| wish != "0") {
            before(info);
        }
    }));
}

/// Panics since [`report_to`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

fn may_be_reported(now_s: i64) -> bool {
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.0 != now_s {
        *reported = (now_s, 0);
    }
    reported.1 += 1;
    reported.1 <= REPORTED_PER_SECOND_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_logged_in_one_second_are_limited() {
        let reported = (0..REPORTED_PER_SECOND_MAX + 5).filter(|_| may_be_reported(-7)).count();
        assert_eq!(reported as u64, REPORTED_PER_SECOND_MAX);
        assert!(may_be_reported(-6));
    }
}
