//! A condition and what it sets, compiled.

use crate::condition::{Matcher, Op};
use crate::context::CaptureId;
use crate::directive::{Scope, Setter};
use crate::field::Field;
use crate::pattern::TextPattern;
use crate::source::{Span, Spanned};
use crate::value::{Value, quote};

/// A directive with its value, in one block.
pub struct Setting<S> {
    /// Name of the row.
    pub name: &'static str,
    /// The name that was written (an alias perhaps).
    pub written: String,
    /// Where the name is.
    pub key_span: Span,
    /// The value and where it is.
    pub value: Spanned<Value>,
    /// Where it may stand.
    pub scope: Scope,
    pub(crate) setter: Setter<S>,
}

impl<S> Setting<S> {
    /// Applies the setting regardless of its conditions: for callers that need every value that may
    /// apply.
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
    /// The branch before it in its `else` chain.
    pub prev: Option<u32>,
    /// `None` for the global block and for a bare `else`.
    pub cond: Option<Condition>,
    /// Where it begins.
    pub span: Span,
    /// What it sets.
    pub settings: Vec<Setting<S>>,
    pub(crate) capture: Option<Capture>,
}

impl<S> Block<S> {
    /// The head of the block as it would be written.
    pub fn head(&self) -> String {
        match (&self.cond, self.prev) {
            (Some(cond), None) => cond.to_string(),
            (Some(cond), Some(_)) => format!("else {cond}"),
            (None, _) => "else".to_owned(),
        }
    }
}

/// A condition of which is remembered what it found.
pub(crate) struct Capture {
    pub(crate) id: CaptureId,
    pub(crate) found: Found,
    /// Where its `%1` to `%9` come from, if it has no groups: the expression around it.
    pub(crate) around: Option<CaptureId>,
}

/// What a condition found, as lighttpd has it in `%0`.
pub(crate) enum Found {
    /// `=~`: the match and its groups.
    Match(TextPattern),
    /// `==` with the client's address: the address.
    Value,
    /// `==`, `=^`, `=$`: the text of the condition. A host has no port there that only the client
    /// named.
    Text(Box<str>),
}
