//! Ends of the two directions of a TLS connection.
//!
//! [`TlsEnds`] takes an event and holds no record. An event that its state does not permit is a bug
//! of this server, never of the peer: records are not opened after the end of the input. It fails a
//! debug build, and has no effect in a release build.

// Input (`ReadSide`):
//
//              PeerCloses, Refuse, PeerAborts (of a client)
//       Open --------------------------------------------------> Ended
//         |                                                       ^
//         |  PeerAborts (of a server)              Report         |
//         +------------------------------> Aborted ---------------+
//
// Output (`WriteSide`):
//
//              Close, Refuse, PeerAborts
//       Open ----------------------------> Closed

/// Input of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadSide {
    Open,
    /// The server has sent a fatal alert, which the next read reports.
    Aborted(u8),
    /// Nothing more is opened.
    Ended,
}

/// Output of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteSide {
    Open,
    /// Nothing more is sealed. Sealed records are still sent.
    Closed,
}

/// An event that ends a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndEvent {
    /// The peer's close_notify.
    PeerCloses,
    /// A fatal alert. A client reports the alert of its server.
    PeerAborts { reported: Option<u8> },
    /// A record of the peer is faulty, and its alert is sealed.
    Refuse,
    /// Our close_notify is sealed.
    Close,
    /// A read has reported the alert.
    Report,
}

/// Both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TlsEnds {
    pub(super) read: ReadSide,
    pub(super) write: WriteSide,
}

impl TlsEnds {
    pub(super) const fn new() -> Self {
        Self { read: ReadSide::Open, write: WriteSide::Open }
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: EndEvent) {
        match self.next(event) {
            Some(next) => *self = next,
            None => debug_assert!(false, "{event:?} of a connection in {self:?}"),
        }
    }

    /// Returns the next state; `None` if the state does not permit the event.
    fn next(self, event: EndEvent) -> Option<Self> {
        use EndEvent as E;
        use ReadSide as R;
        let (read, write) = match (event, self.read) {
            (E::PeerCloses, R::Open) => (R::Ended, self.write),
            (E::PeerAborts { reported: None }, R::Open) => (R::Ended, WriteSide::Closed),
            (E::PeerAborts { reported: Some(alert) }, R::Open) => {
                (R::Aborted(alert), WriteSide::Closed)
            }
            (E::Refuse, R::Open) => (R::Ended, WriteSide::Closed),
            (E::Close, read) => (read, WriteSide::Closed),
            (E::Report, R::Aborted(_)) => (R::Ended, self.write),
            _ => return None,
        };
        Some(Self { read, write })
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::assert_next_states;

    use super::*;

    const MATRIX: &str = "
                      PeerCloses  PeerAborts { reported: None }
0 Open Open           1           2
1 Ended Open          -           -
2 Ended Closed        -           -
3 Aborted(40) Closed  -           -
4 Open Closed         2           2

                      PeerAborts { reported: Some(40) }  Refuse  Close  Report
0 Open Open           3                                  2       4      -
1 Ended Open          -                                  -       2      -
2 Ended Closed        -                                  -       2      -
3 Aborted(40) Closed  -                                  -       3      2
4 Open Closed         3                                  2       4      -
";

    /// A state as the matrix shows it.
    #[derive(Clone, Copy, PartialEq)]
    struct Shown(TlsEnds);

    impl std::fmt::Debug for Shown {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.0.read, self.0.write)
        }
    }

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        use EndEvent as E;
        let events = [
            E::PeerCloses,
            E::PeerAborts { reported: None },
            E::PeerAborts { reported: Some(40) },
            E::Refuse,
            E::Close,
            E::Report,
        ];
        let next = |Shown(state): Shown, event| state.next(event).map(Shown);
        assert_next_states(Shown(TlsEnds::new()), &events, next, MATRIX);
    }
}
