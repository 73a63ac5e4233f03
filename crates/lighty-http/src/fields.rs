//! The header section: names and values in one flat, reusable buffer.
//!
//! Order and spelling of names are kept as received. A [`Known`] name costs one byte to compare and
//! one bit to rule out; others are compared case-insensitively.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use memchr::memchr;

use crate::{Known, variable_name};

/// A list of header (or trailer) fields: RFC 9110 section 5.
///
/// `clear` keeps the memory. `set` and `remove` leave the old bytes in the buffer until the next
/// `clear`, because sections are short-lived.
///
/// The buffer holds each field in wire format, `Name: value` and a line end, so that a section can
/// be sent from it without a copy if fields were only ever appended.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    buf: Vec<u8>,
    entries: Vec<FieldPosition>,
    present: u128,
    /// A field was removed or inserted: the buffer is no longer the section in wire format.
    altered: bool,
    /// A name may be invalid: it is not [`Known`], and was not checked or did not pass.
    spelled: bool,
    /// A value may contain a control byte.
    suspect: bool,
}

/// Separator of a name and its value.
const SEPARATOR: &[u8] = b": ";

/// Terminator of a field.
const LINE_END: &[u8] = b"\r\n";

/// Position of a field in the buffer.
#[derive(Clone, Copy, Debug)]
struct FieldPosition {
    name_start: u32,
    name_len: u32,
    value_start: u32,
    value_len: u32,
    id: Option<Known>,
}

/// A list without the bytes of its fields, in as little memory as possible: see [`Fields::pack`].
#[derive(Debug)]
pub struct PackedFields {
    entries: Box<[FieldPosition]>,
    /// The halves of [`Fields::present`]: a `u128` would align the whole to sixteen bytes.
    present: [u64; 2],
    altered: bool,
    spelled: bool,
    suspect: bool,
}

impl Fields {
    /// An empty list; allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buf: Vec::new(),
            entries: Vec::new(),
            present: 0,
            altered: false,
            spelled: false,
            suspect: false,
        }
    }

    /// Clears all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.entries.clear();
        self.present = 0;
        self.altered = false;
        self.spelled = false;
        self.suspect = false;
    }

    /// Everything needed to restore the list, except [`Fields::as_bytes`].
    #[must_use]
    pub fn pack(&self) -> PackedFields {
        PackedFields {
            entries: self.entries.as_slice().into(),
            present: [self.present as u64, (self.present >> 64) as u64],
            altered: self.altered,
            spelled: self.spelled,
            suspect: self.suspect,
        }
    }

    /// Restores the list that was packed and had these bytes.
    pub fn unpack(&mut self, packed: &PackedFields, bytes: &[u8]) {
        self.clear();
        self.buf.extend_from_slice(bytes);
        self.entries.extend_from_slice(&packed.entries);
        let [low, high] = packed.present.map(u128::from);
        self.present = low | high << 64;
        self.altered = packed.altered;
        self.spelled = packed.spelled;
        self.suspect = packed.suspect;
    }

    /// Releases memory that the fields do not need, for those that are kept for long.
    pub fn shrink_to_fit(&mut self) {
        self.buf.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The bytes of all fields, including leftovers of removed ones.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Number of fields (lines, not distinct names).
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that `clear` would keep.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buf.capacity() + self.entries.capacity() * size_of::<FieldPosition>()
    }

    /// Appends a field with its spelling. The caller guarantees the bytes: parsers have checked
    /// them, and encoders reject bytes that could split a message.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_looked_up(Known::from_bytes(name), name, value);
    }

    /// Like [`Fields::push`], for a caller that has already looked the name up with
    /// [`Known::from_bytes`].
    pub fn push_looked_up(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        debug_assert_eq!(known, Known::from_bytes(name), "what the name is known as");
        let entry = self.store(name, value, known);
        self.entries.push(entry);
    }

    /// Appends all fields of another list, in order; cheaper than one by one.
    pub fn append(&mut self, other: &Fields) {
        let shift = offset(self.buf.len());
        self.buf.extend_from_slice(&other.buf);
        if shift == 0 {
            self.entries.extend_from_slice(&other.entries);
        } else {
            self.append_shifted(other, shift);
        }
        self.present |= other.present;
        self.altered |= other.altered;
        self.spelled |= other.spelled;
        self.suspect |= other.suspect;
    }

    fn append_shifted(&mut self, other: &Fields, shift: u32) {
        let moved = |entry: &FieldPosition| FieldPosition {
            name_start: entry.name_start + shift,
            value_start: entry.value_start + shift,
            ..*entry
        };
        self.entries.extend(other.entries.iter().map(moved));
    }

    /// Starts copying a received header section, replacing the current fields.
    pub fn section(&mut self) -> Section<'_> {
        self.clear();
        Section { fields: self, end: 0 }
    }

    /// Appends a field under its canonical name.
    pub fn push_known(&mut self, name: Known, value: impl AsRef<[u8]>) {
        let entry = self.store_begun(name.as_wire(), value.as_ref(), Some(name));
        self.entries.push(entry);
    }

    /// The first value of a field.
    #[must_use]
    pub fn get(&self, name: Known) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// All values of a field, in order.
    pub fn get_all(&self, name: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
        let entries = if self.contains(name) { self.entries.as_slice() } else { &[] };
        entries.iter().filter(move |entry| entry.id == Some(name)).map(|entry| self.value(entry))
    }

    /// The first value of a field by its name as text, in any case.
    #[must_use]
    pub fn get_named(&self, name: &[u8]) -> Option<&[u8]> {
        match Known::from_bytes(name) {
            Some(known) => self.get(known),
            None => self
                .entries
                .iter()
                .find(|entry| entry.id.is_none() && self.name(entry).eq_ignore_ascii_case(name))
                .map(|entry| self.value(entry)),
        }
    }

    /// All values of a field by its name, in any case, joined to one value (RFC 9110 section 5.3;
    /// RFC 9113 section 8.2.3 for `Cookie`), as in lighttpd's conditions. Skips empty values, and
    /// repeated values of fields that may occur only once.
    #[must_use]
    pub fn joined(&self, name: &[u8]) -> Cow<'_, [u8]> {
        let known = Known::from_bytes(name);
        if known.is_some_and(|known| !self.contains(known)) {
            return Cow::Borrowed(b"");
        }
        let separator: &[u8] = if known == Some(Known::Cookie) { b"; " } else { b", " };
        let has_one = matches!(known, Some(Known::ContentType | Known::IfModifiedSince));
        let is_named = |entry: &&FieldPosition| match (known, entry.id) {
            (None, None) => self.name(entry).eq_ignore_ascii_case(name),
            (known, id) => known == id,
        };
        let values = self.entries.iter().filter(is_named).map(|entry| self.value(entry));
        let mut joined = Cow::Borrowed(&b""[..]);
        for value in values.filter(|value| !value.is_empty()) {
            if joined.is_empty() {
                joined = Cow::Borrowed(value);
            } else if !has_one || !joined.eq_ignore_ascii_case(value) {
                let joined = joined.to_mut();
                joined.extend_from_slice(separator);
                joined.extend_from_slice(value);
            }
        }
        joined
    }

    /// True if the field occurs.
    #[must_use]
    pub fn contains(&self, name: Known) -> bool {
        self.present & name.bit() != 0
    }

    /// True if any of these fields occurs.
    #[must_use]
    pub fn contains_any(&self, names: &[Known]) -> bool {
        let wanted = names.iter().fold(0, |bits, name| bits | name.bit());
        self.present & wanted != 0
    }

    /// True if any line of a comma-separated field lists `token`, in any case.
    #[must_use]
    #[inline]
    pub fn list_contains(&self, name: Known, token: &str) -> bool {
        self.contains(name) && self.is_listed(name, token)
    }

    fn is_listed(&self, name: Known, token: &str) -> bool {
        self.get_all(name)
            .flat_map(list_items)
            .any(|item| item.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Adds a request field's name to `Vary`, unless it is listed (RFC 9110 section 12.5.5).
    pub fn add_to_vary(&mut self, name: &str) {
        if !self.contains(Known::Vary) {
            return self.push_known(Known::Vary, name);
        }
        if self.is_listed(Known::Vary, "*") || self.is_listed(Known::Vary, name) {
            return;
        }
        let lines: Vec<&[u8]> = self.get_all(Known::Vary).filter(|line| !line.is_empty()).collect();
        let vary = [&lines[..], &[name.as_bytes()]].concat().join(&b", "[..]);
        self.set(Known::Vary, vary);
    }

    /// Leaves exactly one field of this name: the first keeps its position, others are removed.
    pub fn set(&mut self, name: Known, value: impl AsRef<[u8]>) {
        if !self.contains(name) {
            return self.push_known(name, value);
        }
        let is_same = |entry: &FieldPosition| entry.id == Some(name);
        let mut places = self.entries.iter().enumerate().filter(|(_, entry)| is_same(entry));
        let (first, more) = (places.next().map(|(place, _)| place), places.next().is_some());
        let entry = self.store_begun(name.as_wire(), value.as_ref(), Some(name));
        let Some(first) = first else { return self.entries.push(entry) };
        self.altered = true;
        self.entries[first] = entry;
        if more {
            let mut place = 0;
            self.entries.retain(|entry| {
                place += 1;
                place == first + 1 || !is_same(entry)
            });
        }
    }

    /// Like [`Fields::set`], with the name as text.
    pub fn set_named(&mut self, name: &[u8], value: &[u8]) {
        self.set_looked_up(Known::from_bytes(name), name, value);
    }

    /// Like [`Fields::set_named`]; `id` is the known name of `name`, if it has one.
    pub fn set_looked_up(&mut self, id: Option<Known>, name: &[u8], value: &[u8]) {
        if id.is_some_and(|known| !self.contains(known)) {
            return self.push_looked_up(id, name, value);
        }
        let place =
            self.entries.iter().position(|entry| self.name(entry).eq_ignore_ascii_case(name));
        self.remove_named(name);
        self.insert(place.unwrap_or(self.entries.len()), name, value, id);
    }

    /// Removes all fields of this name; returns true if there were any.
    pub fn remove(&mut self, name: Known) -> bool {
        let found = self.contains(name);
        if found {
            self.entries.retain(|entry| entry.id != Some(name));
            self.present &= !name.bit();
            self.altered = true;
        }
        found
    }

    /// Like [`Fields::remove`], with the name as text.
    pub fn remove_named(&mut self, name: &[u8]) -> bool {
        if let Some(known) = Known::from_bytes(name) {
            return self.remove(known);
        }
        let (before, buf) = (self.entries.len(), &self.buf);
        self.entries.retain(|entry| !entry_name(buf, entry).eq_ignore_ascii_case(name));
        let found = before != self.entries.len();
        self.altered |= found;
        found
    }

    /// Removes all fields of other names that become the same variable of a program, such as
    /// `X_Real.IP` for `X-Real-IP`: a rule about a field must cover all its spellings.
    pub fn remove_aliases(&mut self, name: &[u8]) {
        let buf = &self.buf;
        let is_odd = |entry: &FieldPosition| {
            let other = entry_name(buf, entry);
            entry.id.is_none()
                && variable_name::is_alias(name, other)
                && !name.eq_ignore_ascii_case(other)
        };
        if self.entries.iter().any(is_odd) {
            self.entries.retain(|entry| !is_odd(entry));
            self.altered = true;
        }
    }

    /// Names and values in order, with their received spelling.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| (self.name(entry), self.value(entry)))
    }

    /// Like [`Fields::iter`], with the known names.
    pub fn iter_known(&self) -> impl Iterator<Item = (Option<Known>, &[u8], &[u8])> {
        self.entries.iter().map(|entry| (entry.id, self.name(entry), self.value(entry)))
    }

    /// The names that are not [`Known`].
    pub fn unknown_names(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|entry| entry.id.is_none()).map(|entry| self.name(entry))
    }

    /// True if any field has an empty value.
    #[must_use]
    pub fn has_empty_value(&self) -> bool {
        self.entries.iter().any(|entry| entry.value_len == 0)
    }

    /// The whole section in wire format, if the buffer contains it in one piece.
    #[must_use]
    pub fn as_wire(&self) -> Option<&[u8]> {
        (!self.altered).then_some(&self.buf)
    }

    /// Appends all fields in wire format to `out`. The caller checks that no byte of a name or a
    /// value could end a line.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        if let Some(section) = self.as_wire() {
            return out.extend_from_slice(section);
        }
        out.reserve(self.buf.len());
        for entry in &self.entries {
            if let Some(line) = self.line(entry) {
                out.extend_from_slice(line);
                continue;
            }
            out.extend_from_slice(self.name(entry));
            out.extend_from_slice(SEPARATOR);
            out.extend_from_slice(self.value(entry));
            out.extend_from_slice(LINE_END);
        }
    }

    /// A field in wire format, unless its bytes came in another form: with other blanks, or none.
    fn line(&self, entry: &FieldPosition) -> Option<&[u8]> {
        let line = self.buf.get(entry.name_start as usize..)?;
        let value = (entry.value_start - entry.name_start) as usize;
        let end = value + entry.value_len as usize;
        let line = line.get(..end + LINE_END.len())?;
        let is_usual = line.ends_with(LINE_END)
            && entry.name_len as usize + SEPARATOR.len() == value
            && line[..value].ends_with(SEPARATOR);
        is_usual.then_some(line)
    }

    /// True if every name is a [`Known`] one or was checked, and so certainly a token.
    #[must_use]
    pub fn names_are_tokens(&self) -> bool {
        !self.spelled
    }

    /// True if no value has a byte up to CR, so no value can end a line. `false` does not mean that
    /// one has.
    #[must_use]
    pub fn values_are_clean(&self) -> bool {
        !self.suspect
    }

    fn insert(&mut self, place: usize, name: &[u8], value: &[u8], id: Option<Known>) {
        self.altered |= place != self.entries.len();
        let entry = self.store(name, value, id);
        self.entries.insert(place, entry);
    }

    fn store(&mut self, name: &[u8], value: &[u8], id: Option<Known>) -> FieldPosition {
        // Otherwise one unchecked name would cause every line to be checked when the section is
        // sent.
        self.spelled |= id.is_none() && !is_token(name);
        let name_start = self.buf.len();
        self.buf.reserve(name.len() + value.len() + SEPARATOR.len() + LINE_END.len());
        self.buf.extend_from_slice(name);
        self.buf.extend_from_slice(SEPARATOR);
        self.store_value(name_start, value, id)
    }

    /// Like [`Fields::store`], for a name with its separator.
    fn store_begun(&mut self, begin: &[u8], value: &[u8], id: Option<Known>) -> FieldPosition {
        let name_start = self.buf.len();
        self.buf.extend_from_slice(begin);
        self.store_value(name_start, value, id)
    }

    /// Appends the value after a name and a separator at the end of the buffer.
    fn store_value(&mut self, name_start: usize, value: &[u8], id: Option<Known>) -> FieldPosition {
        self.suspect |= may_end_line(value);
        self.present |= id.map_or(0, Known::bit);
        let value_start = self.buf.len();
        self.buf.extend_from_slice(value);
        self.buf.extend_from_slice(LINE_END);
        // All parts precede the end, so this check of the end covers them.
        offset(self.buf.len());
        FieldPosition {
            name_start: name_start as u32,
            name_len: (value_start - name_start - SEPARATOR.len()) as u32,
            value_start: value_start as u32,
            value_len: value.len() as u32,
            id,
        }
    }

    fn name(&self, entry: &FieldPosition) -> &[u8] {
        entry_name(&self.buf, entry)
    }

    fn value(&self, entry: &FieldPosition) -> &[u8] {
        &self.buf[entry.value_start as usize..][..entry.value_len as usize]
    }
}

/// A section being copied into [`Fields`]: lines are recorded one by one in the receive buffer, and
/// the bytes are copied at the end, all at once. Dropped early, it leaves no field behind.
#[derive(Debug)]
pub struct Section<'a> {
    fields: &'a mut Fields,
    /// End of the last line.
    end: usize,
}

/// Positions of a line's parts, from its first byte. OWS, if any, and CR LF follow the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLine {
    /// End of the name, where the colon is.
    pub name_end: usize,
    /// First byte of the value.
    pub value: usize,
    /// End of the value.
    pub value_end: usize,
    /// End of the line, line feed included.
    pub end: usize,
}

impl Section<'_> {
    /// Number of lines so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.entries.len()
    }

    /// True if there is no line yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records the next line, at the start of `rest`. Returns true if its name is a [`Known`] one,
    /// and so certainly a token.
    ///
    /// # Panics
    /// Unless the parts follow each other within `rest`.
    #[inline]
    pub fn push(&mut self, rest: &[u8], line: FieldLine) -> bool {
        let FieldLine { name_end, value, value_end, end } = line;
        assert!(name_end < value && value <= value_end && value_end < end && end <= rest.len());
        let id = Known::from_bytes(&rest[..name_end]);
        let start = self.end;
        self.end += end;
        // All parts precede the end, so this check of the end covers them.
        offset(self.end);
        self.fields.entries.push(FieldPosition {
            name_start: start as u32,
            name_len: name_end as u32,
            value_start: (start + value) as u32,
            value_len: (value_end - value) as u32,
            id,
        });
        self.fields.present |= id.map_or(0, Known::bit);
        self.fields.spelled |= id.is_none();
        let usual = value == name_end + SEPARATOR.len()
            && rest[name_end + 1] == b' '
            && end == value_end + LINE_END.len();
        self.fields.altered |= !usual;
        self.fields.suspect = true;
        id.is_some()
    }

    /// Copies the bytes up to the end of the last line, which completes the fields.
    pub fn finish(mut self, section: &[u8]) {
        let end = core::mem::take(&mut self.end);
        self.fields.buf.extend_from_slice(&section[..end]);
    }

    /// Like [`Section::finish`], for a caller that has checked that names are tokens and that
    /// values contain no control bytes but tabs, and that will forward the fields.
    pub fn finish_checked(self, section: &[u8]) {
        self.fields.suspect = memchr(b'\t', &section[..self.end]).is_some();
        self.fields.spelled = false;
        self.finish(section);
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.end > 0 {
            self.fields.clear();
        }
    }
}

/// True if there is a byte up to CR. Most values are short, so this compares eight bytes at a time
/// instead of a vector: subtracting 14 from a smaller byte borrows, and so sets the highest bit.
/// The remainder is compared in a word that overlaps the previous one.
fn may_end_line(value: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let borrowed = |word: u64| word.wrapping_sub(ONES * (b'\r' as u64 + 1)) & !word;
    let seen = if let Some(last) = value.last_chunk::<8>() {
        let (blocks, _) = value.as_chunks::<8>();
        let blocks = blocks.iter().chain([last]);
        blocks.fold(0, |seen, &eight| seen | borrowed(u64::from_le_bytes(eight)))
    } else if let (Some(&first), Some(&last)) = (value.first_chunk(), value.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(first), u32::from_le_bytes(last));
        borrowed(u64::from(first) | u64::from(last) << 32)
    } else {
        return value.iter().any(|&byte| byte <= b'\r');
    };
    seen & (ONES << 7) != 0
}

/// Number of bytes up to CR, of which a valid section has two at the end of each line and none
/// elsewhere (a tab counts too). Counted in bytes and without branches, so that the compiler
/// vectorizes it.
#[must_use]
pub fn control_bytes(section: &[u8]) -> usize {
    // At most 255 per chunk, so nothing wraps; a checked sum would not be vectorized.
    let in_chunk = |chunk: &[u8]| -> u8 {
        chunk.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(u8::from(byte <= b'\r')))
    };
    section.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(in_chunk(chunk))).sum()
}

/// Members of a comma-separated value, trimmed, without empty ones: RFC 9110 section 5.6.1.
///
/// A comma inside a quoted string splits too; fields whose members may contain one (`ETag` lists)
/// are parsed by their own modules.
pub fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|item| !item.is_empty())
}

/// Trims spaces and tabs (OWS) at both ends.
#[must_use]
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// True if a byte is permitted in a token (method, field name): RFC 9110 section 5.6.2.
#[must_use]
pub const fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// True if a name is a token: RFC 9110 section 5.6.2.
#[must_use]
pub fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte))
}

static TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.')
            || matches!(byte, b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

fn entry_name<'a>(buf: &'a [u8], entry: &FieldPosition) -> &'a [u8] {
    &buf[entry.name_start as usize..][..entry.name_len as usize]
}

fn offset(len: usize) -> u32 {
    // Parsers stop at `Limits::head_bytes_max`; no configuration reaches 4 GiB of header.
    u32::try_from(len).expect("a header section of less than 4 GiB")
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
