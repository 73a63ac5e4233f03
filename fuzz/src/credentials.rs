//! What clients say who they are: takes any bytes, and panics when a promise is broken.

use super::Answer;

/// What is read from `Authorization: Digest` means the same when it is written plainly, and can be
/// checked.
pub fn digest(data: &[u8]) {
    let Ok(answer) = Answer::parse(data) else { return };
    assert_eq!(answer.nc.len(), 8);
    assert!(answer.count <= u64::from(u32::MAX));
    assert!(!answer.expected("ha1", b"GET").is_empty());
    let plain = written(&answer);
    assert_eq!(Answer::parse(&plain).as_ref(), Ok(&answer), "{}", plain.escape_ascii());
}

fn written(answer: &Answer) -> Vec<u8> {
    let session = if answer.session { "-sess" } else { "" };
    let algorithm = format!("{}{session}", answer.algorithm.name());
    let userhash: &[u8] = if answer.userhash { b"true" } else { b"false" };
    let mut parameters = vec![
        ("username", answer.username.as_slice()),
        ("userhash", userhash),
        ("realm", &answer.realm),
        ("nonce", &answer.nonce),
        ("uri", &answer.uri),
        ("response", answer.response.as_bytes()),
        ("cnonce", &answer.cnonce),
        ("nc", &answer.nc),
        ("qop", b"auth"),
        ("algorithm", algorithm.as_bytes()),
    ];
    parameters.extend(answer.opaque.as_deref().map(|opaque| ("opaque", opaque)));
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
