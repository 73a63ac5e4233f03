//! Regular expressions with the meaning of PCRE without options: unanchored, case sensitive, `\d`
//! and similar ASCII only.
//!
//! Two engines match them. The crate `regex` matches all patterns that can be matched in linear
//! time. The others (look-around, back-references, atomic groups, possessive repetitions,
//! recursion) are matched by a backtracking engine ([`Backtracker`]) in a bounded number of steps:
//! a match that needs more is [`Undecided`] rather than guessed.

use std::sync::Arc;

use regex::RegexBuilder;

use crate::backtracking::{Backtracker, GroupSpan, Means};
use crate::context::CompileCtx;
use crate::limits::REGEX_BYTES_MAX;
use crate::reject::{BadCondition, Reject};
use crate::source::Span;

mod in_use;
mod syntax;

pub(crate) use syntax::ascii_classes;

/// An abandoned match: the pattern may match or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The pattern and the reason, for the log.
    pub message: String,
}

/// A pattern that is not matched in linear time.
#[derive(Clone, Debug)]
pub struct Bounded {
    engine: Arc<dyn Backtracker>,
    source: Arc<str>,
    pub(crate) steps: u32,
}

impl Bounded {
    fn compile(source: &str, is_text: bool, means: Means) -> Result<Bounded, BadCondition> {
        let Some(compile) = means.backtracking else { return Err(beyond(source)) };
        let compiled = compile(source, is_text);
        let engine = compiled.map_err(|(reason, at)| {
            // The error is at the last character read.
            let at = at.min(source.len());
            let from = (0..at).rev().find(|from| source.is_char_boundary(*from)).unwrap_or(0);
            let message = format!("not a regular expression: {reason}");
            BadCondition { at: Some(from..at), ..BadCondition::new(message, None) }
        })?;
        Ok(Bounded { engine, source: source.into(), steps: means.steps })
    }

    fn find(&self, subject: &[u8], places: &mut Vec<GroupSpan>) -> Result<bool, Undecided> {
        let found = self.engine.find(subject, self.steps, places);
        found.map_err(|why| Undecided { message: format!("{:?}: {why}", self.source) })
    }

    fn is_match(&self, subject: &[u8]) -> Result<bool, Undecided> {
        self.find(subject, &mut Vec::new())
    }
}

/// The error for a missing backtracking engine.
fn beyond(source: &str) -> BadCondition {
    match syntax::beyond_linear(source) {
        Some((what, at)) => {
            let message = format!("{what} is not supported here");
            BadCondition { at: Some(at), ..BadCondition::new(message, None) }
        }
        None => BadCondition::new("not a regular expression", None),
    }
}

/// A pattern for text.
#[derive(Clone, Debug)]
pub(crate) enum TextPattern {
    Linear(Arc<regex::Regex>),
    Bounded(Box<Bounded>),
}

impl TextPattern {
    pub(crate) fn compile(pattern: &str, means: Means) -> Result<TextPattern, BadCondition> {
        let refused = match syntax::possessive(pattern) {
            Some(_) => None,
            None => {
                let build = || {
                    let text = ascii_classes(pattern);
                    RegexBuilder::new(&text).size_limit(REGEX_BYTES_MAX).build()
                };
                match in_use::get_or_compile(pattern, build) {
                    Ok(regex) => return Ok(TextPattern::Linear(regex)),
                    Err(error) => Some(error),
                }
            }
        };
        let built = Bounded::compile(pattern, true, means);
        match built {
            Ok(own) => Ok(TextPattern::Bounded(Box::new(own))),
            Err(bad) => Err(worse(refused, bad)),
        }
    }

    pub(crate) fn is_match(&self, value: &str) -> Result<bool, Undecided> {
        match self {
            TextPattern::Linear(regex) => Ok(regex.is_match(value)),
            TextPattern::Bounded(own) => own.is_match(value.as_bytes()),
        }
    }

    /// Empty storage for the positions of the pattern's groups.
    pub(crate) fn places(&self) -> Places {
        match self {
            TextPattern::Linear(regex) => Places::Linear(regex.capture_locations()),
            TextPattern::Bounded(_) => Places::Bounded(Vec::new()),
        }
    }

    /// Fills `places`, which must be from this pattern; `false` if it does not match.
    pub(crate) fn read(&self, places: &mut Places, value: &str) -> Result<bool, Undecided> {
        match (self, places) {
            (TextPattern::Linear(regex), Places::Linear(places)) => {
                Ok(regex.captures_read(places, value).is_some())
            }
            (TextPattern::Bounded(own), Places::Bounded(places)) => {
                own.find(value.as_bytes(), places)
            }
            _ => Ok(false),
        }
    }
}

/// Positions of a pattern's groups.
pub(crate) enum Places {
    Linear(regex::CaptureLocations),
    Bounded(Vec<GroupSpan>),
}

impl Places {
    /// No group at all.
    pub(crate) fn none() -> Self {
        Places::Bounded(Vec::new())
    }

    /// Sets one group that covers a text of `length` bytes.
    pub(crate) fn set_whole(&mut self, length: usize) {
        if let Places::Bounded(places) = self {
            places.clear();
            places.push(Some((0, length)));
        }
    }

    pub(crate) fn get(&self, n: usize) -> GroupSpan {
        match self {
            Places::Linear(places) => places.get(n),
            Places::Bounded(places) => *places.get(n)?,
        }
    }
}

/// The error for a pattern that neither engine accepts.
fn worse(linear: Option<regex::Error>, pcre: BadCondition) -> BadCondition {
    match linear {
        Some(regex::Error::CompiledTooBig(_)) => {
            let message =
                format!("this regular expression needs more than {REGEX_BYTES_MAX} bytes");
            BadCondition::new(message, Some("counted repetitions are what makes them large"))
        }
        _ => pcre,
    }
}

/// A note about a pattern that is not matched in linear time, and the position of the construct.
pub(crate) type Notice = (String, Option<std::ops::Range<usize>>);

pub(crate) fn notice(pattern: &str) -> Notice {
    let (what, at) = match syntax::beyond_linear(pattern) {
        Some((what, at)) => (what, Some(at)),
        None => ("this pattern", None),
    };
    (
        format!(
            "{what} needs an engine that goes back: it has a limited number of steps for \
             each match"
        ),
        at,
    )
}

/// A pattern for bytes.
#[derive(Clone, Debug)]
pub enum BytePattern {
    /// Matched in linear time.
    Linear(regex::bytes::Regex),
    /// Matched by backtracking, in a limited number of steps.
    Bounded(Box<Bounded>),
}

/// Matches of a pattern's groups.
pub enum Groups<'s> {
    /// Groups of a pattern matched in linear time.
    Linear(regex::bytes::Captures<'s>),
    /// The subject, and the positions of the groups in it.
    Bounded(&'s [u8], Vec<GroupSpan>),
}

impl<'s> Groups<'s> {
    /// The text of a group; 0 is the whole match. `None` if the group did not participate.
    pub fn get(&self, n: usize) -> Option<&'s [u8]> {
        match self {
            Groups::Linear(groups) => groups.get(n).map(|group| group.as_bytes()),
            Groups::Bounded(subject, places) => {
                let (start, end) = (*places.get(n)?)?;
                subject.get(start..end)
            }
        }
    }
}

impl BytePattern {
    /// Compiles a regular expression in a value, with the meaning of conditions with `=~`, but for
    /// bytes: `.` is any byte.
    ///
    /// # Errors
    /// The pattern is not a regular expression, or is too large.
    pub fn compile(pattern: &str, span: Span, ctx: &CompileCtx) -> Result<BytePattern, Reject> {
        let refused = match syntax::possessive(pattern) {
            Some(_) => None,
            None => match linear(pattern, REGEX_BYTES_MAX) {
                Ok(regex) => return Ok(BytePattern::Linear(regex)),
                Err(error) => Some(error),
            },
        };
        let built = Bounded::compile(pattern, false, ctx.means)
            // A class with non-ASCII characters has no meaning for single bytes.
            .or_else(|bad| Bounded::compile(pattern, true, ctx.means).map_err(|_| bad));
        let own = built.map_err(|bad| worse(refused, bad).reject(pattern).at(span))?;
        ctx.note(Reject::new(format!("has \"{pattern}\": {}", notice(pattern).0)).at(span));
        Ok(BytePattern::Bounded(Box::new(own)))
    }

    /// Compiles a small pattern that is matched in linear time; `None` for any other. Fast enough
    /// to run during a request.
    pub fn small(pattern: &str) -> Option<BytePattern> {
        let is_linear = syntax::possessive(pattern).is_none();
        let regex = is_linear.then(|| linear(pattern, SMALL_REGEX_BYTES_MAX).ok()).flatten();
        regex.map(BytePattern::Linear)
    }

    /// True if the pattern occurs in `subject`.
    ///
    /// # Errors
    /// The match exceeds its step limit.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, Undecided> {
        match self {
            BytePattern::Linear(regex) => Ok(regex.is_match(subject)),
            BytePattern::Bounded(own) => own.is_match(subject),
        }
    }

    /// The pattern's groups in `subject`, if it matches.
    ///
    /// # Errors
    /// The match exceeds its step limit.
    pub fn groups<'s>(&self, subject: &'s [u8]) -> Result<Option<Groups<'s>>, Undecided> {
        match self {
            BytePattern::Linear(regex) => Ok(regex.captures(subject).map(Groups::Linear)),
            BytePattern::Bounded(own) => {
                let mut places = Vec::new();
                let found = own.find(subject, &mut places)?;
                Ok(found.then_some(Groups::Bounded(subject, places)))
            }
        }
    }
}

/// Translates a pattern to the syntax of the linear engine, for callers that analyse it.
pub fn linear_syntax(pattern: &str) -> String {
    ascii_classes(pattern)
}

/// Maximum compiled bytes of a small regular expression, which compiles within about 0.1 ms.
const SMALL_REGEX_BYTES_MAX: usize = 16 << 10;

fn linear(pattern: &str, bytes_max: usize) -> Result<regex::bytes::Regex, regex::Error> {
    let text = ascii_classes(pattern);
    let build = |unicode| {
        let mut builder = regex::bytes::RegexBuilder::new(&text);
        builder.size_limit(bytes_max).unicode(unicode).build()
    };
    // A class with non-ASCII characters has no meaning for single bytes.
    build(false).or_else(|_| build(true))
}

#[cfg(test)]
mod tests;
