//! `least-time`: the address expected to respond first.

use super::turns::Turns;
use super::{BalanceKey, Balancer, BalancerRow, Choice, less_loaded};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["least-time"],
    doc: "that answers soonest: mean time to the first byte, times the queue",
    create: |_| Box::new(LeastTime::default()),
};

/// Number of requests of which one goes to the next address in turn: otherwise an address that was
/// slow once would never be tried again.
const EXPLORE_ONE_IN: u64 = 128;

/// Mean time to first byte, times the length of the queue with this request, divided by the weight.
///
/// An address without samples comes first, but for one request at a time.
#[derive(Debug, Default)]
pub(super) struct LeastTime {
    unknown: Turns,
    explore: Turns,
}

impl Balancer for LeastTime {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        if key.random.is_multiple_of(EXPLORE_ONE_IN) {
            return self.explore.next(choices, |_| true).unwrap_or(0);
        }
        let fresh = self.unknown.next(choices, |c| c.first_byte_us == 0 && c.busy == 0);
        fresh.or_else(|| quickest(choices)).unwrap_or_else(|| shortest(choices))
    }
}

/// Returns the address with the least expected time among addresses with samples.
fn quickest(choices: &[Choice]) -> Option<usize> {
    let known = choices.iter().enumerate().filter(|(_, c)| c.first_byte_us > 0);
    let best = known.reduce(|a, b| if is_quicker(b.1, a.1) { b } else { a });
    best.map(|(index, _)| index)
}

fn is_quicker(a: &Choice, b: &Choice) -> bool {
    let wait = |c: &Choice| u128::from(c.first_byte_us) * (u128::from(c.busy) + 1);
    wait(a) * u128::from(b.weight.max(1)) < wait(b) * u128::from(a.weight.max(1))
}

/// Returns the address with the shortest queue, if none has samples yet and all are in use.
fn shortest(choices: &[Choice]) -> usize {
    let all = choices.iter().enumerate();
    let best =
        all.reduce(
            |a, b| {
                if less_loaded((b.1.busy, b.1.weight), (a.1.busy, a.1.weight)) { b } else { a }
            },
        );
    best.map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::super::tests::addresses;
    use super::*;

    /// The key of a request that does not explore.
    const KEY: BalanceKey<'_> =
        BalanceKey { authority: b"", target: b"", client: None, sticky: None, random: 1 };

    fn known(times_us: &[u32]) -> Vec<Choice> {
        let mut choices = addresses(&vec![1; times_us.len()]);
        choices.iter_mut().zip(times_us).for_each(|(c, us)| c.first_byte_us = *us);
        choices
    }

    #[test]
    fn the_quickest_is_chosen_until_its_queue_outweighs_its_speed() {
        let balancer = LeastTime::default();
        let mut choices = known(&[100, 310]);
        let order: Vec<usize> = (0..5)
            .map(|_| {
                let picked = balancer.pick(&choices, &KEY);
                choices[picked].busy += 1;
                picked
            })
            .collect();
        assert_eq!(order, [0, 0, 0, 1, 0]);
    }

    #[test]
    fn weights_count() {
        let mut choices = known(&[100, 250]);
        choices[1].weight *= 3;
        assert_eq!(LeastTime::default().pick(&choices, &KEY), 1);
    }

    #[test]
    fn strangers_are_tried_first_and_by_one_request_each() {
        let balancer = LeastTime::default();
        let mut choices = known(&[100, 0, 0]);
        for _ in 0..2 {
            let picked = balancer.pick(&choices, &KEY);
            assert_eq!((picked == 0, choices[picked].busy), (false, 0));
            choices[picked].busy = 1;
        }
        assert_eq!(balancer.pick(&choices, &KEY), 0);
        choices[0].busy = 1_000_000;
        assert_eq!(balancer.pick(&choices, &KEY), 0, "strangers are asked one thing at a time");
    }

    #[test]
    fn without_a_known_client_the_shortest_queue_is_taken() {
        let mut choices = known(&[0, 0, 0]);
        for (choice, busy) in choices.iter_mut().zip([2, 1, 3]) {
            choice.busy = busy;
        }
        assert_eq!(LeastTime::default().pick(&choices, &KEY), 1);
    }

    #[test]
    fn a_slow_backend_is_asked_again_now_and_then() {
        let balancer = LeastTime::default();
        let choices = known(&[10, u32::MAX]);
        let explored = (0..EXPLORE_ONE_IN * 100)
            .filter(|n| balancer.pick(&choices, &BalanceKey { random: *n, ..KEY }) == 1)
            .count();
        assert_eq!(explored, 50);
    }
}
