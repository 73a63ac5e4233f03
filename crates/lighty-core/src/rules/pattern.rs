//! The left side of a rule: a regular expression, or plain text where it is no more than that.

use lighty_config::{Reject, byte_pattern, required_text};
use regex::bytes::{Captures, Regex};
use regex_syntax::hir::{Hir, HirKind, Look};

/// A compiled pattern.
pub(super) enum Pattern {
    /// `^text$`
    Exact(Box<[u8]>),
    /// `^text`
    Prefix(Box<[u8]>),
    Regex(Box<Regex>),
}

/// `$0` to `$9` of a match.
pub(super) enum Groups<'a> {
    /// Only the whole match is known.
    Whole(&'a [u8]),
    All(Captures<'a>),
}

impl<'a> Groups<'a> {
    /// The text of a group; empty where it took no part.
    pub(super) fn get(&self, n: usize) -> &[u8] {
        match self {
            Groups::Whole(text) if n == 0 => text,
            Groups::Whole(_) => b"",
            Groups::All(captures) => captures.get(n).map_or(&b""[..], |group| group.as_bytes()),
        }
    }
}

impl Pattern {
    /// Compiles a pattern; also a text that occurs in whatever matches, if one is known.
    pub(super) fn compile(text: &str) -> Result<(Pattern, Option<Vec<u8>>), Reject> {
        let (regex, ascii) = byte_pattern(text)?;
        let parsed =
            regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(&ascii);
        // What means something only to the Unicode engine is matched by it alone.
        let Ok(hir) = parsed else { return Ok((Pattern::Regex(Box::new(regex)), None)) };
        let pattern = plain(&hir).unwrap_or_else(|| Pattern::Regex(Box::new(regex)));
        Ok((pattern, required_text(&hir)))
    }

    /// Whether the pattern occurs in `subject`.
    pub(super) fn is_match(&self, subject: &[u8]) -> bool {
        match self {
            Pattern::Exact(text) => subject == &**text,
            Pattern::Prefix(text) => subject.starts_with(text),
            Pattern::Regex(regex) => regex.is_match(subject),
        }
    }

    /// Calls `then` with the groups of a match; looks for them only if they are `wanted`.
    pub(super) fn with_groups(&self, subject: &[u8], wanted: bool, then: impl FnOnce(&Groups<'_>)) {
        let groups = match self {
            Pattern::Exact(_) => Groups::Whole(subject),
            Pattern::Prefix(text) => Groups::Whole(&subject[..text.len().min(subject.len())]),
            Pattern::Regex(regex) if wanted => match regex.captures(subject) {
                Some(captures) => Groups::All(captures),
                None => Groups::Whole(b""),
            },
            Pattern::Regex(_) => Groups::Whole(b""),
        };
        then(&groups);
    }
}

/// The pattern as plain text, if it is anchored text and nothing else.
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

    #[test]
    fn anchored_text_needs_no_engine() {
        let exact = |text| matches!(Pattern::compile(text), Ok((Pattern::Exact(_), _)));
        let prefix = |text| matches!(Pattern::compile(text), Ok((Pattern::Prefix(_), _)));
        assert!(exact(r"^/a\.html$"));
        assert!(prefix("^/a"));
        assert!(!exact("/a$") && !prefix("/a") && !prefix("^/a|/b") && !prefix("(?i)^/a"));
    }

    #[test]
    fn what_the_engine_cannot_do_is_refused() {
        for bad in ["(?=x)", r"(a)\1", "(", "a{1000}{1000}{1000}"] {
            assert!(Pattern::compile(bad).is_err(), "{bad}");
        }
    }
}
