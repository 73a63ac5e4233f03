//! Byte ranges: RFC 9110 section 14.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::appender::Appender;
use crate::decimal;
use crate::fields::trim;

/// Maximum ranges per request; a request for more gets the whole (section 14.2).
pub const RANGES_MAX: usize = 32;

/// Maximum ranges per request that overlap an earlier one; more is an attack and gets the whole.
pub const RANGE_OVERLAPS_MAX: usize = 2;

/// Two ranges with a gap of at most this many bytes are merged: another part's head would cost
/// about as much (section 15.3.7.2).
pub const COALESCE_GAP_BYTES: u64 = 80;

/// Bytes from `start` up to, not including, `end`. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "explained above")]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    /// Number of bytes.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Always false; ranges are not empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    fn touches(self, other: Self) -> bool {
        self.start <= other.end.saturating_add(COALESCE_GAP_BYTES)
            && other.start <= self.end.saturating_add(COALESCE_GAP_BYTES)
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn joined(self, other: Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Result of evaluating a `Range` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// No valid range: 200 with everything.
    Whole,
    /// No range lies within the representation: 416.
    Unsatisfiable,
    /// 206 with this one.
    Single(ByteRange),
    /// 206 with `multipart/byteranges` of the ranges in the list: two or more, none adjacent to
    /// another, in the requested order.
    Multiple,
}

/// Parses the value of a `Range` field and fits it to a representation of `len` bytes. `list` is
/// emptied first, and then filled with the ranges of [`Selection::Multiple`].
pub fn select(value: &[u8], len: u64, list: &mut Vec<ByteRange>) -> Selection {
    list.clear();
    let Some(specs) = specs(value) else { return Selection::Whole };
    let (mut count, mut overlaps, mut suffix_of_nothing) = (0, 0, false);
    for spec in specs.split(|&byte| byte == b',').map(trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        let Some(spec) = Spec::parse(spec) else { return whole(list) };
        suffix_of_nothing |= len == 0 && matches!(spec, Spec::Suffix(1..));
        if let Some(range) = spec.fit(len) {
            overlaps += usize::from(list.iter().any(|other| other.overlaps(range)));
            add(list, range);
        }
        if count > RANGES_MAX || overlaps > RANGE_OVERLAPS_MAX {
            return whole(list);
        }
    }
    match list.as_slice() {
        _ if count == 0 => Selection::Whole,
        // The last n bytes of an empty representation are all of it, which Content-Range cannot
        // express.
        [] if suffix_of_nothing => Selection::Whole,
        [] => Selection::Unsatisfiable,
        [only] => Selection::Single(*only),
        _ => Selection::Multiple,
    }
}

fn whole(list: &mut Vec<ByteRange>) -> Selection {
    list.clear();
    Selection::Whole
}

/// Strips `bytes=`; other units are ignored (section 14.2).
fn specs(value: &[u8]) -> Option<&[u8]> {
    let (unit, rest) = value.split_at_checked("bytes=".len())?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(rest)
}

/// An unresolved range.
enum Spec {
    From(u64),
    Within(u64, u64),
    Suffix(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first, last) {
            ([], last) => Some(Self::Suffix(number(last)?)),
            (first, []) => Some(Self::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Within(first, last))
            }
        }
    }

    /// The part that lies within a representation of `len` bytes, if any.
    fn fit(&self, len: u64) -> Option<ByteRange> {
        let (start, end) = match *self {
            Self::From(first) => (first, len),
            Self::Within(first, last) => (first, last.saturating_add(1).min(len)),
            Self::Suffix(count) => (len.saturating_sub(count), len),
        };
        (start < end).then_some(ByteRange { start, end })
    }
}

/// Digits only, at least one; a larger number counts as the largest.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        text.iter().fold(0, |sum: u64, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        }),
    )
}

/// Merges a range with all ranges that it touches, at the position of the first of them.
fn add(list: &mut Vec<ByteRange>, range: ByteRange) {
    let mut joined = range;
    let mut place = list.len();
    while let Some(index) = list.iter().rposition(|other| other.touches(joined)) {
        joined = joined.joined(list.remove(index));
        place = place.min(index);
    }
    list.insert(place.min(list.len()), joined);
}

/// The value of `Content-Range` in a 206: `bytes 0-9/100`.
pub fn push_content_range(range: ByteRange, len: u64, out: &mut Vec<u8>) {
    debug_assert!(!range.is_empty() && range.end <= len);
    write_text(out, format_args!("bytes {}-{}/{len}", range.start, range.end - 1));
}

/// Parses the value of `Content-Range` in a 206: the range, and the length of the representation if
/// it is known. `None` if it is malformed, or the range does not lie within the representation.
#[must_use]
pub fn parse_content_range(value: &[u8]) -> Option<(ByteRange, Option<u64>)> {
    let (unit, rest) = value.split_at_checked("bytes ".len())?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    let (range, len) = (&rest[..slash], &rest[slash + 1..]);
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (decimal::parse(&range[..dash])?, decimal::parse(&range[dash + 1..])?);
    let len = if len == b"*" { None } else { Some(decimal::parse(len)?) };
    let fits = first <= last && last < len.unwrap_or(u64::MAX);
    (unit.eq_ignore_ascii_case(b"bytes ") && fits)
        .then(|| (ByteRange { start: first, end: last + 1 }, len))
}

/// The value of `Content-Range` in a 416: `bytes */100`.
pub fn push_unsatisfied_range(len: u64, out: &mut Vec<u8>) {
    write_text(out, format_args!("bytes */{len}"));
}

/// The framing of `multipart/byteranges`: RFC 9110 section 14.6. The caller chooses a boundary that
/// the data does not contain (random, at most 70 token characters).
#[derive(Clone, Copy, Debug)]
pub struct Multipart<'a> {
    /// The separator without its dashes.
    pub boundary: &'a str,
    /// Media type of each part.
    pub content_type: &'a str,
    /// Length of the whole representation.
    pub len: u64,
}

impl Multipart<'_> {
    /// The value of the response's `Content-Type`.
    pub fn push_content_type(&self, out: &mut Vec<u8>) {
        write_text(out, format_args!("multipart/byteranges; boundary={}", self.boundary));
    }

    /// Appends the framing before the bytes of a part.
    pub fn push_part_head(&self, range: ByteRange, out: &mut Vec<u8>) {
        let head = format_args!(
            "\r\n--{}\r\nContent-Type: {}\r\nContent-Range: bytes {}-{}/{}\r\n\r\n",
            self.boundary,
            self.content_type,
            range.start,
            range.end - 1,
            self.len
        );
        write_text(out, head);
    }

    /// Appends the framing after the bytes of the last part.
    pub fn push_end(&self, out: &mut Vec<u8>) {
        write_text(out, format_args!("\r\n--{}--\r\n", self.boundary));
    }
}

fn write_text(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    Appender(out).write_fmt(text).unwrap_or_else(|_| unreachable!("writing to memory succeeds"));
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    fn run(value: &str, len: u64) -> (Selection, Vec<ByteRange>) {
        let mut list = vec![ByteRange { start: 7, end: 8 }];
        let selection = select(value.as_bytes(), len, &mut list);
        (selection, list)
    }

    fn single(start: u64, end: u64) -> Selection {
        Selection::Single(ByteRange { start, end })
    }

    #[test]
    fn one_range() {
        for (value, expected) in [
            ("bytes=0-0", single(0, 1)),
            ("bytes=0-", single(0, 1000)),
            ("BYTES=10-19", single(10, 20)),
            ("bytes=990-2000", single(990, 1000)),
            ("bytes=-1", single(999, 1000)),
            ("bytes=-2000", single(0, 1000)),
            ("bytes=0-99999999999999999999999", single(0, 1000)),
            ("bytes=-99999999999999999999999", single(0, 1000)),
            ("bytes= 5-6 ,", single(5, 7)),
            ("bytes=1000-", Selection::Unsatisfiable),
            ("bytes=1000-1001,2000-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selection::Unsatisfiable),
            ("bytes=5-6,2000-", single(5, 7)),
        ] {
            assert_eq!(run(value, 1000).0, expected, "{value}");
        }
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1-0",
            "bytes=1",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes 1-2",
            "lines=1-2",
            "bytes=1-2,x",
            "bytes=0x1-2",
        ] {
            assert_eq!(run(value, 1000), (Selection::Whole, vec![]), "{value}");
        }
    }

    #[test]
    fn an_empty_file() {
        assert_eq!(run("bytes=0-", 0).0, Selection::Unsatisfiable);
        assert_eq!(run("bytes=-5", 0).0, Selection::Whole);
        assert_eq!(run("bytes=-0", 0).0, Selection::Unsatisfiable);
    }

    #[test]
    fn several_keep_their_order() {
        let (selection, list) = run("bytes=500-509,0-9,-10", 1000);
        assert_eq!(selection, Selection::Multiple);
        let starts: Vec<u64> = list.iter().map(|range| range.start).collect();
        assert_eq!(starts, [500, 0, 990]);
    }

    #[test]
    fn near_ones_are_joined() {
        assert_eq!(run("bytes=0-9,10-19", 1000).0, single(0, 20));
        assert_eq!(run("bytes=0-9,5-14,12-20", 1000).0, single(0, 21));
        assert_eq!(run("bytes=0-9,90-99", 1000).0, single(0, 100));
        assert_eq!(run("bytes=0-9,91-99", 1000).0, Selection::Multiple);
        let (_, list) = run("bytes=600-609,0-9,300-309,10-299", 1000);
        assert_eq!(list, [ByteRange { start: 600, end: 610 }, ByteRange { start: 0, end: 310 }]);
    }

    #[test]
    fn the_number_of_ranges_is_bounded() {
        let apart = |count: u64| {
            let specs: Vec<String> =
                (0..count).map(|n| std::format!("{}-{}", n * 1000, n * 1000)).collect();
            std::format!("bytes={}", specs.join(","))
        };
        let (selection, list) = run(&apart(RANGES_MAX as u64), 1_000_000);
        assert_eq!((selection, list.len()), (Selection::Multiple, RANGES_MAX));
        let (selection, list) = run(&apart(RANGES_MAX as u64 + 1), 1_000_000);
        assert_eq!((selection, list.len()), (Selection::Whole, 0));
    }

    #[test]
    fn the_number_of_overlaps_is_bounded() {
        let nested = |count: usize| std::format!("bytes={}", ["0-9"].repeat(count).join(","));
        assert_eq!(run(&nested(RANGE_OVERLAPS_MAX + 1), 1000).0, single(0, 10));
        assert_eq!(run(&nested(RANGE_OVERLAPS_MAX + 2), 1000).0, Selection::Whole);
    }

    #[test]
    fn texts() {
        let mut out = Vec::new();
        push_content_range(ByteRange { start: 0, end: 10 }, 100, &mut out);
        assert_eq!(out, b"bytes 0-9/100");
        out.clear();
        push_unsatisfied_range(100, &mut out);
        assert_eq!(out, b"bytes */100");
    }

    #[test]
    fn content_ranges() {
        let parse = |text: &str| parse_content_range(text.as_bytes());
        let range = ByteRange { start: 5, end: 10 };
        assert_eq!(parse("bytes 5-9/10"), Some((range, Some(10))));
        assert_eq!(parse("Bytes 5-9/*"), Some((range, None)));
        for text in [
            "",
            "bytes",
            "bytes ",
            "bytes */10",
            "bytes 5-9",
            "bytes 5-9/9",
            "bytes 9-5/10",
            "bytes 5/10",
            "bytes 5-9/",
            "bytes 5-9/+10",
            "bytes=5-9/10",
            "lines 5-9/10",
            "bytes 0-18446744073709551615/*",
            "bytes 5-9/10, 11-12/20",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_multipart_is_framed() {
        let multipart = Multipart { boundary: "xyz", content_type: "text/plain", len: 1000 };
        let ranges = [ByteRange { start: 0, end: 10 }, ByteRange { start: 500, end: 1000 }];
        let mut out = Vec::new();
        for range in ranges {
            multipart.push_part_head(range, &mut out);
            out.extend((0..range.len()).map(|_| b'.'));
        }
        multipart.push_end(&mut out);
        assert!(out.starts_with(
            b"\r\n--xyz\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-9/1000\r\n\r\n"
        ));
        assert!(out.ends_with(b"\r\n--xyz--\r\n"));
        out.clear();
        multipart.push_content_type(&mut out);
        assert_eq!(out, b"multipart/byteranges; boundary=xyz");
    }

    proptest! {
        #[test]
        fn ranges_lie_within_the_file_and_apart(
            value in "bytes=([0-9]{0,3}-[0-9]{0,3},?){0,8}",
            len in 0_u64..600,
        ) {
            let mut list = Vec::new();
            let selection = select(value.as_bytes(), len, &mut list);
            if let Selection::Single(range) = selection {
                prop_assert!(range.start < range.end && range.end <= len);
            }
            for (index, range) in list.iter().enumerate() {
                prop_assert!(range.start < range.end && range.end <= len);
                prop_assert!(list[..index].iter().all(|other| !other.touches(*range)));
            }
            prop_assert_eq!(selection == Selection::Multiple, list.len() > 1);
        }

        #[test]
        fn selecting_never_panics(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            len: u64,
        ) {
            let mut list = Vec::new();
            let _: Selection = select(&value, len, &mut list);
            let mut prefixed = b"bytes=".to_vec();
            prefixed.extend(value);
            let _: Selection = select(&prefixed, len, &mut list);
        }
    }
}
