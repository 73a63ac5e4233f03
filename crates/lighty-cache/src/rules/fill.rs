//! The request that fills the cache. It has no field that could change the response without being
//! part of the key, because such a response would be served to other clients.

use lighty_http::variable_name;
use lighty_http::{Fields, Known};

use super::unkeyed::is_unkeyed;
use super::vary::normalised_accept_encoding;

/// Fields of the first request only: its conditions, its range and its content.
const REMOVED: [Known; 11] = [
    Known::IfMatch,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfUnmodifiedSince,
    Known::IfRange,
    Known::If,
    Known::Range,
    Known::Expect,
    Known::ContentLength,
    Known::TransferEncoding,
    Known::Trailer,
];

/// The fields of the request that fills the cache or validates a stored response.
///
/// Conditions, `Range`, `Expect`, fields of content and [unkeyed](is_unkeyed) fields are removed.
/// `kept` names the fields of `cache.key`, which stay; other spellings of them do not, because they
/// are not part of the key. `Accept-Encoding` becomes the set by which variants are selected.
#[must_use]
pub fn fill_fields(request: &Fields, kept: &[Box<[u8]>]) -> Fields {
    let mut fields = Fields::new();
    for (known, name, value) in request.iter_known() {
        let is_kept = || kept.iter().any(|other| other.eq_ignore_ascii_case(name));
        let is_alias = || kept.iter().any(|other| variable_name::is_alias(other, name));
        let is_removed = match known {
            Some(Known::AcceptEncoding) => true,
            Some(known) if REMOVED.contains(&known) => true,
            _ => !is_kept() && (is_unkeyed(name) || is_alias()),
        };
        if !is_removed {
            fields.push_looked_up(known, name, value);
        }
    }
    let accepted = request.get_all(Known::AcceptEncoding).collect::<Vec<_>>().join(&b", "[..]);
    fields.push_known(Known::AcceptEncoding, normalised_accept_encoding(Some(&accepted)));
    fields
}
