//! Checksums of bodies, the same in memory and on the disk.

/// Bytes of a body under one checksum.
pub const BLOCK_BYTES: usize = 64 << 10;

/// The checksums of a body, one for each block.
pub(crate) fn block_sums<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Box<[u32]> {
    let (mut sums, mut sum, mut filled) = (Vec::new(), 0, 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(BLOCK_BYTES - filled));
            sum = crc32c::crc32c_append(sum, now);
            filled += now.len();
            piece = later;
            if filled == BLOCK_BYTES {
                sums.push(sum);
                (sum, filled) = (0, 0);
            }
        }
    }
    if filled > 0 {
        sums.push(sum);
    }
    sums.into()
}

/// The checksum of the checksums of a body's blocks.
pub(crate) fn sum_of_sums(sums: &[u32]) -> u32 {
    sums.iter().fold(0, |sum, block| crc32c::crc32c_append(sum, &block.to_le_bytes()))
}
