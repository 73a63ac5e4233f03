//! Request fields that are not part of the key, but by which backends choose their responses.

use lighty_http::{Known, variable_name};

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

/// Fields by which backends build links, choose a route or change the method.
const UNKEYED: [&str; 13] = [
    "Forwarded",
    "X-Forwarded",
    "X-Host",
    "X-Original-Host",
    "X-Original-URL",
    "X-Original-URI",
    "X-Rewrite-URL",
    "X-Rewrite-URI",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X-Now-Route-Matches",
    "X-HTTP-Host-Override",
];

/// Lighty sets the fields with this prefix itself, after the removal.
const UNKEYED_PREFIX: &[u8] = b"X-Forwarded-";

/// True for a field that the filling request loses, in the spelling with hyphens or underscores,
/// unless `cache.key` makes it part of the key.
#[must_use]
pub fn is_unkeyed(name: &[u8]) -> bool {
    has_forwarding_prefix(name)
        || UNKEYED.iter().any(|other| variable_name::is_alias(name, other.as_bytes()))
}

/// True for `X-Forwarded-For` and its like.
pub(super) fn has_forwarding_prefix(name: &[u8]) -> bool {
    let start = name.get(..UNKEYED_PREFIX.len());
    start.is_some_and(|start| variable_name::is_alias(start, UNKEYED_PREFIX))
}

/// True for a field that the filling request never has.
pub(super) fn is_removed(name: &[u8]) -> bool {
    Known::from_bytes(name).is_some_and(|known| REMOVED.contains(&known))
}
