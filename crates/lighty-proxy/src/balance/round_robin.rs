//! `round-robin`: each in its turn.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Balancer, Choice, Key};

/// Counts turns.
#[derive(Default)]
pub(super) struct RoundRobin {
    turn: AtomicU32,
}

impl Balancer for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn pick(&self, choices: &[Choice], _key: &Key<'_>) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) as usize % choices.len()
    }
}
