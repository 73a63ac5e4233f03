//! Highest random weight: key and address draw a number together, and the best draw wins.
//!
//! Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998). An address
//! wins a key independently of all other addresses, so when one goes only its own keys move. With
//! weights, the draw `u` in (0, 1) costs `-ln(u) / weight`, and the least cost wins: that gives
//! shares by weight exactly (it is the race of exponential clocks), and a changed weight moves no
//! more keys than it must.

use super::Choice;
use super::hash::pair;

/// An address's bid for a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bid {
    /// `-log2(u)` with 32 fractional bits; the base of the logarithm cancels out.
    cost: u64,
    weight: u32,
    /// The draw itself: decides between equal costs.
    draw: u64,
}

impl Bid {
    pub(super) fn new(key: u64, choice: &Choice) -> Bid {
        let draw = pair(key, choice.name_hash);
        Bid { cost: cost(draw), weight: choice.weight.max(1), draw }
    }

    /// Returns true if this bid wins the key against `other`.
    pub(super) fn beats(&self, other: &Bid) -> bool {
        let ours = u128::from(self.cost) * u128::from(other.weight);
        let theirs = u128::from(other.cost) * u128::from(self.weight);
        (theirs, self.draw) > (ours, other.draw)
    }
}

/// Returns the index of the winner among the choices that `may_win`; `None` if none may.
pub(super) fn winner(
    key: u64,
    choices: &[Choice],
    may_win: impl Fn(&Choice) -> bool,
) -> Option<usize> {
    let bidders = choices.iter().enumerate().filter(|(_, choice)| may_win(choice));
    let bids = bidders.map(|(index, choice)| (index, Bid::new(key, choice)));
    let best = bids.reduce(|best, bid| if bid.1.beats(&best.1) { bid } else { best });
    best.map(|(index, _)| index)
}

/// Fractional bits of a logarithm.
const FRACTION_BITS: u32 = 32;

/// Returns `-log2((draw + 1) / 2^64)`: from 64 for the worst draw to 0 for the best.
fn cost(draw: u64) -> u64 {
    match draw.checked_add(1) {
        Some(draw) => (64 << FRACTION_BITS) - log2(draw),
        None => 0,
    }
}

/// Returns log2 of a number from 1 on, by repeated squaring in integers: equal on every machine,
/// which a floating-point library does not promise.
fn log2(number: u64) -> u64 {
    let whole = u64::from(number.ilog2());
    // In [1, 2) with 63 fractional bits.
    let mut mantissa = number << number.leading_zeros();
    let mut log = whole;
    for _ in 0..FRACTION_BITS {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let carries = (square >> 64) as u64;
        mantissa = (square >> carries) as u64;
        log = (log << 1) | carries;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_and_never_falls() {
        for number in [1, 2, 3, 10, 12_345, 1 << 40, u64::MAX / 3, u64::MAX] {
            let exact = (number as f64).log2() * f64::from(1u32 << 31) * 2.0;
            let error = (log2(number) as f64 - exact).abs();
            assert!(error < 1e-8 * exact + 40.0, "{number}: {error}");
        }
        assert_eq!(log2(1), 0);
        assert_eq!(log2(1 << 63), 63 << FRACTION_BITS);
        let near_top = (0..10_000u64).map(|n| log2(u64::MAX - (10_000 - n) * (1 << 20)));
        assert!(near_top.is_sorted());
    }

    #[test]
    fn draws_at_the_ends_cost_what_they_must() {
        assert_eq!(cost(0), 64 << FRACTION_BITS);
        assert_eq!(cost(u64::MAX), 0);
        assert!(cost(u64::MAX - 1) <= 1);
    }

    #[test]
    fn of_two_equal_weights_the_higher_draw_wins() {
        let bid = |draw| Bid { cost: cost(draw), weight: 1000, draw };
        for (high, low) in [(2, 1), (u64::MAX, u64::MAX - 1), (1 << 50, (1 << 50) - 1)] {
            assert!(bid(high).beats(&bid(low)) && !bid(low).beats(&bid(high)));
        }
    }
}
