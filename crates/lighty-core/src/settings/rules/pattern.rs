//! The left side of a rule: a regular expression, or plain text if the expression is only anchored
//! text.

use std::sync::OnceLock;

use lighty_config::{
    BytePattern, CompileCtx, Groups as Matched, Reject, Span, Undecided, linear_syntax,
    required_text,
};
use regex_syntax::hir::{Hir, HirKind, Look};

/// A compiled pattern.
pub(super) enum Pattern {
    /// `^text$`
    Exact(Box<[u8]>),
    /// `^text`
    Prefix(Box<[u8]>),
    Regex(Box<Expression>),
}

/// Selects the expressions that are kept compiled from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Always,
    /// Only expressions that would noticeably delay a request if compiled later.
    IfLarge,
}

/// A validated regular expression, compiled on first use.
pub(super) struct Expression {
    source: Box<str>,
    compiled: OnceLock<Option<BytePattern>>,
}

impl Expression {
    fn new(source: &str, built: BytePattern, keep: Keep) -> Box<Self> {
        let kept = keep == Keep::Always || BytePattern::small(source).is_none();
        let compiled = if kept { OnceLock::from(Some(built)) } else { OnceLock::new() };
        Box::new(Self { source: source.into(), compiled })
    }

    /// Never `None`: an expression that compiled once compiles again.
    fn get(&self) -> Option<&BytePattern> {
        let compile = || BytePattern::small(&self.source);
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// `$0` to `$9` of a match.
pub(super) enum Groups<'a> {
    /// Only the whole match is known.
    Whole(&'a [u8]),
    All(Matched<'a>),
}

impl<'a> Groups<'a> {
    /// The text of a group; empty if it took no part in the match.
    pub(super) fn get(&self, n: usize) -> &[u8] {
        match self {
            Groups::Whole(text) if n == 0 => text,
            Groups::Whole(_) => b"",
            Groups::All(captures) => captures.get(n).unwrap_or_default(),
        }
    }
}

impl Pattern {
    /// Compiles a pattern. Also returns a text that every match contains, if one is known.
    pub(super) fn compile(
        text: &str,
        keep: Keep,
        span: Span,
        ctx: &CompileCtx,
    ) -> Result<(Pattern, Option<Vec<u8>>), Reject> {
        let built = BytePattern::compile(text, span, ctx)?;
        if let BytePattern::Bounded(_) = built {
            return Ok((Pattern::Regex(Expression::new(text, built, Keep::Always)), None));
        }
        let parsed = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(&linear_syntax(text));
        // A pattern valid only for the Unicode engine is matched by that engine alone.
        let hir = parsed.ok();
        let pattern = hir.as_ref().and_then(plain);
        let pattern = pattern.unwrap_or_else(|| Pattern::Regex(Expression::new(text, built, keep)));
        Ok((pattern, hir.as_ref().and_then(required_text)))
    }

    /// True if the pattern occurs in `subject`.
    ///
    /// # Errors
    /// If it exceeds the step limit.
    pub(super) fn is_match(&self, subject: &[u8]) -> Result<bool, Undecided> {
        match self {
            Pattern::Exact(text) => Ok(subject == &**text),
            Pattern::Prefix(text) => Ok(subject.starts_with(text)),
            Pattern::Regex(regex) => regex.get().map_or(Ok(false), |regex| regex.is_match(subject)),
        }
    }

    /// Calls `then` with the groups of a match, which are computed only if `wanted`.
    ///
    /// # Errors
    /// If it exceeds the step limit.
    pub(super) fn with_groups(
        &self,
        subject: &[u8],
        wanted: bool,
        then: impl FnOnce(&Groups<'_>),
    ) -> Result<(), Undecided> {
        let groups = match self {
            Pattern::Exact(_) => Groups::Whole(subject),
            Pattern::Prefix(text) => Groups::Whole(&subject[..text.len().min(subject.len())]),
            Pattern::Regex(regex) => {
                let regex = regex.get().filter(|_| wanted);
                let captures = regex.map_or(Ok(None), |regex| regex.groups(subject))?;
                captures.map_or(Groups::Whole(b""), Groups::All)
            }
        };
        then(&groups);
        Ok(())
    }
}

/// The pattern as plain text, if it is only anchored text.
fn plain(hir: &Hir) -> Option<Pattern> {
    let HirKind::Concat(parts) = hir.kind() else { return None };
    let looks = |part: &Hir, look| matches!(part.kind(), HirKind::Look(found) if *found == look);
    match parts.as_slice() {
        [start, text] if looks(start, Look::Start) => literal(text).map(Pattern::Prefix),
        [start, text, end] if looks(start, Look::Start) && looks(end, Look::End) => {
            literal(text).map(Pattern::Exact)
        }
        _ => None,
    }
}

fn literal(hir: &Hir) -> Option<Box<[u8]>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(literal.0.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str, keep: Keep) -> Result<(Pattern, Option<Vec<u8>>), Reject> {
        let ctx = CompileCtx::nowhere("url.rewrite");
        Pattern::compile(text, keep, ctx.span, &ctx)
    }

    #[test]
    fn anchored_text_needs_no_engine() {
        let exact = |text| matches!(compile(text, Keep::Always), Ok((Pattern::Exact(_), _)));
        let prefix = |text| matches!(compile(text, Keep::Always), Ok((Pattern::Prefix(_), _)));
        assert!(exact(r"^/a\.html$"));
        assert!(prefix("^/a"));
        assert!(!exact("/a$") && !prefix("/a") && !prefix("^/a|/b") && !prefix("(?i)^/a"));
    }

    #[test]
    fn small_expressions_wait_for_their_first_use() {
        let compiled = |text: &str, keep| match compile(text, keep) {
            Ok((Pattern::Regex(expression), _)) => expression.compiled.get().is_some(),
            _ => panic!("{text}"),
        };
        assert!(compiled("^/a([0-9]+)", Keep::Always));
        assert!(!compiled("^/a([0-9]+)", Keep::IfLarge));
        assert!(compiled("^/a([0-9]{1,500})", Keep::IfLarge));
        let (pattern, _) = compile("^/a([0-9]+)", Keep::IfLarge).expect("one");
        assert_eq!((pattern.is_match(b"/a1"), pattern.is_match(b"/a")), (Ok(true), Ok(false)));
        pattern
            .with_groups(b"/a17", true, |groups| assert_eq!(groups.get(1), b"17"))
            .expect("decided");
    }

    #[test]
    fn patterns_that_no_engine_compiles_are_refused() {
        for bad in ["(?=x)", r"(a)\1", "(", "a{1000}{1000}{1000}"] {
            assert!(compile(bad, Keep::Always).is_err(), "{bad}");
        }
    }
}
