//! The chunked transfer coding: RFC 9112 section 7.1.
//!
//! The decoder takes input in pieces of any size and returns ranges of them: data are never copied.
//!
//! ```text
//!   Size ──► Extension ──► Data ──► DataCr ──► DataLf ─┐
//!    ▲  └──────► SizeLf ───┘  └ (size 0) ► Trailer ◄► TrailerLf ► Done
//!    └─────────────────────────────────────────────────┘
//! ```
//!
//! Line ends must be CR LF and sizes hexadecimal digits: leniency in either has enabled request
//! smuggling. No receiver uses extensions; in requests they must still match the grammar, in
//! responses they are skipped.

use alloc::vec::Vec;
use core::ops::Range;

use lighty_http::fields::{is_token_byte, trim};
use lighty_http::{Fields, Status, fault_table};
use memchr::memchr;

use super::response::{EncodeFault, push_fields};
use super::trailer;

/// Maximum digits of a chunk size, leading zeros included: RFC 9112 section 7.1 allows any number
/// of them.
pub const SIZE_DIGITS_MAX: u16 = 1024;

/// Maximum bytes of one chunk's extensions.
pub const EXTENSION_BYTES_MAX: u32 = 1024;

/// Framing bytes per chunk that do not count as overhead. One-byte chunks, which some clients send
/// by the thousand, need five.
const CHUNK_FRAMING_BYTES: u64 = 16;

/// Maximum total of framing beyond 16 bytes per chunk and two per byte of data: a request body that
/// is nearly all extensions and leading zeros is an attack.
pub const OVERHEAD_BYTES_MAX: u64 = 16 * 1024;

/// Maximum bytes of the trailer section, line ends included, without the final empty line.
pub const TRAILER_BYTES_MAX: usize = 8192;

/// Maximum trailer fields, dropped ones included.
pub const TRAILERS_MAX: usize = 64;

/// Result of [`ChunkedDecoder::feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkEvent {
    /// Number of bytes consumed; pass the rest in again.
    pub consumed: usize,
    /// The range of body data; may be empty.
    pub data: Range<usize>,
    /// True if the body is complete, trailers included. The next request follows.
    pub done: bool,
}

fault_table! {
    /// Reason why a chunked body is rejected. The connection is unusable afterwards.
    ChunkFault,
    /// The status for a client that sent it. If a backend sent it, the status has already gone out,
    /// so the client's connection is closed.
    status: Status {
        Size = BAD_REQUEST, "chunk-size", "a chunk size that is not a hexadecimal number";
        SizeTooLarge = CONTENT_TOO_LARGE, "chunk-size-too-large",
            "a chunk size that exceeds what can be counted, or has too many leading zeros";
        Extension = BAD_REQUEST, "chunk-extension", "a chunk extension that is not `;name=value`";
        ExtensionTooLong = BAD_REQUEST, "chunk-extension-too-long",
            "a chunk extension exceeds its limit";
        Overhead = BAD_REQUEST, "chunk-overhead", "more chunk framing than data";
        LineEnd = BAD_REQUEST, "chunk-line-end",
            "a chunk line does not end with carriage return and line feed";
        DataEnd = BAD_REQUEST, "chunk-data-end", "a chunk is longer than its size says";
        Trailer = BAD_REQUEST, "trailer", "a trailer line is not a field";
        TrailersTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "trailers-too-large",
            "the trailer fields exceed their limit";
    }
}

/// Next expected part of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkedState {
    /// Digits of a size; `digits` is the number of digits so far.
    Size { size: u64, digits: u16 },
    /// White space after the size, which is only legal before an extension.
    BeforeExtension { size: u64 },
    /// An extension, up to its CR.
    Extension { size: u64, at: ExtensionPart },
    /// The LF of a size line.
    SizeLf { size: u64 },
    /// Remaining bytes of data.
    Data { left: u64 },
    /// The CR after the data.
    DataCr,
    /// The LF after the data.
    DataLf,
    /// A trailer line or the empty line.
    Trailer,
    /// The LF of the empty line, or the rest of another line.
    TrailerLf,
    /// Nothing.
    Done,
}

/// Position in `chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtensionPart {
    /// After the semicolon.
    BeforeName,
    Name,
    /// White space after a name.
    AfterName,
    /// After the equals sign.
    BeforeValue,
    Value,
    Quoted,
    /// After a backslash in quotes.
    Escaped,
    /// After the closing quote.
    AfterQuoted,
    /// White space after a value, which is only legal before another extension.
    AfterValue,
    /// Anywhere in the extensions of a response.
    Skipped,
}

impl ExtensionPart {
    /// True if the line may end here.
    const fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::AfterQuoted | Self::Skipped)
    }

    fn next(self, byte: u8) -> Option<Self> {
        use ExtensionPart as P;
        let is_blank = matches!(byte, b' ' | b'\t');
        let is_text = is_blank || !byte.is_ascii_control();
        Some(match (self, byte) {
            (P::Skipped, _) if is_text => P::Skipped,
            (P::Quoted, b'"') => P::AfterQuoted,
            (P::Quoted, b'\\') => P::Escaped,
            (P::Quoted | P::Escaped, _) if is_text => P::Quoted,
            (P::Quoted | P::Escaped, _) => return None,
            (P::BeforeName | P::BeforeValue | P::AfterName | P::AfterValue, _) if is_blank => self,
            (P::Name, _) if is_blank => P::AfterName,
            (P::Value | P::AfterQuoted, _) if is_blank => P::AfterValue,
            (P::Name | P::AfterName | P::Value | P::AfterQuoted | P::AfterValue, b';') => {
                P::BeforeName
            }
            (P::Name | P::AfterName, b'=') => P::BeforeValue,
            (P::BeforeValue, b'"') => P::Quoted,
            (P::BeforeName | P::Name, _) if is_token_byte(byte) => P::Name,
            (P::BeforeValue | P::Value, _) if is_token_byte(byte) => P::Value,
            _ => return None,
        })
    }
}

/// Decodes a chunked body piece by piece.
///
/// `feed` it until `done`; trailers are then in [`ChunkedDecoder::trailers`]. The caller limits the
/// body's length. After a fault every further call repeats it.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: ChunkedState,
    fault: Option<ChunkFault>,
    /// Bytes of the current chunk's extension.
    extension_len: u32,
    /// Digits of the current chunk's size.
    size_digits: u16,
    overhead: u64,
    overhead_max: u64,
    /// The beginning of an incomplete trailer line.
    line: Vec<u8>,
    trailer_bytes: usize,
    trailer_count: usize,
    trailers: Fields,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkedDecoder {
    /// Creates a decoder for a new body; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            state: ChunkedState::Size { size: 0, digits: 0 },
            fault: None,
            extension_len: 0,
            size_digits: 0,
            overhead: 0,
            overhead_max: OVERHEAD_BYTES_MAX,
            line: Vec::new(),
            trailer_bytes: 0,
            trailer_count: 0,
            trailers: Fields::new(),
        }
    }

    /// Like [`ChunkedDecoder::new`], for a backend's response, where framing may outweigh data:
    /// streaming byte by byte for hours is legitimate there.
    #[must_use]
    pub const fn of_response() -> Self {
        let mut decoder = Self::new();
        decoder.overhead_max = u64::MAX;
        decoder
    }

    /// Resets the decoder for another body; keeps its memory.
    pub fn clear(&mut self) {
        self.line.clear();
        self.trailers.clear();
        let (line, trailers) =
            (core::mem::take(&mut self.line), core::mem::take(&mut self.trailers));
        *self = Self { line, trailers, overhead_max: self.overhead_max, ..Self::new() };
    }

    /// True if the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == ChunkedState::Done
    }

    /// Bytes of the current chunk that have not been fed yet.
    #[must_use]
    pub fn announced(&self) -> u64 {
        if let ChunkedState::Data { left } = self.state { left } else { 0 }
    }

    /// The trailer fields that [`trailer::is_allowed`] permits. They are complete when the body is
    /// done.
    #[must_use]
    pub fn trailers(&self) -> &Fields {
        &self.trailers
    }

    /// Takes the trailer fields out.
    pub fn take_trailers(&mut self) -> Fields {
        core::mem::take(&mut self.trailers)
    }

    /// Consumes the front of `input`: at most up to the end of one run of data.
    ///
    /// # Errors
    /// [`ChunkFault`], at the byte that is wrong.
    pub fn feed(&mut self, input: &[u8]) -> Result<ChunkEvent, ChunkFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.run(input).inspect_err(|fault| self.fault = Some(*fault))
    }

    fn run(&mut self, input: &[u8]) -> Result<ChunkEvent, ChunkFault> {
        let mut at = 0;
        while at < input.len() {
            match self.state {
                ChunkedState::Data { left } => return Ok(self.take_data(left, at, input.len())),
                ChunkedState::Trailer => at += self.take_trailer(&input[at..])?,
                ChunkedState::TrailerLf => at += self.take_trailer_lf(input[at]),
                ChunkedState::Done => break,
                _ => {
                    self.state = self.step(input[at])?;
                    at += 1;
                }
            }
        }
        Ok(ChunkEvent { consumed: at, data: at..at, done: self.is_done() })
    }

    fn take_data(&mut self, left: u64, start: usize, end: usize) -> ChunkEvent {
        debug_assert!(left > 0 && start < end, "{left} {start} {end}");
        let len = usize::try_from(left).map_or(end - start, |left| left.min(end - start));
        let left = left - len as u64;
        self.state = if left == 0 { ChunkedState::DataCr } else { ChunkedState::Data { left } };
        ChunkEvent { consumed: start + len, data: start..start + len, done: false }
    }

    /// Handles one byte of framing.
    fn step(&mut self, byte: u8) -> Result<ChunkedState, ChunkFault> {
        match (self.state, byte) {
            (ChunkedState::Size { digits: 0, .. }, b'\r' | b'\n' | b';' | b' ' | b'\t') => {
                Err(ChunkFault::Size)
            }
            (ChunkedState::Size { size, .. } | ChunkedState::BeforeExtension { size }, b';') => {
                self.extension_byte()?;
                // Some backends end the line right after the semicolon, or after a blank.
                let at = match self.is_response() {
                    true => ExtensionPart::Skipped,
                    false => ExtensionPart::BeforeName,
                };
                Ok(ChunkedState::Extension { size, at })
            }
            (
                ChunkedState::Size { size, .. } | ChunkedState::BeforeExtension { size },
                b' ' | b'\t',
            ) => {
                self.extension_byte()?;
                Ok(ChunkedState::BeforeExtension { size })
            }
            (ChunkedState::Size { size, .. }, b'\r') => Ok(ChunkedState::SizeLf { size }),
            (ChunkedState::Extension { size, at }, b'\r') if at.may_end() => {
                Ok(ChunkedState::SizeLf { size })
            }
            (ChunkedState::Size { .. } | ChunkedState::Extension { .. }, b'\n') => {
                Err(ChunkFault::LineEnd)
            }
            (ChunkedState::Size { size, digits }, _) => self.add_digit(size, digits, byte),
            // Some backends pad the size with blanks, and other proxies accept it.
            (ChunkedState::BeforeExtension { size }, b'\r') if self.is_response() => {
                Ok(ChunkedState::SizeLf { size })
            }
            (ChunkedState::BeforeExtension { .. }, _) => Err(ChunkFault::Size),
            (ChunkedState::Extension { size, at }, _) => {
                let at = at.next(byte).ok_or(ChunkFault::Extension)?;
                self.extension_byte()?;
                Ok(ChunkedState::Extension { size, at })
            }
            (ChunkedState::SizeLf { size }, b'\n') => self.begin_chunk(size),
            (ChunkedState::SizeLf { .. }, _) => Err(ChunkFault::LineEnd),
            (ChunkedState::DataCr, b'\r') => Ok(ChunkedState::DataLf),
            (ChunkedState::DataLf, b'\n') => Ok(ChunkedState::Size { size: 0, digits: 0 }),
            (ChunkedState::DataCr | ChunkedState::DataLf, _) => Err(ChunkFault::DataEnd),
            (
                ChunkedState::Data { .. }
                | ChunkedState::Trailer
                | ChunkedState::TrailerLf
                | ChunkedState::Done,
                _,
            ) => Ok(self.state),
        }
    }

    const fn is_response(&self) -> bool {
        self.overhead_max == u64::MAX
    }

    fn add_digit(&mut self, size: u64, digits: u16, byte: u8) -> Result<ChunkedState, ChunkFault> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkFault::Size)?;
        if digits == SIZE_DIGITS_MAX || size.leading_zeros() < 4 {
            return Err(ChunkFault::SizeTooLarge);
        }
        self.size_digits = digits + 1;
        Ok(ChunkedState::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
    }

    fn extension_byte(&mut self) -> Result<(), ChunkFault> {
        self.extension_len += 1;
        if self.extension_len > EXTENSION_BYTES_MAX {
            return Err(ChunkFault::ExtensionTooLong);
        }
        Ok(())
    }

    fn begin_chunk(&mut self, size: u64) -> Result<ChunkedState, ChunkFault> {
        let allowed = size.saturating_mul(2).saturating_add(CHUNK_FRAMING_BYTES);
        // This chunk's framing: digits, line ends and the extension.
        let spent = u64::from(self.size_digits) + 4 + u64::from(self.extension_len);
        debug_assert!(
            self.size_digits > 0 && self.extension_len <= EXTENSION_BYTES_MAX,
            "{} {}",
            self.size_digits,
            self.extension_len
        );
        self.overhead = self.overhead.saturating_add(spent).saturating_sub(allowed);
        self.extension_len = 0;
        if self.overhead > self.overhead_max {
            return Err(ChunkFault::Overhead);
        }
        Ok(if size == 0 { ChunkedState::Trailer } else { ChunkedState::Data { left: size } })
    }

    /// Consumes trailer bytes up to the end of a line, or all of them; returns their number. Only a
    /// line that spans pieces is copied, so a body without trailers allocates nothing.
    fn take_trailer(&mut self, input: &[u8]) -> Result<usize, ChunkFault> {
        if self.line.is_empty() && input == b"\r" {
            self.state = ChunkedState::TrailerLf;
            return Ok(1);
        }
        let newline = memchr(b'\n', input);
        let piece = &input[..newline.map_or(input.len(), |at| at + 1)];
        if self.line.is_empty() && piece == b"\r\n" {
            self.state = ChunkedState::Done;
            return Ok(piece.len());
        }
        if self.line.len() + piece.len() > TRAILER_BYTES_MAX - self.trailer_bytes {
            return Err(ChunkFault::TrailersTooLarge);
        }
        if newline.is_some() && self.line.is_empty() {
            self.finish_trailer_line(piece)?;
            return Ok(piece.len());
        }
        self.line.extend_from_slice(piece);
        if newline.is_some() {
            let mut line = core::mem::take(&mut self.line);
            self.finish_trailer_line(&line)?;
            line.clear();
            self.line = line;
        }
        Ok(piece.len())
    }

    /// Handles the byte after a CR at the start of a trailer line: usually the LF that ends the
    /// body.
    fn take_trailer_lf(&mut self, byte: u8) -> usize {
        debug_assert!(self.line.is_empty(), "a CR within a line");
        if byte == b'\n' {
            self.state = ChunkedState::Done;
            return 1;
        }
        self.line.push(b'\r');
        self.state = ChunkedState::Trailer;
        0
    }

    fn finish_trailer_line(&mut self, line: &[u8]) -> Result<(), ChunkFault> {
        let field = line.strip_suffix(b"\r\n").ok_or(ChunkFault::LineEnd)?;
        let (name, value) = split_field(field).ok_or(ChunkFault::Trailer)?;
        if trailer::is_allowed(name) {
            self.trailers.push(name, value);
        }
        self.trailer_bytes += line.len();
        debug_assert!(self.trailer_bytes <= TRAILER_BYTES_MAX, "{}", self.trailer_bytes);
        self.trailer_count += 1;
        if self.trailer_count > TRAILERS_MAX {
            return Err(ChunkFault::TrailersTooLarge);
        }
        Ok(())
    }
}

fn split_field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = line.split_at(memchr(b':', line)?);
    let value = trim(&value[1..]);
    let name_ok = !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte));
    let value_ok = value.iter().all(|&byte| !byte.is_ascii_control() || byte == b'\t');
    (name_ok && value_ok).then_some((name, value))
}

/// The size line of a chunk. Its data and [`CHUNK_END`] follow.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    bytes: [u8; 18],
    start: u8,
}

impl ChunkHead {
    /// Creates the line for a chunk of `len` bytes. `len` must not be 0: that would end the body.
    #[must_use]
    pub fn new(len: u64) -> Self {
        debug_assert_ne!(len, 0, "an empty chunk ends the body");
        let mut bytes = *b"0000000000000000\r\n";
        let (mut start, mut rest) = (16, len);
        while rest > 0 || start == 16 {
            start -= 1;
            bytes[start] = b"0123456789abcdef"[(rest & 15) as usize];
            rest >>= 4;
        }
        Self { bytes, start: start as u8 }
    }

    /// Digits, CR and LF.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Follows the data of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// Ends a body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Ends a body with trailers.
///
/// # Errors
/// [`EncodeFault`]; nothing is appended then.
pub fn push_last_chunk(trailers: &Fields, out: &mut Vec<u8>) -> Result<(), EncodeFault> {
    let start = out.len();
    out.extend_from_slice(b"0\r\n");
    push_fields(trailers, out).inspect_err(|_| out.truncate(start))?;
    out.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
#[path = "chunked_tests.rs"]
mod tests;
