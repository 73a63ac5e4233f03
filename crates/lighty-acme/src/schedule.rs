//! When a certificate is ordered: arithmetic on seconds since 1970, without a clock.

use std::ops::Range;

/// Seconds to wait after failures in succession, one after the other; the last one repeats. Five
/// of them in an hour are the most that authorities take for a name.
const WAITS_S: [i64; 7] = [60, 300, 900, 1_800, 3_600, 7_200, 21_600];

/// Of a certificate's life, the part that is left when it is renewed, unless the authority says
/// when.
const LEFT: i64 = 3;

/// And when it is renewed whatever the authority says, and said in the log.
const LATE: i64 = 6;

/// The part of its life by which renewals are spread, so that those that were ordered together are
/// not renewed together.
const SPREAD: i64 = 30;

/// When the authority wants a certificate to be renewed (RFC 9773), in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Between these.
    pub span_s: Range<i64>,
    /// When to ask again.
    pub ask_again_s: i64,
}

/// What has come of orders so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Failures in succession.
    pub failures: u32,
    /// There is no order before this.
    pub not_before_s: i64,
    /// Why the latest one failed.
    pub error: String,
    /// Who has signed the certificate.
    pub issuer: String,
    /// When the authority wants it to be renewed.
    pub window: Option<Window>,
}

impl Progress {
    /// An order has failed; the authority wants no other within `retry_after_s`.
    pub fn fail(&mut self, now_s: i64, error: String, retry_after_s: i64, luck: u64) {
        let wait_s = WAITS_S[(self.failures as usize).min(WAITS_S.len() - 1)];
        self.failures = self.failures.saturating_add(1);
        // A tenth of it, so that names that failed together do not come together again.
        let spread_s = part(wait_s / 10, luck);
        self.not_before_s = now_s + wait_s.max(retry_after_s) + spread_s;
        self.error = error;
    }

    /// An order has led to a certificate.
    pub fn succeed(&mut self, issuer: &str) {
        *self = Self { issuer: issuer.to_owned(), ..Self::default() };
    }
}

/// When a certificate is to be ordered. `valid_s` is that of the present one, `None` if there is
/// none or it is for other names. `luck` is a number that is the same as long as the certificate
/// is.
pub fn due_s(valid_s: Option<&Range<i64>>, progress: &Progress, luck: u64) -> i64 {
    let wanted_s = valid_s.map_or(0, |valid_s| {
        let life_s = valid_s.end - valid_s.start;
        let late_s = late_s(valid_s);
        let planned_s = match &progress.window {
            Some(window) => {
                let span_s = &window.span_s;
                span_s.start + part((span_s.end - span_s.start).max(0), luck)
            }
            None => valid_s.end - life_s / LEFT - part(life_s / SPREAD, luck),
        };
        planned_s.min(late_s)
    });
    wanted_s.max(progress.not_before_s)
}

/// From when on a certificate should have been renewed long ago.
pub(crate) fn late_s(valid_s: &Range<i64>) -> i64 {
    valid_s.end - (valid_s.end - valid_s.start) / LATE
}

/// A part of a span, by luck.
fn part(span_s: i64, luck: u64) -> i64 {
    match u64::try_from(span_s) {
        Ok(span_s @ 1..) => (luck % span_s) as i64,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: i64 = 86_400;
    const LIFE: Range<i64> = 0..90 * DAY_S;

    #[test]
    fn a_certificate_is_ordered_at_once_and_renewed_with_a_third_left() {
        let progress = Progress::default();
        assert_eq!(due_s(None, &progress, 7), 0);
        for luck in [0, 1, u64::MAX, 12_345_678] {
            let due = due_s(Some(&LIFE), &progress, luck);
            assert!((57 * DAY_S..=60 * DAY_S).contains(&due), "{due}");
            let week = 0..6 * DAY_S;
            let due = due_s(Some(&week), &progress, luck);
            assert!((3 * DAY_S..=4 * DAY_S).contains(&due), "{due}");
        }
    }

    #[test]
    fn the_authority_says_when_but_not_too_late() {
        let window = |span_s: Range<i64>| Progress {
            window: Some(Window { span_s, ask_again_s: 0 }),
            ..Progress::default()
        };
        for luck in [0, 5, u64::MAX] {
            let due = due_s(Some(&LIFE), &window(10 * DAY_S..12 * DAY_S), luck);
            assert!((10 * DAY_S..12 * DAY_S).contains(&due));
        }
        let late = due_s(Some(&LIFE), &window(88 * DAY_S..95 * DAY_S), 3);
        assert_eq!(late, 75 * DAY_S);
        let none = Range { start: 9, end: 3 };
        assert_eq!(due_s(Some(&LIFE), &window(none), 3), 9, "a window that is none");
    }

    #[test]
    fn there_are_never_more_than_five_failures_in_an_hour() {
        for luck in [0, 1, 59, u64::MAX] {
            let (mut progress, mut now_s, mut times) = (Progress::default(), 0, Vec::new());
            // A month without the authority.
            while now_s < 30 * DAY_S {
                now_s = due_s(None, &progress, luck).max(now_s);
                times.push(now_s);
                progress.fail(now_s, "down".to_owned(), 0, luck);
            }
            assert!(times.windows(6).all(|six| six[5] - six[0] > 3_600), "{times:?}");
            assert!(times.windows(2).all(|two| two[1] - two[0] <= 7 * 3_600), "it goes on");
            assert!((100..200).contains(&times.len()), "{}", times.len());
        }
    }

    #[test]
    fn the_authority_may_ask_for_patience() {
        let mut progress = Progress::default();
        progress.fail(100, "slow down".to_owned(), 5_000, 0);
        assert_eq!(due_s(None, &progress, 0), 5_100);
        progress.succeed("ca.test");
        assert_eq!((progress.failures, &*progress.issuer), (0, "ca.test"));
        assert_eq!(due_s(None, &progress, 0), 0);
    }
}
