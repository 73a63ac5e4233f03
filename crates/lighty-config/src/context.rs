//! What a row knows of the place in which it compiles a value.

use std::cell::RefCell;
use std::path::Path;

use crate::backtracking::Means;
use crate::diag::Level;
use crate::field::Field;
use crate::limits::PATTERN_STEPS;
use crate::reject::Reject;
use crate::source::{FileId, Span};

/// Names the condition that `%0` to `%9` come from; see [`crate::Active::captures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureId(pub(crate) u32);

/// The context in which a row compiles a value.
pub struct CompileCtx<'a> {
    /// The directive as it was written.
    pub key: &'a str,
    /// The value's place.
    pub span: Span,
    /// The directory of the main configuration file.
    pub base: &'a Path,
    /// What the enclosing conditions look at, outermost first; empty at the top level.
    pub fields: &'a [&'a Field],
    /// Where `%0` to `%9` come from: the innermost enclosing condition with `=~`, `==`, `=^` or
    /// `=$`. `None` if there is none, or if no text of this value contains a `%` before a digit or
    /// a brace.
    pub captures: Option<CaptureId>,
    pub(crate) means: Means,
    pub(crate) findings: RefCell<Vec<(Level, Reject)>>,
}

impl<'a> CompileCtx<'a> {
    /// For a value that stands in no file.
    pub fn nowhere(key: &'a str) -> CompileCtx<'a> {
        CompileCtx {
            key,
            span: Span { file: FileId(0), start: 0, end: 0 },
            base: Path::new(""),
            fields: &[],
            captures: None,
            means: Means { backtracking: None, steps: PATTERN_STEPS },
            findings: RefCell::default(),
        }
    }
}

impl CompileCtx<'_> {
    /// Accepts the value but says something about it.
    pub fn warn(&self, warning: Reject) {
        self.findings.borrow_mut().push((Level::Warning, warning));
    }

    /// Turns the rejection of a value that lighttpd starts with into a warning. `None`: the value
    /// has no effect.
    pub fn or_skip<T>(&self, parsed: Result<T, Reject>) -> Option<T> {
        parsed.map_err(|reject| self.warn(reject.without_effect())).ok()
    }

    /// Accepts the value; what is said about it is no reason to change anything.
    pub fn note(&self, note: Reject) {
        self.findings.borrow_mut().push((Level::Note, note));
    }
}
