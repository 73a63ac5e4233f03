//! Entity tags: RFC 9110 section 8.8.3.

use alloc::vec::Vec;

/// File metadata in the tag: `etag.use-inode`, `-size`, `-mtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETagParts {
    /// The inode number. Off for files that several machines serve.
    pub inode: bool,
    /// The length.
    pub size: bool,
    /// The time of the last change, to the nanosecond.
    pub mtime: bool,
}

impl Default for ETagParts {
    fn default() -> Self {
        Self { inode: true, size: true, mtime: true }
    }
}

/// Metadata that identifies a state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names of struct stat")]
pub struct FileIdentity {
    pub inode: u64,
    pub size: u64,
    pub mtime_secs: i64,
    pub mtime_nanos: u32,
}

/// A strong tag with its quotes, stored in place.
///
/// As in lighttpd it is a decimal hash in quotes over the chosen parts. Here the hash has 64 bits
/// instead of 32, and the time counts nanoseconds, so that two versions written within one second
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ETag {
    bytes: [u8; ETAG_BYTES_MAX],
    len: u8,
}

/// Twenty digits and two quotes.
pub const ETAG_BYTES_MAX: usize = 22;

impl ETag {
    /// The tag of a file; `None` if no part is chosen.
    #[must_use]
    pub fn of_file(file: &FileIdentity, parts: ETagParts) -> Option<Self> {
        if !(parts.inode || parts.size || parts.mtime) {
            return None;
        }
        let mut hash = FNV_OFFSET;
        if parts.inode {
            hash = mix(hash, file.inode);
        }
        if parts.size {
            hash = mix(hash, file.size);
        }
        if parts.mtime {
            hash = mix(mix(hash, file.mtime_secs.cast_unsigned()), u64::from(file.mtime_nanos));
        }
        Some(Self::from_number(hash))
    }

    fn from_number(mut number: u64) -> Self {
        let mut bytes = [b'"'; ETAG_BYTES_MAX];
        let mut start = ETAG_BYTES_MAX - 1;
        loop {
            start -= 1;
            bytes[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        // The byte before the first digit and the last byte are quotes already.
        bytes.copy_within(start - 1.., 0);
        Self { bytes, len: (ETAG_BYTES_MAX + 1 - start) as u8 }
    }

    /// The tag with its quotes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl AsRef<[u8]> for ETag {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01B3;

/// FNV-1a over the eight bytes of a number.
fn mix(hash: u64, number: u64) -> u64 {
    number
        .to_le_bytes()
        .iter()
        .fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

/// True if both are strong and equal: RFC 9110 section 8.8.3.2.
#[must_use]
pub fn strong_match(a: &[u8], b: &[u8]) -> bool {
    a == b && a.first() == Some(&b'"')
}

/// True if the opaque parts are equal.
#[must_use]
pub fn weak_match(a: &[u8], b: &[u8]) -> bool {
    let opaque = |tag| -> &[u8] { <[u8]>::strip_prefix(tag, b"W/").unwrap_or(tag) };
    opaque(a) == opaque(b) && opaque(a).first() == Some(&b'"')
}

/// The members of an `If-Match` or `If-None-Match` list, each with its quotes and its `W/`.
///
/// Anything but a tag is skipped up to the next comma. A comma within quotes belongs to the tag.
pub fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    core::iter::from_fn(move || {
        loop {
            while let [b' ' | b'\t' | b',', tail @ ..] = rest {
                rest = tail;
            }
            if rest.is_empty() {
                return None;
            }
            if let Some(len) = tag_len(rest) {
                let (tag, tail) = rest.split_at(len);
                rest = tail;
                return Some(tag);
            }
            let comma = rest.iter().position(|&byte| byte == b',');
            rest = &rest[comma.unwrap_or(rest.len())..];
        }
    })
}

/// The tag at the beginning of `text`.
#[must_use]
pub fn leading(text: &[u8]) -> Option<&[u8]> {
    tag_len(text).map(|len| &text[..len])
}

/// Length of the tag at the beginning of `text`.
fn tag_len(text: &[u8]) -> Option<usize> {
    let open = if text.starts_with(b"W/") { 2 } else { 0 };
    if text.get(open) != Some(&b'"') {
        return None;
    }
    let inner = &text[open + 1..];
    let close = inner.iter().position(|&byte| byte == b'"')?;
    Some(open + 1 + close + 1)
}

/// Splits the name of a content coding from the end of a tag: `"abc-gzip"` is the compressed form
/// of `"abc"` (RFC 9110 section 8.8.3.3). A weak tag stays weak.
#[must_use]
pub fn without_coding(tag: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    const CODINGS: [&[u8]; 5] = [b"gzip", b"deflate", b"br", b"zstd", b"bzip2"];
    let inner = tag.strip_suffix(b"\"")?;
    let at = inner.iter().rposition(|byte| *byte == b'-')?;
    let coding = &inner[at + 1..];
    CODINGS.contains(&coding).then(|| ([&inner[..at], b"\""].concat(), coding))
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    const FILE: FileIdentity =
        FileIdentity { inode: 7, size: 44, mtime_secs: 1_700_000_000, mtime_nanos: 5 };

    fn tag(file: &FileIdentity, parts: ETagParts) -> String {
        let tag = ETag::of_file(file, parts).expect("a part is chosen");
        String::from_utf8(tag.as_bytes().to_vec()).expect("ASCII")
    }

    #[test]
    fn a_tag_is_a_quoted_number_that_depends_on_the_chosen_parts() {
        let all = ETagParts::default();
        let text = tag(&FILE, all);
        assert!(text.len() <= ETAG_BYTES_MAX);
        assert!(text.trim_matches('"').parse::<u64>().is_ok() && text.starts_with('"'));
        let changed = [
            FileIdentity { inode: 8, ..FILE },
            FileIdentity { size: 45, ..FILE },
            FileIdentity { mtime_secs: 1_700_000_001, ..FILE },
            FileIdentity { mtime_nanos: 6, ..FILE },
        ];
        assert!(changed.iter().all(|file| tag(file, all) != text));
        let without_inode = ETagParts { inode: false, ..all };
        assert_eq!(tag(&changed[0], without_inode), tag(&FILE, without_inode));
        let only_size = ETagParts { inode: false, size: true, mtime: false };
        assert_eq!(tag(&changed[3], only_size), tag(&FILE, only_size));
        let none = ETagParts { inode: false, size: false, mtime: false };
        assert_eq!(ETag::of_file(&FILE, none), None);
    }

    #[test]
    fn numbers_of_every_length_fit() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            let expected = std::format!("\"{number}\"");
            assert_eq!(ETag::from_number(number).as_bytes(), expected.as_bytes());
        }
    }

    #[test]
    fn comparisons_are_those_of_the_rfc_table() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
            ("1", "1", false, false),
        ] {
            assert_eq!(strong_match(a.as_bytes(), b.as_bytes()), strong, "{a} {b}");
            assert_eq!(weak_match(a.as_bytes(), b.as_bytes()), weak, "{a} {b}");
        }
    }

    #[test]
    fn lists_are_taken_apart() {
        let list = |text: &'static str| tags(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(list("\"a\" , W/\"b,c\",\"\""), [&b"\"a\""[..], b"W/\"b,c\"", b"\"\""]);
        assert_eq!(list("junk, \"a\", w/\"b\", \"open"), [b"\"a\""]);
        assert!(list("").is_empty() && list(", ,").is_empty() && list("\"").is_empty());
    }
}
