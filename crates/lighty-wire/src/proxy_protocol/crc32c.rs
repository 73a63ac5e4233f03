//! CRC-32C: RFC 4960 appendix B. Headers are short and rare; a table for one byte suffices.

/// The polynomial 0x1EDC6F41, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut sum = index as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
}

/// The checksum of several concatenated pieces.
pub(super) fn crc32c(pieces: &[&[u8]]) -> u32 {
    let step = |sum: u32, &byte: &u8| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)];
    !pieces.iter().flat_map(|piece| piece.iter()).fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 appendix B.4, and the check value of the CRC catalogue.
    #[test]
    fn known_sums() {
        assert_eq!(crc32c(&[]), 0);
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xE306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8A91_36AA);
        assert_eq!(crc32c(&[&[0xFF; 32]]), 0x62A8_AB43);
    }
}
