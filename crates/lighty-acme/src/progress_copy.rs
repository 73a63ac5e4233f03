//! State of the copy of a certificate's progress in memory.
//!
//! [`ProgressCopy`] takes an event and returns whether the progress has to be loaded from the
//! store. It holds no progress and does no I/O.

// All processes that share a store read and write the progress there:
//
//                ReadSame, ReadChanged               NotSaved
//       Unread -----------------------> Current <----------------> Unsaved
//         ^                                |     Saved, ReadChanged   |
//         +--------------------------------+--------------------------+
//                                   Replaced

/// The copy of a certificate's progress in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProgressCopy {
    /// The store was not read, or has something newer.
    #[default]
    Unread,
    /// It is the store's.
    Current,
    /// It is newer than the store's: a failure that could not be saved.
    Unsaved,
}

/// An event of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyEvent {
    /// The store is read, and has the same certificate as before.
    ReadSame,
    /// The store is read, and has another certificate than before.
    ReadChanged,
    /// The copy has changed, and is saved.
    Saved,
    /// The copy has changed, and cannot be saved.
    NotSaved,
    /// A new certificate is stored.
    Replaced,
}

/// Action after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyAction {
    Nothing,
    /// Load the progress from the store.
    Load,
}

impl ProgressCopy {
    /// Handles an event. Every state permits each.
    pub(crate) fn handle(&mut self, event: CopyEvent) -> CopyAction {
        use CopyEvent as E;
        let (next, action) = match (*self, event) {
            (Self::Unsaved, E::ReadSame) => (Self::Unsaved, CopyAction::Nothing),
            (_, E::ReadSame | E::ReadChanged) => (Self::Current, CopyAction::Load),
            (Self::Unread, E::Saved) => (Self::Unread, CopyAction::Nothing),
            (Self::Current | Self::Unsaved, E::Saved) => (Self::Current, CopyAction::Nothing),
            (_, E::NotSaved) => (Self::Unsaved, CopyAction::Nothing),
            (_, E::Replaced) => (Self::Unread, CopyAction::Nothing),
        };
        *self = next;
        action
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::{assert_matrix, matrix};

    use super::*;

    const MATRIX: &str = "
           ReadSame  ReadChanged  Saved  NotSaved  Replaced
0 Unread   1 Load    1 Load       0      2         0
1 Current  1 Load    1 Load       1      2         0
2 Unsaved  2         1 Load       1      2         0
";

    #[test]
    fn every_event_has_a_defined_effect_in_every_state() {
        use CopyEvent as E;
        let events = [E::ReadSame, E::ReadChanged, E::Saved, E::NotSaved, E::Replaced];
        let actual = matrix(ProgressCopy::Unread, &events, |mut copy, event| {
            let action = copy.handle(event);
            Some((copy, action))
        });
        assert_matrix(&actual, MATRIX);
    }
}
