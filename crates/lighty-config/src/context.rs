//! Context in which a row compiles a value.

use std::cell::RefCell;
use std::path::Path;

use crate::backtracking::Means;
use crate::diag::Level;
use crate::field::Field;
use crate::limits::PATTERN_STEPS;
use crate::reject::Reject;
use crate::source::{FileId, Span};

/// Identifies the condition that provides `%0` to `%9`; see [`crate::Active::captures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureId(pub(crate) u32);

/// The context in which a row compiles a value.
pub struct CompileCtx<'a> {
    /// The directive as written.
    pub key: &'a str,
    /// The value's position.
    pub span: Span,
    /// The directory of the main configuration file.
    pub base: &'a Path,
    /// The number of the block that the value stands in; 0 at the top level.
    pub block: usize,
    /// Fields tested by the enclosing conditions, outermost first; empty at the top level.
    pub fields: &'a [&'a Field],
    /// The condition that provides `%0` to `%9`: the innermost enclosing one with `=~`, `==`, `=^`
    /// or `=$`. `None` if there is none, or if no text of this value contains a `%` before a digit
    /// or a brace.
    pub captures: Option<CaptureId>,
    pub(crate) means: Means,
    pub(crate) findings: RefCell<Vec<(Level, Reject)>>,
}

impl<'a> CompileCtx<'a> {
    /// Creates a context for a value that is not in a file.
    pub fn nowhere(key: &'a str) -> CompileCtx<'a> {
        CompileCtx {
            key,
            span: Span { file: FileId(0), start: 0, end: 0 },
            base: Path::new(""),
            block: 0,
            fields: &[],
            captures: None,
            means: Means { backtracking: None, steps: PATTERN_STEPS },
            findings: RefCell::default(),
        }
    }
}

impl CompileCtx<'_> {
    /// Accepts the value with a warning.
    pub fn warn(&self, warning: Reject) {
        self.findings.borrow_mut().push((Level::Warning, warning));
    }

    /// Turns the rejection of a value that lighttpd accepts into a warning. `None`: the value has
    /// no effect.
    pub fn or_skip<T>(&self, parsed: Result<T, Reject>) -> Option<T> {
        parsed.map_err(|reject| self.warn(reject.without_effect())).ok()
    }

    /// Accepts the value with a note, which does not ask for a change.
    pub fn note(&self, note: Reject) {
        self.findings.borrow_mut().push((Level::Note, note));
    }
}
