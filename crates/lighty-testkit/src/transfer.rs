//! Large bodies through the server, generated and checked without storing them: each byte follows
//! from its offset, so that a missing, duplicate or misplaced byte shows.
//!
//! Byte `n` of every such body is `n % 251`; backends generate and check it in their own languages.

use crate::client::Client;
use crate::response::Response;
use crate::server::Server;

/// Period of the content: a prime, so that no power of two hides a displacement.
pub const UNIT: usize = 251;

/// Bytes sent and checked in one piece.
pub const BLOCK: usize = UNIT * 256;

/// Maximum KiB by which the server may grow while it transfers a body of any length.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

/// Bytes of a large body: 256 MiB, or `LIGHTY_TRANSFER_MB`.
#[must_use]
pub fn large() -> u64 {
    let named = std::env::var("LIGHTY_TRANSFER_MB").ok().and_then(|text| text.parse().ok());
    named.unwrap_or(256_u64) << 20
}

/// A block of the content.
#[must_use]
pub fn block() -> Vec<u8> {
    (0..BLOCK).map(|at| (at % UNIT) as u8).collect()
}

/// Framing of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// With Content-Length.
    Length,
    /// Chunked.
    Chunked,
}

/// Posts a body of `bytes` and reads the response.
#[must_use]
pub fn upload(server: &Server, target: &str, bytes: u64, framing: Framing) -> Response {
    let mut client = server.connect();
    let field = match framing {
        Framing::Length => format!("Content-Length: {bytes}"),
        Framing::Chunked => "Transfer-Encoding: chunked".to_owned(),
    };
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/octet-stream\r\n{field}\r\n\r\n"
    ));
    let block = block();
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).map_or(BLOCK, |left| left.min(BLOCK));
        if framing == Framing::Chunked {
            client.send(format!("{count:x}\r\n"));
        }
        client.send(&block[..count]);
        if framing == Framing::Chunked {
            client.send("\r\n");
        }
        left -= count as u64;
    }
    if framing == Framing::Chunked {
        client.send("0\r\n\r\n");
    }
    client.response()
}

/// Downloads a body of `bytes`, which must have a length, and checks each byte.
pub fn download(server: &Server, target: &str, bytes: u64) {
    let mut client = server.connect();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let head = client.response_head();
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(head.field("Content-Length"), Some(bytes.to_string().as_str()), "{head:?}");
    expect_content(&mut client, bytes);
}

/// Reads and checks `bytes` of the content.
pub fn expect_content(client: &mut Client, bytes: u64) {
    let block = block();
    let mut got = 0;
    while got < bytes {
        let count = usize::try_from(bytes - got).map_or(BLOCK, |left| left.min(BLOCK));
        let piece = client.read_exact(count).unwrap_or_else(|came| {
            panic!("ended {} bytes into a body of {bytes}", got + came as u64)
        });
        assert!(piece == block[..count], "a byte behind the {got}th is wrong");
        got += count as u64;
    }
}

/// Fails the test if the server's memory grows while `carry` runs.
pub fn in_constant_memory(server: &Server, what: &str, carry: impl FnOnce()) {
    let before = server.peak_resident_kib();
    carry();
    let grown = server.peak_resident_kib().saturating_sub(before);
    eprintln!("{what}: the server grew by {grown} KiB");
    assert!(grown <= GROWTH_KIB_MAX, "{what}: the server grew by {grown} KiB");
}
