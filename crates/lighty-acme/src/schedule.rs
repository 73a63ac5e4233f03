//! Computes when a certificate is ordered, from seconds since 1970, without a clock.

use std::ops::Range;

/// Delays in seconds after consecutive failures; the last one repeats. Authorities permit at most
/// five failures per hour and name.
const WAITS_S: [i64; 7] = [60, 300, 900, 1_800, 3_600, 7_200, 21_600];

/// A certificate is renewed when this fraction of its life is left (one in this many), unless the
/// authority states a time.
const LEFT: i64 = 3;

/// At this fraction it is renewed whatever the authority states, with a log message.
const LATE: i64 = 6;

/// Fraction of its life over which renewals are spread, so that certificates ordered at the same
/// time are not renewed at the same time.
const SPREAD: i64 = 30;

/// The authority's renewal window for a certificate (RFC 9773), in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Start and end of the window.
    pub span_s: Range<i64>,
    /// Time for asking again.
    pub ask_again_s: i64,
}

/// Result of the orders so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderProgress {
    /// Number of consecutive failures.
    pub failures: u32,
    /// No order before this time.
    pub not_before_s: i64,
    /// Reason for the latest failure.
    pub error: String,
    /// Name of the authority that signed the certificate.
    pub issuer: String,
    /// The authority's renewal window.
    pub window: Option<Window>,
}

impl OrderProgress {
    /// Records a failed order; the authority accepts no other within `retry_after_s` seconds.
    pub fn fail(&mut self, now_s: i64, error: String, retry_after_s: i64, luck: u64) {
        debug_assert!(retry_after_s >= 0, "{retry_after_s}");
        let wait_s = WAITS_S[(self.failures as usize).min(WAITS_S.len() - 1)];
        self.failures = self.failures.saturating_add(1);
        // Spread by a tenth, so that names that failed together do not retry together.
        let spread_s = part(wait_s / 10, luck);
        self.not_before_s = now_s + wait_s.max(retry_after_s) + spread_s;
        self.error = error;
    }

    /// Records a successful order.
    pub fn succeed(&mut self, issuer: &str) {
        *self = Self { issuer: issuer.to_owned(), ..Self::default() };
    }
}

/// Time of the next order. `valid_s` is the validity of the present certificate, `None` if there is
/// none or it is for other names. `luck` is a pseudo-random number that is constant for a
/// certificate.
pub fn due_s(valid_s: Option<&Range<i64>>, progress: &OrderProgress, luck: u64) -> i64 {
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

/// Time from which a certificate should have been renewed long ago.
pub(crate) fn late_s(valid_s: &Range<i64>) -> i64 {
    valid_s.end - (valid_s.end - valid_s.start) / LATE
}

/// A pseudo-random part of a span.
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
        let progress = OrderProgress::default();
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
        let window = |span_s: Range<i64>| OrderProgress {
            window: Some(Window { span_s, ask_again_s: 0 }),
            ..OrderProgress::default()
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
    fn orders_fail_at_most_five_times_an_hour() {
        for luck in [0, 1, 59, u64::MAX] {
            let (mut progress, mut now_s, mut times) = (OrderProgress::default(), 0, Vec::new());
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
        let mut progress = OrderProgress::default();
        progress.fail(100, "slow down".to_owned(), 5_000, 0);
        assert_eq!(due_s(None, &progress, 0), 5_100);
        progress.succeed("ca.test");
        assert_eq!((progress.failures, &*progress.issuer), (0, "ca.test"));
        assert_eq!(due_s(None, &progress, 0), 0);
    }
}
