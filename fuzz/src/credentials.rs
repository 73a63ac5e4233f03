//! What clients say who they are: takes any bytes, and panics when a promise is broken.

use super::DigestCredentials;

/// What is read from `Authorization: Digest` means the same when it is written plainly, and can be
/// checked.
pub fn digest(data: &[u8]) {
    let Ok(credentials) = DigestCredentials::parse(data) else { return };
    assert_eq!(credentials.nc.len(), 8);
    assert!(credentials.count <= u64::from(u32::MAX));
    assert!(!credentials.expected("ha1", b"GET").is_empty());
    let plain = written(&credentials);
    assert_eq!(
        DigestCredentials::parse(&plain).as_ref(),
        Ok(&credentials),
        "{}",
        plain.escape_ascii()
    );
}

fn written(credentials: &DigestCredentials) -> Vec<u8> {
    let session = if credentials.session { "-sess" } else { "" };
    let algorithm = format!("{}{session}", credentials.algorithm.name());
    let userhash: &[u8] = if credentials.userhash { b"true" } else { b"false" };
    let mut parameters = vec![
        ("username", credentials.username.as_slice()),
        ("userhash", userhash),
        ("realm", &credentials.realm),
        ("nonce", &credentials.nonce),
        ("uri", &credentials.uri),
        ("response", credentials.response.as_bytes()),
        ("cnonce", &credentials.cnonce),
        ("nc", &credentials.nc),
        ("qop", b"auth"),
        ("algorithm", algorithm.as_bytes()),
    ];
    parameters.extend(credentials.opaque.as_deref().map(|opaque| ("opaque", opaque)));
    let mut out = Vec::new();
    for (name, value) in parameters {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=\"");
        for byte in value {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.extend_from_slice(b"\", ");
    }
    out
}
