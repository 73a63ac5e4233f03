//! Events that a connection reports to its driver.

use super::fault::StreamFault;
use super::frame::ErrorCode;
use super::streams::StreamKey;

/// A message from the peer. Heads and trailers are in [`super::Connection::head`] until more input
/// is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request begins. The driver owns the stream until it releases it.
    Request {
        /// The new stream.
        stream: StreamKey,
        /// True if the request has no content.
        ends: bool,
    },
    /// A request whose fields exceed their limits, to be answered with 431. The head is incomplete.
    Oversized {
        /// The new stream.
        stream: StreamKey,
        /// True if the request has no content.
        ends: bool,
    },
    /// The final response to one of our requests.
    Response {
        /// The request's stream.
        stream: StreamKey,
        /// True if the response has no content.
        ends: bool,
    },
    /// An interim response to one of our requests.
    Interim {
        /// The request's stream.
        stream: StreamKey,
    },
    /// Content. The driver takes the bytes out of its input, and returns them to the peer's windows
    /// with [`super::Connection::credit`] after consuming them.
    Data {
        /// The stream of the content.
        stream: StreamKey,
        /// Offset of the bytes in the input.
        start: usize,
        /// Number of bytes; 0 only if the stream ends.
        len: usize,
        /// True if the message ends with them.
        ends: bool,
    },
    /// Trailers, which end the message.
    Trailers {
        /// Their stream.
        stream: StreamKey,
    },
    /// The stream has ended prematurely. The driver releases it when its exchange has ended.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// The peer's reason, or ours.
        code: ErrorCode,
        /// The peer's mistake, if we have reset the stream.
        fault: Option<StreamFault>,
    },
    /// The peer accepts no streams above `last_stream` any more. Requests on such streams are safe
    /// to send elsewhere.
    GoAway {
        /// The highest stream that the peer has processed, or may process.
        last_stream: u32,
        /// The peer's reason.
        code: ErrorCode,
    },
    /// The reply to one of our PINGs.
    Pong {
        /// The payload of the PING.
        payload: [u8; 8],
    },
}

/// Result of handling a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled {
    /// Bytes to remove from the front of the input.
    pub consumed: usize,
    /// The event that they complete. Without an event, more bytes are needed: pass the remainder
    /// again, with more bytes after it.
    pub event: Option<Event>,
}

/// A DATA frame to send: its head is written, `len` bytes of the stream's content follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFrame {
    /// The stream.
    pub stream: StreamKey,
    /// Bytes of content.
    pub len: usize,
    /// True if it ends the stream.
    pub ends: bool,
}

lighty_http::fault_table! {
    /// Reason why a command cannot be carried out.
    SendFault {
        Gone = "h2-send-gone", "the stream has ended, was reset or was released";
        Misplaced = "h2-send-misplaced", "not at this point of a message";
        Name = "h2-send-name", "a field name that is not a token";
        Value = "h2-send-value", "a line end or NUL in a field value";
        TooManyStreams = "h2-send-streams", "the peer takes no more streams at the moment";
        Exhausted = "h2-send-exhausted", "the connection has no stream identifier left, or is ending";
    }
}
