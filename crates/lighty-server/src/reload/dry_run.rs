//! Result of a dry run.

use serde::Serialize;

use super::changes::ObjectChange;
use super::refusal::Refusal;

/// Differences that a reload would make, and whether it would be refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DryRun {
    /// `reloads`, or `refused`.
    outcome: &'static str,
    /// Reasons for the refusal, or warnings.
    diagnostics: String,
    /// Kind of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
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
    pub(super) fn new(changes: Vec<ObjectChange>, done: Result<String, Refusal>) -> Self {
        let (outcome, diagnostics, kind) = match done {
            Ok(warnings) => ("reloads", warnings, None),
            Err(Refusal { text, kind }) => ("refused", text, Some(kind.name())),
        };
        let listed = |change: ObjectChange| ListedChange { text: change.to_string(), change };
        Self { outcome, diagnostics, kind, changes: changes.into_iter().map(listed).collect() }
    }
}
