//! The request that fills the cache. It has no field that could change the response without being
//! part of the key, because such a response would be served to other clients.

use lighty_http::variable_name;
use lighty_http::{Fields, Known};

use super::unkeyed::{is_removed, is_unkeyed};
use super::vary::normalised_accept_encoding;

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
        let is_left_out = known == Some(Known::AcceptEncoding)
            || is_removed(name)
            || (!is_kept() && (is_unkeyed(name) || is_alias()));
        if !is_left_out {
            fields.push_looked_up(known, name, value);
        }
    }
    let accepted = request.get_all(Known::AcceptEncoding).collect::<Vec<_>>().join(&b", "[..]);
    fields.push_known(Known::AcceptEncoding, normalised_accept_encoding(Some(&accepted)));
    fields
}
