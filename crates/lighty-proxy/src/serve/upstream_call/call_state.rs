//! Small state machines of an upstream call: the rest of the request, the end of the connection,
//! the suspicion of a busy process, and the watch on the client.
//!
//! Each takes an event and returns its next state. They hold no bytes and do no I/O.

/// The backend's treatment of the rest of the request.
///
/// | state | `WriteFailed` |
/// |---|---|
/// | `Reads` | `OnlyResponds` |
/// | `OnlyResponds` | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyHandling {
    #[default]
    Reads,
    /// Accepts no more of it; its response may still arrive.
    OnlyResponds,
}

/// An event of [`BodyHandling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyHandlingEvent {
    /// A write to the backend failed.
    WriteFailed,
}

impl BodyHandling {
    pub(super) const fn after(self, event: BodyHandlingEvent) -> Self {
        match (self, event) {
            (_, BodyHandlingEvent::WriteFailed) => Self::OnlyResponds,
        }
    }
}

/// End of the backend's connection.
///
/// | state | `EndOfStream` | `Reset` | `OtherError` |
/// |---|---|---|---|
/// | `None` | `EndOfStream` | `Reset` | |
/// | `EndOfStream` | | `Reset` | |
/// | `Reset` | | | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConnectionEnding {
    #[default]
    None,
    /// By end of stream.
    EndOfStream,
    /// By a reset. One call reports it; later calls only see end of stream.
    Reset,
}

/// An event of [`ConnectionEnding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndingEvent {
    EndOfStream,
    Reset,
    OtherError,
}

impl ConnectionEnding {
    pub(super) const fn after(self, event: EndingEvent) -> Self {
        match (self, event) {
            (_, EndingEvent::Reset) => Self::Reset,
            (Self::None, EndingEvent::EndOfStream) => Self::EndOfStream,
            (state, EndingEvent::EndOfStream | EndingEvent::OtherError) => state,
        }
    }
}

/// State of the suspicion that the process behind a pooled connection is busy with another request.
///
/// | state | `Suspected` | `Cleared` | `Silent` |
/// |---|---|---|---|
/// | `No` | `Maybe` | | |
/// | `Maybe` | | `No` | `Yes` |
/// | `Yes` | `Maybe` | `No` | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Busy {
    #[default]
    No,
    Maybe,
    /// It has sent nothing for a while, and has read nothing as far as known.
    Yes,
}

/// An event of [`Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BusyEvent {
    /// The connection is one whose process may be busy.
    Suspected,
    /// The connection is one whose process is free.
    Cleared,
    /// The process stays silent for longer than a free one, and the request goes elsewhere.
    Silent,
}

impl Busy {
    pub(super) const fn after(self, event: BusyEvent) -> Self {
        match (self, event) {
            (_, BusyEvent::Suspected) => Self::Maybe,
            (_, BusyEvent::Cleared) => Self::No,
            (Self::Maybe, BusyEvent::Silent) => Self::Yes,
            // A process that is not suspected is waited for.
            (Self::No | Self::Yes, BusyEvent::Silent) => self,
        }
    }
}

/// Events on the client's side that end the call.
///
/// | state | `ResponseBegins` | `HalfClosed` | `Gone` |
/// |---|---|---|---|
/// | `GoneOrHalfClosed` | `Gone` | ends | ends |
/// | `Gone` | | `Nothing` | ends |
/// | `Nothing` | `Gone` | | |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientWatch {
    /// Before the response: the client is gone, or was half-closed for too long.
    #[default]
    GoneOrHalfClosed,
    /// While the response is sent: the client is gone. A failing write reveals that too, so a
    /// half-closed client has no time limit.
    Gone,
    /// The client has shut down its sending side: nothing more can be learned from it.
    Nothing,
}

/// An event of [`ClientWatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// The head of the response is complete.
    ResponseBegins,
    /// The client was half-closed for too long.
    HalfClosed,
    /// The client is gone.
    Gone,
}

/// Action after an event of [`ClientWatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchAction {
    Nothing,
    /// End the call.
    EndCall,
}

impl ClientWatch {
    /// Handles an event. Returns the action to perform.
    pub(super) fn handle(&mut self, event: ClientEvent) -> WatchAction {
        let (next, action) = self.next(event);
        *self = next;
        action
    }

    const fn next(self, event: ClientEvent) -> (Self, WatchAction) {
        use {ClientEvent as E, WatchAction as A};
        match (self, event) {
            (_, E::ResponseBegins) => (Self::Gone, A::Nothing),
            (Self::GoneOrHalfClosed, E::HalfClosed | E::Gone) | (Self::Gone, E::Gone) => {
                (self, A::EndCall)
            }
            (Self::Gone, E::HalfClosed) => (Self::Nothing, A::Nothing),
            (Self::Nothing, E::HalfClosed | E::Gone) => (self, A::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, assert_next_states, matrix};

    use super::*;

    /// Tries every event in every state of a machine that rejects none.
    #[track_caller]
    fn assert_effects<S, E>(after: impl Fn(S, E) -> S, events: &[E], expected: &str)
    where
        S: Copy + PartialEq + Default + std::fmt::Debug,
        E: Copy + std::fmt::Debug,
    {
        let next = |state, event| Some(after(state, event));
        assert_next_states(S::default(), events, next, expected);
    }

    #[test]
    fn every_event_has_a_defined_effect_on_the_rest_of_the_request() {
        let expected = "
                WriteFailed
0 Reads         1
1 OnlyResponds  1
";
        assert_effects(BodyHandling::after, &[BodyHandlingEvent::WriteFailed], expected);
    }

    #[test]
    fn every_event_has_a_defined_effect_on_the_end_of_the_connection() {
        let events = [EndingEvent::EndOfStream, EndingEvent::Reset, EndingEvent::OtherError];
        let expected = "
               EndOfStream  Reset  OtherError
0 None         1            2      0
1 EndOfStream  1            2      1
2 Reset        2            2      2
";
        assert_effects(ConnectionEnding::after, &events, expected);
    }

    #[test]
    fn every_event_has_a_defined_effect_on_the_suspicion() {
        let events = [BusyEvent::Suspected, BusyEvent::Cleared, BusyEvent::Silent];
        let expected = "
         Suspected  Cleared  Silent
0 No     1          0        0
1 Maybe  1          0        2
2 Yes    1          0        2
";
        assert_effects(Busy::after, &events, expected);
    }

    #[test]
    fn every_event_has_a_defined_effect_on_the_watch() {
        let events = [ClientEvent::ResponseBegins, ClientEvent::HalfClosed, ClientEvent::Gone];
        let next = |state: ClientWatch, event| Some(state.next(event));
        let expected = "
                    ResponseBegins  HalfClosed  Gone
0 GoneOrHalfClosed  1               0 EndCall   0 EndCall
1 Gone              1               2           1 EndCall
2 Nothing           1               2           2
";
        assert_matrix(&matrix(ClientWatch::default(), &events, next), expected);
    }
}
