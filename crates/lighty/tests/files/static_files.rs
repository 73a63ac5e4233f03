//! Files: how they are found, described, sent in parts, and what happens when they change.

mod changes;
mod described;
mod found;
mod ranges;
mod refused;

/// Where something begins that is in there.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
