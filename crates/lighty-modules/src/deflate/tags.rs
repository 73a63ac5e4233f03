//! Entity tags of encoded responses: `"abc"` sent as gzip is `"abc-gzip"` (RFC 9110 section
//! 8.8.3.3).
//!
//! Handlers evaluate conditions without regard to codings. Therefore each tag with a coding is
//! also added without it before they run, and the final response gets the client's tag.

use lighty_http::etag::{tags, without_coding};
use lighty_http::{Fields, Known};

use super::coding::Coding;

/// The tag of the encoded form. Weak stays weak.
pub(super) fn with_coding(tag: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let inner = tag.strip_suffix(b"\"")?;
    Some([inner, b"-", coding.name().as_bytes(), b"\""].concat())
}

/// Splits a tag into its bare form and its coding.
fn split(tag: &[u8]) -> Option<(Vec<u8>, Coding)> {
    let (bare, name) = without_coding(tag)?;
    let coding = Coding::ALL.into_iter().find(|coding| coding.name().as_bytes() == name)?;
    Some((bare, coding))
}

/// Adds to `If-None-Match` and `If-Match` the bare form of each tag with a coding that `accepts`
/// allows. The field becomes one line: many programs read only the first.
pub(super) fn add_bare(fields: &mut Fields, accepts: impl Fn(Coding) -> bool) {
    for (name, always) in [(Known::IfNoneMatch, false), (Known::IfMatch, true)] {
        let listed = || fields.get_all(name).flat_map(tags);
        let bare: Vec<Vec<u8>> = listed()
            .filter_map(split)
            .filter(|(_, coding)| always || accepts(*coding))
            .map(|(bare, _)| bare)
            .filter(|bare| listed().all(|tag| tag != bare))
            .collect();
        if !bare.is_empty() {
            let lines = fields.get_all(name).chain(bare.iter().map(Vec::as_slice));
            let joined = lines.collect::<Vec<_>>().join(&b", "[..]);
            fields.set(name, joined);
        }
    }
}

/// The client's tag, with its coding, for the representation that need not be resent.
pub(super) fn held(request: &Fields, tag: &[u8]) -> Option<Vec<u8>> {
    held_in(request, tag, |_| true)
}

/// True if `If-None-Match` contains exactly this tag (weak comparison, RFC 9110 section 8.8.3.2).
pub(super) fn is_named(request: &Fields, tag: &[u8]) -> bool {
    let mut named = request.get_all(Known::IfNoneMatch).flat_map(tags);
    named.any(|one| lighty_http::etag::weak_match(one, tag))
}

/// [`held`] with a coding that `accepts` allows.
pub(super) fn held_in(
    request: &Fields,
    tag: &[u8],
    accepts: impl Fn(Coding) -> bool,
) -> Option<Vec<u8>> {
    let is_held = |(bare, coding): &(Vec<u8>, Coding)| {
        lighty_http::etag::weak_match(bare, tag) && accepts(*coding)
    };
    let mut codings = request.get_all(Known::IfNoneMatch).flat_map(tags);
    let coded = codings.find_map(|one| split(one).filter(is_held));
    let (_, coding) = coded?;
    with_coding(tag, coding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_get_a_coding_and_lose_it() {
        for (tag, coded) in
            [("\"abc\"", "\"abc-gzip\""), ("W/\"x\"", "W/\"x-gzip\""), ("\"\"", "\"-gzip\"")]
        {
            let made = with_coding(tag.as_bytes(), Coding::Gzip).expect("a tag");
            assert_eq!(made, coded.as_bytes());
            assert_eq!(split(&made), Some((tag.as_bytes().to_vec(), Coding::Gzip)));
        }
        for other in ["\"abc\"", "\"a-lz4\"", "abc-gzip", "\"gzip\"", ""] {
            assert_eq!(split(other.as_bytes()), None, "{other}");
        }
    }

    fn request(lines: &[&str]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|line| fields.push_known(Known::IfNoneMatch, line));
        fields
    }

    #[test]
    fn a_condition_gets_the_bare_tag_where_the_coding_is_accepted() {
        let all = |fields: &Fields| {
            let lines = fields.get_all(Known::IfNoneMatch).map(<[u8]>::to_vec);
            lines.map(|line| String::from_utf8(line).expect("text")).collect::<Vec<_>>()
        };
        let mut fields = request(&["\"a-gzip\", \"b-br\"", "\"c\""]);
        add_bare(&mut fields, |coding| coding == Coding::Gzip);
        assert_eq!(all(&fields), ["\"a-gzip\", \"b-br\", \"c\", \"a\""]);
        add_bare(&mut fields, |coding| coding == Coding::Gzip);
        assert_eq!(all(&fields), ["\"a-gzip\", \"b-br\", \"c\", \"a\""], "once");
        let mut fields = Fields::new();
        fields.push_known(Known::IfMatch, "\"a-br\"");
        add_bare(&mut fields, |_| false);
        assert_eq!(fields.get(Known::IfMatch), Some(&b"\"a-br\", \"a\""[..]));
    }

    #[test]
    fn the_held_tag_is_recognised() {
        let tag = |lines: &[&str], tag: &str| held(&request(lines), tag.as_bytes());
        assert_eq!(tag(&["\"x-br\", \"a-gzip\""], "\"a\""), Some(b"\"a-gzip\"".to_vec()));
        assert_eq!(tag(&["W/\"a-br\""], "W/\"a\""), Some(b"W/\"a-br\"".to_vec()));
        assert_eq!(tag(&["\"a\""], "\"a\""), None);
        assert_eq!(tag(&["*"], "\"a\""), None);
    }
}
