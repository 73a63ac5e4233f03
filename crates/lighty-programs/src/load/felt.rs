//! Latency statistics that include failed requests.
//!
//! Leaving out requests that hung would improve a result by exactly its slowest requests. Counting
//! failures with their elapsed time would favour a server that refuses at once. Therefore all
//! failures rank after all responses: a failure never improves a quantile. The time of a failed
//! request is a lower bound: the time for which it had waited when it was abandoned (0: unknown),
//! or the longest response if that took longer.

/// A time in microseconds, exact or a lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figure {
    pub(super) value: f64,
    /// The value depends on failed requests: the real time is longer.
    pub(super) is_bound: bool,
}

/// A sorted collection of times.
pub(super) trait Sorted {
    /// Number of times.
    fn count(&self) -> u64;
    /// The quantile `share`. The collection must not be empty.
    fn quantile_us(&self, share: f64) -> f64;
    /// A lower bound of the quantile `share`. The collection must not be empty.
    fn reached_us(&self, share: f64) -> f64;
    /// The sum of the times, each counted as at least `least_us`.
    fn sum_us(&self, least_us: f64) -> f64;
}

/// The quantile `share` of all requests; `None` if there are no data.
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

/// The figure, unless it is zero, which means unknown.
fn known(figure: Figure) -> Option<Figure> {
    (figure.value > 0.0).then_some(figure)
}

/// The mean of all requests, in which failed ones count as no faster than the mean of the others;
/// `None` if there are no data. `right_sum_us` is the exact sum of the others' times.
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
    use super::super::tally::LoadTimes;
    use super::*;

    fn times(all: &[u64]) -> LoadTimes {
        let mut times = LoadTimes::default();
        all.iter().for_each(|us| times.record_bound(*us));
        times
    }

    fn spread(all: &[u64]) -> Spread {
        let mut spread = Spread::default();
        all.iter().for_each(|us| spread.note(*us));
        spread
    }

    /// The quantiles of both kinds of collections, which are accurate to an eighth.
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
    fn failed_requests_count_as_slower_than_all_responses() {
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
