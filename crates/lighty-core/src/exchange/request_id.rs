//! A request's id, which leads from an error page to the matching log lines.

use std::cell::Cell;
use std::fmt;

/// Unique within a process for practical purposes: 48 bits of an unpredictable sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

impl fmt::Display for RequestId {
    /// `3f9a-11c0-88d2`: short enough to read out over the telephone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32| self.0 >> shift & 0xffff;
        write!(f, "{:04x}-{:04x}-{:04x}", part(32), part(16), part(0))
    }
}

/// A worker's source of ids.
pub struct RequestIds(Cell<u64>);

impl RequestIds {
    /// A distinct sequence for each seed.
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// The next id (the SplitMix64 generator of Steele, Lea and Flood, 2014).
    pub fn next(&self) -> RequestId {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        RequestId((mixed ^ mixed >> 31) >> 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_differ_and_have_one_form() {
        let ids = RequestIds::new(7);
        let names: HashSet<String> = (0..10_000).map(|_| ids.next().to_string()).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 14 && name.matches('-').count() == 2));
        assert_ne!(RequestIds::new(8).next(), RequestIds::new(9).next());
    }
}
