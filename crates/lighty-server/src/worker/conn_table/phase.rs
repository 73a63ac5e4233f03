//! Phase of a connection: its life, and its present wait.
//!
//! [`ConnPhase`] takes an event and returns the action that the connection's entry has to perform.
//! Every event may happen in every phase: stops and reaping come from outside, and a client may be
//! refused at any time.

// Life (`ConnLife`):
//
//            Request               LastResponse
//       New ---------> Known ----------------------> Lingering
//        |               |                               |
//        | Stop          | Stop, Reap                    | Request, Reap
//        v               v                               |
//   LastChance ------> Closing <-------------------------+
//          Request, Reap
//
// `StopInUse` is a `Stop` that leads from `Known`, while it waits for a request, to `LastChance`.
// So does every stop beside a response: its head may be sent without word of the end.
// `LastResponse` leads to `Lingering` from every state, and `Reap` to `Closing`. A stop leaves a
// lingering connection alone.
//
// Wait (`ConnWait`): `AwaitRequest`, `AwaitHead` and `Request` set it, from every state.

/// Condition that a connection itself waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnWait {
    /// A request.
    Request,
    /// The rest of a head.
    Head,
    /// Its streams, which the sweep checks one by one.
    Streams,
}

/// Part of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnLife {
    /// No request has arrived yet.
    New,
    /// A request has arrived.
    Known,
    /// The worker stops, and at most one more request is awaited, for a short time.
    LastChance,
    /// It closes once idle.
    Closing,
    /// Its last response is sent, and it is read until its client closes it.
    Lingering,
}

/// An event on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnEvent {
    AwaitRequest,
    AwaitHead,
    /// A complete head has arrived.
    Request,
    /// The last response is sent, and no further request is served.
    LastResponse,
    /// The worker stops.
    Stop,
    /// The worker makes room for other connections.
    Reap,
    /// The worker stops, and the connection was in use a moment ago.
    StopInUse,
}

/// Action on a connection after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnAction {
    Nothing,
    /// Wake the connection's loop, if it has one.
    WakeLoop,
    /// Wake the loop, and start the grace period of a client that is about to send a request.
    StartGrace,
    /// Wake the loop, or shut an idle connection down. Bytes already received are still served.
    CloseIdle,
    /// Shut both directions down.
    Cut,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnPhase {
    pub(super) life: ConnLife,
    pub(super) wait: ConnWait,
}

impl ConnPhase {
    /// An accepted connection.
    pub(super) const NEW: Self = Self { life: ConnLife::New, wait: ConnWait::Request };

    /// Returns the next phase and the action to perform.
    #[inline]
    pub(super) fn after(self, event: ConnEvent) -> (Self, ConnAction) {
        use ConnAction as A;
        use ConnEvent as E;
        use ConnLife as L;
        let Self { life, wait } = self;
        let waits = |wait| (Self { life, wait }, A::Nothing);
        let lives = |life, action| (Self { life, wait }, action);
        match (event, life) {
            (E::AwaitRequest, _) => waits(ConnWait::Request),
            (E::AwaitHead, _) => waits(ConnWait::Head),
            (E::Request, L::New | L::Known) => {
                (Self { life: L::Known, wait: ConnWait::Streams }, A::Nothing)
            }
            (E::Request, L::LastChance | L::Closing | L::Lingering) => {
                (Self { life: L::Closing, wait: ConnWait::Streams }, A::Nothing)
            }
            (E::LastResponse, _) => lives(L::Lingering, A::Nothing),
            // Closing it now could destroy the response. It ends by itself within seconds.
            (E::Stop | E::StopInUse, L::Lingering) => (self, A::Nothing),
            (E::Stop | E::StopInUse, L::New | L::LastChance) => match wait {
                ConnWait::Request => lives(L::LastChance, A::StartGrace),
                ConnWait::Head | ConnWait::Streams => lives(L::LastChance, A::WakeLoop),
            },
            // The next request may be under way. Its response tells the client of the end.
            (E::StopInUse, L::Known) if wait == ConnWait::Request => {
                lives(L::LastChance, A::StartGrace)
            }
            // A response that has begun may have told the client to go on.
            (E::Stop | E::StopInUse, L::Known) if wait == ConnWait::Streams => {
                lives(L::LastChance, A::WakeLoop)
            }
            (E::Stop | E::StopInUse, L::Known | L::Closing) => match wait {
                ConnWait::Request => lives(L::Closing, A::CloseIdle),
                ConnWait::Head | ConnWait::Streams => lives(L::Closing, A::WakeLoop),
            },
            (E::Reap, L::Lingering) => lives(L::Closing, A::Cut),
            (E::Reap, _) => lives(L::Closing, A::CloseIdle),
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
                       AwaitRequest  AwaitHead  Request  LastResponse  Stop
0 New Request          0             1          2        3             4 StartGrace
1 New Head             0             1          2        6             7 WakeLoop
2 Known Streams        9             10         2        11            12 WakeLoop
3 Lingering Request    3             6          13       3             3
4 LastChance Request   4             7          13       3             4 StartGrace
5 Closing Request      5             8          13       3             5 CloseIdle
6 Lingering Head       3             6          13       6             6
7 LastChance Head      4             7          13       6             7 WakeLoop
8 Closing Head         5             8          13       6             8 WakeLoop
9 Known Request        9             10         2        3             5 CloseIdle
10 Known Head          9             10         2        6             8 WakeLoop
11 Lingering Streams   3             6          13       11            11
12 LastChance Streams  4             7          13       11            12 WakeLoop
13 Closing Streams     5             8          13       11            13 WakeLoop

                       Reap          StopInUse
0 New Request          5 CloseIdle   4 StartGrace
1 New Head             8 CloseIdle   7 WakeLoop
2 Known Streams        13 CloseIdle  12 WakeLoop
3 Lingering Request    5 Cut         3
4 LastChance Request   5 CloseIdle   4 StartGrace
5 Closing Request      5 CloseIdle   5 CloseIdle
6 Lingering Head       8 Cut         6
7 LastChance Head      8 CloseIdle   7 WakeLoop
8 Closing Head         8 CloseIdle   8 WakeLoop
9 Known Request        5 CloseIdle   4 StartGrace
10 Known Head          8 CloseIdle   8 WakeLoop
11 Lingering Streams   13 Cut        11
12 LastChance Streams  13 CloseIdle  12 WakeLoop
13 Closing Streams     13 CloseIdle  13 WakeLoop
";

    /// A phase as the matrix shows it.
    #[derive(Clone, Copy, PartialEq)]
    struct ShownPhase(ConnPhase);

    impl std::fmt::Debug for ShownPhase {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.0.life, self.0.wait)
        }
    }

    #[test]
    fn every_event_has_a_defined_effect_in_every_phase() {
        use ConnEvent as E;
        let events = [
            E::AwaitRequest,
            E::AwaitHead,
            E::Request,
            E::LastResponse,
            E::Stop,
            E::Reap,
            E::StopInUse,
        ];
        let actual = matrix(ShownPhase(ConnPhase::NEW), &events, |ShownPhase(phase), event| {
            let (next, action) = phase.after(event);
            Some((ShownPhase(next), action))
        });
        assert_matrix(&actual, MATRIX);
    }
}
