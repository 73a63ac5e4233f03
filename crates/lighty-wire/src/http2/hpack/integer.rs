//! Variable-length integers: RFC 7541 section 5.1.

use alloc::vec::Vec;

use super::HpackFault;

/// Maximum integer that is accepted. Indices, lengths and table sizes of acceptable blocks are far
/// below, and a sum limited to it cannot wrap.
pub(super) const INTEGER_MAX: u32 = 1 << 24;

/// Decodes an integer with `prefix` bits in its first byte, and moves `at` past it.
///
/// # Errors
/// [`HpackFault::Truncated`] and [`HpackFault::IntegerTooLarge`].
#[inline]
pub(super) fn decode(block: &[u8], at: &mut usize, prefix: u32) -> Result<u32, HpackFault> {
    debug_assert!(*at <= block.len() && (1..=8).contains(&prefix), "{at} {prefix}");
    let mask = (1u32 << prefix) - 1;
    let first = u32::from(*block.get(*at).ok_or(HpackFault::Truncated)?) & mask;
    *at += 1;
    if first < mask { Ok(first) } else { decode_rest(block, at, mask) }
}

#[cold]
fn decode_rest(block: &[u8], at: &mut usize, mask: u32) -> Result<u32, HpackFault> {
    let (mut value, mut shift) = (mask, 0);
    loop {
        let byte = *block.get(*at).ok_or(HpackFault::Truncated)?;
        *at += 1;
        // Four bytes carry 28 bits, more than the maximum integer has.
        if shift > 21 {
            return Err(HpackFault::IntegerTooLarge);
        }
        value += u32::from(byte & 0x7F) << shift;
        if value > INTEGER_MAX {
            return Err(HpackFault::IntegerTooLarge);
        }
        if byte & 0x80 == 0 {
            return Ok(value);
        }
        shift += 7;
    }
}

/// Appends an integer after the bits of `pattern`, which leaves `prefix` bits free.
#[inline]
pub(super) fn encode(value: usize, prefix: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1usize << prefix) - 1;
    debug_assert_eq!(usize::from(pattern) & mask, 0, "the pattern leaves {prefix} bits");
    if value < mask {
        out.push(pattern | value as u8);
    } else {
        encode_rest(value - mask, pattern | mask as u8, out);
    }
}

#[cold]
fn encode_rest(mut value: usize, first: u8, out: &mut Vec<u8>) {
    out.push(first);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // Appendix C.1: 10 and 1337 in five bits, 42 in eight.
        for (value, prefix, wire) in
            [(10, 5, &[0x0A][..]), (1337, 5, &[0x1F, 0x9A, 0x0A]), (42, 8, &[0x2A])]
        {
            let mut out = Vec::new();
            encode(value, prefix, 0, &mut out);
            assert_eq!(out, wire);
            assert_eq!(decode(wire, &mut 0, prefix), Ok(value as u32));
        }
    }

    #[test]
    fn each_length_is_read_as_written_and_no_longer_than_its_limit() {
        for prefix in 4..=7 {
            for value in [0, 14, 15, 16, 127, 128, 255, 16_383, 16_384, INTEGER_MAX as usize] {
                let mut out = Vec::new();
                encode(value, prefix, 0, &mut out);
                let mut at = 0;
                assert_eq!(decode(&out, &mut at, prefix), Ok(value as u32));
                assert_eq!(at, out.len());
                for cut in 0..out.len() {
                    assert_eq!(decode(&out[..cut], &mut 0, prefix), Err(HpackFault::Truncated));
                }
            }
            let mut out = Vec::new();
            encode(INTEGER_MAX as usize + 1, prefix, 0, &mut out);
            assert_eq!(decode(&out, &mut 0, prefix), Err(HpackFault::IntegerTooLarge));
        }
    }

    #[test]
    fn padding_with_zeros_does_not_go_on_for_ever() {
        let wire = [0x7F, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(decode(&wire, &mut 0, 7), Err(HpackFault::IntegerTooLarge));
    }
}
