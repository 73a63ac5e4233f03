//! `round-robin`: the next address in turn, by weight.

use super::turns::Turns;
use super::{BalanceKey, Balancer, BalancerRow, Choice};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["round-robin"],
    doc: "each in its turn",
    create: |_| Box::new(RoundRobin::default()),
};

/// Smooth weighted round robin.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    turns: Turns,
}

impl Balancer for RoundRobin {
    fn pick(&self, choices: &[Choice], _key: &BalanceKey<'_>) -> usize {
        self.turns.next(choices, |_| true).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{addresses, pick_counts};
    use super::*;

    #[test]
    fn turns_are_smooth() {
        let balancer = RoundRobin::default();
        let choices = addresses(&[5, 1, 1]);
        let order: Vec<usize> =
            (0..7).map(|_| balancer.pick(&choices, &BalanceKey::default())).collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn returning_address_gets_no_more_than_its_share() {
        let balancer = RoundRobin::default();
        let all = addresses(&[1, 1, 1]);
        pick_counts(&balancer, &all[..2], 1000);
        let counts = pick_counts(&balancer, &all, 300);
        assert!(counts.iter().all(|n| (99..=101).contains(n)), "{counts:?}");
    }

    #[test]
    fn a_place_that_changes_hands_begins_anew() {
        let balancer = RoundRobin::default();
        let mut choices = addresses(&[1000, 1]);
        balancer.pick(&choices, &BalanceKey::default());
        choices[0].name_hash ^= 1;
        choices[0].weight = 2000;
        choices[1].weight = 1000;
        let counts = pick_counts(&balancer, &choices, 3000);
        assert!(counts[0].abs_diff(2000) <= 2, "{counts:?}");
    }

    #[test]
    fn workers_share_the_turns() {
        let balancer = RoundRobin::default();
        let choices = addresses(&[3, 2, 1]);
        let counts = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| pick_counts(&balancer, &choices, 6_000))).collect();
            threads.into_iter().fold(vec![0; 3], |mut sum, thread| {
                let counts = thread.join().expect("a thread");
                sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
                sum
            })
        });
        assert_eq!(counts, [12_000, 8_000, 4_000]);
    }
}
