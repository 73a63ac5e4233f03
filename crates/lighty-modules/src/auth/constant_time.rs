//! Constant-time comparison of secrets.

/// Compares in constant time. The timing reveals only the lengths.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}
