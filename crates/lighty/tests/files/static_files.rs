//! Static files: lookup, description, ranges, and changes during a transfer.

mod changes;
mod described;
mod found;
mod ranges;
mod refused;

/// Offset of the first occurrence.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
