//! Keys of resources: the request as the backend sees it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// A byte that no text has (UTF-8).
const NO_TEXT: u8 = 0xFF;

/// A key: parts with their lengths, so that no part can imitate another's boundary.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Arc<[u8]>);

/// Writes a key.
#[derive(Debug, Default)]
pub struct KeyWriter(Vec<u8>);

impl KeyWriter {
    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: &[u8]) -> Self {
        // Parts are pieces of one request, far below 4 GB.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }

    /// The key of the parts so far.
    pub fn finish(&self) -> Key {
        Key(self.0.as_slice().into())
    }

    /// The parts so far, which equal the [bytes](Key::as_bytes) of their key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all parts, and keeps the memory for the next key.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Key {
    /// The parts, as they were added.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (part, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = behind;
            Some(part)
        })
    }

    /// The key of a slice of this resource: slice `index` of slices of `bytes` bytes. The other
    /// parts stay, and the first one, which is text, gets bytes that no text has.
    #[must_use]
    pub fn slice(&self, bytes: u64, index: u64) -> Self {
        let mut parts = self.parts();
        let first = parts.next().unwrap_or_default();
        let first = [first, &[NO_TEXT], &bytes.to_be_bytes(), &index.to_be_bytes()].concat();
        parts.fold(KeyWriter::default().part(&first), KeyWriter::part).finish()
    }

    /// The key of an encoded form of the variant of this resource with these selecting values. The
    /// other parts stay, as in a slice's.
    #[must_use]
    pub fn form(&self, name: &[u8], selecting: &[u8]) -> Self {
        let mut parts = self.parts();
        let first = parts.next().unwrap_or_default();
        let length = (name.len() as u64).to_be_bytes();
        // Slices have a length there, which begins with a smaller byte.
        let first = [first, &[NO_TEXT, NO_TEXT], &length, name, selecting].concat();
        parts.fold(KeyWriter::default().part(&first), KeyWriter::part).finish()
    }

    /// The key as it is stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A key that was stored.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts().map(|part| part.escape_ascii().to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_part_of_a_key() {
        let key = |parts: &[&[u8]]| {
            parts.iter().fold(KeyWriter::default(), |key, part| key.part(part)).finish()
        };
        assert_eq!(key(&[b"a", b"bc"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"a", b"bc"]), key(&[b"ab", b"c"]));
        assert_ne!(key(&[b"a"]), key(&[b"a", b""]));
        assert_ne!(key(&[b"", b"a"]), key(&[b"a", b""]));
        let parts: Vec<Vec<u8>> = key(&[b"a", b"", b"bc"]).parts().map(<[u8]>::to_vec).collect();
        assert_eq!(parts, [&b"a"[..], b"", b"bc"]);
    }

    #[test]
    fn keys_of_slices_differ_in_their_first_part() {
        let key = KeyWriter::default().part(b"here").part(b"host").part(b"/a").finish();
        let slices = [key.slice(64, 0), key.slice(64, 1), key.slice(65, 0)];
        for (at, slice) in slices.iter().enumerate() {
            assert_ne!(*slice, key);
            assert!(!slices[..at].contains(slice), "{slice:?}");
            let parts: Vec<&[u8]> = slice.parts().collect();
            assert_eq!(parts[1..], [&b"host"[..], b"/a"]);
            assert!(std::str::from_utf8(parts[0]).is_err());
        }
        assert_eq!(key.slice(64, 1), key.slice(64, 1));
    }

    #[test]
    fn keys_of_forms_differ_by_name_and_variant() {
        let key = KeyWriter::default().part(b"here").part(b"host").part(b"/a").finish();
        let forms = [
            key.form(b"gzip", b""),
            key.form(b"br", b""),
            key.form(b"gzip", b"de"),
            key.form(b"gzipde", b""),
            key.slice(0, 0),
            key.slice(4, 0),
        ];
        for (at, form) in forms.iter().enumerate() {
            assert_ne!(*form, key);
            assert!(!forms[..at].contains(form), "{form:?}");
            let parts: Vec<&[u8]> = form.parts().collect();
            assert_eq!(parts[1..], [&b"host"[..], b"/a"]);
        }
    }
}
