//! Field compression: RFC 7541.
//!
//! [`Decoder`] and [`Encoder`] each hold one dynamic table. A repeated field is one byte, so the
//! caller limits a block by its decoded fields and bytes.

mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod huffman_table;
mod integer;
mod static_table;

use lighty_http::Known;

pub use decoder::Decoder;
pub use encoder::Encoder;

use lighty_http::fault_table;

/// Bytes of a dynamic table before any settings: RFC 9113 section 6.5.2.
pub const TABLE_BYTES_INITIAL: usize = 4096;

/// Overhead of a field besides its name and value, in a table and in a list of fields: RFC 9113
/// section 6.5.2.
pub const FIELD_OVERHEAD: usize = dynamic_table::ENTRY_OVERHEAD;

fault_table! {
    /// Reason why a block cannot be decoded. The tables of both ends differ from then on.
    HpackFault {
        Truncated = "hpack-truncated", "a field block ends within a field";
        IntegerTooLarge = "hpack-integer", "an integer of a field block exceeds 2^24";
        Index = "hpack-index", "a field block refers to an entry that is not there";
        Huffman = "hpack-huffman", "a string ends in no valid Huffman code";
        SizeUpdate = "hpack-size-update",
            "a change of the table's size that is too large, misplaced or missing";
    }
}

/// Fault in a field's bytes: RFC 9113 section 8.2.1. The block is still valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// The name is not a token in lower case.
    Name,
    /// The value contains a control character, or has blanks around it.
    Value,
}

/// A decoded field, as passed to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, if it is a known one.
    pub known: Option<Known>,
    /// The name; pseudo-header fields begin with a colon.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The fault in name or value, if any.
    pub fault: Option<FieldFault>,
}

#[cfg(test)]
mod tests;
