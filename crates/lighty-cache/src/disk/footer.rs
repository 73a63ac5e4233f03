//! Footers: the table of a sealed segment's records, which is read at the start of the server.
//!
//! A row of [`ROW_BYTES`] for each record, the lists of names that vary, and a tail of
//! [`TAIL_BYTES`] at the end of the file with their lengths and a checksum.

use super::codec::{Reader, Writer};
use super::hash::{KEY_HASH_BYTES, KeyHash};

/// Bytes of a row.
pub(super) const ROW_BYTES: usize = 64;

/// Bytes of a tail.
pub(super) const TAIL_BYTES: usize = 32;

/// Bytes of a moment: milliseconds since 1970.
const MOMENT_BYTES: usize = 6;

/// Different lists of names in one segment; a segment with more is sealed.
pub(super) const NAME_LISTS_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"LTYF";
const VERSION: u32 = 1;

/// Names of the request fields that select among the variants of a resource.
pub(super) type Names = Box<[Box<[u8]>]>;

/// A record, as the index needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Hash of the key, and of the variant.
    pub(super) primary: KeyHash,
    pub(super) hash: KeyHash,
    /// Hash of host and target.
    pub(super) url: u64,
    /// Place in the segment, in units.
    pub(super) unit: u32,
    /// Bytes of the record.
    pub(super) bytes: u32,
    /// Index of the names of the variant; 0: the resource does not vary.
    pub(super) names: u16,
    /// The body's own file and its length; 0: none.
    pub(super) file: u64,
    pub(super) file_bytes: u64,
    /// Moment at which the request was sent, of which 48 bits are kept; 0: unknown.
    pub(super) sent_at: u64,
}

/// A footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) rows: Vec<Row>,
    pub(super) names: Vec<Names>,
}

/// The end of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Offset of the footer in the segment.
    pub(super) offset: u64,
    /// Its length without the tail.
    pub(super) bytes: u64,
    sum: u32,
}

impl Footer {
    /// The index of a list of names, which is added if it is new. `None` if there are too many.
    pub(super) fn names_index(&mut self, names: &[Box<[u8]>]) -> Option<u16> {
        if names.is_empty() {
            return Some(0);
        }
        let at = match self.names.iter().position(|known| **known == *names) {
            Some(at) => at,
            None if self.names.len() >= NAME_LISTS_MAX => return None,
            None => {
                self.names.push(names.into());
                self.names.len() - 1
            }
        };
        u16::try_from(at + 1).ok()
    }

    /// The names of a row.
    pub(super) fn names_of(&self, row: &Row) -> Option<&Names> {
        self.names.get(usize::from(row.names).checked_sub(1)?)
    }

    /// Bytes of the footer with its tail.
    pub(super) fn bytes(&self) -> u64 {
        let names = self.names.iter().flatten().map(|name| name.len() + 4).sum::<usize>();
        (self.rows.len() * ROW_BYTES + 8 + 4 * self.names.len() + names + TAIL_BYTES) as u64
    }

    /// The footer with its tail, for an offset in a segment.
    pub(super) fn write(&self, offset: u64) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.count(self.rows.len());
        for row in &self.rows {
            let start = writer.0.len();
            writer.bytes(&row.primary.to_bytes());
            writer.bytes(&row.hash.to_bytes());
            writer.u64(row.url);
            writer.u32(row.unit);
            writer.u32(row.bytes);
            writer.u16(row.names);
            writer.u64(row.file);
            writer.u64(row.file_bytes);
            writer.bytes(&row.sent_at.to_le_bytes()[..MOMENT_BYTES]);
            debug_assert_eq!(writer.0.len(), start + ROW_BYTES);
        }
        writer.count(self.names.len());
        for names in &self.names {
            writer.count(names.len());
            names.iter().for_each(|name| writer.string(name));
        }
        let (bytes, sum) = (writer.0.len() as u64, crc32c::crc32c(&writer.0));
        let tail = Tail { offset, bytes, sum }.write();
        writer.bytes(&tail);
        writer.0
    }

    /// Reads a footer. `None` unless it is as it was written.
    pub(super) fn read(tail: &Tail, bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 != tail.bytes || crc32c::crc32c(bytes) != tail.sum {
            return None;
        }
        let mut reader = Reader(bytes);
        let mut rows = Vec::new();
        for _ in 0..reader.count(ROW_BYTES)? {
            rows.push(read_row(reader.array::<ROW_BYTES>()?)?);
        }
        let mut names = Vec::new();
        for _ in 0..reader.count(4)? {
            let count = reader.count(4)?;
            let list = (0..count).map(|_| reader.string().map(Box::from)).collect::<Option<_>>()?;
            names.push(list);
        }
        Some(Self { rows, names }).filter(|_| reader.0.is_empty())
    }
}

fn read_row(bytes: [u8; ROW_BYTES]) -> Option<Row> {
    let mut reader = Reader(&bytes);
    Some(Row {
        primary: KeyHash::from_bytes(reader.array::<KEY_HASH_BYTES>()?),
        hash: KeyHash::from_bytes(reader.array::<KEY_HASH_BYTES>()?),
        url: reader.u64()?,
        unit: reader.u32()?,
        bytes: reader.u32()?,
        names: reader.u16()?,
        file: reader.u64()?,
        file_bytes: reader.u64()?,
        sent_at: {
            let mut moment = [0; 8];
            moment[..MOMENT_BYTES].copy_from_slice(&reader.array::<MOMENT_BYTES>()?);
            u64::from_le_bytes(moment)
        },
    })
}

impl Tail {
    fn write(&self) -> [u8; TAIL_BYTES] {
        let mut writer = Writer::default();
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u64(self.offset);
        writer.u64(self.bytes);
        writer.u32(self.sum);
        let mut bytes = [0; TAIL_BYTES];
        bytes[..writer.0.len()].copy_from_slice(&writer.0);
        let sum = crc32c::crc32c(&writer.0);
        bytes[TAIL_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a tail. `None` unless it is as it was written, for a file of this length.
    pub(super) fn read(bytes: [u8; TAIL_BYTES], file_bytes: u64) -> Option<Self> {
        let mut reader = Reader(&bytes);
        if reader.array()? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let tail = Self { offset: reader.u64()?, bytes: reader.u64()?, sum: reader.u32()? };
        let end = tail.offset.checked_add(tail.bytes)?.checked_add(TAIL_BYTES as u64)?;
        Some(tail).filter(|tail| tail.write() == bytes && end == file_bytes)
    }
}
