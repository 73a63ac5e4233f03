//! Pseudo-random numbers, reproducible by their seed.

use std::cell::Cell;

/// Xorshift: Marsaglia, 2003.
pub(super) struct Chance(Cell<u64>);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        // The generator would stay at zero.
        Self(Cell::new(seed.max(1)))
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&self, end: usize) -> usize {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        (state % end as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_and_a_seed_repeats_them() {
        for seed in [0, 1, u64::MAX] {
            let (one, other) = (Chance::new(seed), Chance::new(seed));
            let mut seen = [false; 7];
            for _ in 0..200 {
                let number = one.below(seen.len());
                assert_eq!(number, other.below(seen.len()));
                seen[number] = true;
            }
            assert_eq!(seen, [true; 7], "{seed}");
        }
    }
}
