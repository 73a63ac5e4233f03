//! Request fields that are not part of the key, but by which backends choose their responses.

use lighty_http::variable_name;

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
