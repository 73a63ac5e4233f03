//! A compiled condition and its settings.

use crate::condition::{Matcher, Op};
use crate::context::CaptureId;
use crate::directive::{Scope, Setter};
use crate::field::Field;
use crate::pattern::TextPattern;
use crate::source::{Span, Spanned};
use crate::value::{Value, quote};

/// A directive with its value, in a block.
pub struct Setting<S> {
    /// Name of the row.
    pub name: &'static str,
    /// The name as written, which may be an alias.
    pub written: String,
    /// Position of the name.
    pub key_span: Span,
    /// The value and its position.
    pub value: Spanned<Value>,
    /// Scope of the directive.
    pub scope: Scope,
    pub(crate) setter: Setter<S>,
}

impl<S> Setting<S> {
    /// Applies the setting regardless of its conditions, for callers that need every possible
    /// value.
    pub fn apply(&self, settings: &mut S) {
        (self.setter)(settings);
    }
}

/// The condition of a block.
pub struct Condition {
    /// The field.
    pub field: Field,
    /// The operator.
    pub op: Op,
    /// The right side.
    pub text: String,
    pub(crate) matcher: Matcher,
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.field, self.op.as_str(), quote(&self.text))
    }
}

/// A condition with its settings. Blocks are numbered in file order; 0 is the global one.
pub struct Block<S> {
    /// The enclosing block.
    pub parent: u32,
    /// The preceding branch of its `else` chain.
    pub prev: Option<u32>,
    /// `None` for the global block and for a bare `else`.
    pub cond: Option<Condition>,
    /// Position of the block's start.
    pub span: Span,
    /// Settings in the block.
    pub settings: Vec<Setting<S>>,
    /// A change besides these, see [`Config::mark`](crate::Config::mark).
    pub(crate) mark: Option<Setter<S>>,
    pub(crate) capture: Option<Capture>,
}

impl<S> Block<S> {
    /// The head of the block in configuration syntax.
    pub fn head(&self) -> String {
        match (&self.cond, self.prev) {
            (Some(cond), None) => cond.to_string(),
            (Some(cond), Some(_)) => format!("else {cond}"),
            (None, _) => "else".to_owned(),
        }
    }
}

/// A condition that records its match for captures.
pub(crate) struct Capture {
    pub(crate) id: CaptureId,
    pub(crate) found: CaptureSource,
    /// The enclosing condition that provides `%1` to `%9`, if this one has no groups.
    pub(crate) around: Option<CaptureId>,
}

/// Source of `%0`, as in lighttpd.
pub(crate) enum CaptureSource {
    /// `=~`: the match and its groups.
    Match(TextPattern),
    /// `==` with the client's address: the address.
    Value,
    /// `==`, `=^`, `=$`: the text of the condition. A host is without the port, if only the client
    /// sent one.
    Text(Box<str>),
}
