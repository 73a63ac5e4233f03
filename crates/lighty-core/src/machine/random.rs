//! A worker's random numbers, for ids, sampling and balancing. Not suitable for secrets.

use std::cell::Cell;

/// A generator that is shared within a thread.
pub struct Random(Cell<u64>);

impl Random {
    /// Creates a generator with a distinct sequence for each seed.
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut generator = fastrand::Rng::with_seed(self.0.get());
        let number = generator.u64(..);
        self.0.set(generator.get_seed());
        number
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_determines_the_numbers() {
        let numbers = |seed| {
            let random = Random::new(seed);
            (0..1000).map(|_| random.next()).collect::<Vec<_>>()
        };
        for seed in [0, 1, u64::MAX] {
            assert_eq!(numbers(seed), numbers(seed));
            let distinct: HashSet<_> = numbers(seed).into_iter().collect();
            assert_eq!(distinct.len(), 1000, "{seed}");
            // Every bit is set in about half of the numbers.
            for bit in 0..64 {
                let set = numbers(seed).iter().filter(|number| *number >> bit & 1 == 1).count();
                assert!((400..600).contains(&set), "{seed}: bit {bit} in {set}");
            }
        }
        assert_ne!(numbers(1)[0], numbers(2)[0]);
    }
}
