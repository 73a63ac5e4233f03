//! WebSocket frames, the server's side: RFC 6455 section 5.
//!
//! [`FrameReader`] takes bytes in pieces of any size and removes the client's masks in place, so
//! that payload is forwarded without a copy and frames of any length need no memory.

use alloc::vec::Vec;
use core::ops::Range;

/// The longest payload of a control frame: RFC 6455 section 5.5.
const CONTROL_BYTES_MAX: usize = 125;

/// The longest head of a frame: two bytes, a length of eight, a mask of four.
const HEAD_BYTES_MAX: usize = 14;

/// The close code of a normal end.
pub const CLOSE_NORMAL: u16 = 1000;

/// The close code of a server that ends the service of a URL.
pub const CLOSE_GOING_AWAY: u16 = 1001;

/// The close code for a client that breaks the protocol.
pub const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// The close code for text that is not UTF-8.
const CLOSE_NOT_UTF8: u16 = 1007;

/// The close code for a failure of the server or its backend.
pub const CLOSE_UNEXPECTED: u16 = 1011;

/// Types of the frames that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A message of UTF-8 text.
    Text = 0x1,
    /// A message of bytes.
    Binary = 0x2,
    /// The end of the connection.
    Close = 0x8,
    /// A ping; the peer must reply with a pong.
    Ping = 0x9,
    /// The reply to a ping.
    Pong = 0xa,
}

/// Violation of the protocol by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// A reserved bit is set, but no extension was negotiated.
    ReservedBits,
    /// The opcode is unknown.
    Opcode,
    /// The payload has no mask.
    Unmasked,
    /// A control frame is longer than 125 bytes, or is a fragment.
    Control,
    /// A fragment continues no message, or a message begins within another one.
    Fragment,
    /// The length has its highest bit set, or more bytes than it needs.
    Length,
    /// A close frame has half a code, or a code that must not be sent (RFC 6455 section 7.4).
    CloseCode,
    /// The reason of a close frame is not UTF-8.
    CloseReason,
}

impl FrameFault {
    /// The code of the close frame that replies to it.
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            Self::CloseReason => CLOSE_NOT_UTF8,
            _ => CLOSE_PROTOCOL_ERROR,
        }
    }
}

/// Result of reading a client's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// No event yet.
    More,
    /// Payload of a message: this range of the input, unmasked.
    Data(Range<usize>),
    /// A ping with this payload, which the pong must repeat.
    Ping(Vec<u8>),
    /// The client closes; its code, if it sent one.
    Close(Option<u16>),
}

/// Reads a client's frames.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    /// Within a frame's payload: its remaining bytes.
    left: Option<u64>,
    mask: [u8; 4],
    /// Index into the mask for the next byte.
    mask_at: usize,
    /// True between the first and the last fragment of a message.
    is_in_message: bool,
    control: Vec<u8>,
}

impl FrameReader {
    /// Reads up to the next event. Returns the number of bytes consumed, which is 0 only for empty
    /// input.
    ///
    /// # Errors
    /// The client violates the protocol; further input cannot be read.
    pub fn read(&mut self, input: &mut [u8]) -> Result<(usize, FrameEvent), FrameFault> {
        let mut at = 0;
        if self.left.is_none() {
            while self.head_len < self.head_bytes() && at < input.len() {
                self.head[self.head_len] = input[at];
                self.head_len += 1;
                at += 1;
                if self.head_len == 2 {
                    self.check_start()?;
                }
            }
            if self.head_len < self.head_bytes() {
                return Ok((at, FrameEvent::More));
            }
            self.begin_payload()?;
        }
        let left = self.left.unwrap_or(0);
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
        let payload = at..at + here;
        for byte in &mut input[payload.clone()] {
            *byte ^= self.mask[self.mask_at];
            self.mask_at = (self.mask_at + 1) % 4;
        }
        let left = left - here as u64;
        self.left = (left > 0).then_some(left);
        let consumed = at + here;
        if self.is_control() {
            self.control.extend_from_slice(&input[payload]);
            debug_assert!(self.control.len() <= CONTROL_BYTES_MAX, "{}", self.control.len());
            let event = if left == 0 { self.end_control()? } else { FrameEvent::More };
            return Ok((consumed, event));
        }
        Ok((consumed, if here > 0 { FrameEvent::Data(payload) } else { FrameEvent::More }))
    }

    /// Length of the head, as far as its received bytes determine it.
    fn head_bytes(&self) -> usize {
        if self.head_len < 2 {
            return 2;
        }
        6 + match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    fn opcode(&self) -> u8 {
        self.head[0] & 0x0f
    }

    fn is_control(&self) -> bool {
        self.opcode() & 0x08 != 0
    }

    /// Checks the first two bytes.
    fn check_start(&mut self) -> Result<(), FrameFault> {
        let is_last = self.head[0] & 0x80 != 0;
        if self.head[0] & 0x70 != 0 {
            return Err(FrameFault::ReservedBits);
        }
        if self.head[1] & 0x80 == 0 {
            return Err(FrameFault::Unmasked);
        }
        let length = usize::from(self.head[1] & 0x7f);
        match self.opcode() {
            0x0 if !self.is_in_message => return Err(FrameFault::Fragment),
            0x1 | 0x2 if self.is_in_message => return Err(FrameFault::Fragment),
            0x0..=0x2 => self.is_in_message = !is_last,
            0x8..=0xa if !is_last || length > CONTROL_BYTES_MAX => return Err(FrameFault::Control),
            0x8..=0xa => {}
            _ => return Err(FrameFault::Opcode),
        }
        Ok(())
    }

    fn begin_payload(&mut self) -> Result<(), FrameFault> {
        debug_assert_eq!(self.head_len, self.head_bytes(), "a whole head");
        let extended = &self.head[2..self.head_len - 4];
        let number = extended.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        let length = match extended.len() {
            0 => u64::from(self.head[1] & 0x7f),
            2 if number < 126 => return Err(FrameFault::Length),
            8 if number <= 0xffff || number >> 63 != 0 => return Err(FrameFault::Length),
            _ => number,
        };
        self.mask.copy_from_slice(&self.head[self.head_len - 4..self.head_len]);
        (self.mask_at, self.head_len) = (0, 0);
        self.left = Some(length);
        Ok(())
    }

    fn end_control(&mut self) -> Result<FrameEvent, FrameFault> {
        let payload = core::mem::take(&mut self.control);
        Ok(match self.opcode() {
            0x8 => FrameEvent::Close(read_close(&payload)?),
            0x9 => FrameEvent::Ping(payload),
            _ => FrameEvent::More,
        })
    }
}

/// The code of a close frame, if it has one: RFC 6455 section 5.5.1.
fn read_close(payload: &[u8]) -> Result<Option<u16>, FrameFault> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [_] => return Err(FrameFault::CloseCode),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    if !is_close_code(code) {
        return Err(FrameFault::CloseCode);
    }
    match core::str::from_utf8(reason) {
        Ok(_) => Ok(Some(code)),
        Err(_) => Err(FrameFault::CloseReason),
    }
}

/// Appends the head of a server's frame, which is not masked.
pub fn push_head(opcode: Opcode, length: usize, out: &mut Vec<u8>) {
    debug_assert!(opcode as u8 & 0x08 == 0 || length <= CONTROL_BYTES_MAX, "{opcode:?} {length}");
    out.push(0x80 | opcode as u8);
    match length {
        0..=125 => out.push(length as u8),
        126..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Appends a whole frame.
pub fn push_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    push_head(opcode, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends a close frame.
pub fn push_close(code: u16, out: &mut Vec<u8>) {
    push_frame(Opcode::Close, &code.to_be_bytes(), out);
}

/// True for a close code that an endpoint may send: RFC 6455 section 7.4.
#[must_use]
pub const fn is_close_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Number of bytes at the end that begin a UTF-8 character but do not complete it: text must not be
/// split within one (RFC 6455 section 5.6).
#[must_use]
pub fn incomplete_utf8_tail(text: &[u8]) -> usize {
    let start = text.len().saturating_sub(3);
    let mut tail = text[start..].iter().rev().enumerate();
    let Some((behind, lead)) = tail.find(|(_, byte)| **byte & 0xc0 != 0x80) else { return 0 };
    let needs = match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return 0,
    };
    let has = behind + 1;
    if has < needs { has } else { 0 }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_head(Opcode::Text, payload.len(), &mut out);
        out[0] = first;
        out[1] |= 0x80;
        let mask = [1, 2, 3, 4];
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    /// Payload, pings and close codes of bytes received in pieces.
    fn read_all(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<FrameEvent>), FrameFault> {
        let mut reader = FrameReader::default();
        let (mut data, mut events) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece.to_vec();
            let mut at = 0;
            while at < piece.len() {
                let (consumed, event) = reader.read(&mut piece[at..])?;
                assert!(consumed > 0);
                match event {
                    FrameEvent::More => {}
                    FrameEvent::Data(range) => {
                        data.extend_from_slice(&piece[at + range.start..at + range.end]);
                    }
                    other => events.push(other),
                }
                at += consumed;
            }
        }
        Ok((data, events))
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let long = vec![7u8; 70_000];
        let mut bytes = frame(0x81, b"one ");
        bytes.extend(frame(0x82, b""));
        bytes.extend(frame(0x02, b"two "));
        bytes.extend(frame(0x89, b"ping"));
        bytes.extend(frame(0x8a, b"pong"));
        bytes.extend(frame(0x80, &[b'x'; 126]));
        bytes.extend(frame(0x82, &long));
        bytes.extend(frame(0x88, &[0x03, 0xe8, b'b']));
        let expected = [&b"one two "[..], &[b'x'; 126], &long].concat();
        for piece in [1, 2, 3, 5, 7, 64, 1000, 100_000] {
            let (data, events) = read_all(&bytes, piece).expect("frames");
            assert!(data == expected, "{piece}");
            assert_eq!(events, [FrameEvent::Ping(b"ping".to_vec()), FrameEvent::Close(Some(1000))]);
        }
        assert_eq!(read_all(&frame(0x88, b""), 1), Ok((vec![], vec![FrameEvent::Close(None)])));
    }

    /// Payload, pings and close codes up to a fault, of bytes received in these pieces.
    fn read_pieces(pieces: &[&[u8]]) -> (Vec<u8>, Vec<FrameEvent>, Option<FrameFault>) {
        let mut reader = FrameReader::default();
        let (mut data, mut events) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut piece = piece.to_vec();
            let mut at = 0;
            while at < piece.len() {
                match reader.read(&mut piece[at..]) {
                    Ok((consumed, event)) => {
                        match event {
                            FrameEvent::More => {}
                            FrameEvent::Data(range) => {
                                data.extend_from_slice(&piece[at + range.start..at + range.end]);
                            }
                            other => events.push(other),
                        }
                        at += consumed;
                    }
                    Err(fault) => return (data, events, Some(fault)),
                }
            }
        }
        (data, events, None)
    }

    #[test]
    fn pieces_change_neither_payload_nor_faults() {
        let good = [
            frame(0x01, b"one "),
            frame(0x89, b"ping"),
            frame(0x80, &[b'x'; 126]),
            frame(0x82, b""),
            frame(0x88, &[0x03, 0xe8, b'b']),
        ]
        .concat();
        let whole = read_pieces(&[&good]);
        assert_eq!((whole.0.len(), whole.1.len(), whole.2), (130, 2, None));
        let broken = [
            &frame(0xc1, b"x")[..],
            &frame(0x83, b"x"),
            &[0x81, 1, b'x'],
            &frame(0x09, b"x"),
            &frame(0x88, &[3]),
            &frame(0x88, &[3, 232, 0xff]),
            &frame(0x80, b"x"),
            &[0x81, 0xfe, 0, 125, 0, 0, 0, 0],
            &[&[0x81, 0xff][..], &0xffff_u64.to_be_bytes(), &[0; 4]].concat(),
        ];
        let broken = broken.iter().map(|frame| [&self::frame(0x82, b"before"), *frame].concat());
        for input in broken.chain([good]) {
            let whole = read_pieces(&[&input]);
            lighty_testkit::shredder::shred(&input, |pieces| {
                assert_eq!(read_pieces(pieces), whole, "{input:?} in {pieces:?}");
            });
        }
    }

    #[test]
    fn broken_frames_are_refused() {
        let fault = |bytes: &[u8]| read_all(bytes, 3).expect_err("broken");
        assert_eq!(fault(&frame(0xc1, b"x")), FrameFault::ReservedBits);
        assert_eq!(fault(&frame(0x83, b"x")), FrameFault::Opcode);
        assert_eq!(fault(&frame(0x8b, b"x")), FrameFault::Opcode);
        assert_eq!(fault(&[0x81, 1, b'x']), FrameFault::Unmasked);
        assert_eq!(fault(&frame(0x09, b"x")), FrameFault::Control);
        assert_eq!(fault(&frame(0x88, &[3])), FrameFault::CloseCode);
        assert_eq!(fault(&frame(0x88, &1005_u16.to_be_bytes())), FrameFault::CloseCode);
        let reason = fault(&frame(0x88, &[3, 232, 0xff]));
        assert_eq!((reason, reason.close_code()), (FrameFault::CloseReason, 1007));
        assert_eq!(fault(&frame(0x89, &[0; 126])), FrameFault::Control);
        assert_eq!(fault(&frame(0x80, b"x")), FrameFault::Fragment);
        assert_eq!(fault(&[frame(0x01, b"x"), frame(0x81, b"y")].concat()), FrameFault::Fragment);
        assert_eq!(fault(&[0x81, 0xfe, 0, 125, 0, 0, 0, 0]), FrameFault::Length);
        let long = |length: u64| [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
        assert_eq!(fault(&long(0xffff)), FrameFault::Length);
        assert_eq!(fault(&long(1 << 63)), FrameFault::Length);
    }

    #[test]
    fn heads_have_the_shortest_length() {
        let head = |length| {
            let mut out = Vec::new();
            push_head(Opcode::Binary, length, &mut out);
            out
        };
        assert_eq!(head(125), [0x82, 125]);
        assert_eq!(head(126), [0x82, 126, 0, 126]);
        assert_eq!(head(65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn text_is_not_cut_within_a_character() {
        for text in ["", "a", "ü", "€", "𝄞", "abc€"] {
            assert_eq!(incomplete_utf8_tail(text.as_bytes()), 0, "{text}");
        }
        for (text, cut) in [("ü", 1), ("€", 1), ("€", 2), ("𝄞", 1), ("𝄞", 2), ("𝄞", 3)]
        {
            let bytes = [b"ab", text.as_bytes()].concat();
            assert_eq!(incomplete_utf8_tail(&bytes[..2 + cut]), cut, "{text} {cut}");
        }
        for bytes in [&[0xff][..], &[0x80], &[0x80, 0x80, 0x80, 0x80], &[0xc0]] {
            assert_eq!(incomplete_utf8_tail(bytes), 0, "{bytes:?}");
        }
        assert!(is_close_code(1000) && !is_close_code(1005) && !is_close_code(12_592));
    }
}
