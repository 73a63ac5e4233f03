//! The engine for patterns that cannot be matched in linear time, as the caller supplies it.

use std::sync::Arc;

/// Begin and end of what a group matched; `None` if it took no part.
pub type Place = Option<(usize, usize)>;

/// A compiled pattern of a backtracking engine, supplied by the caller.
pub trait Backtracker: std::fmt::Debug + Send + Sync {
    /// Looks for the first match in at most `steps`. The places of the groups go to `places`,
    /// that of the whole match first.
    ///
    /// # Errors
    /// Why the match was given up.
    fn find(&self, subject: &[u8], steps: u32, places: &mut Vec<Place>) -> Result<bool, GivenUp>;
}

/// Why an engine gave a match up, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp(pub String);

impl std::fmt::Display for GivenUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for GivenUp {}

/// Compiles a pattern for an engine that goes back; with `true` a dot is a character, not a byte.
/// In place of one that is none: what is wrong with it, and how far it was read.
pub type Backtracking = fn(&str, bool) -> Result<Arc<dyn Backtracker>, (String, usize)>;

/// What matches patterns that cannot be matched in linear time, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Means {
    pub(crate) backtracking: Option<Backtracking>,
    pub(crate) steps: u32,
}
