//! Validators of responses: RFC 9110 section 8.8.

use lighty_http::{Fields, Known, etag};

/// True if a response has `ETag` or `Last-Modified`.
pub(super) fn has_validator(response: &Fields) -> bool {
    response.contains_any(&[Known::ETag, Known::LastModified])
}

/// True for an entity tag that is well-formed and not weak.
pub(super) fn is_strong(tag: &[u8]) -> bool {
    tag.first() == Some(&b'"') && etag::leading(tag) == Some(tag)
}

/// True if a response has a strong `ETag`.
pub(super) fn has_strong_validator(response: &Fields) -> bool {
    response.get(Known::ETag).is_some_and(is_strong)
}

/// True if two partial responses belong to the same representation, and may be combined: they have
/// the same strong validator.
#[must_use]
pub fn are_parts_of_one(one: &Fields, other: &Fields) -> bool {
    has_strong_validator(one) && one.get(Known::ETag) == other.get(Known::ETag)
}
