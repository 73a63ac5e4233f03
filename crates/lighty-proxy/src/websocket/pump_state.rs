//! State of a WebSocket tunnel: its two directions and its two ends.
//!
//! [`PumpState`] takes an event and returns the action that `pump` has to perform. It holds no
//! bytes and does no I/O. An event that its state does not permit is a bug of this server, never of
//! a peer. It fails a debug build, and has no effect in a release build.

// The tunnel (`PumpState`); each state but the first has its own state of the close frame:
//
//             ClientEnd, ClientClose           EndPassed
//      Open -------------------------> Ending -----------> Ended
//       |                                |
//       | BackendEnd, BackendLost        | BackendEnd, BackendLost
//       v                                v
//     Unwanted ------------------------> Over
//                ClientEnd, ClientClose
//
// The close frame to the client (`CloseFrame`), behind which nothing is sent:
//
//              CloseWritten
//      Queued --------------> Written

/// State of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpState {
    /// Both sides send.
    Open,
    /// The client sends nothing more. Its last bytes and its end are being passed on. There is no
    /// close frame if the client ended its stream without one.
    Ending(Option<CloseFrame>),
    /// The backend has the client's end.
    Ended(Option<CloseFrame>),
    /// The backend sends and takes nothing more. The payload of the client's frames is dropped, up
    /// to its reply to the close frame.
    Unwanted(CloseFrame),
    /// Neither side sends, and the backend takes nothing more.
    Over(CloseFrame),
}

/// State of the close frame to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseFrame {
    /// It waits to be written, behind the payload before it.
    Queued,
    /// The client's connection has accepted all of it.
    Written,
}

/// An event of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpEvent {
    /// The client ends its stream without a close frame.
    ClientEnd,
    /// The client sends a close frame, or breaks the protocol.
    ClientClose,
    /// The backend ends its stream.
    BackendEnd,
    /// Reading from or writing to the backend has failed.
    BackendLost,
    /// The backend's connection has accepted the client's last bytes and end.
    EndPassed,
    /// Everything queued for the client is written.
    CloseWritten,
}

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpAction {
    Nothing,
    /// Queue a close frame for the client.
    Close,
    /// Drop the bytes for the backend.
    Drop,
    /// Drop the bytes for the backend, and queue a close frame for the client.
    DropAndClose,
}

impl PumpState {
    /// Handles an event. Returns the action to perform.
    pub(super) fn handle(&mut self, event: PumpEvent) -> PumpAction {
        let Some((next, action)) = self.next(event) else {
            debug_assert!(false, "{event:?} of a tunnel in {self:?}");
            return PumpAction::Nothing;
        };
        *self = next;
        action
    }

    /// True while frames of the client are read.
    pub(super) const fn has_client_frames(self) -> bool {
        matches!(self, Self::Open | Self::Unwanted(_))
    }

    /// True while bytes of the client may be passed on to the backend.
    pub(super) const fn has_taker(self) -> bool {
        !matches!(self, Self::Unwanted(_) | Self::Over(_))
    }

    /// True once the client's stream has ended and nothing of it is left for the backend.
    pub(super) const fn is_input_over(self) -> bool {
        matches!(self, Self::Ended(_) | Self::Over(_))
    }

    /// The close frame to the client, once there is one.
    pub(super) const fn close_frame(self) -> Option<CloseFrame> {
        match self {
            Self::Open => None,
            Self::Ending(frame) | Self::Ended(frame) => frame,
            Self::Unwanted(frame) | Self::Over(frame) => Some(frame),
        }
    }

    /// Returns the next state and the action; `None` if this one does not permit the event.
    fn next(self, event: PumpEvent) -> Option<(Self, PumpAction)> {
        use CloseFrame::{Queued, Written};
        use {PumpAction as A, PumpEvent as E};
        Some(match (self, event) {
            (Self::Open, E::ClientEnd) => (Self::Ending(None), A::Nothing),
            (Self::Open, E::ClientClose) => (Self::Ending(Some(Queued)), A::Close),
            (Self::Open, E::BackendEnd | E::BackendLost) => {
                (Self::Unwanted(Queued), A::DropAndClose)
            }
            (Self::Unwanted(frame), E::ClientEnd | E::ClientClose) => {
                (Self::Over(frame), A::Nothing)
            }
            (Self::Ending(frame), E::EndPassed) => (Self::Ended(frame), A::Nothing),
            (Self::Ending(None), E::BackendEnd | E::BackendLost) => {
                (Self::Over(Queued), A::DropAndClose)
            }
            // Only a write finds this: the backend is not read behind the close frame.
            (Self::Ending(Some(frame)), E::BackendLost) => (Self::Over(frame), A::Drop),
            (Self::Ending(Some(Queued)), E::CloseWritten) => {
                (Self::Ending(Some(Written)), A::Nothing)
            }
            (Self::Ended(Some(Queued)), E::CloseWritten) => {
                (Self::Ended(Some(Written)), A::Nothing)
            }
            (Self::Unwanted(Queued), E::CloseWritten) => (Self::Unwanted(Written), A::Nothing),
            (Self::Over(Queued), E::CloseWritten) => (Self::Over(Written), A::Nothing),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
                         ClientEnd  ClientClose  BackendEnd      BackendLost     EndPassed
0 Open                   1          2 Close      3 DropAndClose  3 DropAndClose  -
1 Ending(None)           -          -            4 DropAndClose  4 DropAndClose  5
2 Ending(Some(Queued))   -          -            -               4 Drop          6
3 Unwanted(Queued)       4          4            -               -               -
4 Over(Queued)           -          -            -               -               -
5 Ended(None)            -          -            -               -               -
6 Ended(Some(Queued))    -          -            -               -               -
7 Ending(Some(Written))  -          -            -               9 Drop          10
8 Unwanted(Written)      9          9            -               -               -
9 Over(Written)          -          -            -               -               -
10 Ended(Some(Written))  -          -            -               -               -

                         CloseWritten
0 Open                   -
1 Ending(None)           -
2 Ending(Some(Queued))   7
3 Unwanted(Queued)       8
4 Over(Queued)           9
5 Ended(None)            -
6 Ended(Some(Queued))    10
7 Ending(Some(Written))  -
8 Unwanted(Written)      -
9 Over(Written)          -
10 Ended(Some(Written))  -
";

    #[test]
    fn every_event_has_a_defined_effect_on_the_tunnel() {
        use PumpEvent as E;
        let events = [
            E::ClientEnd,
            E::ClientClose,
            E::BackendEnd,
            E::BackendLost,
            E::EndPassed,
            E::CloseWritten,
        ];
        assert_matrix(&matrix(PumpState::Open, &events, PumpState::next), MATRIX);
    }
}
