//! Decodes a container's messages.
//!
//! ```text
//!   Idle ─ begin_request ─► Head ── Send Headers ──► Body ── End Response ──► Ended
//!     ▲                      │ ▲                      │ ▲
//!     │                      └─┘ Get Body Chunk       └─┘ Get Body Chunk, Send Body Chunk
//!     └──── CPong ──── Ping ◄─ begin_ping
//! ```
//!
//! Chunks of the body are ranges of the input. All other messages are collected first, up to the
//! packet size.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use lighty_http::fields::trim;
use lighty_http::hop_by_hop::is_hop_by_hop;
use lighty_http::{Fields, Known, Status, decimal};

use super::codes::{self, CodeTable};
use super::fault::AjpFault;
use super::packet::{PREFIX_BYTES, PacketSize, PayloadReader, TO_SERVER};

/// A message from the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AjpEvent {
    /// The response head: [`ResponseDecoder::status`], [`ResponseDecoder::fields`].
    Headers,
    /// Body, as a range of the input.
    Body(Range<usize>),
    /// Flush the output sent so far to the client.
    Flush,
    /// The container requests up to `len` bytes of the request body.
    GetBody {
        /// At least 1.
        len: u16,
    },
    /// The response is complete.
    End {
        /// True if the connection takes another request.
        reuse: bool,
    },
    /// The container is alive.
    Pong,
}

/// Result of [`ResponseDecoder::feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AjpStep {
    /// Number of bytes consumed; pass the rest in again.
    pub consumed: usize,
    /// Their meaning; `None` if they are part of an incomplete message.
    pub event: Option<AjpEvent>,
}

/// The protocol state, named by the messages that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AjpPhase {
    /// None: no request was sent.
    Idle,
    /// CPong.
    Ping,
    /// Headers, requests for body.
    Head,
    /// Body, requests for body, the end.
    Body,
    /// No further messages.
    Ended,
}

/// Position of the next byte within a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketPosition {
    /// In the prefix, the code, or the length of a chunk.
    Front,
    /// In the payload of a message that is being collected.
    Payload { left: u16 },
    /// In a chunk; `tail` bytes follow it.
    Chunk { left: u16, tail: u16 },
    /// At the NUL after a chunk.
    Tail { was_empty: bool },
}

/// Bytes up to the length of a chunk: prefix, code, length.
const FRONT_BYTES: usize = PREFIX_BYTES + 3;

/// Decodes the responses on one connection.
///
/// Call `begin_request` or `begin_ping` after sending one, and `feed` received bytes. The head
/// stays in `status` and `fields` until the next request begins. After a fault every further call
/// repeats it.
#[derive(Clone, Debug)]
pub struct ResponseDecoder {
    phase: AjpPhase,
    place: PacketPosition,
    fault: Option<AjpFault>,
    size: PacketSize,
    fields_max: u16,
    front: [u8; FRONT_BYTES],
    front_len: u8,
    payload: Vec<u8>,
    status: Status,
    reason: Vec<u8>,
    fields: Fields,
    content_length: Option<u64>,
}

impl ResponseDecoder {
    /// Creates a decoder for an idle connection; allocates nothing.
    #[must_use]
    pub const fn new(size: PacketSize, fields_max: u16) -> Self {
        Self {
            phase: AjpPhase::Idle,
            place: PacketPosition::Front,
            fault: None,
            size,
            fields_max,
            front: [0; FRONT_BYTES],
            front_len: 0,
            payload: Vec::new(),
            status: Status::OK,
            reason: Vec::new(),
            fields: Fields::new(),
            content_length: None,
        }
    }

    /// Call after sending a request. Drops the previous response; keeps the memory.
    pub fn begin_request(&mut self) {
        self.begin(AjpPhase::Head);
        self.status = Status::OK;
        self.reason.clear();
        self.fields.clear();
        self.content_length = None;
    }

    /// Call after sending [`super::CPING`].
    pub fn begin_ping(&mut self) {
        self.begin(AjpPhase::Ping);
    }

    /// The response status, from 200 to 999.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The reason that the container gave, perhaps empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// The response fields, without hop-by-hop fields and `Status`: packets delimit the body, and
    /// the head contains the status.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The announced body length, to be checked against the actual one.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// True between messages. The connection is reusable only then.
    #[must_use]
    pub fn is_between_packets(&self) -> bool {
        self.fault.is_none() && self.place == PacketPosition::Front && self.front_len == 0
    }

    /// The actual and the expected value of a fault whose message does not contain them.
    #[must_use]
    pub fn particulars(&self) -> Option<String> {
        let [_, _, _, _, _, high, low] = self.front;
        Some(match self.fault? {
            AjpFault::Magic => {
                let came = &self.front[..usize::from(self.front_len)];
                format!("\"{}\" in place of \"AB\"", came.escape_ascii())
            }
            AjpFault::PacketTooLarge => {
                let came = usize::from(self.payload_len()) + PREFIX_BYTES;
                format!("{came} bytes, of {} at most", self.size.bytes())
            }
            AjpFault::ChunkLength => {
                let (chunk, message) = (u16::from_be_bytes([high, low]), self.payload_len());
                format!("{chunk} bytes in a message of {message}")
            }
            _ => return None,
        })
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.payload.capacity() + self.reason.capacity() + self.fields.capacity()
    }

    /// Consumes the front of `input`: at most up to the end of one event.
    ///
    /// # Errors
    /// [`AjpFault`]; the connection is unusable afterwards.
    pub fn feed(&mut self, input: &[u8]) -> Result<AjpStep, AjpFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.run(input).inspect_err(|fault| self.fault = Some(*fault))
    }

    fn begin(&mut self, phase: AjpPhase) {
        self.phase = phase;
        self.place = PacketPosition::Front;
        self.front_len = 0;
        self.payload.clear();
    }

    fn run(&mut self, input: &[u8]) -> Result<AjpStep, AjpFault> {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            let event = match self.place {
                PacketPosition::Front => {
                    at += 1;
                    self.take_front(rest[0])?
                }
                PacketPosition::Payload { left } => {
                    let len = rest.len().min(usize::from(left));
                    at += len;
                    self.take_payload(&rest[..len], left)?
                }
                PacketPosition::Chunk { left, tail } => {
                    debug_assert!(left > 0 && self.phase == AjpPhase::Body, "{:?}", self.phase);
                    let len = rest.len().min(usize::from(left));
                    self.place = after_chunk(left - len as u16, tail);
                    let data = at..at + len;
                    return Ok(AjpStep { consumed: data.end, event: Some(AjpEvent::Body(data)) });
                }
                PacketPosition::Tail { was_empty } => {
                    at += 1;
                    self.place = PacketPosition::Front;
                    match rest[0] {
                        0 => was_empty.then_some(AjpEvent::Flush),
                        _ => return Err(AjpFault::StringEnd),
                    }
                }
            };
            if event.is_some() {
                return Ok(AjpStep { consumed: at, event });
            }
        }
        Ok(AjpStep { consumed: at, event: None })
    }

    /// Handles one byte of prefix, code or chunk length.
    fn take_front(&mut self, byte: u8) -> Result<Option<AjpEvent>, AjpFault> {
        let at = usize::from(self.front_len);
        self.front[at] = byte;
        self.front_len += 1;
        match at {
            0 => self.check_first(byte).map(|()| None),
            1 if byte != TO_SERVER[1] => Err(AjpFault::Magic),
            3 => self.check_len().map(|()| None),
            4 => self.take_code(byte),
            6 => self.take_chunk_len(),
            _ => Ok(None),
        }
    }

    fn check_first(&self, byte: u8) -> Result<(), AjpFault> {
        match self.phase {
            AjpPhase::Idle => Err(AjpFault::Unrequested),
            AjpPhase::Ended => Err(AjpFault::AfterEnd),
            _ if byte != TO_SERVER[0] => Err(AjpFault::Magic),
            _ => Ok(()),
        }
    }

    /// Bytes after the prefix.
    fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.front[2], self.front[3]])
    }

    fn check_len(&self) -> Result<(), AjpFault> {
        match usize::from(self.payload_len()) {
            0 => Err(AjpFault::PacketEmpty),
            len if len > self.size.payload_bytes() => Err(AjpFault::PacketTooLarge),
            _ => Ok(()),
        }
    }

    /// Checks that this message is allowed now, and starts it.
    fn take_code(&mut self, code: u8) -> Result<Option<AjpEvent>, AjpFault> {
        match (code, self.phase) {
            (codes::CPONG, AjpPhase::Ping)
            | (codes::SEND_HEADERS, AjpPhase::Head)
            | (codes::GET_BODY_CHUNK, AjpPhase::Head | AjpPhase::Body)
            | (codes::END_RESPONSE, AjpPhase::Body) => self.begin_payload(),
            (codes::SEND_BODY_CHUNK, AjpPhase::Body) if self.payload_len() < 3 => {
                Err(AjpFault::Truncated)
            }
            (codes::SEND_BODY_CHUNK, AjpPhase::Body) => Ok(None),
            (codes::SEND_BODY_CHUNK | codes::END_RESPONSE, AjpPhase::Head) => {
                Err(AjpFault::HeadersMissing)
            }
            (codes::SEND_HEADERS, AjpPhase::Body) => Err(AjpFault::HeadersRepeated),
            (codes::SEND_BODY_CHUNK..=codes::GET_BODY_CHUNK | codes::CPONG, _) => {
                Err(AjpFault::Unrequested)
            }
            _ => Err(AjpFault::Code),
        }
    }

    fn begin_payload(&mut self) -> Result<Option<AjpEvent>, AjpFault> {
        let left = self.payload_len() - 1;
        self.place = PacketPosition::Payload { left };
        if left == 0 { self.finish_message(&[]).map(Some) } else { Ok(None) }
    }

    fn take_chunk_len(&mut self) -> Result<Option<AjpEvent>, AjpFault> {
        let len = u16::from_be_bytes([self.front[5], self.front[6]]);
        let tail = (self.payload_len() - 3).checked_sub(len).ok_or(AjpFault::ChunkLength)?;
        // The document has no byte after a chunk; Tomcat sends a NUL.
        if tail > 1 {
            return Err(AjpFault::Trailing);
        }
        self.front_len = 0;
        if len > 0 {
            self.place = PacketPosition::Chunk { left: len, tail };
            return Ok(None);
        }
        self.place = if tail == 0 {
            PacketPosition::Front
        } else {
            PacketPosition::Tail { was_empty: true }
        };
        Ok((tail == 0).then_some(AjpEvent::Flush))
    }

    /// Collects a payload. A message that is completely in the input is read there, without a copy.
    fn take_payload(&mut self, piece: &[u8], left: u16) -> Result<Option<AjpEvent>, AjpFault> {
        debug_assert!(left > 0 && piece.len() <= usize::from(left), "{left} {}", piece.len());
        let left = left - piece.len() as u16;
        if left == 0 && self.payload.is_empty() {
            return self.finish_message(piece).map(Some);
        }
        self.payload.extend_from_slice(piece);
        debug_assert!(self.payload.len() <= self.size.payload_bytes(), "{}", self.payload.len());
        if left > 0 {
            self.place = PacketPosition::Payload { left };
            return Ok(None);
        }
        let payload = core::mem::take(&mut self.payload);
        let event = self.finish_message(&payload);
        self.payload = payload;
        self.payload.clear();
        event.map(Some)
    }

    /// Parses the message after its code.
    fn finish_message(&mut self, payload: &[u8]) -> Result<AjpEvent, AjpFault> {
        let code = self.front[PREFIX_BYTES];
        (self.place, self.front_len) = (PacketPosition::Front, 0);
        let mut reader = PayloadReader::new(payload);
        let event = match code {
            codes::SEND_HEADERS => {
                self.read_headers(&mut reader)?;
                self.phase = AjpPhase::Body;
                AjpEvent::Headers
            }
            codes::GET_BODY_CHUNK => match reader.int()? {
                0 => return Err(AjpFault::BodyRequestEmpty),
                len => AjpEvent::GetBody { len },
            },
            codes::END_RESPONSE => {
                self.phase = AjpPhase::Ended;
                AjpEvent::End { reuse: reader.byte()? != 0 }
            }
            _ => {
                self.phase = AjpPhase::Idle;
                AjpEvent::Pong
            }
        };
        reader.end().map(|()| event)
    }

    fn read_headers(&mut self, reader: &mut PayloadReader<'_>) -> Result<(), AjpFault> {
        let status = Status::new(reader.int()?).ok_or(AjpFault::Status)?;
        if status.code() < 200 {
            return Err(AjpFault::Status);
        }
        self.status = status;
        self.reason.extend_from_slice(reader.string()?.unwrap_or_default());
        let count = reader.int()?;
        if count > self.fields_max {
            return Err(AjpFault::TooManyFields);
        }
        for _ in 0..count {
            let name = reader.name(CodeTable::Response)?;
            let value = trim(reader.string()?.unwrap_or_default());
            match name.known {
                Some(Known::ContentLength) => self.read_length(value)?,
                Some(Known::Status) => {}
                Some(known) if is_hop_by_hop(known) => {}
                _ => self.fields.push(name.text, value),
            }
        }
        Ok(())
    }

    /// Records the Content-Length. A repeated equal value is kept once.
    fn read_length(&mut self, value: &[u8]) -> Result<(), AjpFault> {
        let len = decimal::parse(value).ok_or(AjpFault::LengthMalformed)?;
        match self.content_length {
            None => self.fields.push_known(Known::ContentLength, value),
            Some(reported) if reported != len => return Err(AjpFault::LengthConflict),
            Some(_) => {}
        }
        self.content_length = Some(len);
        Ok(())
    }
}

const fn after_chunk(left: u16, tail: u16) -> PacketPosition {
    match (left, tail) {
        (0, 0) => PacketPosition::Front,
        (0, _) => PacketPosition::Tail { was_empty: false },
        _ => PacketPosition::Chunk { left, tail },
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
