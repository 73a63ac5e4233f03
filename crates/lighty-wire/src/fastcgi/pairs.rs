//! Names and values: FastCGI 1.0 section 3.4.

use alloc::vec::Vec;

use super::FastcgiFault;

/// The longest name or value that can be written: its length has 31 bits.
pub const PAIR_LEN_MAX: usize = 0x7FFF_FFFF;

/// The longest name or value with a one-byte length.
pub const SHORT_LEN_MAX: usize = 127;

/// A name and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

const LONG_BIT: u32 = 0x8000_0000;

/// An encoded length: one byte up to [`SHORT_LEN_MAX`], else four.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    bytes: [u8; 4],
    start: u8,
}

impl Length {
    /// # Errors
    /// [`FastcgiFault::PairLength`] beyond [`PAIR_LEN_MAX`].
    pub(super) fn new(len: usize) -> Result<Self, FastcgiFault> {
        let number = u32::try_from(len).map_err(|_| FastcgiFault::PairLength)?;
        if len <= SHORT_LEN_MAX {
            return Ok(Self { bytes: number.to_be_bytes(), start: 3 });
        }
        if len > PAIR_LEN_MAX {
            return Err(FastcgiFault::PairLength);
        }
        Ok(Self { bytes: (number | LONG_BIT).to_be_bytes(), start: 0 })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// Splits one pair off the front of complete content; `None` at its end.
///
/// # Errors
/// [`FastcgiFault::PairTruncated`] if the content ends inside the pair.
pub fn split_pair<'a>(content: &mut &'a [u8]) -> Result<Option<Pair<'a>>, FastcgiFault> {
    if content.is_empty() {
        return Ok(None);
    }
    let mut rest = *content;
    let name_len = split_length(&mut rest)?;
    let value_len = split_length(&mut rest)?;
    let (name, rest) = rest.split_at_checked(name_len).ok_or(FastcgiFault::PairTruncated)?;
    let (value, rest) = rest.split_at_checked(value_len).ok_or(FastcgiFault::PairTruncated)?;
    *content = rest;
    Ok(Some((name, value)))
}

fn split_length(rest: &mut &[u8]) -> Result<usize, FastcgiFault> {
    let (&first, short) = rest.split_first().ok_or(FastcgiFault::PairTruncated)?;
    if usize::from(first) <= SHORT_LEN_MAX {
        *rest = short;
        return Ok(usize::from(first));
    }
    let (long, after) = rest.split_first_chunk().ok_or(FastcgiFault::PairTruncated)?;
    *rest = after;
    Ok((u32::from_be_bytes(*long) & !LONG_BIT) as usize)
}

/// Appends a pair.
///
/// # Errors
/// [`FastcgiFault::PairLength`]; nothing is appended then.
pub fn push_pair(name: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), FastcgiFault> {
    let lengths = [Length::new(name.len())?, Length::new(value.len())?];
    out.extend_from_slice(lengths[0].as_bytes());
    out.extend_from_slice(lengths[1].as_bytes());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn lengths_take_one_byte_or_four() {
        let bytes = |len| Length::new(len).map(|length| length.as_bytes().to_vec());
        assert_eq!(bytes(0), Ok(vec![0]));
        assert_eq!(bytes(127), Ok(vec![127]));
        assert_eq!(bytes(128), Ok(vec![0x80, 0, 0, 128]));
        assert_eq!(bytes(65_536), Ok(vec![0x80, 1, 0, 0]));
        assert_eq!(bytes(PAIR_LEN_MAX), Ok(vec![255; 4]));
        assert_eq!(bytes(PAIR_LEN_MAX + 1), Err(FastcgiFault::PairLength));
        assert_eq!(bytes(usize::MAX), Err(FastcgiFault::PairLength));
    }

    #[test]
    fn pairs_survive() {
        for (name_len, value_len) in [(0, 0), (1, 127), (127, 128), (128, 1), (300, 70_000)] {
            let (name, value) = (vec![b'n'; name_len], vec![b'v'; value_len]);
            let mut out = Vec::new();
            push_pair(&name, &value, &mut out).expect("short enough");
            out.push(9);
            let mut content = out.as_slice();
            assert_eq!(split_pair(&mut content), Ok(Some((&name[..], &value[..]))));
            assert_eq!(content, [9]);
        }
        assert_eq!(split_pair(&mut &b""[..]), Ok(None));
    }

    #[test]
    fn truncated_pairs_are_refused_at_every_length() {
        let mut out = Vec::new();
        push_pair(&[b'n'; 130], b"value", &mut out).expect("short enough");
        for len in 1..out.len() {
            let mut content = &out[..len];
            assert_eq!(split_pair(&mut content), Err(FastcgiFault::PairTruncated), "{len}");
        }
        let huge = [255, 255, 255, 255, 255, 255, 255, 255, b'x'];
        assert_eq!(split_pair(&mut &huge[..]), Err(FastcgiFault::PairTruncated));
    }
}
