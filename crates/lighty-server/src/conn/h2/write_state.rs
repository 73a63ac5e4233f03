//! State of a connection's writes, and the timers of content that waits.

// The writes of a connection (`WriteState`):
//
//              Waits             Blocked
//       Idle --------> Timed --------------> Blocked
//        ^               | ^                  |   |
//        | Drained,      | +------------------+   |
//        | Ended         |      Accepted          |
//        +---------------+------------------------+
//                                 Ended
//
// `Blocked` also leads from `Idle` to `Blocked`.
//
// The timers of the connection's own entry run in `Timed` and `Blocked`. They go on while there is
// something to write, so that the client has to take it at the minimum rate.

/// State of a connection's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteState {
    /// No content waits.
    Idle,
    /// Content waits for a window, or is being written.
    Timed,
    /// The socket accepts no bytes now.
    Blocked,
}

/// An event of [`WriteState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteEvent {
    /// The socket has accepted everything.
    Accepted,
    /// The socket accepts no further bytes.
    Blocked,
    /// There is nothing to write until the client opens a window.
    Waits,
    /// There is nothing to write, and nothing waits.
    Drained,
    /// The connection has ended.
    Ended,
}

/// Effect of an event on the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteTimers {
    Nothing,
    Start,
    Stop,
}

impl WriteState {
    /// Returns the next state and the effect on the timers; `None` if this one does not permit the
    /// event.
    pub(super) const fn next(self, event: WriteEvent) -> Option<(Self, WriteTimers)> {
        use {WriteEvent as E, WriteTimers as T};
        Some(match (self, event) {
            (Self::Idle, E::Accepted | E::Drained | E::Ended) => (Self::Idle, T::Nothing),
            (Self::Idle, E::Waits) => (Self::Timed, T::Start),
            (Self::Idle, E::Blocked) => (Self::Blocked, T::Start),
            (Self::Timed, E::Accepted | E::Waits) => (Self::Timed, T::Nothing),
            (Self::Blocked, E::Accepted) => (Self::Timed, T::Nothing),
            (Self::Timed | Self::Blocked, E::Blocked) => (Self::Blocked, T::Nothing),
            (Self::Timed, E::Drained) | (Self::Timed | Self::Blocked, E::Ended) => {
                (Self::Idle, T::Stop)
            }
            // A blocked connection has unsent bytes.
            (Self::Blocked, E::Waits | E::Drained) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
           Accepted  Blocked  Waits    Drained  Ended
0 Idle     0         1 Start  2 Start  0        0
1 Blocked  2         1        -        -        0 Stop
2 Timed    2         1        2        0 Stop   0 Stop
";

    #[test]
    fn every_event_has_a_defined_effect_on_the_writes() {
        use WriteEvent as E;
        let events = [E::Accepted, E::Blocked, E::Waits, E::Drained, E::Ended];
        assert_matrix(&matrix(WriteState::Idle, &events, WriteState::next), MATRIX);
    }
}
