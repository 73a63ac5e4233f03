//! State of one request and its response between a session's records and a stream's frames.
//!
//! [`Transfer`] has the direction of each, [`StreamLife`] the end of both. Each takes an event and
//! returns the action that `backend_stream` has to perform. They hold no bytes and do no I/O. An
//! event that a state does not permit is a bug of this server, never of the backend: the codec has
//! checked the frames. It fails a debug build, and has no effect in a release build.

// The request (`RequestPart`), from the session to the backend:
//
//             SendHead             SendEnd
//     Head --------------> Body -----------------------> Done
//      | |   SendHeadEnded                                ^
//      | +------------------------------------------------+
//      |                                                  | EndSent
//      |  SendConnect             RecvError               |
//      +-------------> Connect ----------------------> Refused
//                         |
//                         | RecvHead, RecvHeadEnded
//                         v       SessionEnd                  EndWritten
//                       Tunnel -------------> TunnelEnding --------------> TunnelEnded
//
// The response (`ResponsePart`), from the backend to the session:
//
//            RecvHead, RecvError           RecvEnd
//     Head ----------------------> Body ---------------------> Ended
//      | |      RecvHeadEnded       |                            ^
//      | +--------------------------|----------------------------+
//      |                            | RecvEnd, of a tunnel
//      |   RecvHeadEnded,           v              Delivered
//      +---------------------> TunnelEnding ------------------> TunnelEnded
//          of a tunnel
//
// Both (`StreamLife`):
//
//             Cut            Delivered, Finish
//     Open ---------> Cut --------------------> Over
//       |                     Finish             ^
//       +----------------------------------------+

/// Next part of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPart {
    Head,
    /// Content, or the end with optional trailers.
    Body,
    /// Nothing: the end is queued, behind the content.
    Done,
    /// Nothing: an extended CONNECT was sent (RFC 8441), and the response decides.
    Connect,
    /// The end: the CONNECT was refused.
    Refused,
    /// Bytes without records, in both directions from now on.
    Tunnel,
    /// Nothing: the session has ended its direction of the tunnel. Bytes are left to be written.
    TunnelEnding,
    /// Nothing: the end of the tunnel's direction is written.
    TunnelEnded,
}

/// Next part of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsePart {
    /// Interim heads, or the final one.
    Head,
    Body,
    /// Nothing: the response is complete.
    Ended,
    /// Nothing: the backend has ended its direction of a tunnel. Bytes are left for the session.
    TunnelEnding,
    /// Nothing: the session knows that the backend has ended its direction of the tunnel.
    TunnelEnded,
}

/// An event of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferEvent {
    /// The session sends the head of a request with content.
    SendHead,
    /// The session sends the head of a request without content.
    SendHeadEnded,
    /// The session sends the head of an extended CONNECT.
    SendConnect,
    /// The session ends its request.
    SendEnd,
    /// The end of a refused CONNECT was sent.
    EndSent,
    /// The session sends nothing more: it has ended its direction, or its connection.
    SessionEnd,
    /// The session has dropped its ticket.
    Abandoned,
    /// The last frame of the request is written.
    EndWritten,
    /// The head of a successful response.
    RecvHead,
    /// The head of a successful response that nothing follows.
    RecvHeadEnded,
    /// The head of any other final response.
    RecvError,
    /// The head of any other final response that nothing follows.
    RecvErrorEnded,
    /// The end of a response's content.
    RecvEnd,
    /// The session has taken everything that was received.
    Delivered,
}

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferAction {
    Nothing,
    /// Queue the end of the request.
    EndRequest,
    /// End the tunnel's direction to the session.
    TellEnd,
    /// End the stream.
    Finish,
}

/// State of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) request: RequestPart,
    pub(super) response: ResponsePart,
}

impl Transfer {
    pub(super) const fn new() -> Self {
        Self { request: RequestPart::Head, response: ResponsePart::Head }
    }

    /// Handles an event. Returns the action to perform.
    pub(super) fn handle(&mut self, event: TransferEvent) -> TransferAction {
        let Some((next, action)) = self.next(event) else {
            debug_assert!(false, "{event:?} of a request in {self:?}");
            return TransferAction::Nothing;
        };
        *self = next;
        action
    }

    /// Returns true once both directions carry bytes of another protocol.
    pub(super) const fn is_tunnel(self) -> bool {
        use RequestPart as R;
        matches!(self.request, R::Tunnel | R::TunnelEnding | R::TunnelEnded)
    }

    /// Returns true once the final head of the response has arrived.
    pub(super) const fn has_response(self) -> bool {
        !matches!(self.response, ResponsePart::Head)
    }

    /// Returns the next state and the action; `None` if the state does not permit the event.
    fn next(self, event: TransferEvent) -> Option<(Self, TransferAction)> {
        use RequestPart as R;
        use ResponsePart as P;
        use TransferAction as A;
        use TransferEvent as E;
        let Self { request, response } = self;
        let to = |request, response, action| Some((Self { request, response }, action));
        match (event, request) {
            (E::SendHead, R::Head) => to(R::Body, response, A::Nothing),
            (E::SendHeadEnded, R::Head) => to(R::Done, response, A::Nothing),
            (E::SendConnect, R::Head) => to(R::Connect, response, A::Nothing),
            (E::SendEnd, R::Body) => to(R::Done, response, A::Nothing),
            (E::EndSent, R::Refused) => to(R::Done, response, A::Nothing),
            (E::SessionEnd, R::Tunnel) => to(R::TunnelEnding, response, A::EndRequest),
            (E::SessionEnd, R::TunnelEnding | R::TunnelEnded) => None,
            // Bytes written to a tunnel are still sent.
            (E::Abandoned, R::Tunnel | R::TunnelEnding) => to(request, response, A::Nothing),
            (E::SessionEnd | E::Abandoned, _) => to(request, response, A::Finish),
            (E::EndWritten, R::TunnelEnding) => to(R::TunnelEnded, response, A::Nothing),
            (E::EndWritten, R::Done) => to(request, response, A::Nothing),
            (E::Delivered, _) if response == P::TunnelEnding => {
                to(request, P::TunnelEnded, A::TellEnd)
            }
            (E::Delivered, _) => to(request, response, A::Nothing),
            (E::RecvHead | E::RecvHeadEnded | E::RecvError | E::RecvErrorEnded, _) => {
                self.after_head(event).map(|next| (next, A::Nothing))
            }
            (E::RecvEnd, _) if response != P::Body => None,
            (E::RecvEnd, _) if self.is_tunnel() => to(request, P::TunnelEnding, A::Nothing),
            (E::RecvEnd, _) => to(request, P::Ended, A::Nothing),
            _ => None,
        }
    }

    fn after_head(self, event: TransferEvent) -> Option<Self> {
        use RequestPart as R;
        use ResponsePart as P;
        use TransferEvent as E;
        if self.response != P::Head {
            return None;
        }
        let ends = matches!(event, E::RecvHeadEnded | E::RecvErrorEnded);
        let is_success = matches!(event, E::RecvHead | E::RecvHeadEnded);
        let (request, response) = match (self.request, is_success, ends) {
            (R::Connect, true, false) => (R::Tunnel, P::Body),
            (R::Connect, true, true) => (R::Tunnel, P::TunnelEnding),
            (R::Connect, false, false) => (R::Refused, P::Body),
            (R::Connect, false, true) => (R::Refused, P::Ended),
            (R::Body | R::Done, _, false) => (self.request, P::Body),
            (R::Body | R::Done, _, true) => (self.request, P::Ended),
            // The stream is not open yet, or its response has begun.
            (R::Head | R::Refused | R::Tunnel | R::TunnelEnding | R::TunnelEnded, ..) => {
                return None;
            }
        };
        Some(Self { request, response })
    }
}

/// Life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamLife {
    Open,
    /// The backend sends nothing more. The session takes the rest.
    Cut,
    /// The session is gone, or has received everything.
    Over,
}

/// An event in the life of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifeEvent {
    /// The stream was reset or refused, or the connection has ended.
    Cut,
    /// The session has taken everything that was received.
    Delivered,
    /// Nothing is left to be done for the session.
    Finish,
}

impl StreamLife {
    /// Handles an event. Every state permits each.
    pub(super) fn handle(&mut self, event: LifeEvent) {
        *self = match (*self, event) {
            (Self::Open, LifeEvent::Cut) => Self::Cut,
            (Self::Cut, LifeEvent::Delivered) | (_, LifeEvent::Finish) => Self::Over,
            (life, LifeEvent::Cut | LifeEvent::Delivered) => life,
        };
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, assert_next_states, matrix};

    use super::*;

    const TRANSFER: &str = "
                              SendHead  SendHeadEnded  SendConnect  SendEnd  EndSent
0 Head Head                   1         2              3            -        -
1 Body Head                   -         -              -            2        -
2 Done Head                   -         -              -            -        -
3 Connect Head                -         -              -            -        -
4 Body Body                   -         -              -            6        -
5 Body Ended                  -         -              -            7        -
6 Done Body                   -         -              -            -        -
7 Done Ended                  -         -              -            -        -
8 Tunnel Body                 -         -              -            -        -
9 Tunnel TunnelEnding         -         -              -            -        -
10 Refused Body               -         -              -            -        6
11 Refused Ended              -         -              -            -        7
12 TunnelEnding Body          -         -              -            -        -
13 TunnelEnding TunnelEnding  -         -              -            -        -
14 Tunnel TunnelEnded         -         -              -            -        -
15 TunnelEnded Body           -         -              -            -        -
16 TunnelEnded TunnelEnding   -         -              -            -        -
17 TunnelEnding TunnelEnded   -         -              -            -        -
18 TunnelEnded TunnelEnded    -         -              -            -        -

                              SessionEnd     Abandoned  EndWritten  RecvHead  RecvHeadEnded
0 Head Head                   0 Finish       0 Finish   -           -         -
1 Body Head                   1 Finish       1 Finish   -           4         5
2 Done Head                   2 Finish       2 Finish   2           6         7
3 Connect Head                3 Finish       3 Finish   -           8         9
4 Body Body                   4 Finish       4 Finish   -           -         -
5 Body Ended                  5 Finish       5 Finish   -           -         -
6 Done Body                   6 Finish       6 Finish   6           -         -
7 Done Ended                  7 Finish       7 Finish   7           -         -
8 Tunnel Body                 12 EndRequest  8          -           -         -
9 Tunnel TunnelEnding         13 EndRequest  9          -           -         -
10 Refused Body               10 Finish      10 Finish  -           -         -
11 Refused Ended              11 Finish      11 Finish  -           -         -
12 TunnelEnding Body          -              12         15          -         -
13 TunnelEnding TunnelEnding  -              13         16          -         -
14 Tunnel TunnelEnded         17 EndRequest  14         -           -         -
15 TunnelEnded Body           -              15 Finish  -           -         -
16 TunnelEnded TunnelEnding   -              16 Finish  -           -         -
17 TunnelEnding TunnelEnded   -              17         18          -         -
18 TunnelEnded TunnelEnded    -              18 Finish  -           -         -

                              RecvError  RecvErrorEnded  RecvEnd  Delivered
0 Head Head                   -          -               -        0
1 Body Head                   4          5               -        1
2 Done Head                   6          7               -        2
3 Connect Head                10         11              -        3
4 Body Body                   -          -               5        4
5 Body Ended                  -          -               -        5
6 Done Body                   -          -               7        6
7 Done Ended                  -          -               -        7
8 Tunnel Body                 -          -               9        8
9 Tunnel TunnelEnding         -          -               -        14 TellEnd
10 Refused Body               -          -               11       10
11 Refused Ended              -          -               -        11
12 TunnelEnding Body          -          -               13       12
13 TunnelEnding TunnelEnding  -          -               -        17 TellEnd
14 Tunnel TunnelEnded         -          -               -        14
15 TunnelEnded Body           -          -               16       15
16 TunnelEnded TunnelEnding   -          -               -        18 TellEnd
17 TunnelEnding TunnelEnded   -          -               -        17
18 TunnelEnded TunnelEnded    -          -               -        18
";

    const LIFE: &str = "
        Cut  Delivered  Finish
0 Open  1    0          2
1 Cut   1    2          2
2 Over  2    2          2
";

    /// A state as the matrix shows it.
    #[derive(Clone, Copy, PartialEq)]
    struct Shown(Transfer);

    impl std::fmt::Debug for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.0.request, self.0.response)
        }
    }

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        use TransferEvent as E;
        let events = [
            E::SendHead,
            E::SendHeadEnded,
            E::SendConnect,
            E::SendEnd,
            E::EndSent,
            E::SessionEnd,
            E::Abandoned,
            E::EndWritten,
            E::RecvHead,
            E::RecvHeadEnded,
            E::RecvError,
            E::RecvErrorEnded,
            E::RecvEnd,
            E::Delivered,
        ];
        let actual = matrix(Shown(Transfer::new()), &events, |Shown(state), event| {
            state.next(event).map(|(next, action)| (Shown(next), action))
        });
        assert_matrix(&actual, TRANSFER);
    }

    #[test]
    fn every_life_event_has_a_defined_effect() {
        let events = [LifeEvent::Cut, LifeEvent::Delivered, LifeEvent::Finish];
        let next = |mut life: StreamLife, event| {
            life.handle(event);
            Some(life)
        };
        assert_next_states(StreamLife::Open, &events, next, LIFE);
    }
}
