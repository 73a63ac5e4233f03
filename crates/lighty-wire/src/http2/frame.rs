//! Frames: RFC 9113 sections 4 and 6.

use alloc::vec::Vec;

/// The client's connection preface: RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head.
pub const FRAME_HEAD_BYTES: usize = 9;

/// Maximum payload that is accepted: the smallest permitted SETTINGS_MAX_FRAME_SIZE.
pub const FRAME_BYTES_MAX: usize = 16_384;

/// Windows of a connection and of its streams before any settings: RFC 9113 section 6.9.2.
pub const WINDOW_BYTES_INITIAL: u32 = 65_535;

/// Largest window: RFC 9113 section 6.9.1.
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Largest identifier of a stream.
pub const STREAM_ID_MAX: u32 = (1 << 31) - 1;

/// Types of frames.
pub(super) mod kind {
    pub(in crate::http2) const DATA: u8 = 0x0;
    pub(in crate::http2) const HEADERS: u8 = 0x1;
    pub(in crate::http2) const PRIORITY: u8 = 0x2;
    pub(in crate::http2) const RST_STREAM: u8 = 0x3;
    pub(in crate::http2) const SETTINGS: u8 = 0x4;
    pub(in crate::http2) const PING: u8 = 0x6;
    pub(in crate::http2) const GOAWAY: u8 = 0x7;
    pub(in crate::http2) const WINDOW_UPDATE: u8 = 0x8;
    pub(in crate::http2) const CONTINUATION: u8 = 0x9;
    /// PRIORITY_UPDATE: RFC 9218 section 7.1.
    pub(in crate::http2) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub(super) mod flag {
    pub(in crate::http2) const END_STREAM: u8 = 0x1;
    pub(in crate::http2) const ACK: u8 = 0x1;
    pub(in crate::http2) const END_HEADERS: u8 = 0x4;
    pub(in crate::http2) const PADDED: u8 = 0x8;
    pub(in crate::http2) const PRIORITY: u8 = 0x20;
}

/// Reason why a stream or a connection ends: RFC 9113 section 7. Unknown codes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

macro_rules! error_codes {
    ($($name:ident = $code:literal,)*) => {
        #[allow(missing_docs, reason = "each constant is documented by its name")]
        impl ErrorCode {
            $(pub const $name: Self = Self($code);)*

            /// The name in the RFC.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($name),)*
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

error_codes! {
    NO_ERROR = 0x0,
    PROTOCOL_ERROR = 0x1,
    INTERNAL_ERROR = 0x2,
    FLOW_CONTROL_ERROR = 0x3,
    SETTINGS_TIMEOUT = 0x4,
    STREAM_CLOSED = 0x5,
    FRAME_SIZE_ERROR = 0x6,
    REFUSED_STREAM = 0x7,
    CANCEL = 0x8,
    COMPRESSION_ERROR = 0x9,
    CONNECT_ERROR = 0xA,
    ENHANCE_YOUR_CALM = 0xB,
    INADEQUATE_SECURITY = 0xC,
    HTTP_1_1_REQUIRED = 0xD,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// The stream identifier without the reserved bit, which is ignored (RFC 9113 section 4.1).
    pub(super) stream: u32,
}

impl FrameHead {
    #[inline]
    pub(super) fn parse(bytes: &[u8; FRAME_HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_ID_MAX,
        }
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn bytes(self) -> [u8; FRAME_HEAD_BYTES] {
        debug_assert!(self.len >> 24 == 0 && self.stream <= STREAM_ID_MAX, "{self:?}");
        let [_, a, b, c] = (self.len as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

/// Appends a whole frame.
pub(super) fn push(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FrameHead { len: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

/// Appends a frame whose payload is one number: RST_STREAM or WINDOW_UPDATE.
pub(super) fn push_number(kind: u8, stream: u32, number: u32, out: &mut Vec<u8>) {
    push(kind, 0, stream, &number.to_be_bytes(), out);
}

/// Removes the padding from a payload: RFC 9113 section 6.1. `None` if it exceeds the payload.
pub(super) fn without_padding(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}

/// The number at the front of a payload.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_written() {
        let head =
            FrameHead { len: 0x01_02_03, kind: 0x7F, flags: 0xA5, stream: STREAM_ID_MAX - 0x1234 };
        assert_eq!(FrameHead::parse(&head.bytes()), head);
        let mut reserved = head.bytes();
        reserved[5] |= 0x80;
        assert_eq!(FrameHead::parse(&reserved), head, "the reserved bit is ignored");
    }

    #[test]
    fn padding_is_less_than_the_payload() {
        let head = FrameHead { len: 0, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(without_padding(head, &[2, 9, 0, 0]), Some(&[9][..]));
        assert_eq!(without_padding(head, &[3, 0, 0, 0]), Some(&[][..]));
        assert_eq!(without_padding(head, &[4, 0, 0, 0]), None);
        assert_eq!(without_padding(head, &[]), None);
        assert_eq!(without_padding(FrameHead { flags: 0, ..head }, &[4]), Some(&[4][..]));
    }

    #[test]
    fn codes_have_names() {
        assert_eq!(ErrorCode::ENHANCE_YOUR_CALM.name(), "ENHANCE_YOUR_CALM");
        assert_eq!(ErrorCode(99).name(), "UNKNOWN");
    }
}
