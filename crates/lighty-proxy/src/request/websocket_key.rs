//! Proves that the handshake of a WebSocket was read.

use lighty_http::base64;
use sha1::{Digest, Sha1};

/// Returns `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455 section 4.2.2).
pub(crate) fn accept(key: &[u8]) -> Vec<u8> {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let mut text = Vec::new();
    base64::encode(&hash.finalize(), &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_accepted_as_in_rfc_6455() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
