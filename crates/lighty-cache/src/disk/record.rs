//! Records: responses as they lie in a segment.
//!
//! A record begins at a multiple of [`UNIT_BYTES`] and has a header of [`HEADER_BYTES`], a head,
//! and a body. A checksum (CRC-32C) covers header and head, and with them the lengths; the head has
//! one for each [`BLOCK_BYTES`] of the body. Nothing trusts a length that no checksum has covered.
//!
//! | offset | bytes | header |
//! |---|---|---|
//! | 0 | 4 | `LTYR` |
//! | 4 | 4 | version |
//! | 8 | 4 | bytes of the head |
//! | 12 | 4 | bytes of the body behind it |
//! | 16 | 12 | hash of the variant |
//! | 28 | 4 | segment |
//! | 32 | 4 | offset in the segment, in units |
//! | 36 | 4 | checksum of the header, with zero here, and of the head |
//! | 40 | 24 | zero |

use lighty_http::{Fields, Status};

use super::codec::{Reader, Writer};
use super::hash::{KEY_HASH_BYTES, KeyHash};
use crate::key::Key;
use crate::object::StoredHead;
use crate::rules::{Freshness, FreshnessFlags};
use crate::sums::{BLOCK_BYTES, block_sums};

/// Alignment of records, in bytes.
pub(super) const UNIT_BYTES: u64 = 64;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 64;

/// Bytes of the largest head that is stored on the disk.
pub(super) const HEAD_BYTES_MAX: usize = 256 << 10;

const MAGIC: [u8; 4] = *b"LTYR";
const VERSION: u32 = 1;

/// The place of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyPlace {
    /// Behind the head.
    Here,
    /// In a segment, behind a head that is out of date.
    Segment {
        /// The segment's number.
        segment: u32,
        /// Offset of the body in it, in bytes.
        offset: u64,
    },
    /// In a file of its own.
    File {
        /// The file's number.
        number: u64,
    },
}

/// A body and its checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BodySums {
    pub(crate) place: BodyPlace,
    pub(crate) length: u64,
    /// One for each block; for a file of its own, which has them at its end, one for these.
    pub(crate) sums: Box<[u32]>,
}

/// A response as it is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) selecting: Box<[u8]>,
    pub(crate) head: StoredHead,
    pub(crate) sent_at: u64,
    pub(crate) body: BodySums,
}

/// A record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// The segment's number.
    pub(crate) segment: u32,
    /// Offset in units.
    pub(crate) unit: u32,
}

impl RecordPlace {
    /// Offset in bytes.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.unit) * UNIT_BYTES
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) head_bytes: u32,
    pub(super) body_bytes: u32,
    pub(super) hash: KeyHash,
    pub(super) place: RecordPlace,
    sum: u32,
}

impl Header {
    /// Reads a header. Its values are only true if [`Header::proves`] holds.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.get(..HEADER_BYTES)?);
        if reader.array()? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let (head_bytes, body_bytes) = (reader.u32()?, reader.u32()?);
        let hash = KeyHash::from_bytes(reader.array::<KEY_HASH_BYTES>()?);
        let place = RecordPlace { segment: reader.u32()?, unit: reader.u32()? };
        let header = Self { head_bytes, body_bytes, hash, place, sum: reader.u32()? };
        let is_whole = reader.0.iter().all(|byte| *byte == 0);
        Some(header).filter(|header| is_whole && header.head_bytes as usize <= HEAD_BYTES_MAX)
    }

    fn write(&self, sum: u32) -> [u8; HEADER_BYTES] {
        let mut writer = Writer::default();
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u32(self.head_bytes);
        writer.u32(self.body_bytes);
        writer.bytes(&self.hash.to_bytes());
        writer.u32(self.place.segment);
        writer.u32(self.place.unit);
        writer.u32(sum);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..writer.0.len()].copy_from_slice(&writer.0);
        bytes
    }

    fn sum_with(&self, head: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.write(0)), head)
    }

    /// True if the header and the head belong together and are as they were written.
    pub(super) fn proves(&self, head: &[u8]) -> bool {
        head.len() == self.head_bytes as usize && self.sum == self.sum_with(head)
    }

    /// Bytes of the record, without padding.
    pub(super) fn record_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.head_bytes) + u64::from(self.body_bytes)
    }

    /// Offset of the body in the segment.
    pub(super) fn body_offset(&self) -> u64 {
        self.place.offset() + HEADER_BYTES as u64 + u64::from(self.head_bytes)
    }
}

/// A length, rounded up to whole units.
pub(super) const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT_BYTES)
}

/// True if a body is as it was written.
pub(super) fn proves_body(sums: &[u32], body: &[u8]) -> bool {
    *block_sums(std::iter::once(body)) == *sums
}

impl Record {
    /// Appends the record for a place to `out`, padded to whole units, and returns its length
    /// without padding. `body` has the bytes of a body that is [`BodyPlace::Here`]. `None`, and
    /// nothing appended, if the head is too large.
    pub(super) fn write<'a>(
        &self,
        out: &mut Vec<u8>,
        hash: KeyHash,
        place: RecordPlace,
        body: impl Iterator<Item = &'a [u8]>,
    ) -> Option<u64> {
        let head = self.encode_head();
        if head.len() > HEAD_BYTES_MAX {
            return None;
        }
        let is_here = self.body.place == BodyPlace::Here;
        let body_bytes = if is_here { u32::try_from(self.body.length).ok()? } else { 0 };
        let head_bytes = u32::try_from(head.len()).ok()?;
        let header = Header { head_bytes, body_bytes, hash, place, sum: 0 };
        let start = out.len();
        out.extend_from_slice(&header.write(header.sum_with(&head)));
        out.extend_from_slice(&head);
        if is_here {
            body.for_each(|piece| out.extend_from_slice(piece));
        }
        pad(out, start);
        Some(header.record_bytes())
    }

    fn encode_head(&self) -> Vec<u8> {
        let (head, mut writer) = (&self.head, Writer::default());
        writer.u64(self.sent_at);
        writer.u16(head.status.code());
        let freshness = &head.freshness;
        writer.u64(freshness.received_s.cast_unsigned());
        writer.u32(freshness.initial_age_s);
        writer.u32(freshness.lifetime_s);
        writer.u32(freshness.stale_while_revalidate_s);
        writer.u32(freshness.stale_if_error_s);
        writer.u8(freshness.flags.bits());
        writer.string(self.key.as_bytes());
        writer.string(&self.selecting);
        writer.string(head.language.as_deref().unwrap_or_default());
        writer.count(head.names.len());
        head.names.iter().for_each(|name| writer.string(name));
        writer.count(head.tags.len());
        head.tags.iter().for_each(|tag| writer.u64(*tag));
        writer.count(head.fields.len());
        for (name, value) in head.fields.iter() {
            writer.string(name);
            writer.string(value);
        }
        self.encode_body(&mut writer);
        writer.0
    }

    fn encode_body(&self, writer: &mut Writer) {
        let (kind, one, other) = match self.body.place {
            BodyPlace::Here => (0, 0, 0),
            BodyPlace::Segment { segment, offset } => (1, u64::from(segment), offset),
            BodyPlace::File { number } => (2, number, 0),
        };
        writer.u8(kind);
        writer.u64(one);
        writer.u64(other);
        writer.u64(self.body.length);
        writer.count(self.body.sums.len());
        self.body.sums.iter().for_each(|sum| writer.u32(*sum));
    }

    /// Reads the head of a record whose checksum holds. `None` if it is not one of this version.
    pub(super) fn read(head: &[u8]) -> Option<Self> {
        let mut reader = Reader(head);
        let sent_at = reader.u64()?;
        let status = Status::new(reader.u16()?)?;
        let freshness = Freshness {
            received_s: reader.u64()?.cast_signed(),
            initial_age_s: reader.u32()?,
            lifetime_s: reader.u32()?,
            stale_while_revalidate_s: reader.u32()?,
            stale_if_error_s: reader.u32()?,
            flags: FreshnessFlags::from_bits(reader.u8()?),
        };
        let key = Key::from_bytes(reader.string()?);
        let selecting = reader.string()?.into();
        let language = Some(reader.string()?).filter(|one| !one.is_empty()).map(Box::from);
        let names = reader.count(4)?;
        let names = (0..names).map(|_| reader.string().map(Box::from)).collect::<Option<_>>()?;
        let tags = reader.count(8)?;
        let tags = (0..tags).map(|_| reader.u64()).collect::<Option<_>>()?;
        let mut fields = Fields::default();
        for _ in 0..reader.count(8)? {
            fields.push(reader.string()?, reader.string()?);
        }
        let body = read_body(&mut reader)?;
        let head = StoredHead { status, fields, freshness, names, tags, language };
        Some(Self { key, selecting, head, sent_at, body }).filter(|_| reader.0.is_empty())
    }
}

fn read_body(reader: &mut Reader<'_>) -> Option<BodySums> {
    let (kind, one, other) = (reader.u8()?, reader.u64()?, reader.u64()?);
    let place = match kind {
        0 => BodyPlace::Here,
        1 => BodyPlace::Segment { segment: u32::try_from(one).ok()?, offset: other },
        2 => BodyPlace::File { number: one },
        _ => return None,
    };
    let length = reader.u64()?;
    let sums = reader.count(4)?;
    let sums: Box<[u32]> = (0..sums).map(|_| reader.u32()).collect::<Option<_>>()?;
    let blocks = length.div_ceil(BLOCK_BYTES as u64);
    let wanted = if matches!(place, BodyPlace::File { .. }) { 1 } else { blocks };
    let has_sums = sums.len() as u64 == wanted;
    Some(BodySums { place, length, sums }).filter(|_| has_sums)
}

/// Appends a record that is moved, with its new place. `None` if it does not prove itself.
pub(super) fn write_moved(
    out: &mut Vec<u8>,
    record: &[u8],
    expected: RecordPlace,
    place: RecordPlace,
) -> Option<Header> {
    let header = Header::read(record)?;
    let behind = &record[HEADER_BYTES..];
    let head = behind.get(..header.head_bytes as usize)?;
    let length = usize::try_from(header.record_bytes()).ok()?;
    if header.place != expected || !header.proves(head) || record.len() < length {
        return None;
    }
    let moved = Header { place, ..header };
    let start = out.len();
    out.extend_from_slice(&moved.write(moved.sum_with(head)));
    out.extend_from_slice(&record[HEADER_BYTES..length]);
    pad(out, start);
    Some(moved)
}

fn pad(out: &mut Vec<u8>, start: usize) {
    let length = (out.len() - start).next_multiple_of(UNIT_BYTES as usize);
    out.resize(start + length, 0);
}
