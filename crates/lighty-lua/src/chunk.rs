//! Measures texts before Lua compiles them.

/// Words of which a compiler makes chains of jumps. It follows a chain to its end for each one that
/// it adds, so that their number counts twice.
const JUMPS: &[&[u8]] = &[b"and", b"or", b"elseif", b"break", b"goto"];

/// How many words of a text make jumps. Those in comments and quotes count too.
pub(crate) fn jumps(text: &[u8]) -> usize {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.split(|byte| !is_of_word(byte)).filter(|word| JUMPS.contains(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_jump_are_counted() {
        assert_eq!(jumps(b""), 0);
        assert_eq!(jumps(b"android = error or_else"), 0);
        assert_eq!(jumps(b"return a and(b)or c -- and so on"), 3);
        assert_eq!(jumps(b"while a do if b then break elseif c then goto d end end"), 3);
    }
}
