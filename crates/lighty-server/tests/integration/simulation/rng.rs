//! Random numbers that a seed determines.

use std::cell::Cell;
use std::time::Duration;

/// splitmix64. Each actor has its own generator, so that its numbers do not depend on other actors.
pub(crate) struct Rng(Cell<u64>);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(Cell::new(seed))
    }

    /// Returns a generator for one actor.
    pub(crate) fn fork(&self) -> Rng {
        Rng::new(self.next())
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        mix(self.0.get())
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    pub(crate) fn ms(&self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns eight bytes of the body of a key: no two bodies have a stretch in common.
fn word_of(key: u64, word: u64) -> [u8; 8] {
    mix(key.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ mix(word)).to_le_bytes()
}

/// Returns bytes `from..from + length` of a key's body.
pub(crate) fn body_of(key: u64, from: u64, length: u64) -> Vec<u8> {
    let skip = (from % 8) as usize;
    let mut bytes = Vec::with_capacity(length as usize + 16);
    let mut word = from / 8;
    while bytes.len() < skip + length as usize {
        bytes.extend_from_slice(&word_of(key, word));
        word += 1;
    }
    if skip > 0 {
        bytes.copy_within(skip.., 0);
    }
    bytes.truncate(length as usize);
    bytes
}
