//! What a connection reports to its driver.

use super::fault::StreamFault;
use super::frame::ErrorCode;
use super::streams::StreamKey;

/// What the peer has sent. Heads and trailers are in [`super::Connection::head`] until more input
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
    /// A request whose fields exceed their limits, and of which an unknown part is in the head: to
    /// be answered with 431.
    Oversized {
        /// The new stream.
        stream: StreamKey,
        /// True if the request has no content.
        ends: bool,
    },
    /// The final response to a request of ours.
    Response {
        /// The request's stream.
        stream: StreamKey,
        /// True if the response has no content.
        ends: bool,
    },
    /// An interim response to a request of ours.
    Interim {
        /// The request's stream.
        stream: StreamKey,
    },
    /// Content. The driver takes the bytes out of the input that it has handed in, and gives them
    /// back to the peer's windows with [`super::Connection::credit`] when they are consumed.
    Data {
        /// Its stream.
        stream: StreamKey,
        /// Where the bytes begin in the input.
        start: usize,
        /// How many they are; 0 only if the stream ends.
        len: usize,
        /// True if the message ends with them.
        ends: bool,
    },
    /// Trailers, which end the message.
    Trailers {
        /// Their stream.
        stream: StreamKey,
    },
    /// The stream is over before its time. The driver releases it when its exchange has ended.
    Reset {
        /// The stream.
        stream: StreamKey,
        /// The peer's reason, or ours.
        code: ErrorCode,
        /// The peer's mistake, if it was not the peer who reset the stream.
        fault: Option<StreamFault>,
    },
    /// The peer takes no stream above `last_stream` any more; those are safe to send elsewhere.
    GoAway {
        /// The highest stream that the peer has processed, or may process.
        last_stream: u32,
        /// Its reason.
        code: ErrorCode,
    },
    /// The reply to a PING of ours.
    Pong {
        /// What was sent with it.
        payload: [u8; 8],
    },
}

/// How far a piece of input was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handled {
    /// Bytes to take off the front of the input.
    pub consumed: usize,
    /// What they meant. Without an event, more bytes are needed: the rest has to come again, with
    /// more behind it.
    pub event: Option<Event>,
}

/// A DATA frame to send: its head is written, `len` bytes of the stream's content belong behind it.
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
    /// Why something cannot be sent.
    SendFault {
        Gone = "h2-send-gone", "the stream has ended, was reset or was released";
        Misplaced = "h2-send-misplaced", "not at this point of a message";
        Name = "h2-send-name", "a field name that is not a token";
        Value = "h2-send-value", "a line end or NUL in a field value";
        TooManyStreams = "h2-send-streams", "the peer takes no more streams at the moment";
        Exhausted = "h2-send-exhausted", "the connection has no stream identifier left, or is ending";
    }
}
