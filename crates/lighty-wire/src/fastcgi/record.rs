//! Records: FastCGI 1.0 section 3.3.
//!
//! The reader never holds content back, and never adds two lengths from a peer: it counts content
//! and padding down separately.

use core::ops::Range;

use super::FastcgiFault;

/// Bytes of a record's header.
pub const HEADER_LEN: usize = 8;

/// Bytes of content that one record can carry.
pub const CONTENT_LEN_MAX: usize = 65_535;

const VERSION: u8 = 1;

/// Generates the enum and the conversion from a number.
macro_rules! record_types {
    ($($variant:ident = $number:literal,)*) => {
        /// Type of a record: FastCGI 1.0 section 8.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is documented by its name")]
        pub enum RecordType {
            $($variant = $number,)*
        }

        impl RecordType {
            /// The type of a number; `None` for an unknown one.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

record_types! {
    BeginRequest = 1,
    AbortRequest = 2,
    EndRequest = 3,
    Params = 4,
    Stdin = 5,
    Stdout = 6,
    Stderr = 7,
    Data = 8,
    GetValues = 9,
    GetValuesResult = 10,
    UnknownType = 11,
}

/// The first eight bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The number of its [`RecordType`], which may be unknown.
    pub kind: u8,
    /// The request that it belongs to; 0 for management.
    pub request_id: u16,
    /// Bytes of content.
    pub content_len: u16,
    /// Bytes of padding.
    pub padding_len: u8,
}

impl RecordHeader {
    /// A header without padding.
    #[must_use]
    pub const fn new(kind: RecordType, request_id: u16, content_len: u16) -> Self {
        Self { kind: kind as u8, request_id, content_len, padding_len: 0 }
    }

    /// The encoded header.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [len_high, len_low] = self.content_len.to_be_bytes();
        [VERSION, self.kind, id_high, id_low, len_high, len_low, self.padding_len, 0]
    }

    /// The type, if the number is known.
    #[must_use]
    pub const fn record_type(&self) -> Option<RecordType> {
        RecordType::from_number(self.kind)
    }

    const fn from_bytes(bytes: [u8; HEADER_LEN]) -> Result<Self, FastcgiFault> {
        let [version, kind, id_high, id_low, len_high, len_low, padding_len, _reserved] = bytes;
        if version != VERSION {
            return Err(FastcgiFault::Version);
        }
        Ok(Self {
            kind,
            request_id: u16::from_be_bytes([id_high, id_low]),
            content_len: u16::from_be_bytes([len_high, len_low]),
            padding_len,
        })
    }
}

/// The result of [`RecordReader::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordPiece {
    /// A header. The record's content follows.
    Header(RecordHeader),
    /// Content, or part of it.
    Content(Range<usize>),
    /// The end of the record, padding included.
    End,
}

/// Next expected part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    /// The rest of a header of which `filled` bytes have arrived.
    Header { bytes: [u8; HEADER_LEN], filled: u8 },
    /// Remaining bytes of content, and bytes of padding after them.
    Content { left: u16, padding: u8 },
    /// Remaining bytes of padding.
    Padding { left: u8 },
}

const BETWEEN: RecordState = RecordState::Header { bytes: [0; HEADER_LEN], filled: 0 };

/// Splits a byte stream into records.
#[derive(Clone, Debug)]
pub(super) struct RecordReader {
    state: RecordState,
}

impl RecordReader {
    pub(super) const fn new() -> Self {
        Self { state: BETWEEN }
    }

    /// True between records.
    pub(super) fn is_between_records(&self) -> bool {
        matches!(
            self.state,
            RecordState::Header { filled: 0, .. }
                | RecordState::Content { left: 0, padding: 0 }
                | RecordState::Padding { left: 0 }
        )
    }

    /// Consumes bytes from the front of `input`; returns their number and meaning. Without a piece,
    /// the whole input is consumed.
    pub(super) fn read(
        &mut self,
        input: &[u8],
    ) -> Result<(usize, Option<RecordPiece>), FastcgiFault> {
        match self.state {
            RecordState::Header { bytes, filled } => self.read_header(bytes, filled, input),
            RecordState::Content { left: 0, padding } => {
                self.state = RecordState::Padding { left: padding };
                self.read(input)
            }
            RecordState::Content { left, padding } => {
                let len = input.len().min(usize::from(left));
                self.state = RecordState::Content { left: left - len as u16, padding };
                Ok((len, (len > 0).then_some(RecordPiece::Content(0..len))))
            }
            RecordState::Padding { left } => {
                let len = input.len().min(usize::from(left));
                let left = left - len as u8;
                self.state = if left == 0 { BETWEEN } else { RecordState::Padding { left } };
                Ok((len, (left == 0).then_some(RecordPiece::End)))
            }
        }
    }

    fn read_header(
        &mut self,
        mut bytes: [u8; HEADER_LEN],
        filled: u8,
        input: &[u8],
    ) -> Result<(usize, Option<RecordPiece>), FastcgiFault> {
        debug_assert!(usize::from(filled) < HEADER_LEN, "{filled}");
        let missing = &mut bytes[usize::from(filled)..];
        let len = missing.len().min(input.len());
        missing[..len].copy_from_slice(&input[..len]);
        let filled = filled + len as u8;
        // Detects another protocol at its first byte.
        if filled > 0 && bytes[0] != VERSION {
            return Err(FastcgiFault::Version);
        }
        if usize::from(filled) < HEADER_LEN {
            self.state = RecordState::Header { bytes, filled };
            return Ok((len, None));
        }
        let header = RecordHeader::from_bytes(bytes)?;
        self.state = RecordState::Content { left: header.content_len, padding: header.padding_len };
        Ok((len, Some(RecordPiece::Header(header))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_specification() {
        for number in 0..=u8::MAX {
            let kind = RecordType::from_number(number);
            assert_eq!(kind.is_some(), (1..=11).contains(&number));
            assert!(kind.is_none_or(|kind| kind as u8 == number));
        }
    }

    #[test]
    fn headers_survive() {
        let header =
            RecordHeader { kind: 6, request_id: 0x0102, content_len: 0xFFFE, padding_len: 255 };
        let bytes = header.to_bytes();
        assert_eq!(bytes, [1, 6, 1, 2, 0xFF, 0xFE, 255, 0]);
        assert_eq!(RecordHeader::from_bytes(bytes), Ok(header));
        assert_eq!(header.record_type(), Some(RecordType::Stdout));
    }

    #[test]
    fn the_longest_record_ends_where_it_ends() {
        let mut reader = RecordReader::new();
        let header =
            RecordHeader { padding_len: 255, ..RecordHeader::new(RecordType::Stdout, 1, u16::MAX) };
        let (used, piece) = reader.read(&header.to_bytes()).expect("a header");
        assert_eq!((used, piece), (8, Some(RecordPiece::Header(header))));
        let rest = [0; CONTENT_LEN_MAX + 255 + 1];
        let (used, piece) = reader.read(&rest).expect("content");
        assert_eq!(
            (used, piece),
            (CONTENT_LEN_MAX, Some(RecordPiece::Content(0..CONTENT_LEN_MAX)))
        );
        assert!(!reader.is_between_records());
        let (used, piece) = reader.read(&rest[CONTENT_LEN_MAX..]).expect("padding");
        assert_eq!((used, piece), (255, Some(RecordPiece::End)));
        assert!(reader.is_between_records());
    }
}
