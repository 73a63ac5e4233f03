//! File contents that depend on their offset: a missing, duplicate or misplaced byte shows at the
//! first comparison.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// The bytes of the test pattern from `offset` on.
#[must_use]
pub fn pattern(offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut block = offset / 8;
    while bytes.len() < length + 8 {
        bytes.extend_from_slice(&mixed(block).to_le_bytes());
        block += 1;
    }
    let skip = (offset % 8) as usize;
    bytes.drain(..skip);
    bytes.truncate(length);
    bytes
}

/// Encodes a body in chunks of this many bytes, with the last chunk (RFC 9112 section 7.1).
#[must_use]
pub fn chunked(body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let mut chunked = Vec::new();
    for chunk in body.chunks(chunk_bytes) {
        chunked.extend(format!("{:x}\r\n", chunk.len()).bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    chunked
}

/// A pseudo-random number for each block.
fn mixed(block: u64) -> u64 {
    let mut x = block.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Fails the test at the first byte of `got` that differs from the pattern at `offset`.
pub fn assert_pattern(got: &[u8], offset: u64, what: &str) {
    let wanted = pattern(offset, got.len());
    if got != wanted {
        let at = got.iter().zip(&wanted).position(|(a, b)| a != b).unwrap_or(0);
        panic!("{what}: byte {} is wrong", offset + at as u64);
    }
}

/// Creates a sparse file of `length` bytes with pieces of the pattern, each `piece` bytes long, at
/// these offsets.
pub fn sparse_file(path: &Path, length: u64, offsets: &[u64], piece: usize) {
    let mut file = std::fs::File::create(path).expect("a file");
    file.set_len(length).expect("room for a hole");
    for &offset in offsets {
        file.seek(SeekFrom::Start(offset)).expect("seek");
        file.write_all(&pattern(offset, piece)).expect("write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_the_pattern_is_that_part_of_the_whole() {
        let whole = pattern(0, 100);
        for from in 0..40 {
            assert_eq!(pattern(from as u64, 60), whole[from..from + 60], "{from}");
        }
    }
}
