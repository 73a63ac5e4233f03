//! A piece of a body: bytes in memory, or a range of a file.

use bytes::Bytes;

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunk<F> {
    /// Bytes held in memory, shared by reference count.
    Memory(Bytes),
    /// Bytes that are still in a file.
    File(FileRange<F>),
}

/// A range of a file: `length` bytes of `file` from `offset` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange<F> {
    /// The file, of a type that the queue's owner can send.
    pub file: F,
    /// Start of the range, in bytes from the start of the file.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
}

impl<F> Chunk<F> {
    /// The number of bytes of this chunk.
    pub fn len(&self) -> u64 {
        match self {
            Chunk::Memory(bytes) => bytes.len() as u64,
            Chunk::File(range) => range.length,
        }
    }

    /// True if the chunk has no bytes. A queue never holds such a chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `bytes` bytes.
    ///
    /// # Panics
    /// If the chunk has fewer bytes.
    pub fn advance(&mut self, bytes: u64) {
        assert!(bytes <= self.len(), "advance past the end of a chunk");
        match self {
            // `bytes` is at most the length of a slice, so the cast cannot truncate.
            Chunk::Memory(memory) => drop(memory.split_to(bytes as usize)),
            Chunk::File(range) => {
                range.offset += bytes;
                range.length -= bytes;
            }
        }
    }
}

impl<F: Clone> Chunk<F> {
    /// Splits off the first `bytes` bytes as a chunk of their own, without copying.
    ///
    /// # Panics
    /// If the chunk has fewer bytes.
    pub fn split_to(&mut self, bytes: u64) -> Self {
        assert!(bytes <= self.len(), "split past the end of a chunk");
        match self {
            Chunk::Memory(memory) => Chunk::Memory(memory.split_to(bytes as usize)),
            Chunk::File(range) => {
                let head =
                    FileRange { file: range.file.clone(), offset: range.offset, length: bytes };
                range.offset += bytes;
                range.length -= bytes;
                Chunk::File(head)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advance_and_split_move_pointers() {
        let whole = Bytes::from_static(b"abcdef");
        let mut chunk: Chunk<()> = Chunk::Memory(whole.clone());
        let head = chunk.split_to(2);
        chunk.advance(1);
        let (Chunk::Memory(head), Chunk::Memory(rest)) = (head, chunk) else { panic!("memory") };
        assert_eq!((&head[..], &rest[..]), (&b"ab"[..], &b"def"[..]));
        assert_eq!(head.as_ptr(), whole.as_ptr());
        assert_eq!(rest.as_ptr(), whole[3..].as_ptr());
    }

    #[test]
    fn a_file_range_splits_at_any_point() {
        let mut chunk = Chunk::File(FileRange { file: 7, offset: 100, length: 50 });
        assert_eq!(chunk.split_to(0).len(), 0);
        assert_eq!(chunk.split_to(50), Chunk::File(FileRange { file: 7, offset: 100, length: 50 }));
        assert!(chunk.is_empty());
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn advancing_past_the_end_is_a_bug() {
        Chunk::<()>::Memory(Bytes::from_static(b"ab")).advance(3);
    }
}
