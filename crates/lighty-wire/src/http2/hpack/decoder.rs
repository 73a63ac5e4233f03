//! Decodes field blocks: RFC 7541 sections 3 and 6.

use alloc::vec::Vec;

use lighty_http::Known;
use lighty_http::fields::trim;

use super::dynamic_table::{DynamicTable, Found};
use super::static_table::{STATIC, STATIC_KNOWN, STATIC_LEN};
use super::{Field, FieldFault, HpackFault, huffman, integer};

/// Decodes one peer's field blocks, in the order in which they were sent.
///
/// Every block must be decoded, even that of an ignored message: the table depends on it.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// Largest size that the peer may choose.
    size_max: usize,
    /// Decoded strings of one field.
    scratch: Vec<u8>,
}

/// Position of a literal's string: in the block, or decoded in the scratch buffer.
#[derive(Clone, Copy)]
enum Text {
    Block(usize, usize),
    Scratch(usize, usize),
}

impl Text {
    fn of<'a>(self, block: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Block(start, end) => &block[start..end],
            Self::Scratch(start, end) => &scratch[start..end],
        }
    }
}

impl Decoder {
    /// Creates a decoder. Its table has the initial size of RFC 9113 section 6.5.2.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            table: DynamicTable::new(super::TABLE_BYTES_INITIAL),
            size_max: super::TABLE_BYTES_INITIAL,
            scratch: Vec::new(),
        }
    }

    /// Sets the table size from our settings, once the peer has acknowledged them. A smaller table
    /// must be announced at the front of the next block (RFC 7541 section 4.2).
    pub fn set_size_max(&mut self, bytes: usize) {
        self.size_max = bytes;
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.table.capacity() + self.scratch.capacity()
    }

    /// Frees buffers that are only used while a block is decoded.
    pub fn release_buffers(&mut self) {
        self.table.shrink();
        self.scratch = Vec::new();
    }

    /// Decodes a block, and passes each field to `sink` in order.
    ///
    /// # Errors
    /// [`HpackFault`]; the connection is unusable afterwards.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut sink: impl FnMut(Field<'_>),
    ) -> Result<(), HpackFault> {
        let mut at = self.read_size_updates(block)?;
        while let Some(&first) = block.get(at) {
            if first & 0x80 != 0 {
                let index = integer::decode(block, &mut at, 7)? as usize;
                let found = self.indexed(index)?;
                let Found { known, name, value, fault } = found;
                sink(Field { known, name, value, fault });
            } else if first & 0x40 != 0 {
                self.literal(block, &mut at, 6, true, &mut sink)?;
            } else if first & 0x20 != 0 {
                return Err(HpackFault::SizeUpdate);
            } else {
                self.literal(block, &mut at, 4, false, &mut sink)?;
            }
        }
        debug_assert_eq!(at, block.len(), "a field beyond the block");
        Ok(())
    }

    /// Reads size updates. RFC 7541 section 4.2: a change of size "MUST occur at the beginning of
    /// the first header block following the change", at most two of them.
    fn read_size_updates(&mut self, block: &[u8]) -> Result<usize, HpackFault> {
        let (mut at, mut count) = (0, 0);
        while block.get(at).is_some_and(|first| first & 0xE0 == 0x20) {
            let size = integer::decode(block, &mut at, 5)? as usize;
            count += 1;
            if size > self.size_max || count > 2 {
                return Err(HpackFault::SizeUpdate);
            }
            self.table.resize(size);
        }
        // Our limit was reduced, and the peer has not followed.
        if self.table.size_max() > self.size_max { Err(HpackFault::SizeUpdate) } else { Ok(at) }
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<Found<'_>, HpackFault> {
        let nth = index.checked_sub(1).ok_or(HpackFault::Index)?;
        match STATIC.get(nth) {
            Some((name, value)) => Ok(Found {
                known: STATIC_KNOWN[nth],
                name: name.as_bytes(),
                value: value.as_bytes(),
                fault: None,
            }),
            None => self.table.get(nth - STATIC_LEN).ok_or(HpackFault::Index),
        }
    }

    /// Decodes a literal: a name, by index or as a string, and a value (RFC 7541 section 6.2).
    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        prefix: u32,
        keeps: bool,
        sink: &mut impl FnMut(Field<'_>),
    ) -> Result<(), HpackFault> {
        self.scratch.clear();
        let index = integer::decode(block, at, prefix)? as usize;
        let (name, known, fault) = if index == 0 {
            let text = self.string(block, at)?;
            let name = text.of(block, &self.scratch);
            (text, Known::from_bytes(name), name_fault(name))
        } else {
            self.indexed_name(index)?
        };
        let value = self.string(block, at)?;
        let (name, value) = (name.of(block, &self.scratch), value.of(block, &self.scratch));
        let fault = fault.or_else(|| value_fault(value));
        sink(Field { known, name, value, fault });
        if keeps {
            self.table.insert(Found { known, name, value, fault });
        }
        Ok(())
    }

    /// Copies a name from a table: inserting the new field may evict the name's entry.
    fn indexed_name(
        &mut self,
        index: usize,
    ) -> Result<(Text, Option<Known>, Option<FieldFault>), HpackFault> {
        let found = self.indexed(index)?;
        let known = found.known;
        let fault = found.fault.filter(|&fault| fault == FieldFault::Name);
        let end = found.name.len();
        // Looked up again, because `found` borrows the whole decoder.
        match index.checked_sub(STATIC_LEN + 1) {
            None => self.scratch.extend_from_slice(STATIC[index - 1].0.as_bytes()),
            Some(place) => {
                let found = self.table.get(place).ok_or(HpackFault::Index)?;
                self.scratch.extend_from_slice(found.name);
            }
        }
        Ok((Text::Scratch(0, end), known, fault))
    }

    fn string(&mut self, block: &[u8], at: &mut usize) -> Result<Text, HpackFault> {
        let is_coded = block.get(*at).is_some_and(|first| first & 0x80 != 0);
        let len = integer::decode(block, at, 7)? as usize;
        let (start, end) = (*at, *at + len);
        let coded = block.get(start..end).ok_or(HpackFault::Truncated)?;
        *at = end;
        if !is_coded {
            return Ok(Text::Block(start, end));
        }
        let start = self.scratch.len();
        huffman::decode(coded, &mut self.scratch)?;
        Ok(Text::Scratch(start, self.scratch.len()))
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks a name: a token without upper-case letters, after a colon for pseudo-header fields (RFC
/// 9113 section 8.2.1).
fn name_fault(name: &[u8]) -> Option<FieldFault> {
    let token = name.strip_prefix(b":").unwrap_or(name);
    let is_valid = !token.is_empty() && token.iter().all(|&byte| LOWER_TOKEN[usize::from(byte)]);
    (!is_valid).then_some(FieldFault::Name)
}

/// Checks a value. Stricter than RFC 9113 section 8.2.1, which forbids NUL, CR and LF: all bytes
/// that HTTP/1 rejects are rejected, so that every request can be forwarded.
fn value_fault(value: &[u8]) -> Option<FieldFault> {
    let has_control = value
        .iter()
        .fold(false, |seen, &byte| seen | ((byte < b' ') & (byte != b'\t') | (byte == 0x7F)));
    (has_control || trim(value).len() != value.len()).then_some(FieldFault::Value)
}

static LOWER_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] =
            lighty_http::fields::is_token_byte(byte) && !byte.is_ascii_uppercase();
        byte += 1;
    }
    table
};
