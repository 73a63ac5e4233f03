//! `sqf`: shortest queue first.

use super::turns::Turns;
use super::{BalanceKey, Balancer, BalancerRow, Choice, less_loaded};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["sqf", "least-connection", "fair"],
    doc: "with the fewest requests under way: shortest queue first",
    create: |_| Box::new(Sqf::default()),
};

/// Fewest busy connections for its weight. Only requests in progress count, not idle connections
/// kept for later requests. Equals take turns by weight.
#[derive(Debug, Default)]
pub(super) struct Sqf {
    turns: Turns,
}

impl Balancer for Sqf {
    fn pick(&self, choices: &[Choice], _key: &BalanceKey<'_>) -> usize {
        let Some(shortest) = choices
            .iter()
            .copied()
            .reduce(|a, b| if less_loaded((b.busy, b.weight), (a.busy, a.weight)) { b } else { a })
        else {
            return 0;
        };
        let queue = (shortest.busy, shortest.weight);
        self.turns.next(choices, |c| !less_loaded(queue, (c.busy, c.weight))).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addresses, pick_counts};
    use super::*;

    #[test]
    fn the_shortest_queue_is_found() {
        let balancer = Sqf::default();
        let mut choices = addresses(&[1, 1, 1]);
        for (choice, busy) in choices.iter_mut().zip([3, 1, 2]) {
            choice.busy = busy;
        }
        assert_eq!(balancer.pick(&choices, &BalanceKey::default()), 1);
    }

    #[test]
    fn a_queue_is_as_long_as_it_is_for_the_weight() {
        let balancer = Sqf::default();
        let mut choices = addresses(&[4, 1]);
        (choices[0].busy, choices[1].busy) = (7, 2);
        assert_eq!(balancer.pick(&choices, &BalanceKey::default()), 0);
        choices[0].busy = 9;
        assert_eq!(balancer.pick(&choices, &BalanceKey::default()), 1);
    }

    #[test]
    fn equals_share_by_weight() {
        let counts = pick_counts(&Sqf::default(), &addresses(&[3, 1]), 4000);
        assert_eq!(counts, [3000, 1000]);
    }
}
