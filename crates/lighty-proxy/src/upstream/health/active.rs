//! Evaluates check results: rise and fall, and when the next check is due.

/// The overall result of the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CheckVerdict {
    /// Too few results yet: the address is used as if there were no check.
    #[default]
    Unknown,
    Good,
    Bad,
}

/// Counts consecutive results.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    rise: u32,
    fall: u32,
    verdict: CheckVerdict,
    /// The latest result, and the number of equal results in a row.
    last_good: bool,
    run: u32,
}

impl Tally {
    /// Creates a tally: `rise` successes in a row make it good, `fall` failures bad; 0 means 1.
    pub(crate) fn new(rise: u32, fall: u32) -> Self {
        let (rise, fall) = (rise.max(1), fall.max(1));
        Self { rise, fall, verdict: CheckVerdict::Unknown, last_good: false, run: 0 }
    }

    /// Returns true if `other` needs the same numbers of results in a row.
    pub(crate) fn has_limits_of(&self, other: &Tally) -> bool {
        (self.rise, self.fall) == (other.rise, other.fall)
    }

    /// Records a result; `Some` if the verdict changed.
    pub(crate) fn record(&mut self, good: bool) -> Option<CheckVerdict> {
        self.run = if good == self.last_good { self.run.saturating_add(1) } else { 1 };
        self.last_good = good;
        let (needed, verdict) =
            if good { (self.rise, CheckVerdict::Good) } else { (self.fall, CheckVerdict::Bad) };
        let turns = self.run >= needed && self.verdict != verdict;
        turns.then(|| {
            self.verdict = verdict;
            verdict
        })
    }

    /// Discards the verdict: requests failed although checks did not.
    pub(super) fn doubt(&mut self) {
        self.verdict = CheckVerdict::Unknown;
        self.run = 0;
    }
}

/// Part of an interval, on either side, by which a check may come early or late.
const JITTER_PART: u64 = 10;

/// Returns the time of the first check: anywhere in the first interval, so that many addresses, and
/// many servers started together, are not checked all at once.
pub(crate) fn first_due_ms(now_ms: u64, interval_ms: u64, random: u64) -> u64 {
    now_ms.saturating_add(random % interval_ms.max(1))
}

/// Returns the time of the next check after one that began at `began_ms`: an interval later, give
/// or take a tenth, and never before `now_ms` (a check may take longer than its interval).
pub(crate) fn next_due_ms(began_ms: u64, now_ms: u64, interval_ms: u64, random: u64) -> u64 {
    let jitter = interval_ms / JITTER_PART;
    let early = interval_ms - jitter;
    let wait = early.saturating_add(random % jitter.saturating_mul(2).saturating_add(1));
    began_ms.saturating_add(wait).max(now_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_takes_rise_successes_or_fall_failures_in_a_row() {
        let mut tally = Tally::new(3, 2);
        assert_eq!(tally.record(false), None);
        assert_eq!(tally.record(false), Some(CheckVerdict::Bad));
        assert_eq!(tally.record(false), None);
        for _ in 0..2 {
            assert_eq!(tally.record(true), None);
        }
        assert_eq!(tally.verdict, CheckVerdict::Bad);
        assert_eq!(tally.record(true), Some(CheckVerdict::Good));
        assert_eq!(tally.record(true), None);
    }

    #[test]
    fn a_row_that_is_broken_begins_anew() {
        let mut tally = Tally::new(2, 2);
        for _ in 0..10 {
            assert_eq!((tally.record(true), tally.record(false)), (None, None));
        }
        assert_eq!(tally.verdict, CheckVerdict::Unknown);
        assert_eq!(tally.record(false), Some(CheckVerdict::Bad));
    }

    #[test]
    fn count_of_zero_in_a_row_means_one() {
        let mut tally = Tally::new(0, 0);
        assert_eq!(tally.record(false), Some(CheckVerdict::Bad));
        assert_eq!(tally.record(true), Some(CheckVerdict::Good));
    }

    #[test]
    fn checks_are_spread_and_keep_their_interval() {
        for random in [0, 1, 499, u64::MAX / 3, u64::MAX] {
            assert!((7..1_007).contains(&first_due_ms(7, 1_000, random)));
            let next = next_due_ms(5_000, 5_020, 1_000, random);
            assert!((5_900..=6_100).contains(&next), "{next}");
        }
        assert_eq!(next_due_ms(0, 0, 1_000, 0), 900);
        assert_eq!(next_due_ms(0, 0, 1_000, 200), 1_100);
        assert_eq!(next_due_ms(0, 0, 1_000, 201), 900);
        assert_eq!(next_due_ms(0, 9_000, 1_000, 0), 9_000, "a slow check is not made up for");
        assert_eq!((first_due_ms(3, 0, 9), next_due_ms(3, 3, 0, 9)), (3, 3));
        assert_eq!(next_due_ms(u64::MAX, 0, u64::MAX, u64::MAX), u64::MAX);
    }
}
