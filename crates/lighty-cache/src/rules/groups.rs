//! Groups of responses: RFC 9875, and the tags of content delivery networks.

use lighty_http::fields::trim;
use lighty_http::structured::{self, BareItem};
use lighty_http::{Fields, Method, Status};

use super::directives::all_named;
use super::invalidation::invalidates;

/// The largest number of groups that a response joins or invalidates; further ones are ignored. RFC
/// 9875 requires 32.
pub const GROUPS_MAX: usize = 64;

/// The longest name of a group; longer ones are ignored. RFC 9875 requires 32 characters.
pub const GROUP_BYTES_MAX: usize = 256;

/// The longest tag; longer ones are ignored.
pub const TAG_BYTES_MAX: usize = 1024;

/// The bytes of a field that are searched for tags, over all its lines.
pub const TAG_FIELD_BYTES_MAX: usize = 16_384;

/// The groups of its origin that a response joins.
#[must_use]
pub fn cache_groups(response: &Fields) -> Vec<Box<[u8]>> {
    strings(response, b"cache-groups")
}

/// The groups of the origin that a response invalidates; none unless [`invalidates`] holds for the
/// method and the status.
#[must_use]
pub fn invalidated_groups(
    method: Option<Method>,
    status: Status,
    response: &Fields,
) -> Vec<Box<[u8]>> {
    if !invalidates(method, status) {
        return Vec::new();
    }
    strings(response, b"cache-group-invalidation")
}

/// A list of strings, each once; nothing if the field is malformed or has another member.
fn strings(response: &Fields, name: &[u8]) -> Vec<Box<[u8]>> {
    let combined = structured::combine(all_named(response, name));
    let Ok(members) = structured::list(&combined) else { return Vec::new() };
    let mut found: Vec<Box<[u8]>> = Vec::new();
    for member in &members {
        let Some(BareItem::String(text)) = member.item() else { return Vec::new() };
        let is_new = !found.iter().any(|other| **other == **text);
        if is_new && text.len() <= GROUP_BYTES_MAX && found.len() < GROUPS_MAX {
            found.push(Box::from(&**text));
        }
    }
    found
}

/// The tags of a response from the fields of these names, each tag once, at most `tags_max`.
///
/// Spaces separate the tags of `Surrogate-Key` and `xkey`, commas the tags of `Cache-Tag` and
/// other fields.
#[must_use]
pub fn tags(response: &Fields, names: &[Box<str>], tags_max: usize) -> Vec<Box<[u8]>> {
    let mut found: Vec<Box<[u8]>> = Vec::new();
    for name in names {
        let has_spaces = ["surrogate-key", "xkey"].iter().any(|key| key.eq_ignore_ascii_case(name));
        let mut left = TAG_FIELD_BYTES_MAX;
        for line in all_named(response, name.as_bytes()) {
            // A tag that the limit would cut is ignored.
            let is_cut = line.len() > left;
            let line = &line[..line.len().min(left)];
            left -= line.len();
            let separates = |byte: &u8| if has_spaces { is_space(*byte) } else { *byte == b',' };
            let whole = match line.iter().rposition(separates) {
                Some(at) if is_cut => &line[..at],
                None if is_cut => &[],
                _ => line,
            };
            for tag in whole.split(separates).map(trim) {
                let is_usable = !tag.is_empty() && tag.len() <= TAG_BYTES_MAX;
                if found.len() < tags_max && is_usable && !found.iter().any(|old| **old == *tag) {
                    found.push(Box::from(tag));
                }
            }
        }
    }
    found
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
