//! The header section: names and values in one flat, reusable buffer.
//!
//! Order and spelling of names are kept as received. A [`Known`] name costs one byte to compare and
//! one bit to rule out; others are compared case-insensitively.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use memchr::memchr;

use crate::Known;

/// A list of header (or trailer) fields: RFC 9110 section 5.
///
/// `clear` keeps the memory. `set` and `remove` leave the old bytes behind in the buffer until the
/// next `clear`: sections are short-lived.
///
/// The buffer holds each field as it goes over the wire, `Name: value` and a line end, so that a
/// section to which fields were only ever appended is sent as it lies there.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    buf: Vec<u8>,
    entries: Vec<Entry>,
    present: u128,
    /// A field was removed or inserted: the buffer is no longer the section.
    altered: bool,
    /// A name may be invalid: it is not [`Known`], and was not checked or found wanting.
    spelled: bool,
    /// A value may hold a control byte.
    suspect: bool,
}

/// What stands between a name and its value.
const SEPARATOR: &[u8] = b": ";

/// What stands behind a value.
const LINE_END: &[u8] = b"\r\n";

/// Where a field lies in the buffer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name_start: u32,
    name_len: u32,
    value_start: u32,
    value_len: u32,
    id: Option<Known>,
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

    /// Number of fields (lines, not distinct names).
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of memory that `clear` would keep.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buf.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Appends a field as spelled. The caller guarantees the bytes: parsers have checked them, and
    /// encoders reject what could split a message.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.push_looked_up(Known::from_bytes(name), name, value);
    }

    /// As [`Fields::push`], for a caller that has already looked the name up with
    /// [`Known::from_bytes`].
    pub fn push_looked_up(&mut self, known: Option<Known>, name: &[u8], value: &[u8]) {
        debug_assert_eq!(known, Known::from_bytes(name), "what the name is known as");
        let entry = self.store(name, value, known);
        self.entries.push(entry);
    }

    /// Appends every field of another list, in its order; cheaper than one by one.
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
        let moved = |entry: &Entry| Entry {
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

    /// The first value of a field given by text, in any case.
    #[must_use]
    pub fn get_named(&self, name: &[u8]) -> Option<&[u8]> {
        match Known::from_bytes(name) {
            Some(known) => self.get(known),
            None => self
                .entries
                .iter()
                .find(|entry| self.name(entry).eq_ignore_ascii_case(name))
                .map(|entry| self.value(entry)),
        }
    }

    /// All values of a field given by text, in any case, as one value (RFC 9110 section 5.3; RFC
    /// 9113 section 8.2.3 for `Cookie`), which is how lighttpd's conditions see it. Empty ones are
    /// left out, and repetitions of what has one value.
    #[must_use]
    pub fn joined(&self, name: &[u8]) -> Cow<'_, [u8]> {
        let known = Known::from_bytes(name);
        if known.is_some_and(|known| !self.contains(known)) {
            return Cow::Borrowed(b"");
        }
        let separator: &[u8] = if known == Some(Known::Cookie) { b"; " } else { b", " };
        let has_one = matches!(known, Some(Known::ContentType | Known::IfModifiedSince));
        let is_named = |entry: &&Entry| match (known, entry.id) {
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

    /// Whether the field occurs.
    #[must_use]
    pub fn contains(&self, name: Known) -> bool {
        self.present & name.bit() != 0
    }

    /// Whether any of these fields occurs.
    #[must_use]
    pub fn contains_any(&self, names: &[Known]) -> bool {
        let wanted = names.iter().fold(0, |bits, name| bits | name.bit());
        self.present & wanted != 0
    }

    /// Whether a comma-separated field names `token`, in any case, in any of its lines.
    #[must_use]
    pub fn list_contains(&self, name: Known, token: &str) -> bool {
        self.get_all(name)
            .flat_map(list_items)
            .any(|item| item.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Leaves exactly one field of this name: the first keeps its place, others go.
    pub fn set(&mut self, name: Known, value: impl AsRef<[u8]>) {
        let place = self.entries.iter().position(|entry| entry.id == Some(name));
        self.remove(name);
        let place = place.unwrap_or(self.entries.len());
        self.insert(place, name.as_str().as_bytes(), value.as_ref(), Some(name));
    }

    /// As [`Fields::set`], with the name as text.
    pub fn set_named(&mut self, name: &[u8], value: &[u8]) {
        let place =
            self.entries.iter().position(|entry| self.name(entry).eq_ignore_ascii_case(name));
        self.remove_named(name);
        let id = Known::from_bytes(name);
        self.insert(place.unwrap_or(self.entries.len()), name, value, id);
    }

    /// Removes all fields of this name; returns whether there were any.
    pub fn remove(&mut self, name: Known) -> bool {
        let found = self.contains(name);
        if found {
            self.entries.retain(|entry| entry.id != Some(name));
            self.present &= !name.bit();
            self.altered = true;
        }
        found
    }

    /// As [`Fields::remove`], with the name as text.
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

    /// Names and values in order, spelled as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| (self.name(entry), self.value(entry)))
    }

    /// As [`Fields::iter`], with what is known about the name.
    pub fn iter_known(&self) -> impl Iterator<Item = (Option<Known>, &[u8], &[u8])> {
        self.entries.iter().map(|entry| (entry.id, self.name(entry), self.value(entry)))
    }

    /// The whole section as it goes over the wire, if it lies in the buffer in one piece.
    #[must_use]
    pub fn as_wire(&self) -> Option<&[u8]> {
        (!self.altered).then_some(&self.buf)
    }

    /// Whether every name is a [`Known`] one or was checked, and so surely a token.
    #[must_use]
    pub fn names_are_tokens(&self) -> bool {
        !self.spelled
    }

    /// Whether no value holds a byte up to CR: nothing in them can end a line. `false` is no proof
    /// of the contrary.
    #[must_use]
    pub fn values_are_clean(&self) -> bool {
        !self.suspect
    }

    fn insert(&mut self, place: usize, name: &[u8], value: &[u8], id: Option<Known>) {
        self.altered |= place != self.entries.len();
        let entry = self.store(name, value, id);
        self.entries.insert(place, entry);
    }

    fn store(&mut self, name: &[u8], value: &[u8], id: Option<Known>) -> Entry {
        // One name that is not checked would have every line checked when the section is sent.
        self.spelled |= id.is_none() && !is_token(name);
        let name_start = self.buf.len();
        self.buf.reserve(name.len() + value.len() + SEPARATOR.len() + LINE_END.len());
        self.buf.extend_from_slice(name);
        self.buf.extend_from_slice(SEPARATOR);
        self.store_value(name_start, value, id)
    }

    /// As [`Fields::store`], of a name that has its separator with it.
    fn store_begun(&mut self, begin: &[u8], value: &[u8], id: Option<Known>) -> Entry {
        let name_start = self.buf.len();
        self.buf.extend_from_slice(begin);
        self.store_value(name_start, value, id)
    }

    /// Puts the value behind a name and a separator that are at the end of the buffer.
    fn store_value(&mut self, name_start: usize, value: &[u8], id: Option<Known>) -> Entry {
        self.suspect |= may_end_line(value);
        self.present |= id.map_or(0, Known::bit);
        let value_start = self.buf.len();
        self.buf.extend_from_slice(value);
        self.buf.extend_from_slice(LINE_END);
        Entry {
            name_start: offset(name_start),
            name_len: offset(value_start - name_start - SEPARATOR.len()),
            value_start: offset(value_start),
            value_len: offset(value.len()),
            id,
        }
    }

    fn name(&self, entry: &Entry) -> &[u8] {
        entry_name(&self.buf, entry)
    }

    fn value(&self, entry: &Entry) -> &[u8] {
        &self.buf[entry.value_start as usize..][..entry.value_len as usize]
    }
}

/// A section being copied into [`Fields`]: its lines are recorded one by one in the receive buffer,
/// and its bytes copied at the end, in one go. Dropped early, it leaves no field behind.
#[derive(Debug)]
pub struct Section<'a> {
    fields: &'a mut Fields,
    /// Where the last line ended.
    end: usize,
}

/// Where a line's parts lie in a section. Behind the value: OWS, if any, and CR LF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// First byte of the name; the line begins with it.
    pub name: usize,
    /// Behind the last byte of the name, where the colon is.
    pub name_end: usize,
    /// First byte of the value.
    pub value: usize,
    /// Behind the last byte of the value.
    pub value_end: usize,
    /// Behind the line feed.
    pub end: usize,
}

impl Section<'_> {
    /// Number of lines so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.entries.len()
    }

    /// Whether there is no line yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes the next line of `section`.
    ///
    /// # Panics
    /// Unless the parts follow each other within `section`.
    #[inline]
    pub fn push(&mut self, section: &[u8], line: Line) {
        let Line { name, name_end, value, value_end, end } = line;
        assert!(name_end < value && value <= value_end && value_end < end && end <= section.len());
        let id = Known::from_bytes(&section[name..name_end]);
        // No part lies behind the end, so what holds for that holds for all.
        offset(end);
        self.fields.entries.push(Entry {
            name_start: name as u32,
            name_len: (name_end - name) as u32,
            value_start: value as u32,
            value_len: (value_end - value) as u32,
            id,
        });
        self.fields.present |= id.map_or(0, Known::bit);
        self.fields.spelled |= id.is_none();
        let usual = value == name_end + SEPARATOR.len() && end == value_end + LINE_END.len();
        self.fields.altered |= !usual || name != self.end;
        self.fields.suspect = true;
        self.end = end;
    }

    /// Copies the bytes up to the end of the last line: the fields are there.
    pub fn finish(mut self, section: &[u8]) {
        let end = core::mem::take(&mut self.end);
        self.fields.buf.extend_from_slice(&section[..end]);
    }

    /// As [`Section::finish`], for a caller that has checked that names are tokens, and that values
    /// hold no control bytes but tabs, and is going to send the fields on.
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

/// Whether there is a byte up to CR. Most values are short, so eight bytes at a time rather than a
/// vector: taking 14 from each byte borrows, and so sets the highest bit, where it is smaller.
fn may_end_line(value: &[u8]) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let (words, rest) = value.as_chunks::<8>();
    let borrowed = words.iter().fold(0, |seen, &eight| {
        let word = u64::from_le_bytes(eight);
        seen | (word.wrapping_sub(ONES * (b'\r' as u64 + 1)) & !word)
    });
    borrowed & (ONES << 7) != 0 || rest.iter().any(|&byte| byte <= b'\r')
}

/// Bytes up to CR, of which a section has two at the end of each line and none elsewhere (a tab
/// counts too). Counted in bytes and without branches, so that the compiler makes vectors of it.
#[must_use]
pub fn control_bytes(section: &[u8]) -> usize {
    // At most 255 in a chunk: nothing wraps, but a checked sum would not become a vector.
    let in_chunk = |chunk: &[u8]| -> u8 {
        chunk.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(u8::from(byte <= b'\r')))
    };
    section.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(in_chunk(chunk))).sum()
}

/// Members of a comma-separated value, trimmed, empty ones left out: RFC 9110 section 5.6.1.
///
/// A comma inside a quoted string splits too; fields whose members may hold one (`ETag` lists) are
/// parsed by their own modules.
pub fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|item| !item.is_empty())
}

/// Cuts spaces and tabs (OWS) off both ends.
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

/// Whether a byte may stand in a token (method, field name): RFC 9110 section 5.6.2.
#[must_use]
pub const fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// Whether a name is a token: RFC 9110 section 5.6.2.
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

fn entry_name<'a>(buf: &'a [u8], entry: &Entry) -> &'a [u8] {
    &buf[entry.name_start as usize..][..entry.name_len as usize]
}

fn offset(len: usize) -> u32 {
    // Parsers stop at `Limits::head_bytes_max`; no configuration reaches 4 GiB of header.
    u32::try_from(len).expect("a header section of less than 4 GiB")
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn each_byte_up_to_cr_is_noticed_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                for filler in [14, b'a', 0x80, 0xFF] {
                    let mut value = [filler; 20];
                    value[at] = byte;
                    assert_eq!(may_end_line(&value), byte <= b'\r', "{byte} at {at}");
                }
            }
        }
        assert!(!may_end_line(b""));
    }

    fn sample() -> Fields {
        let mut fields = Fields::new();
        fields.push(b"hOSt", b"a");
        fields.push(b"X-One", b"1");
        fields.push(b"Vary", b"a, b");
        fields.push(b"x-one", b"2");
        fields.push_known(Known::Vary, "C");
        fields
    }

    #[test]
    fn several_fields_of_a_name_are_joined() {
        let mut fields = Fields::new();
        for (name, value) in [
            ("Cookie", "a=1"),
            ("X-K", ""),
            ("Cookie", "b=2"),
            ("x-k", "a"),
            ("Content-Type", "t"),
            ("X-K", ""),
            ("X-Kk", "other"),
            ("Content-Type", "t"),
            ("X-K", "b"),
        ] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let joined = |name: &str| fields.joined(name.as_bytes());
        assert_eq!(&*joined("cookie"), b"a=1; b=2");
        assert_eq!(&*joined("X-K"), b"a, b");
        assert_eq!(&*joined("content-type"), b"t");
        assert_eq!((&*joined("Referer"), &*joined("x-none")), (&b""[..], &b""[..]));
        assert!(matches!(joined("x-kk"), Cow::Borrowed(b"other")), "one is not copied");
    }

    #[test]
    fn appended_lists_read_as_one() {
        let mut fields = sample();
        let mut more = sample();
        more.remove(Known::Host);
        fields.append(&more);
        let all: Vec<_> = sample().iter().chain(more.iter()).map(owned).collect();
        assert_eq!(fields.iter().map(owned).collect::<Vec<_>>(), all);
        assert!(fields.contains(Known::Vary) && fields.names_are_tokens());
        more.push(b"a b", b"c");
        fields.append(&more);
        assert!(!fields.names_are_tokens());
        assert_eq!(fields.as_wire(), None, "what was removed still lies in the buffer");
        let mut fields = Fields::new();
        fields.push_known(Known::Vary, "a");
        fields.append(&fields.clone());
        assert_eq!(fields.as_wire(), Some(&b"Vary: a\r\nVary: a\r\n"[..]));
    }

    /// Lines of a section, split at their colons.
    fn lines(section: &[u8]) -> impl Iterator<Item = Line> + '_ {
        let mut name = 0;
        section.split_inclusive(|&byte| byte == b'\n').map(move |text| {
            let name_end = name + text.iter().position(|&byte| byte == b':').expect("a colon");
            let value = section[name_end + 1..].iter().position(|&byte| byte != b' ');
            let value = name_end + 1 + value.expect("a line end");
            let end = name + text.len();
            let line = Line { name, name_end, value, value_end: end - 2, end };
            name = end;
            line
        })
    }

    #[test]
    fn a_section_is_taken_over_as_it_came() {
        for (text, wire) in [
            (&b"Host: a\r\nx-One: 1\r\nVary: \r\n"[..], true),
            (b"Host:a\r\nx-One:  1\r\nVary:\r\n", false),
        ] {
            let mut fields = sample();
            let mut section = fields.section();
            lines(text).for_each(|line| section.push(text, line));
            assert!(section.len() == 3 && !section.is_empty());
            section.finish(text);
            assert_eq!(fields.get(Known::Host), Some(&b"a"[..]));
            assert_eq!(fields.get(Known::Vary), Some(&b""[..]));
            assert_eq!(fields.iter().nth(1), Some((&b"x-One"[..], &b"1"[..])));
            assert_eq!(fields.as_wire(), wire.then_some(text));
            assert!(!fields.names_are_tokens());
            fields.push_known(Known::Via, "b");
            assert_eq!(fields.get(Known::Via), Some(&b"b"[..]));
        }
    }

    #[test]
    fn a_section_given_up_leaves_nothing() {
        let mut fields = sample();
        let text = b"Host: a\r\n";
        let mut section = fields.section();
        lines(text).for_each(|line| section.push(text, line));
        drop(section);
        assert!(fields.is_empty() && !fields.contains(Known::Host));
        fields.section().finish(b"");
        assert!(fields.is_empty());
    }

    fn owned(field: (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
        (field.0.to_vec(), field.1.to_vec())
    }

    #[test]
    fn keeps_order_and_spelling() {
        let fields = sample();
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(all[0], (&b"hOSt"[..], &b"a"[..]));
        assert_eq!(all[3], (&b"x-one"[..], &b"2"[..]));
        assert_eq!(all[4], (&b"Vary"[..], &b"C"[..]));
        assert_eq!(fields.len(), 5);
    }

    #[test]
    fn looks_up_in_any_case() {
        let fields = sample();
        assert_eq!(fields.get(Known::Host), Some(&b"a"[..]));
        assert_eq!(fields.get_named(b"HOST"), Some(&b"a"[..]));
        assert_eq!(fields.get_named(b"X-ONE"), Some(&b"1"[..]));
        assert_eq!(fields.get_named(b"x-two"), None);
        assert_eq!(fields.get(Known::Cookie), None);
        assert_eq!(fields.get_all(Known::Vary).count(), 2);
        assert!(fields.list_contains(Known::Vary, "B") && fields.list_contains(Known::Vary, "c"));
        assert!(!fields.list_contains(Known::Vary, "d"));
    }

    #[test]
    fn set_replaces_in_place_and_remove_removes_all() {
        let mut fields = sample();
        fields.set(Known::Vary, "z");
        assert_eq!(fields.get_all(Known::Vary).collect::<Vec<_>>(), [b"z"]);
        assert_eq!(fields.iter().nth(2), Some((&b"Vary"[..], &b"z"[..])));
        fields.set_named(b"X-oNe", b"3");
        assert_eq!(fields.iter().nth(1), Some((&b"X-oNe"[..], &b"3"[..])));
        assert_eq!(fields.len(), 3);
        assert!(fields.remove(Known::Vary) && !fields.remove(Known::Vary));
        assert!(fields.remove_named(b"x-ONE") && !fields.remove_named(b"x-one"));
        assert!(!fields.contains(Known::Vary) && fields.contains(Known::Host));
        fields.set(Known::Age, "1");
        assert_eq!(fields.get(Known::Age), Some(&b"1"[..]));
    }

    #[test]
    fn a_value_with_a_control_byte_is_suspect_until_all_is_forgotten() {
        let mut fields = sample();
        assert!(fields.values_are_clean());
        for byte in [0, b'\t', b'\n', b'\r'] {
            let mut bad = Fields::new();
            bad.push_known(Known::Vary, [b'a', byte]);
            assert!(!bad.values_are_clean(), "{byte}");
            fields.append(&bad);
            assert!(!fields.values_are_clean(), "{byte}");
            fields.remove(Known::Vary);
            assert!(!fields.values_are_clean(), "its bytes still lie in the buffer");
            fields.clear();
            assert!(fields.values_are_clean());
        }
    }

    #[test]
    fn clear_keeps_the_memory() {
        let mut fields = sample();
        let capacity = fields.capacity();
        fields.clear();
        assert!(fields.is_empty() && !fields.contains(Known::Host));
        assert_eq!(fields.capacity(), capacity);
    }

    #[test]
    fn list_items_are_trimmed() {
        let items: Vec<_> = list_items(b" a ,, b\t,").collect();
        assert_eq!(items, [b"a", b"b"]);
    }

    #[test]
    fn token_bytes_are_those_of_the_rfc() {
        let extra = b"!#$%&'*+-.^_`|~";
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || extra.contains(&byte);
            assert_eq!(is_token_byte(byte), expected, "{byte}");
        }
    }
}
