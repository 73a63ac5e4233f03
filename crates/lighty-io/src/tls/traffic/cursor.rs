//! A position in the pieces of a vectored write.

use std::io::IoSlice;

/// A position in several pieces.
pub(super) struct Cursor<'a, 'b> {
    pieces: &'a [IoSlice<'b>],
    index: usize,
    at: usize,
}

impl<'a, 'b> Cursor<'a, 'b> {
    pub(super) fn new(pieces: &'a [IoSlice<'b>], skip: usize) -> Self {
        let (mut index, mut at) = (0, skip);
        while pieces.get(index).is_some_and(|piece| piece.len() <= at) {
            at -= pieces[index].len();
            index += 1;
        }
        debug_assert!(index < pieces.len() || at == 0, "{at} bytes beyond the pieces");
        Self { pieces, index, at }
    }

    /// Appends the next `bytes` bytes, which must exist.
    pub(super) fn append(&mut self, mut bytes: usize, out: &mut Vec<u8>) {
        while bytes > 0 {
            debug_assert!(self.index < self.pieces.len(), "{bytes} bytes beyond the pieces");
            let Some(piece) = self.pieces.get(self.index) else { return };
            let rest = &piece[self.at..];
            let count = rest.len().min(bytes);
            lighty_buf::append(out, &rest[..count]);
            bytes -= count;
            self.at += count;
            if self.at == piece.len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
    }
}
