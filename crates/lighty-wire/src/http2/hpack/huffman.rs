//! Huffman coding of strings, both ways: RFC 7541 section 5.2.

use alloc::vec::Vec;

use super::HpackFault;
use super::huffman_table::{CODE_BITS_MAX, CODES, EOS, FAST, FAST_BITS, FIRSTS, LENGTHS, SORTED};

/// Appends the decoded string.
///
/// # Errors
/// [`HpackFault::Huffman`] for [`EOS`] within the string, and for padding that is longer than seven
/// bits or does not consist of ones. The part decoded before stays in `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackFault> {
    let mut bytes = coded.iter();
    // The next bits, left-aligned, followed by zeros.
    let (mut window, mut bits) = (0u64, 0u32);
    loop {
        while bits <= 56 {
            let Some(&byte) = bytes.next() else { break };
            window |= u64::from(byte) << (56 - bits);
            bits += 8;
        }
        let (symbol, len) = match FAST[(window >> (64 - FAST_BITS)) as usize] {
            (_, 0) => decode_long(window)?,
            (symbol, len) => (symbol, u32::from(len)),
        };
        if len > bits {
            break;
        }
        out.push(symbol);
        window <<= len;
        bits -= len;
        debug_assert_eq!(window << bits, 0, "more than {bits} bits are left");
    }
    let is_padding = bits < 8 && window == !(u64::MAX >> bits);
    if is_padding { Ok(()) } else { Err(HpackFault::Huffman) }
}

/// Decodes a code of more than [`FAST_BITS`]. Padding looks like the beginning of EOS; it is
/// returned with a length beyond any string.
fn decode_long(window: u64) -> Result<(u8, u32), HpackFault> {
    for len in FAST_BITS + 1..=CODE_BITS_MAX {
        let code = (window >> (64 - len)) as u32;
        let ((first, place), (_, after)) = (FIRSTS[len], FIRSTS[len + 1]);
        let nth = code.wrapping_sub(first);
        if nth < u32::from(after - place) {
            let symbol = usize::from(SORTED[usize::from(place) + nth as usize]);
            let is_end = symbol == EOS;
            return if is_end { Err(HpackFault::Huffman) } else { Ok((symbol as u8, len as u32)) };
        }
    }
    Ok((0, u32::MAX))
}

/// Bytes of the encoded string.
#[must_use]
pub(super) fn coded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum();
    bits.div_ceil(8)
}

/// Appends a string in Huffman code.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut window, mut bits) = (0u64, 0u32);
    for &byte in text {
        let byte = usize::from(byte);
        let len = u32::from(LENGTHS[byte]);
        window = window << len | u64::from(CODES[byte]);
        bits += len;
        while bits >= 8 {
            bits -= 8;
            out.push((window >> bits) as u8);
        }
    }
    if bits > 0 {
        let padding = 8 - bits;
        out.push((window << padding) as u8 | ((1u16 << padding) - 1) as u8);
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, HpackFault> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn codes_are_those_of_appendix_b() {
        for (symbol, code) in [
            (0, 0x1ff8),
            (1, 0x7f_ffd8),
            (10, 0x3fff_fffc),
            (usize::from(b'0'), 0),
            (usize::from(b'a'), 3),
            (usize::from(b'z'), 0x7b),
            (127, 0xfff_fffc),
            (249, 0xfff_fffe),
            (255, 0x3ff_ffee),
            (EOS, 0x3fff_ffff),
        ] {
            assert_eq!(CODES[symbol], code, "{symbol}");
        }
    }

    #[test]
    fn every_byte_alone_and_doubled() {
        for byte in 0..=u8::MAX {
            for text in [vec![byte], vec![byte; 2], vec![byte, b'a', byte]] {
                let mut coded = Vec::new();
                encode(&text, &mut coded);
                assert_eq!(coded.len(), coded_len(&text));
                assert_eq!(decoded(&coded), Ok(text));
            }
        }
    }

    #[test]
    fn padding_is_at_most_seven_ones() {
        assert_eq!(decoded(b""), Ok(vec![]));
        // 'a' is 00011, followed by three ones.
        assert_eq!(decoded(&[0b0001_1111]), Ok(vec![b'a']));
        for wrong in [&[0b0001_1110][..], &[0b0001_1000], &[0b0001_1111, 0xFF], &[0xFF], &[0xFF; 3]]
        {
            assert_eq!(decoded(wrong), Err(HpackFault::Huffman), "{wrong:x?}");
        }
    }

    #[test]
    fn the_end_symbol_is_refused_wherever_it_stands() {
        assert_eq!(decoded(&[0xFF; 4]), Err(HpackFault::Huffman));
        assert_eq!(decoded(&[0b0001_1111, 0xFF, 0xFF, 0xFF, 0xFF]), Err(HpackFault::Huffman));
    }

    proptest! {
        #[test]
        fn encoded_text_is_decoded(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut coded = Vec::new();
            encode(&text, &mut coded);
            prop_assert_eq!(coded.len(), coded_len(&text));
            prop_assert_eq!(decoded(&coded), Ok(text));
        }

        /// The encoding is unique: decoding and encoding again gives the same bytes.
        #[test]
        fn decoded_text_is_encoded_to_the_same_bytes(coded in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                prop_assert_eq!(again, coded);
            }
        }
    }
}
