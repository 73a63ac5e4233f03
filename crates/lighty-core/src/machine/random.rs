//! A worker's random numbers, for ids and sampling. Not suitable for secrets.

use std::cell::Cell;

/// The generator SplitMix64 of Steele, Lea and Flood (2014).
pub struct Random(Cell<u64>);

impl Random {
    /// Creates a generator with a distinct sequence for each seed.
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
