//! Encodes field blocks: RFC 7541 section 6.

use alloc::vec::Vec;

use lighty_http::fields::trim;
use lighty_http::{Known, Status};

use super::dynamic_table::{DynamicTable, ENTRY_OVERHEAD, Found};
use super::static_table::{KNOWN_INDEX, STATIC, STATIC_LEN};
use super::{TABLE_BYTES_INITIAL, huffman, integer};

/// Encodes field blocks for one peer.
///
/// A field that is likely to recur goes into the table, and takes one byte from then on. It is
/// found through two small hash tables, one of names and one of whole fields: a collision costs a
/// few bytes on the wire, never a wrong field.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Number of the latest entry for each hash of a field, followed by each hash of a name.
    recent: Vec<u32>,
    /// Maximum size of our table, whatever the peer allows.
    cap: u32,
    /// Sizes to announce at the front of the next block: the smallest one since the last
    /// announcement, and the final one.
    update: Option<(u32, u32)>,
}

const FIELD_SLOTS: usize = 128;
const NAME_SLOTS: usize = 64;

/// Treatment of a field by the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The field is indexed.
    Index,
    /// The field is not worth an entry.
    Literal,
    /// No intermediary may index the field: RFC 7541 section 7.1.3.
    Never,
}

impl Policy {
    #[inline]
    fn of(known: Option<Known>, name: &[u8], value: &[u8], table_bytes: usize) -> Self {
        use Known as K;
        match known {
            Some(K::Authorization | K::ProxyAuthorization | K::SetCookie) => Self::Never,
            // Short enough to be guessed (RFC 7541 section 7.1).
            Some(K::Cookie) if value.len() < 20 => Self::Never,
            Some(K::ContentLength | K::ContentRange | K::Age | K::Location) => Self::Literal,
            _ if (name.len() + value.len() + ENTRY_OVERHEAD) * 4 > table_bytes => Self::Literal,
            _ => Self::Index,
        }
    }
}

impl Encoder {
    /// Creates an encoder with a table of at most `cap` bytes.
    #[must_use]
    pub fn new(cap: u32) -> Self {
        let mut encoder = Self {
            table: DynamicTable::new(TABLE_BYTES_INITIAL),
            recent: Vec::new(),
            cap,
            update: None,
        };
        encoder.set_peer_size_max(TABLE_BYTES_INITIAL);
        encoder
    }

    /// Applies a change of the peer's SETTINGS_HEADER_TABLE_SIZE.
    pub fn set_peer_size_max(&mut self, bytes: usize) {
        let size = u32::try_from(bytes).map_or(self.cap, |bytes| bytes.min(self.cap));
        if size as usize != self.table.size_max() || self.update.is_some() {
            let smallest = self.update.map_or(size, |(smallest, _)| smallest.min(size));
            self.update = Some((smallest, size));
            self.table.resize(size as usize);
        }
        debug_assert!(self.table.size_max() <= self.cap as usize, "{}", self.table.size_max());
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity() + self.recent.capacity() * size_of::<u32>()
    }

    /// Frees data that can be rebuilt from the table.
    pub fn release_buffers(&mut self) {
        self.recent = Vec::new();
        self.table.shrink();
    }

    /// Begins a block. Call it before the first field.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.recent.is_empty() && !self.table.is_empty() {
            self.recall();
        }
        if let Some((smallest, last)) = self.update.take() {
            debug_assert!(smallest <= last, "{smallest} {last}");
            debug_assert_eq!(last as usize, self.table.size_max(), "the announced size");
            if smallest < last {
                integer::encode(smallest as usize, 5, 0x20, out);
            }
            integer::encode(last as usize, 5, 0x20, out);
        }
    }

    /// Rebuilds the hash tables from the table.
    #[cold]
    fn recall(&mut self) {
        self.recent.resize(FIELD_SLOTS + NAME_SLOTS, u32::MAX);
        let mut number = self.table.inserted().wrapping_sub(self.table.len() as u32);
        for place in (0..self.table.len()).rev() {
            if let Some(Found { known, name, value, .. }) = self.table.get(place) {
                self.recent[field_slot(known, name, value)] = number;
                self.recent[name_slot(known, name)] = number;
            }
            number = number.wrapping_add(1);
        }
        debug_assert_eq!(number, self.table.inserted(), "the newest entry comes last");
    }

    /// Appends `:status`.
    pub fn status(&mut self, status: Status, out: &mut Vec<u8>) {
        let index = match status.code() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => 0,
        };
        if index != 0 {
            out.push(0x80 | index);
        } else {
            self.kept(None, b":status", &status.digits(), 8, out);
        }
    }

    /// Appends a pseudo-header field of a request. `index` is the first static index of its name.
    pub(in crate::http2) fn pseudo(
        &mut self,
        name: &[u8],
        value: &[u8],
        index: usize,
        out: &mut Vec<u8>,
    ) {
        let is_same = |nth: &usize| STATIC[*nth].0.as_bytes() == name;
        let with_value = (index.saturating_sub(1)..STATIC_LEN)
            .take_while(is_same)
            .find(|&nth| STATIC[nth].1.as_bytes() == value);
        match with_value {
            Some(nth) if index != 0 => integer::encode(nth + 1, 7, 0x80, out),
            // A path is rarely requested twice on a connection.
            _ if name == b":path" => {
                integer::encode(index, 4, 0, out);
                string(value, out);
            }
            _ => self.kept(None, name, value, index, out),
        }
    }

    /// Appends a field. The name is written in lower case, the value without blanks around it. The
    /// caller has checked both.
    #[inline]
    pub fn field(&mut self, known: Option<Known>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let value = trim(value);
        let index = known.map_or(0, |known| usize::from(KNOWN_INDEX[known as usize]));
        match Policy::of(known, name, value, self.table.size_max()) {
            Policy::Index => self.kept(known, name, value, index, out),
            Policy::Literal => self.literal(known, name, value, index, 0, out),
            Policy::Never => self.literal(known, name, value, index, 0x10, out),
        }
    }

    /// Appends a field as an index, or inserts it into the table.
    #[inline]
    fn kept(
        &mut self,
        known: Option<Known>,
        name: &[u8],
        value: &[u8],
        index: usize,
        out: &mut Vec<u8>,
    ) {
        let slot = field_slot(known, name, value);
        if let Some(place) = self.recent.get(slot).and_then(|&number| self.table.place_of(number))
            && let Some(found) = self.table.get(place)
            && found.value == value
            && is_same_name(found, known, name)
        {
            return integer::encode(place + STATIC_LEN + 1, 7, 0x80, out);
        }
        self.insert(slot, known, name, value, index, out);
    }

    /// Appends a literal with incremental indexing: RFC 7541 section 6.2.1.
    fn insert(
        &mut self,
        slot: usize,
        known: Option<Known>,
        name: &[u8],
        value: &[u8],
        index: usize,
        out: &mut Vec<u8>,
    ) {
        self.write_name(known, name, index, 6, 0x40, out);
        string(value, out);
        if self.recent.is_empty() {
            // `u32::MAX` is the last number to be assigned, and an empty table finds no entry for
            // any.
            self.recent.resize(FIELD_SLOTS + NAME_SLOTS, u32::MAX);
        }
        let number = self.table.inserted();
        self.recent[slot] = number;
        self.recent[name_slot(known, name)] = number;
        // Our own table is never sent, so a name may keep its spelling there.
        self.table.insert(Found { known, name, value, fault: None });
    }

    /// Appends a literal that is not indexed, of the kind selected by `pattern`: RFC 7541 sections
    /// 6.2.2 and 6.2.3.
    fn literal(
        &mut self,
        known: Option<Known>,
        name: &[u8],
        value: &[u8],
        index: usize,
        pattern: u8,
        out: &mut Vec<u8>,
    ) {
        self.write_name(known, name, index, 4, pattern, out);
        string(value, out);
    }

    /// Appends the name as an index into the static or the dynamic table, or as a string.
    fn write_name(
        &self,
        known: Option<Known>,
        name: &[u8],
        index: usize,
        prefix: u32,
        pattern: u8,
        out: &mut Vec<u8>,
    ) {
        let index = if index != 0 {
            index
        } else {
            let number = self.recent.get(name_slot(known, name));
            let place = number.and_then(|&number| self.table.place_of(number));
            let is_same = |place: &usize| {
                self.table.get(*place).is_some_and(|found| is_same_name(found, known, name))
            };
            place.filter(is_same).map_or(0, |place| place + STATIC_LEN + 1)
        };
        integer::encode(index, prefix, pattern, out);
        if index == 0 {
            lower_case_string(name, out);
        }
    }
}

/// Appends a string, in Huffman code if that is shorter: RFC 7541 section 5.2.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let coded_len = if text.len() < 3 { text.len() } else { huffman::coded_len(text) };
    if coded_len < text.len() {
        integer::encode(coded_len, 7, 0x80, out);
        let start = out.len();
        huffman::encode(text, out);
        debug_assert_eq!(out.len() - start, coded_len, "the announced length");
    } else {
        integer::encode(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// Appends a name in lower case. RFC 9113 section 8.2: "Field names MUST be converted to
/// lowercase".
fn lower_case_string(name: &[u8], out: &mut Vec<u8>) {
    integer::encode(name.len(), 7, 0, out);
    let start = out.len();
    out.extend_from_slice(name);
    out[start..].make_ascii_lowercase();
}

#[inline]
fn is_same_name(found: Found<'_>, known: Option<Known>, name: &[u8]) -> bool {
    found.known == known && (known.is_some() || found.name.eq_ignore_ascii_case(name))
}

#[inline]
fn field_slot(known: Option<Known>, name: &[u8], value: &[u8]) -> usize {
    let name = name_hash(known, name);
    let ends = match value {
        [] => 0,
        [first, .., b, c, last] => u32::from_le_bytes([*first, *b, *c, *last]),
        [first, ..] => u32::from(*first),
    };
    let mixed = (name ^ ends.wrapping_add(value.len() as u32)).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize % FIELD_SLOTS
}

#[inline]
fn name_slot(known: Option<Known>, name: &[u8]) -> usize {
    FIELD_SLOTS + (name_hash(known, name).wrapping_mul(0x85EB_CA6B) >> 16) as usize % NAME_SLOTS
}

#[inline]
fn name_hash(known: Option<Known>, name: &[u8]) -> u32 {
    match known {
        Some(known) => known as u32,
        None => name.iter().fold(0x100, |hash: u32, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(byte | 0x20))
        }),
    }
}
