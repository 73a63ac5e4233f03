//! Bytes, integers and strings within a packet.

use alloc::vec::Vec;

use lighty_http::Known;
use lighty_http::fields::is_token_byte;

use super::codes::{CodeTable, NAME_CODE};
use super::fault::{AjpFault, EncodeFault};

/// Bytes before a payload: two of magic, two of length.
pub(super) const PREFIX_BYTES: usize = 4;

/// Bytes of a body packet before the body: the prefix and the inner length.
pub(super) const BODY_PREFIX_BYTES: usize = 6;

/// The magic of packets to the container; [`TO_SERVER`] is the opposite direction's.
pub(super) const TO_CONTAINER: [u8; 2] = [0x12, 0x34];
pub(super) const TO_SERVER: [u8; 2] = *b"AB";

/// The length that marks a null string.
const NULL: u16 = 0xFFFF;

/// Maximum bytes of a packet, its prefix included. Both sides must be configured alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSize(u32);

impl PacketSize {
    /// The protocol's original size, which is also the minimum.
    pub const DEFAULT: Self = Self(8192);

    /// The maximum size.
    pub const MAX: Self = Self(65536);

    /// Creates a size from 8192 to 65536 bytes.
    #[must_use]
    pub const fn new(bytes: u32) -> Option<Self> {
        if bytes < Self::DEFAULT.0 || bytes > Self::MAX.0 { None } else { Some(Self(bytes)) }
    }

    /// Bytes of a whole packet.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// Bytes of body that a packet can carry.
    #[must_use]
    pub const fn body_bytes(self) -> usize {
        self.bytes() - BODY_PREFIX_BYTES
    }

    /// Bytes after the prefix.
    pub(super) const fn payload_bytes(self) -> usize {
        self.bytes() - PREFIX_BYTES
    }
}

impl Default for PacketSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Reads a payload from front to back.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadReader<'a> {
    rest: &'a [u8],
}

/// A field name as it was sent.
pub(super) struct SentName<'a> {
    pub(super) known: Option<Known>,
    pub(super) text: &'a [u8],
}

impl<'a> PayloadReader<'a> {
    pub(super) const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    pub(super) fn byte(&mut self) -> Result<u8, AjpFault> {
        let (&byte, rest) = self.rest.split_first().ok_or(AjpFault::Truncated)?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn int(&mut self) -> Result<u16, AjpFault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(AjpFault::Truncated)?;
        self.rest = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    /// Reads a length, that many bytes, and a NUL; `None` for the null string. Rejects line ends
    /// and NULs in the value: it could become a header line of its own.
    pub(super) fn string(&mut self) -> Result<Option<&'a [u8]>, AjpFault> {
        match self.int()? {
            NULL => Ok(None),
            len => self.text(len).map(Some),
        }
    }

    /// Like [`PayloadReader::string`], but rejects the null string.
    pub(super) fn string_or_fault(&mut self) -> Result<&'a [u8], AjpFault> {
        self.string()?.ok_or(AjpFault::StringNull)
    }

    /// Reads text that may have several lines; rejects the null string.
    pub(super) fn lines(&mut self) -> Result<&'a [u8], AjpFault> {
        match self.int()? {
            NULL => Err(AjpFault::StringNull),
            len => self.terminated(len),
        }
    }

    fn text(&mut self, len: u16) -> Result<&'a [u8], AjpFault> {
        let is_split = self.rest.get(..usize::from(len)).is_some_and(has_line_end);
        if is_split { Err(AjpFault::FieldValue) } else { self.terminated(len) }
    }

    fn terminated(&mut self, len: u16) -> Result<&'a [u8], AjpFault> {
        let (text, rest) =
            self.rest.split_at_checked(usize::from(len)).ok_or(AjpFault::Truncated)?;
        self.rest = rest;
        match self.byte()? {
            0 => Ok(text),
            _ => Err(AjpFault::StringEnd),
        }
    }

    /// Reads a field name: a two-byte code, or a string. A string is never so long that its length
    /// looks like a code.
    pub(super) fn name(&mut self, names: CodeTable) -> Result<SentName<'a>, AjpFault> {
        let len = self.int()?;
        let [high, low] = len.to_be_bytes();
        let text = match high {
            NAME_CODE => names.name(low).ok_or(AjpFault::FieldCode)?.as_bytes(),
            _ if len == NULL => return Err(AjpFault::StringNull),
            _ => self.text(len)?,
        };
        if !is_token(text) {
            return Err(AjpFault::FieldName);
        }
        Ok(SentName { known: Known::from_bytes(text), text })
    }

    /// Fails if bytes are left.
    pub(super) fn end(self) -> Result<(), AjpFault> {
        if self.rest.is_empty() { Ok(()) } else { Err(AjpFault::Trailing) }
    }
}

/// Assembles a packet at the end of a buffer.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    size: PacketSize,
    /// Bytes of strings that are too long for any packet. They are counted but not written.
    omitted_bytes: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(magic: [u8; 2], size: PacketSize, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&magic);
        out.extend_from_slice(&[0; 2]);
        Self { out, start, size, omitted_bytes: 0 }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn int(&mut self, number: u16) {
        self.out.extend_from_slice(&number.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn string(&mut self, text: &[u8]) -> Result<(), EncodeFault> {
        if has_line_end(text) {
            return Err(EncodeFault::Value);
        }
        self.lines(text)
    }

    /// Writes text that may have several lines.
    pub(super) fn lines(&mut self, text: &[u8]) -> Result<(), EncodeFault> {
        if text.contains(&0) {
            return Err(EncodeFault::Value);
        }
        match u16::try_from(text.len()) {
            Ok(len) if len != NULL => {
                self.int(len);
                self.bytes(text);
                self.byte(0);
            }
            _ => self.omit(text),
        }
        Ok(())
    }

    pub(super) fn string_or_null(&mut self, text: Option<&[u8]>) -> Result<(), EncodeFault> {
        match text {
            Some(text) => self.string(text),
            None => {
                self.int(NULL);
                Ok(())
            }
        }
    }

    pub(super) fn field(
        &mut self,
        names: CodeTable,
        known: Option<Known>,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), EncodeFault> {
        match names.code(known, name) {
            Some(code) => self.int(code),
            None if !is_token(name) => return Err(EncodeFault::FieldName),
            // The length of such a name would look like a code.
            None if name.len() >= usize::from(NAME_CODE) << 8 => self.omit(name),
            None => self.string(name)?,
        }
        self.string(value)
    }

    /// Counts text that fits into no packet, so that [`Writer::finish`] rejects the packet.
    fn omit(&mut self, text: &[u8]) {
        const AROUND_BYTES: usize = 3;
        self.omitted_bytes = self.omitted_bytes.saturating_add(text.len() + AROUND_BYTES);
    }

    /// Bytes of the packet so far, including its prefix and omitted text.
    pub(super) fn needed_bytes(&self) -> usize {
        (self.out.len() - self.start).saturating_add(self.omitted_bytes)
    }

    /// Position of the next byte, for [`Writer::patch`].
    pub(super) fn position(&self) -> usize {
        self.out.len()
    }

    /// Fills in an integer that was not known when its place was written.
    pub(super) fn patch(&mut self, position: usize, number: u16) {
        debug_assert!(position >= self.start + 2, "the magic would be overwritten");
        self.out[position..position + 2].copy_from_slice(&number.to_be_bytes());
    }

    /// Fills in the length of the payload.
    pub(super) fn finish(mut self) -> Result<(), EncodeFault> {
        if self.needed_bytes() > self.size.bytes() {
            return Err(EncodeFault::HeadTooLarge);
        }
        let len = self.out.len() - self.start - PREFIX_BYTES;
        let len = u16::try_from(len).map_err(|_| EncodeFault::HeadTooLarge)?;
        self.patch(self.start + 2, len);
        Ok(())
    }
}

fn has_line_end(text: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, text).is_some()
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_sizes() {
        assert_eq!(PacketSize::new(8191), None);
        assert_eq!(PacketSize::new(8192), Some(PacketSize::DEFAULT));
        assert_eq!(PacketSize::new(65536), Some(PacketSize::MAX));
        assert_eq!(PacketSize::new(65537), None);
        assert_eq!((PacketSize::MAX.body_bytes(), PacketSize::DEFAULT.body_bytes()), (65530, 8186));
        assert!(PacketSize::MAX.payload_bytes() <= usize::from(u16::MAX));
    }

    #[test]
    fn strings() {
        let read = |bytes: &'static [u8]| PayloadReader::new(bytes).string();
        assert_eq!(read(b"\0\x02ab\0"), Ok(Some(&b"ab"[..])));
        assert_eq!(read(b"\0\0\0"), Ok(Some(&b""[..])));
        assert_eq!(read(b"\xFF\xFF"), Ok(None));
        assert_eq!(read(b"\0\x02ab"), Err(AjpFault::Truncated));
        assert_eq!(read(b"\0\x02a"), Err(AjpFault::Truncated));
        assert_eq!(read(b"\0"), Err(AjpFault::Truncated));
        assert_eq!(read(b"\0\x02ab."), Err(AjpFault::StringEnd));
        assert_eq!(read(b"\0\x02\r\n\0"), Err(AjpFault::FieldValue));
        assert_eq!(read(b"\0\x02a\0\0"), Err(AjpFault::FieldValue));
        assert_eq!(read(b"\xFF\xFEab\0"), Err(AjpFault::Truncated));
    }

    #[test]
    fn names() {
        let read = |bytes: &'static [u8]| {
            PayloadReader::new(bytes).name(CodeTable::Response).map(|name| (name.known, name.text))
        };
        assert_eq!(read(b"\xA0\x03"), Ok((Some(Known::ContentLength), &b"Content-Length"[..])));
        assert_eq!(read(b"\xA0\x09"), Ok((None, &b"Servlet-Engine"[..])));
        assert_eq!(read(b"\0\x04dAtE\0"), Ok((Some(Known::Date), &b"dAtE"[..])));
        assert_eq!(read(b"\xA0\x00"), Err(AjpFault::FieldCode));
        assert_eq!(read(b"\xA0\x0C"), Err(AjpFault::FieldCode));
        assert_eq!(read(b"\xA1\x01"), Err(AjpFault::Truncated));
        assert_eq!(read(b"\xFF\xFF"), Err(AjpFault::StringNull));
        assert_eq!(read(b"\0\0\0"), Err(AjpFault::FieldName));
        assert_eq!(read(b"\0\x02a:\0"), Err(AjpFault::FieldName));
    }

    #[test]
    fn strings_that_cannot_be_told_are_not_written() {
        let mut out = Vec::new();
        let mut packet = Writer::begin(TO_SERVER, PacketSize::MAX, &mut out);
        assert_eq!(packet.string(b"a\n"), Err(EncodeFault::Value));
        assert_eq!(
            packet.field(CodeTable::Request, None, b"a b", b""),
            Err(EncodeFault::FieldName)
        );
        assert_eq!((packet.string(b"a"), packet.needed_bytes()), (Ok(()), 8));
        assert_eq!((packet.string(&[b'a'; 0xFFFF]), packet.omitted_bytes), (Ok(()), 0x1_0002));
        assert_eq!(packet.needed_bytes(), 8 + 0x1_0002);
        assert_eq!(packet.finish(), Err(EncodeFault::HeadTooLarge));
    }

    #[test]
    fn long_strings_are_written_up_to_what_would_be_taken_for_something_else() {
        let written = |write: &dyn Fn(&mut Writer<'_>)| {
            let mut out = Vec::new();
            let mut packet = Writer::begin(TO_SERVER, PacketSize::MAX, &mut out);
            write(&mut packet);
            packet.omitted_bytes == 0
        };
        for (len, fits) in [(0xFFFE, true), (0xFFFF, false)] {
            let text = std::vec![b'a'; len];
            assert_eq!(written(&|packet| packet.string(&text).expect("legal")), fits);
        }
        for (len, fits) in [(0x9FFF, true), (0xA000, false)] {
            let name = std::vec![b'a'; len];
            let field =
                |p: &mut Writer<'_>| p.field(CodeTable::Request, None, &name, b"").expect("legal");
            assert_eq!(written(&field), fits);
        }
    }
}
