//! Deadlines of threads without an event loop.

use std::time::{Duration, Instant};

/// The end of a wait; `None` if it is beyond the range of `Instant`.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A wait that begins now and lasts `patience` at most.
    pub fn after(patience: Duration) -> Self {
        Self(Instant::now().checked_add(patience))
    }

    /// The time left; zero once it is over.
    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }

    /// True if no time is left.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_comes_to_its_end() {
        assert!(Deadline::after(Duration::ZERO).is_over());
        let long = Deadline::after(Duration::from_secs(60));
        assert!(!long.is_over() && long.left() <= Duration::from_secs(60));
        assert!(!Deadline::after(Duration::MAX).is_over(), "one without a limit");
    }
}
