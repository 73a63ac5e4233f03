//! What scripts are given to decode: takes any bytes, and panics when a promise is broken.

use lighty_lua::json::reader::{JsonPiece, JsonReader};
use lighty_lua::lib_c::{encoding, path, quoting, tokens, url};

/// Every decoder of `lighty.c`.
///
/// None writes more than it can, what is simplified or in one spelling stays as it is, and what was
/// decoded comes back from its encoding.
pub fn lua_texts(data: &[u8]) {
    let run = |transform: fn(&[u8], &mut Vec<u8>) -> bool, data: &[u8]| {
        let mut out = Vec::new();
        transform(data, &mut out).then_some(out)
    };
    for (decode, encode) in [
        (encoding::base64_decode as fn(&[u8], &mut Vec<u8>) -> bool, encoding::base64_encode as _),
        (encoding::base64url_decode, encoding::base64url_encode as fn(&[u8], &mut Vec<u8>) -> bool),
        (encoding::hex_decode, encoding::hex_encode),
        (quoting::quoted_decode, quoting::quoted_encode),
        (quoting::backslash_decode, quoting::backslash_encode),
    ] {
        let Some(decoded) = run(decode, data) else { continue };
        assert!(decoded.len() <= data.len());
        if !decoded.is_empty() {
            let encoded = run(encode, &decoded).expect("it takes any bytes");
            assert_eq!(run(decode, &encoded).as_ref(), Some(&decoded));
        }
    }
    let decoded = run(url::decode, data).expect("it takes any bytes");
    assert!(decoded.len() <= data.len());
    let simple = run(path::simplify, data).expect("it takes any bytes");
    assert!(simple.len() <= data.len());
    assert!(simple.split(|byte| *byte == b'/').all(|segment| segment != b".."));
    let normal = run(url::normalize, data).expect("it takes any bytes");
    assert!(normal.len() <= 3 * data.len());
    assert_eq!(run(url::normalize, &normal).as_ref(), Some(&normal));
    let spelled = run(encoding::xml_encode, data).expect("it takes any bytes");
    assert!(!spelled.iter().any(|byte| matches!(byte, b'<' | b'>' | b'"' | b'\'')));
    let token_bytes: usize = tokens::header(data).map(|token| token.len()).sum();
    assert!(token_bytes <= data.len() + 2);
    let cookies = tokens::cookies(data).map(|(name, value)| name.len() + value.len());
    assert!(cookies.sum::<usize>() <= data.len() + 2);
    let pairs = url::query_pairs(data).map(|(name, value)| name.len() + value.len());
    assert!(pairs.sum::<usize>() <= data.len());
}

/// JSON: accepts what `serde_json` accepts within the limits, and its brackets pair up.
pub fn lua_json(data: &[u8]) {
    let mut open = Vec::new();
    let mut read = || -> Option<()> {
        let mut reader = JsonReader::new(data).ok()?;
        while let Some(piece) = reader.next_piece().ok()? {
            match piece {
                JsonPiece::BeginArray | JsonPiece::BeginObject => open.push(piece),
                JsonPiece::EndArray => assert_eq!(open.pop(), Some(JsonPiece::BeginArray)),
                JsonPiece::EndObject => assert_eq!(open.pop(), Some(JsonPiece::BeginObject)),
                JsonPiece::String(text) | JsonPiece::Name(text) => {
                    assert!(text.len() <= data.len())
                }
                JsonPiece::Number(number) => assert!(number.is_finite()),
                JsonPiece::Null | JsonPiece::Bool(_) | JsonPiece::Integer(_) => {}
            }
        }
        assert!(open.is_empty());
        Some(())
    };
    let is_read = read().is_some();
    let other = serde_json::from_slice::<serde_json::Value>(data).is_ok();
    // Its limit is as deep as ours, but it counts otherwise.
    if open.len() < 100 {
        assert_eq!(is_read, other);
    }
}
