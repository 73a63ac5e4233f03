//! Life of an HTTP/2 connection to a backend.
//!
//! ```text
//!        close: GOAWAY                 die: end, fault, silence, not needed
//! Open ----------------> Closed ------------------------------------------> Dead
//!   |                                                                         ^
//!   +------------------------------------ die --------------------------------+
//! ```
//!
//! The task of the connection drives it; its requests read it.

/// State of a connection. The reasons are for the log, in the form "it sent GOAWAY".
#[derive(Debug, Default)]
pub(super) enum LinkState {
    /// It takes requests.
    #[default]
    Open,
    /// It serves the requests that it has.
    Closed(String),
    /// Reading and writing have ended. Complete responses are still delivered.
    Dead {
        /// The reason why it had been closed before.
        closed: Option<String>,
        died: String,
    },
}

impl LinkState {
    /// The connection takes no further requests.
    pub(super) fn close(&mut self, reason: &str) {
        if self.is_open() {
            *self = Self::Closed(reason.to_owned());
        }
    }

    /// Reading and writing have ended. The first reason remains.
    pub(super) fn die(&mut self, reason: &str) {
        let closed = match std::mem::take(self) {
            Self::Open => None,
            Self::Closed(closed) => Some(closed),
            dead @ Self::Dead { .. } => {
                *self = dead;
                return;
            }
        };
        *self = Self::Dead { closed, died: reason.to_owned() };
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    pub(super) const fn is_dead(&self) -> bool {
        matches!(self, Self::Dead { .. })
    }

    /// Reason why no request is taken; `None` while requests are.
    pub(super) fn why_closed(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Closed(reason) => Some(reason),
            Self::Dead { closed, died } => Some(closed.as_ref().unwrap_or(died)),
        }
    }

    /// Reason why reading and writing have ended, if they have.
    pub(super) fn why_died(&self) -> Option<&str> {
        match self {
            Self::Dead { died, .. } => Some(died),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, table};

    use super::*;

    fn describe(state: &LinkState) -> String {
        assert_eq!(state.is_open(), state.why_closed().is_none(), "{state:?}");
        assert_eq!(state.is_dead(), state.why_died().is_some(), "{state:?}");
        let name = match state {
            LinkState::Open => "Open",
            LinkState::Closed(_) => "Closed",
            LinkState::Dead { .. } => "Dead",
        };
        let reason = |reason: Option<&str>| reason.unwrap_or("-").to_owned();
        format!("{name} {} {}", reason(state.why_closed()), reason(state.why_died()))
    }

    /// State, reason of the close, reason of the death.
    const MATRIX: &str = "
                  close now         die now
Open - -          Closed now -      Dead now now
Closed closed -   Closed closed -   Dead closed now
Dead died died    Dead died died    Dead died died
Dead closed died  Dead closed died  Dead closed died
";

    #[test]
    fn every_event_in_every_state_leads_to_one_state() {
        let dead = |closed| LinkState::Dead { closed, died: "died".to_owned() };
        let states: [&dyn Fn() -> LinkState; 4] = [
            &|| LinkState::Open,
            &|| LinkState::Closed("closed".to_owned()),
            &|| dead(None),
            &|| dead(Some("closed".to_owned())),
        ];
        let mut rows = vec![vec![String::new(), "close now".to_owned(), "die now".to_owned()]];
        for state in states {
            let mut row = vec![describe(&state())];
            for event in [LinkState::close, LinkState::die] {
                let mut link = state();
                event(&mut link, "now");
                row.push(describe(&link));
            }
            rows.push(row);
        }
        assert_matrix(&table(&rows), MATRIX);
    }
}
