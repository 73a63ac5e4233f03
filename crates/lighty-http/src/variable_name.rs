//! Names of CGI variables: RFC 3875 section 4.1.18, in the mapping that all servers use.

/// Maps a byte of a field's name to one of the variable's name.
#[must_use]
pub const fn byte(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_uppercase() } else { b'_' }
}

/// True if two fields' names become the same variable.
#[must_use]
pub fn is_alias(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && name.iter().zip(other).all(|(a, b)| byte(*a) == byte(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_letters_and_digits_is_one_byte() {
        assert!(is_alias(b"X-Real-IP", b"x_real.ip"));
        assert!(!is_alias(b"X-Real-IP", b"X-RealIP"));
        assert!(!is_alias(b"X-A", b"X-B"));
    }
}
