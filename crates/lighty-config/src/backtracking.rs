//! Interface to the engine for patterns that cannot be matched in linear time. The caller supplies
//! it.

use std::sync::Arc;

/// Start and end of a group's match; `None` if the group did not participate.
pub type GroupSpan = Option<(usize, usize)>;

/// A compiled pattern of a backtracking engine, supplied by the caller.
pub trait Backtracker: std::fmt::Debug + Send + Sync {
    /// Searches for the first match in at most `steps`. Writes the positions of the groups to
    /// `places`, the whole match first.
    ///
    /// # Errors
    /// The reason why the match was abandoned.
    fn find(
        &self,
        subject: &[u8],
        steps: u32,
        places: &mut Vec<GroupSpan>,
    ) -> Result<bool, GivenUp>;
}

/// Reason why an engine abandoned a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp(pub String);

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GivenUp {}

/// Compiles a pattern for a backtracking engine; with `true` a dot matches a character, not a byte.
/// The error is a message, and the offset up to which the pattern was read.
pub type Backtracking = fn(&str, bool) -> Result<Arc<dyn Backtracker>, (String, usize)>;

/// The backtracking engine, and its step limit per match.
#[derive(Clone, Copy)]
pub(crate) struct Means {
    pub(crate) backtracking: Option<Backtracking>,
    pub(crate) steps: u32,
}
