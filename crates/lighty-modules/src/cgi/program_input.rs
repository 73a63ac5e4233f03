//! State of a program's input.
//!
//! [`ProgramInput`] takes an event and returns whether the input has to be closed. It holds no
//! bytes and does no I/O.

// The body of the request, and the decision about an upgrade of the connection:
//
//                       HeadDecides
//     UpgradableBody -----------------> Body
//           |                            |
//           | BodyEnds                   | BodyEnds
//           v           HeadDecides      v
//         Held ----------------------> Closed

/// Next data for the program's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramInput {
    /// The request body. The program may accept an upgrade, and its head has not arrived.
    UpgradableBody,
    /// The request body.
    Body,
    /// Data after an upgrade: the body has ended, and the response head decides.
    Held,
    /// Nothing: it is closed.
    Closed,
}

/// An event of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputEvent {
    /// The body has ended, or the program does not read it.
    BodyEnds,
    /// The response head is complete, and accepts no upgrade.
    HeadDecides,
}

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputAction {
    Nothing,
    Close,
}

impl ProgramInput {
    /// Handles an event. Every state permits each.
    #[must_use]
    pub(super) fn handle(&mut self, event: InputEvent) -> InputAction {
        use InputAction as A;
        use InputEvent as E;
        let (next, action) = match (*self, event) {
            (Self::UpgradableBody, E::BodyEnds) => (Self::Held, A::Nothing),
            (Self::UpgradableBody, E::HeadDecides) => (Self::Body, A::Nothing),
            (Self::Body, E::BodyEnds) | (Self::Held, E::HeadDecides) => (Self::Closed, A::Close),
            (Self::Body, E::HeadDecides)
            | (Self::Held, E::BodyEnds)
            | (Self::Closed, E::BodyEnds | E::HeadDecides) => (*self, A::Nothing),
        };
        *self = next;
        action
    }

    /// Returns true while the program accepts the request body.
    pub(super) const fn takes_body(self) -> bool {
        matches!(self, Self::UpgradableBody | Self::Body)
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
                  BodyEnds  HeadDecides
0 UpgradableBody  1         2
1 Held            1         3 Close
2 Body            3 Close   2
3 Closed          3         3
";

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        let events = [InputEvent::BodyEnds, InputEvent::HeadDecides];
        let actual = matrix(ProgramInput::UpgradableBody, &events, |mut input, event| {
            let action = input.handle(event);
            Some((input, action))
        });
        assert_matrix(&actual, MATRIX);
    }
}
