//! Result of a dry run.

use serde::Serialize;

use super::changes::ObjectChange;

/// Differences that a reload would make, and whether it would be refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DryRun {
    /// `reloads`, or `refused`.
    outcome: &'static str,
    /// Reasons for the refusal, or warnings.
    diagnostics: String,
    changes: Vec<ListedChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ListedChange {
    /// The change as a line for people.
    text: String,
    #[serde(flatten)]
    change: ObjectChange,
}

impl DryRun {
    pub(super) fn new(changes: Vec<ObjectChange>, done: Result<String, String>) -> Self {
        let (outcome, diagnostics) = match done {
            Ok(warnings) => ("reloads", warnings),
            Err(why) => ("refused", why),
        };
        let listed = |change: ObjectChange| ListedChange { text: change.to_string(), change };
        Self { outcome, diagnostics, changes: changes.into_iter().map(listed).collect() }
    }
}
