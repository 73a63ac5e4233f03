//! What users felt: times of responses, and of requests that have failed.
//!
//! A run that leaves out the requests that hung looks better by exactly its slowest ones. One that
//! counts a failure with the time it took looks best where a server refuses at once. So whatever
//! failed stands behind all responses: no failure makes a share of requests quicker than it is
//! among responses. What is told of such a request is a bound: for how long it had waited when it
//! was given up (0: nothing is known), or the longest response where that took longer.

/// A figure, as a time in microseconds, or what it is at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figure {
    pub(super) value: f64,
    /// It rests on requests that failed: their time is longer, if it ever ends.
    pub(super) is_bound: bool,
}

/// Times that are counted in some way.
pub(super) trait Sorted {
    /// How many there are.
    fn count(&self) -> u64;
    /// What this share of them does not exceed. There are some.
    fn quantile_us(&self, share: f64) -> f64;
    /// What is known to be reached at this share of them. There are some.
    fn reached_us(&self, share: f64) -> f64;
    /// Their sum, each counted as no less than a time.
    fn sum_us(&self, least_us: f64) -> f64;
}

/// What this share of all requests does not exceed; `None` if there is nothing to tell.
pub(super) fn quantile(right: &impl Sorted, failed: &impl Sorted, share: f64) -> Option<Figure> {
    let (rights, fails) = (right.count(), failed.count());
    let wanted = share * (rights + fails) as f64;
    match (rights, fails) {
        (0, 0) => None,
        (_, 0) => Some(Figure { value: right.quantile_us(share), is_bound: false }),
        (1.., _) if wanted <= rights as f64 => {
            Some(Figure { value: right.quantile_us(wanted / rights as f64), is_bound: false })
        }
        _ => {
            let longest_us = if rights > 0 { right.quantile_us(1.0) } else { 0.0 };
            let waited_us = failed.reached_us((wanted - rights as f64) / fails as f64);
            known(Figure { value: waited_us.max(longest_us), is_bound: true })
        }
    }
}

/// A figure, unless nothing is known of the times that it stands for.
fn known(figure: Figure) -> Option<Figure> {
    (figure.value > 0.0).then_some(figure)
}

/// The mean of all requests, of which those that failed count as no quicker than the mean of the
/// others; `None` if there is nothing to tell. `right_sum_us` is the exact sum of those others.
pub(super) fn mean(right_sum_us: f64, right: &impl Sorted, failed: &impl Sorted) -> Option<Figure> {
    let (rights, fails) = (right.count(), failed.count());
    let right_us = right_sum_us / rights.max(1) as f64;
    let sum_us = right_sum_us + failed.sum_us(right_us);
    let us = sum_us / (rights + fails).max(1) as f64;
    known(Figure { value: us, is_bound: fails > 0 })
}

#[cfg(test)]
mod tests {
    use super::super::intervals::Spread;
    use super::super::tally::Times;
    use super::*;

    fn times(all: &[u64]) -> Times {
        let mut times = Times::default();
        all.iter().for_each(|us| times.record_bound(*us));
        times
    }

    fn spread(all: &[u64]) -> Spread {
        let mut spread = Spread::default();
        all.iter().for_each(|us| spread.note(*us));
        spread
    }

    /// The shares of both ways to count, which know times to an eighth.
    fn quantiles(right: &[u64], failed: &[u64], share: f64) -> [Option<Figure>; 2] {
        [
            quantile(&times(right), &times(failed), share),
            quantile(&spread(right), &spread(failed), share),
        ]
    }

    fn expect(figures: [Option<Figure>; 2], us: f64, is_bound: bool) {
        for figure in figures {
            let figure = figure.expect("there are requests");
            assert_eq!(figure.is_bound, is_bound, "{figure:?}");
            assert!((figure.value - us).abs() <= us / 7.0, "{figure:?}, not {us}");
        }
    }

    #[test]
    fn what_failed_is_slower_than_all_responses() {
        let (right, hung) = ([2_000; 50], [1_000_000; 50]);
        expect(quantiles(&right, &hung, 0.5), 2_000.0, false);
        expect(quantiles(&right, &hung, 0.51), 1_000_000.0, true);
        expect(quantiles(&right, &hung, 0.99), 1_000_000.0, true);
        expect(quantiles(&right, &[], 0.99), 2_000.0, false);
        expect(quantiles(&[], &hung, 0.01), 1_000_000.0, true);
        assert_eq!(quantiles(&[], &[], 0.5), [None; 2]);
        assert_eq!(quantiles(&[], &[0; 9], 0.5), [None; 2]);
        expect(quantiles(&right, &[0; 50], 0.75), 2_000.0, true);
    }

    #[test]
    fn a_quick_failure_makes_nothing_quicker() {
        let right: Vec<u64> = (1..=100).map(|at| at * 1000).collect();
        for share in [0.1, 0.5, 0.75, 0.9, 0.99, 1.0] {
            let without = quantiles(&right, &[], share);
            let with = quantiles(&right, &[100; 40], share);
            for (without, with) in without.into_iter().zip(with) {
                assert!(
                    with.map(|one| one.value) >= without.map(|one| one.value),
                    "{share}: {with:?}"
                );
            }
        }
        expect(quantiles(&right, &[100; 40], 0.9), 100_000.0, true);
        let slow = mean(200.0, &times(&[100, 100]), &times(&[1, 400]));
        assert_eq!(slow, Some(Figure { value: 175.0, is_bound: true }));
        assert_eq!(mean(200.0, &times(&[100, 100]), &times(&[])).map(|one| one.value), Some(100.0));
        for failed in [&[][..], &[0, 0]] {
            assert_eq!(mean(0.0, &spread(&[]), &spread(failed)), None);
        }
    }
}
