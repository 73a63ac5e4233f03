//! State of one stream between the codec and its exchange.
//!
//! [`StreamState`] takes an event and returns the action that `shared` has to perform. It holds no
//! content and does no I/O. An event that its state does not permit is a bug of this server, never
//! of the client: the codec has checked the frames. It fails a debug build, and has no effect in a
//! release build.

// The request's content (`StreamRecv`):
//
//             Discard, Finish
//       Open -----------------> Discarding
//         |                         |
//         | LastContent, Lose       | LastContent, Lose
//         |                         |
//         +--------> Ended <--------+
//
// The response and its exchange (`StreamSend`):
//
//           Begin        FinishQueued            Written         Release
//      Free -----> Open --------------> Draining -------> Done ---------> Lingering
//       ^           | |     Finish         |               ^ | |            |   |
//       |           | +--------------------|---------------+ | |            |   |
//       |           | Lose            Lose |            Lose | |       Lose |   |
//       |           v       Finish         v                 v |            v   |
//       |         Reset ---------------> Over <--------------+------------------+
//       |                                  |                   |                |
//       +----------------------------------+-------------------+----------------+
//                  Release (if nothing more is received), ReleaseExcess, LingerOver

/// Content of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamRecv {
    /// Content is kept for the exchange.
    Open,
    /// Content is dropped.
    Discarding,
    /// The client has sent everything, or the stream was reset.
    #[default]
    Ended,
}

/// The response, and the exchange that makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StreamSend {
    /// There is no stream.
    #[default]
    Free,
    /// The exchange runs.
    Open,
    /// The exchange has ended, and content is left to be written.
    Draining,
    /// All content is written. The stream is about to be released.
    Done,
    /// The response is complete, and the client still sends.
    Lingering,
    /// The stream was reset, and its exchange has not ended yet.
    Reset,
    /// The stream was reset, and its exchange has ended. The stream is about to be released.
    Over,
}

/// An event on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// The head of a request has arrived, and content follows.
    Begin,
    /// The head of a request without content has arrived.
    BeginEnded,
    Content,
    /// Content, trailers or an empty frame that ends the request.
    LastContent,
    /// The exchange does not read the rest of the request.
    Discard,
    /// The exchange has ended, and all its content is written.
    Finish,
    /// The exchange has ended, and content is left to be written.
    FinishQueued,
    /// The last queued content is written.
    Written,
    /// The stream is reset by either side, or its connection has ended.
    Lose,
    /// An ended stream may be released.
    Release,
    /// Like `Release`, for a stream whose client has sent too much since.
    ReleaseExcess,
    /// The time to linger is over.
    LingerOver,
}

/// Action on a stream after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamAction {
    Nothing,
    /// Keep the content for the exchange.
    Keep,
    /// Drop the content.
    Drop,
    /// Drop the content, and consider the release of the stream.
    DropThenRelease,
    /// Consider the release of the stream with the next write.
    QueueRelease,
    /// Start the time to linger.
    Linger,
    /// Stop the time to linger, and release the stream with the next write.
    StopLingering,
    /// Release the stream.
    Free,
    /// Stop the time to linger, and release the stream.
    FreeLingering,
}

/// State of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamState {
    pub(super) recv: StreamRecv,
    pub(super) send: StreamSend,
}

impl StreamState {
    /// Handles an event. Returns the action to perform.
    #[inline]
    pub(super) fn handle(&mut self, event: StreamEvent) -> StreamAction {
        let Some((next, action)) = self.next(event) else {
            debug_assert!(false, "{event:?} of a stream that is {self:?}");
            return StreamAction::Nothing;
        };
        *self = next;
        #[cfg(debug_assertions)]
        self.check();
        action
    }

    /// Checks that the halves agree, in a debug build: an exchange that has ended reads nothing,
    /// and a stream that is lost receives nothing.
    #[cfg(debug_assertions)]
    fn check(self) {
        let Self { recv, send } = self;
        debug_assert!(recv != StreamRecv::Open || send == StreamSend::Open, "{self:?}");
        let is_gone = send == StreamSend::Free || self.is_lost();
        debug_assert!(recv == StreamRecv::Ended || !is_gone, "{self:?}");
    }

    /// Returns true while the stream carries its exchange in both directions.
    pub(super) fn is_live(self) -> bool {
        self.send == StreamSend::Open
    }

    /// Returns true if the stream was reset or its connection has ended.
    pub(super) fn is_lost(self) -> bool {
        matches!(self.send, StreamSend::Reset | StreamSend::Over)
    }

    /// Returns true once the whole response is written.
    pub(super) fn has_sent_response(self) -> bool {
        matches!(self.send, StreamSend::Done | StreamSend::Lingering)
    }

    /// Returns true while the client may send the rest of its request.
    #[cfg(debug_assertions)]
    pub(super) fn is_lingering(self) -> bool {
        self.send == StreamSend::Lingering
    }

    /// Returns the next state and the action; `None` if the state does not permit the event.
    fn next(self, event: StreamEvent) -> Option<(Self, StreamAction)> {
        use StreamAction as A;
        use StreamEvent as E;
        use StreamSend as S;
        let Self { recv, send } = self;
        let to = |recv, send, action| Some((Self { recv, send }, action));
        match (event, send) {
            (E::Begin, S::Free) => to(StreamRecv::Open, S::Open, A::Nothing),
            (E::BeginEnded, S::Free) => to(StreamRecv::Ended, S::Open, A::Nothing),
            (_, S::Free) | (E::Begin | E::BeginEnded, _) => None,
            (E::Content | E::LastContent, _) => self.after_content(event == E::LastContent),
            (E::Discard, _) => to(recv.discarding(), send, A::Nothing),
            (E::Finish, S::Open) => to(recv.discarding(), S::Done, A::QueueRelease),
            (E::Finish, S::Reset) => to(recv, S::Over, A::QueueRelease),
            (E::FinishQueued, S::Open) => to(recv.discarding(), S::Draining, A::Nothing),
            (E::Written, S::Open) => to(recv, send, A::Nothing),
            (E::Written, S::Draining) => to(recv, S::Done, A::QueueRelease),
            (E::Finish | E::FinishQueued | E::Written, _) => None,
            (E::Lose, S::Open) => to(StreamRecv::Ended, S::Reset, A::Nothing),
            (E::Lose, S::Draining) => to(StreamRecv::Ended, S::Over, A::QueueRelease),
            (E::Lose, S::Lingering) => to(StreamRecv::Ended, S::Over, A::StopLingering),
            // Its release is queued.
            (E::Lose, S::Done | S::Over) => to(StreamRecv::Ended, S::Over, A::Nothing),
            (E::Lose, S::Reset) => to(recv, send, A::Nothing),
            (E::Release, S::Done) if recv != StreamRecv::Ended => to(recv, S::Lingering, A::Linger),
            (E::Release, S::Lingering) if recv != StreamRecv::Ended => to(recv, send, A::Nothing),
            (E::Release | E::ReleaseExcess, S::Done | S::Over) => Some((Self::default(), A::Free)),
            (E::Release | E::ReleaseExcess, S::Lingering) => {
                Some((Self::default(), A::FreeLingering))
            }
            (E::LingerOver, S::Lingering) => Some((Self::default(), A::Free)),
            (E::Release | E::ReleaseExcess | E::LingerOver, _) => None,
        }
    }

    fn after_content(self, is_last: bool) -> Option<(Self, StreamAction)> {
        let action = match (self.recv, self.send) {
            // The codec reports nothing of a stream after its end.
            (StreamRecv::Ended, _) => return None,
            (StreamRecv::Open, _) => StreamAction::Keep,
            (StreamRecv::Discarding, StreamSend::Lingering) => StreamAction::DropThenRelease,
            (StreamRecv::Discarding, _) => StreamAction::Drop,
        };
        let recv = if is_last { StreamRecv::Ended } else { self.recv };
        Some((Self { recv, ..self }, action))
    }
}

impl StreamRecv {
    const fn discarding(self) -> Self {
        match self {
            Self::Open | Self::Discarding => Self::Discarding,
            Self::Ended => Self::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
                         Begin  BeginEnded  Content             LastContent         Discard
0 Ended Free             1      2           -                   -                   -
1 Open Open              -      -           1 Keep              2 Keep              3
2 Ended Open             -      -           -                   -                   2
3 Discarding Open        -      -           3 Drop              2 Drop              3
4 Discarding Done        -      -           4 Drop              7 Drop              4
5 Discarding Draining    -      -           5 Drop              8 Drop              5
6 Ended Reset            -      -           -                   -                   6
7 Ended Done             -      -           -                   -                   7
8 Ended Draining         -      -           -                   -                   8
9 Ended Over             -      -           -                   -                   9
10 Discarding Lingering  -      -           10 DropThenRelease  11 DropThenRelease  10
11 Ended Lingering       -      -           -                   -                   11

                         Finish          FinishQueued  Written         Lose
0 Ended Free             -               -             -               -
1 Open Open              4 QueueRelease  5             1               6
2 Ended Open             7 QueueRelease  8             2               6
3 Discarding Open        4 QueueRelease  5             3               6
4 Discarding Done        -               -             -               9
5 Discarding Draining    -               -             4 QueueRelease  9 QueueRelease
6 Ended Reset            9 QueueRelease  -             -               6
7 Ended Done             -               -             -               9
8 Ended Draining         -               -             7 QueueRelease  9 QueueRelease
9 Ended Over             -               -             -               9
10 Discarding Lingering  -               -             -               9 StopLingering
11 Ended Lingering       -               -             -               9 StopLingering

                         Release          ReleaseExcess    LingerOver
0 Ended Free             -                -                -
1 Open Open              -                -                -
2 Ended Open             -                -                -
3 Discarding Open        -                -                -
4 Discarding Done        10 Linger        0 Free           -
5 Discarding Draining    -                -                -
6 Ended Reset            -                -                -
7 Ended Done             0 Free           0 Free           -
8 Ended Draining         -                -                -
9 Ended Over             0 Free           0 Free           -
10 Discarding Lingering  10               0 FreeLingering  0 Free
11 Ended Lingering       0 FreeLingering  0 FreeLingering  0 Free
";

    /// A state as the matrix shows it.
    #[derive(Clone, Copy, PartialEq)]
    struct Shown(StreamState);

    impl std::fmt::Debug for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.0.recv, self.0.send)
        }
    }

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        use StreamEvent as E;
        let events = [
            E::Begin,
            E::BeginEnded,
            E::Content,
            E::LastContent,
            E::Discard,
            E::Finish,
            E::FinishQueued,
            E::Written,
            E::Lose,
            E::Release,
            E::ReleaseExcess,
            E::LingerOver,
        ];
        let actual = matrix(Shown(StreamState::default()), &events, |Shown(state), event| {
            state.next(event).map(|(next, action)| (Shown(next), action))
        });
        assert_matrix(&actual, MATRIX);
    }
}
