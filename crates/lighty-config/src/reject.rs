//! Errors of values and conditions, before their position is known.

use crate::source::Span;
use crate::suggest::nearest;

/// Reason why a value is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The error, as a sentence that continues the directive's name: `must be a number`.
    pub message: String,
    /// The correct form.
    pub help: Option<String>,
    /// The array element at fault.
    pub span: Option<Span>,
}

impl Reject {
    /// Creates an error with a message.
    pub fn new(message: impl Into<String>) -> Self {
        Reject { message: message.into(), help: None, span: None }
    }

    /// Adds a suggestion.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Suggests the candidate that was probably meant, if one is similar enough.
    pub fn did_you_mean<'a>(
        self,
        written: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match nearest(written, candidates.into_iter()) {
            Some(name) => self.help(format!("did you mean \"{name}\"?")),
            None => self,
        }
    }

    /// Adds that the value is ignored and the rest of the configuration is used.
    pub(crate) fn without_effect(mut self) -> Self {
        self.message.push_str("; this value has no effect");
        self
    }

    /// Sets the element at fault.
    pub fn at(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }
}

/// Reason why a condition cannot be compiled. `at` is a range of bytes of the right side.
#[derive(Debug)]
pub(crate) struct BadCondition {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) at: Option<std::ops::Range<usize>>,
}

impl BadCondition {
    pub(crate) fn new(message: impl Into<String>, help: Option<&str>) -> Self {
        BadCondition { message: message.into(), help: help.map(str::to_owned), at: None }
    }

    /// Converts it to the error of a value.
    pub(crate) fn reject(self, pattern: &str) -> Reject {
        let reject = Reject::new(format!("has {pattern:?}: {}", self.message));
        self.help.map_or(reject.clone(), |help| reject.help(help))
    }
}
