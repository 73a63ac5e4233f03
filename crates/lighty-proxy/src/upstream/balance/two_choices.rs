//! `random`: the better of two random choices.

use super::{BalanceKey, Balancer, BalancerRow, Choice, less_loaded};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["random", "two-choices"],
    doc: "the better of two picked at random",
    create: |_| Box::new(TwoChoices),
};

/// Draws two by weight and takes the one that is less busy for its weight (Mitzenmacher, "The Power
/// of Two Choices in Randomized Load Balancing", 2001). Stateless, so that many lighty servers in
/// front of the same backends do not synchronize.
#[derive(Debug)]
pub(super) struct TwoChoices;

impl Balancer for TwoChoices {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        let first = draw(choices, None, key.random as u32);
        if choices.len() < 2 {
            return first;
        }
        let second = draw(choices, Some(first), (key.random >> 32) as u32);
        let load = |index: usize| (choices[index].busy, choices[index].weight);
        if less_loaded(load(second), load(first)) { second } else { first }
    }
}

/// Draws an address by weight, except `except`; `random` is uniform over all 32-bit numbers.
fn draw(choices: &[Choice], except: Option<usize>, random: u32) -> usize {
    let open = || choices.iter().enumerate().filter(|(index, _)| Some(*index) != except);
    let total: u128 = open().map(|(_, choice)| u128::from(choice.weight.max(1))).sum();
    let mut mark = (u128::from(random) * total) >> 32;
    for (index, choice) in open() {
        match mark.checked_sub(u128::from(choice.weight.max(1))) {
            Some(rest) => mark = rest,
            None => return index,
        }
    }
    debug_assert!(total == 0, "{random} is within the sum of {total}");
    0
}

#[cfg(test)]
mod tests {
    use super::super::tests::addresses;
    use super::*;

    #[test]
    fn the_busiest_of_all_is_never_chosen() {
        let mut choices = addresses(&[1, 1, 1, 1]);
        choices[2].busy = 5;
        for n in 0..10_000u64 {
            let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_ne!(
                TwoChoices.pick(&choices, &BalanceKey { random, ..BalanceKey::default() }),
                2
            );
        }
    }

    #[test]
    fn the_ends_of_the_range_are_drawn_within_bounds() {
        let choices = addresses(&[1000, 1, 1000]);
        for (random, first) in [(0, 0), (u32::MAX, 2)] {
            assert_eq!(draw(&choices, None, random), first);
        }
        assert_eq!(draw(&choices, Some(2), u32::MAX), 1);
        assert_eq!(draw(&choices, Some(0), 0), 1);
    }
}
