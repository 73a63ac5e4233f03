//! State of the order of one certificate.
//!
//! [`OrderStep`] takes an event and returns the action that the task has to perform. It holds
//! neither the lock nor a time, and does no I/O. An event that a state does not permit is a bug of
//! the task. It fails a debug build, and has no effect in a release build.

// Between two runs, a certificate is `Idle` or `Held`. A run begins with `Due`.
//
//              Due           LockTaken               StillDue
//     Idle ---------> Locking ---------> Rereading ------------> Ordering
//      ^               |  |                 ^  |                    |
//      |  LockFailed   |  | LockHeld        |  | NotDue             | Signed, OrderFailed
//      +---------------+  v                 |  |                    |
//      |                 Held               |  |                    |
//      |                 |  ^ LockHeld,     |  |                    |
//      |             Due v  | LockFailed    |  |                    |
//      |               Relocking -----------+  |                    |
//      |                         LockTaken     |                    |
//      +---------------------------------------+--------------------+
//
// `Replaced` leads from `Held` to `Idle`: the other process has ordered.

/// Step of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OrderStep {
    /// No order.
    #[default]
    Idle,
    /// Taking the lock of the certificate in the store.
    Locking,
    /// Another process has the lock, which was logged.
    Held,
    /// Taking the lock again, which another process had.
    Relocking,
    /// The lock is taken. Reading the certificate, which another process may have ordered.
    Rereading,
    /// Ordering at the authorities.
    Ordering,
}

/// An event of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderEvent {
    /// Between two runs: the store has another certificate than before.
    Replaced,
    /// The certificate is due, or its renewal is requested.
    Due,
    /// The lock is taken.
    LockTaken,
    /// Another process has the lock.
    LockHeld,
    /// The store does not permit to take the lock.
    LockFailed,
    /// The certificate in the store is still due.
    StillDue,
    /// The certificate in the store is not due any more.
    NotDue,
    /// The certificate is signed and stored.
    Signed,
    /// No certificate is stored.
    OrderFailed,
}

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderAction {
    Nothing,
    /// Take the lock.
    TakeLock,
    /// Log that another process has the lock.
    LogHolder,
    /// Read the certificate again.
    Reread,
    /// Order the certificate.
    Order,
    /// Save the success, and release the lock.
    KeepSuccess,
    /// Save and log the failure, and release the lock.
    KeepFailure,
}

impl OrderStep {
    /// Handles an event. Returns the action to perform.
    pub(crate) fn handle(&mut self, event: OrderEvent) -> OrderAction {
        let Some((next, action)) = self.next(event) else {
            debug_assert!(false, "{event:?} of an order that is {self:?}");
            return OrderAction::Nothing;
        };
        *self = next;
        action
    }

    /// Returns the next state and the action; `None` if the state does not permit the event.
    const fn next(self, event: OrderEvent) -> Option<(Self, OrderAction)> {
        use {OrderAction as A, OrderEvent as E};
        Some(match (self, event) {
            (Self::Idle | Self::Held, E::Replaced) => (Self::Idle, A::Nothing),
            (Self::Idle, E::Due) => (Self::Locking, A::TakeLock),
            (Self::Held, E::Due) => (Self::Relocking, A::TakeLock),
            (Self::Locking | Self::Relocking, E::LockTaken) => (Self::Rereading, A::Reread),
            (Self::Locking, E::LockHeld) => (Self::Held, A::LogHolder),
            (Self::Relocking, E::LockHeld) => (Self::Held, A::Nothing),
            (Self::Locking, E::LockFailed) => (Self::Idle, A::KeepFailure),
            (Self::Relocking, E::LockFailed) => (Self::Held, A::KeepFailure),
            (Self::Rereading, E::StillDue) => (Self::Ordering, A::Order),
            (Self::Rereading, E::NotDue) => (Self::Idle, A::Nothing),
            (Self::Ordering, E::Signed) => (Self::Idle, A::KeepSuccess),
            (Self::Ordering, E::OrderFailed) => (Self::Idle, A::KeepFailure),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
             Replaced  Due         LockTaken  LockHeld     LockFailed     StillDue  NotDue
0 Idle       0         1 TakeLock  -          -            -              -         -
1 Locking    -         -           2 Reread   3 LogHolder  0 KeepFailure  -         -
2 Rereading  -         -           -          -            -              4 Order   0
3 Held       0         5 TakeLock  -          -            -              -         -
4 Ordering   -         -           -          -            -              -         -
5 Relocking  -         -           2 Reread   3            3 KeepFailure  -         -

             Signed         OrderFailed
0 Idle       -              -
1 Locking    -              -
2 Rereading  -              -
3 Held       -              -
4 Ordering   0 KeepSuccess  0 KeepFailure
5 Relocking  -              -
";

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        use OrderEvent as E;
        let events = [
            E::Replaced,
            E::Due,
            E::LockTaken,
            E::LockHeld,
            E::LockFailed,
            E::StillDue,
            E::NotDue,
            E::Signed,
            E::OrderFailed,
        ];
        let actual = matrix(OrderStep::Idle, &events, OrderStep::next);
        assert_matrix(&actual, MATRIX);
    }
}
