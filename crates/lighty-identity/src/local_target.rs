//! Targets to which a browser may be sent after a sign-in: paths of the same origin.

/// Maximum length of a target in bytes. It is part of a cookie.
pub const TARGET_BYTES_MAX: usize = 1024;

/// True if a browser that follows the target stays on its origin, also behind a program that
/// decodes it once more.
#[must_use]
pub fn is_local(target: &[u8]) -> bool {
    let path_end = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let path = &target[..path_end.unwrap_or(target.len())];
    let mut decoded = Vec::with_capacity(path.len());
    lighty_http::uri::decode_into(path, &mut decoded);
    let is_clean = |text: &[u8]| {
        text.first() == Some(&b'/')
            && !text.starts_with(b"//")
            && !text.contains(&b'\\')
            && !text.iter().any(|byte| byte.is_ascii_control())
    };
    target.len() <= TARGET_BYTES_MAX
        && is_clean(target)
        && is_clean(&decoded)
        && target.iter().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_stay_on_their_origin() {
        for good in ["/", "/a", "/a/b?c=d&e=//x", "/a//b", "/%C3%A9", "/a?u=https://b.example/#c"] {
            assert!(is_local(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "a",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/%2Fevil.example",
            "/%2f%2fevil.example",
            "/%5Cevil.example",
            "/a%5cb",
            "https://evil.example",
            "https:evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/%09/evil.example",
            "/a\r\nSet-Cookie: x",
            "/a%0d%0ab",
            " /a",
            "/a b",
            "?a",
        ] {
            assert!(!is_local(bad.as_bytes()), "{bad}");
        }
        assert!(is_local(format!("/{}", "a".repeat(TARGET_BYTES_MAX - 1)).as_bytes()));
        assert!(!is_local(format!("/{}", "a".repeat(TARGET_BYTES_MAX)).as_bytes()));
    }
}
