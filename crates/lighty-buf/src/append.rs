//! Appends bytes to a buffer.

/// Bytes copied at a time. Above 4 KiB glibc copies by `rep movsb`, which takes several times as
/// long on AMD's Zen 3 and 4 with an unfavourable alignment of source and destination (glibc's bug
/// 30994).
const PIECE_BYTES: usize = 2048;

/// Appends bytes, of which there may be many. The result is that of `extend_from_slice`.
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len());
    for piece in bytes.chunks(PIECE_BYTES) {
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_follow_what_is_there() {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = b"front".to_vec();
            append(&mut out, &bytes);
            assert_eq!(out, [b"front".as_slice(), &bytes].concat());
        }
    }
}
