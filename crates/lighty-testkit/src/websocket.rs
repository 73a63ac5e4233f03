//! The client's side of a WebSocket (RFC 6455), frame by frame.

use crate::client::{Client, ConnectionEnd};
use crate::response::Response;

/// The key of the example in RFC 6455 section 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// The value of Sec-WebSocket-Accept in the response to [`handshake`].
pub const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Mask of the client's frames.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x11, 0x7e];

/// Type of a frame (RFC 6455 section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// A continuation of a message.
    Continuation = 0,
    /// Text.
    Text = 1,
    /// Bytes.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// A ping; the peer must reply with a pong.
    Ping = 9,
    /// The reply to a ping.
    Pong = 10,
}

/// A frame from the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebsocketFrame {
    /// The first byte: FIN, reserved bits, opcode.
    pub first: u8,
    /// The payload.
    pub payload: Vec<u8>,
}

impl WebsocketFrame {
    /// True if it is the whole or last frame of a message of this kind.
    #[must_use]
    pub fn is(&self, opcode: Opcode) -> bool {
        self.first == 0x80 | opcode as u8
    }

    /// The status code of a close frame.
    #[must_use]
    pub fn close_code(&self) -> Option<u16> {
        let code = self.payload.first_chunk().filter(|_| self.is(Opcode::Close))?;
        Some(u16::from_be_bytes(*code))
    }
}

/// A request for a WebSocket; `lines` are additional fields, each with its CRLF.
#[must_use]
pub fn handshake(target: &str, lines: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\
         {lines}\r\n"
    )
}

/// Encodes a frame of a client: masked. If not `last`, it is a fragment.
#[must_use]
pub fn frame(opcode: Opcode, last: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![opcode as u8 | if last { 0x80 } else { 0 }];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=65_535 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ MASK[at % 4]));
    bytes
}

/// An open WebSocket.
pub struct WebSocket {
    /// The underlying connection.
    pub client: Client,
    /// The response to the handshake.
    pub response: Response,
}

impl WebSocket {
    /// Opens a WebSocket; fails the test if the server refuses.
    #[must_use]
    pub fn open(mut client: Client, target: &str, lines: &str) -> Self {
        client.send(handshake(target, lines));
        Self::await_open(client)
    }

    /// Reads the response to a handshake that was already sent.
    #[must_use]
    pub fn await_open(mut client: Client) -> Self {
        let response = client.response_head();
        assert_eq!(response.status, 101, "{response:?}");
        assert_eq!(response.field("Sec-WebSocket-Accept"), Some(ACCEPT), "{response:?}");
        let says = |name: &str, value: &str| {
            response.field(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
        };
        assert!(says("Upgrade", "websocket") && says("Connection", "upgrade"), "{response:?}");
        Self { client, response }
    }

    /// Sends a whole message in one frame.
    pub fn send(&mut self, opcode: Opcode, payload: &[u8]) {
        self.client.send(frame(opcode, true, payload));
    }

    /// Reads a frame.
    #[must_use]
    pub fn read(&mut self) -> WebsocketFrame {
        let head = self.bytes(2);
        assert_eq!(head[1] & 0x80, 0, "a server masks nothing");
        let length = match head[1] {
            126 => self.bytes(2).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            127 => self.bytes(8).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        WebsocketFrame { first: head[0], payload: self.bytes(length) }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.client.read_exact(count).unwrap_or_else(|came| panic!("{came} of {count} bytes"))
    }

    /// Fails the test unless the connection ends without sending another byte.
    pub fn expect_end(&mut self) -> ConnectionEnd {
        self.client.expect_end()
    }
}
