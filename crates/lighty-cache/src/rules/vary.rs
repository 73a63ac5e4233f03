//! Selection of a stored response by `Vary`: RFC 9111 section 4.1.

use std::borrow::Cow;

use lighty_http::accept::{CodingWeights, parse_quality};
use lighty_http::fields::{is_token, list_items, trim};
use lighty_http::{Fields, Known};

use super::directives::all_named;
use super::unkeyed::{has_forwarding_prefix, is_removed, is_unkeyed};

/// The largest number of names in `Vary`. A response with more is treated as `Vary: *`.
pub const VARY_NAMES_MAX: usize = 64;

/// The request fields that select a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// `*`, or a name that no field can have: no other request matches.
    Everything,
    /// Names in lower case, sorted, each once; empty without `Vary`.
    Names(Vec<Box<[u8]>>),
}

/// Reads all lines of `Vary`.
///
/// A name is left out if its field is part of the key (scheme and host) or never reaches the
/// backend. Other fields that the server sets for each client, such as `X-Forwarded-For`, cannot
/// select a response: they count as `*`.
#[must_use]
pub fn selecting_names(response: &Fields) -> Vary {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    for name in response.get_all(Known::Vary).flat_map(list_items) {
        if name == b"*" || !is_token(name) || is_set_by_server(name) {
            return Vary::Everything;
        }
        if is_unkeyed(name) || is_removed(name) {
            continue;
        }
        let name = name.to_ascii_lowercase().into_boxed_slice();
        let Err(place) = names.binary_search(&name) else { continue };
        if names.len() == VARY_NAMES_MAX {
            return Vary::Everything;
        }
        names.insert(place, name);
    }
    Vary::Names(names)
}

/// True for fields that tell the backend about the client.
fn is_set_by_server(name: &[u8]) -> bool {
    match Known::from_bytes(name) {
        Some(Known::XForwardedHost | Known::XForwardedProto) => false,
        Some(Known::XForwardedFor | Known::XRealIp | Known::Forwarded) => true,
        _ => has_forwarding_prefix(name),
    }
}

/// Marks in a selecting key before each value.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
/// The value is a language that the request prefers or the response has.
const LANGUAGE: u8 = 2;

/// The part of the key that tells variants apart: each name and its value in the request, with
/// their lengths. Requests have the same key if and only if their normalised values are equal.
///
/// `request` has the fields as the backend gets them, apart from `Accept-Encoding`.
#[must_use]
pub fn selecting_key(names: &[Box<[u8]>], request: &Fields) -> Vec<u8> {
    key_with(names, request, None)
}

/// Appends the [`selecting_key`] to `key`, whose memory can be reused.
pub fn push_selecting_key(names: &[Box<[u8]>], request: &Fields, key: &mut Vec<u8>) {
    push_key(names, request, None, key);
}

/// A second key of a stored response with exactly one `Content-Language`: it holds for all requests
/// that prefer this language and are equal in all other fields. `None` unless the response varies
/// by `Accept-Language`.
#[must_use]
pub fn language_key(names: &[Box<[u8]>], request: &Fields, response: &Fields) -> Option<Vec<u8>> {
    if !varies_by_language(names) {
        return None;
    }
    let mut languages = response.get_all(Known::ContentLanguage).flat_map(list_items);
    let language = languages.next()?.to_ascii_lowercase();
    languages.next().is_none().then(|| key_with(names, request, Some(&language)))
}

/// The key to look up after [`selecting_key`] has found nothing: that of a response in the language
/// that the request prefers. `None` unless the response varies by `Accept-Language`, and the
/// request prefers one language to all others.
#[must_use]
pub fn preferred_language_key(names: &[Box<[u8]>], request: &Fields) -> Option<Vec<u8>> {
    if !varies_by_language(names) {
        return None;
    }
    let accepted = joined(request, b"accept-language", b",")?;
    let ranges = language_ranges(&accepted)?;
    let (first, others) = ranges.split_first()?;
    let is_first = others.iter().all(|other| other.0 < first.0);
    let is_usable = is_first && first.0 > 0 && first.1 != b"*";
    is_usable.then(|| key_with(names, request, Some(&first.1)))
}

fn varies_by_language(names: &[Box<[u8]>]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(b"accept-language"))
}

fn key_with(names: &[Box<[u8]>], request: &Fields, language: Option<&[u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    push_key(names, request, language, &mut key);
    key
}

fn push_key(names: &[Box<[u8]>], request: &Fields, language: Option<&[u8]>, key: &mut Vec<u8>) {
    for name in names {
        push_part(key, name);
        match (language, normalised_value(name, request)) {
            (Some(language), _) if name.eq_ignore_ascii_case(b"accept-language") => {
                key.push(LANGUAGE);
                push_part(key, language);
            }
            (_, None) => key.push(ABSENT),
            (_, Some(value)) => {
                key.push(PRESENT);
                push_part(key, &value);
            }
        }
    }
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // A header section has less than 4 GiB.
    key.extend_from_slice(&(part.len() as u32).to_le_bytes());
    key.extend_from_slice(part);
}

/// The value of a request field as it is compared; `None` if the field is absent.
pub(super) fn normalised_value<'a>(name: &'a [u8], request: &'a Fields) -> Option<Cow<'a, [u8]>> {
    match Known::from_bytes(name) {
        Some(Known::AcceptEncoding) => {
            let value = joined(request, name, b",");
            Some(Cow::Borrowed(normalised_accept_encoding(value.as_deref()).as_bytes()))
        }
        Some(Known::AcceptLanguage) => {
            let value = joined(request, name, b",")?;
            Some(Cow::Owned(normalised_language(&value)))
        }
        // Its commas do not separate.
        Some(Known::Cookie) => joined(request, name, b"; "),
        _ => joined(request, name, b",").map(|value| match value {
            Cow::Borrowed(line) if !line.contains(&b',') => Cow::Borrowed(trim(line)),
            value => Cow::Owned(without_blanks(&value)),
        }),
    }
}

/// All lines of a field; `None` if there is none.
fn joined<'a>(request: &'a Fields, name: &'a [u8], separator: &[u8]) -> Option<Cow<'a, [u8]>> {
    let mut lines = all_named(request, name);
    let mut value = Cow::Borrowed(lines.next()?);
    for line in lines {
        let value = value.to_mut();
        value.extend_from_slice(separator);
        value.extend_from_slice(line);
    }
    Some(value)
}

/// Removes blanks around members of a list, but not within quoted strings.
fn without_blanks(value: &[u8]) -> Vec<u8> {
    let mut rest = value;
    let mut out = Vec::with_capacity(value.len());
    loop {
        let (member, tail) = split_member(rest);
        out.extend_from_slice(trim(member));
        let Some(tail) = tail else { return out };
        out.push(b',');
        rest = tail;
    }
}

/// Splits at the first comma outside of a quoted string. A quote that is not closed is an ordinary
/// byte.
fn split_member(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b',' => return (&text[..at], Some(&text[at + 1..])),
            b'"' => {
                let after = lighty_http::quoted::split(&text[at + 1..]).map(|(_, after)| after);
                at = after.map_or(text.len(), |after| text.len() - after.len());
                if after.is_none() {
                    return (text, None);
                }
            }
            _ => at += 1,
        }
    }
    (text, None)
}

/// Content codings of the set.
const CODINGS: [&str; 3] = ["br", "gzip", "zstd"];

/// The set of codings that a request accepts with a weight above 0, of br, gzip and zstd, as
/// `Accept-Encoding` of the request that fills the cache. The backend then cannot choose a coding
/// outside of it. A request without the field accepts none.
#[must_use]
pub fn normalised_accept_encoding(value: Option<&[u8]>) -> &'static str {
    const SETS: [&str; 8] =
        ["identity", "br", "gzip", "br, gzip", "zstd", "br, zstd", "gzip, zstd", "br, gzip, zstd"];
    let Some(value) = value else { return SETS[0] };
    let weights = CodingWeights::of(value, &CODINGS);
    let bit = |index: usize| usize::from(weights.quality(index) > 0) << index;
    SETS[bit(0) | bit(1) | bit(2)]
}

/// Ranges of `Accept-Language` in lower case with their weights in thousandths, by descending
/// weight and then by tag, each once. `None` if a member is malformed.
fn language_ranges(value: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    let mut ranges = Vec::new();
    for member in list_items(value) {
        let mut parts = member.split(|byte| *byte == b';').map(trim);
        let tag = parts.next()?.to_ascii_lowercase();
        let weight = match (parts.next(), parts.next()) {
            (None, _) => 1000,
            (Some([b'q' | b'Q', b'=', weight @ ..]), None) => parse_quality(weight)?,
            _ => return None,
        };
        ranges.push((weight, tag));
    }
    ranges.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    ranges.dedup();
    Some(ranges)
}

/// `Accept-Language` in one spelling; a malformed value is only trimmed.
fn normalised_language(value: &[u8]) -> Vec<u8> {
    let Some(ranges) = language_ranges(value) else { return without_blanks(value) };
    let mut out = Vec::with_capacity(value.len());
    for (weight, tag) in ranges {
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(&tag);
        if weight < 1000 {
            out.extend_from_slice(format!(";q=0.{weight:03}").as_bytes());
        }
    }
    out
}
