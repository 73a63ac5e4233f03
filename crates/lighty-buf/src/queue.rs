//! A queue of chunks that knows its length in bytes.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::chunk::{Chunk, FileRange};

/// The longest body that a queue stands for: a length that the kernel and every client can name.
pub const QUEUE_BYTES_MAX: u64 = i64::MAX as u64;

/// Chunks in the order in which they are to be sent.
///
/// Empty chunks are never held, so a queue is empty exactly when it has no bytes. An empty queue
/// that was never filled owns no memory. The caller that fills it bounds its length:
/// ask [`len_bytes`](Self::len_bytes) and [`memory_bytes`](Self::memory_bytes).
#[derive(Clone, Debug)]
pub struct ChunkQueue<F> {
    chunks: VecDeque<Chunk<F>>,
    len_bytes: u64,
    memory_bytes: u64,
}

impl<F> Default for ChunkQueue<F> {
    fn default() -> Self {
        ChunkQueue::new()
    }
}

impl<F> ChunkQueue<F> {
    /// A queue with nothing in it, and nothing allocated.
    pub const fn new() -> Self {
        ChunkQueue { chunks: VecDeque::new(), len_bytes: 0, memory_bytes: 0 }
    }

    /// Adds bytes at the end.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        self.push(Chunk::Memory(bytes));
    }

    /// Adds a range of a file at the end.
    pub fn push_file(&mut self, range: FileRange<F>) {
        self.push(Chunk::File(range));
    }

    /// Adds a chunk at the end; an empty one is dropped.
    ///
    /// # Panics
    /// When the queue would stand for more than `u64::MAX` bytes.
    pub fn push(&mut self, chunk: Chunk<F>) {
        if let Some(chunk) = self.count_in(chunk) {
            self.chunks.push_back(chunk);
        }
    }

    /// Puts a chunk back in front of everything else; an empty one is dropped.
    pub fn push_front(&mut self, chunk: Chunk<F>) {
        if let Some(chunk) = self.count_in(chunk) {
            self.chunks.push_front(chunk);
        }
    }

    /// Moves every chunk of `other` to the end of this queue, by pointer.
    pub fn append(&mut self, other: &mut Self) {
        self.len_bytes = self.len_bytes.checked_add(other.len_bytes).expect("body below 2^64");
        self.memory_bytes += other.memory_bytes;
        self.chunks.append(&mut other.chunks);
        (other.len_bytes, other.memory_bytes) = (0, 0);
    }

    /// The chunk that is to be sent next.
    pub fn front(&self) -> Option<&Chunk<F>> {
        self.chunks.front()
    }

    /// Takes the first chunk out.
    pub fn pop_front(&mut self) -> Option<Chunk<F>> {
        let chunk = self.chunks.pop_front()?;
        self.count_out(chunk.len(), matches!(chunk, Chunk::Memory(_)));
        Some(chunk)
    }

    /// Drops the first `bytes` bytes: they were sent.
    ///
    /// # Panics
    /// When the queue has fewer bytes than that.
    pub fn advance(&mut self, mut bytes: u64) {
        assert!(bytes <= self.len_bytes, "advance past the end of a queue");
        while bytes > 0 {
            let front = self.chunks.front_mut().expect("bytes are left, so a chunk is");
            let in_memory = matches!(front, Chunk::Memory(_));
            let step = bytes.min(front.len());
            if step == front.len() {
                self.chunks.pop_front();
            } else {
                front.advance(step);
            }
            self.count_out(step, in_memory);
            bytes -= step;
        }
    }

    /// Whether a file's part of so many bytes goes in as well. Sparse files are as long as they
    /// like; who puts in what others have named asks first, and leaves [`QUEUE_BYTES_MAX`] for
    /// bytes in memory, which no machine has.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.len_bytes.checked_add(bytes).is_some_and(|sum| sum <= QUEUE_BYTES_MAX)
    }

    /// Keeps no more memory than its chunks take.
    pub fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }

    /// How many bytes the queue stands for, in memory and in files.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// How many of its bytes are held in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Drops everything, and keeps the queue's own small table.
    #[inline]
    pub fn clear(&mut self) {
        if !self.chunks.is_empty() {
            self.chunks.clear();
            (self.len_bytes, self.memory_bytes) = (0, 0);
        }
    }

    /// The chunks in order.
    pub fn iter(&self) -> impl Iterator<Item = &Chunk<F>> {
        self.chunks.iter()
    }

    fn count_in(&mut self, chunk: Chunk<F>) -> Option<Chunk<F>> {
        let bytes = chunk.len();
        if bytes == 0 {
            return None;
        }
        self.len_bytes = self.len_bytes.checked_add(bytes).expect("body below 2^64");
        if matches!(chunk, Chunk::Memory(_)) {
            self.memory_bytes += bytes;
        }
        Some(chunk)
    }

    fn count_out(&mut self, bytes: u64, in_memory: bool) {
        self.len_bytes -= bytes;
        if in_memory {
            self.memory_bytes -= bytes;
        }
    }
}

impl<F: Clone> ChunkQueue<F> {
    /// Takes the first `bytes` bytes off as a queue of their own, by pointer; everything when
    /// there are fewer.
    pub fn split_to(&mut self, bytes: u64) -> Self {
        let mut head = ChunkQueue::new();
        if bytes >= self.len_bytes {
            head.append(self);
            return head;
        }
        while head.len_bytes < bytes {
            let missing = bytes - head.len_bytes;
            let front = self.chunks.front_mut().expect("bytes are left, so a chunk is");
            if front.len() <= missing {
                let chunk = self.pop_front().expect("the front was just looked at");
                head.push(chunk);
            } else {
                let in_memory = matches!(front, Chunk::Memory(_));
                let part = front.split_to(missing);
                self.count_out(missing, in_memory);
                head.push(part);
            }
        }
        head
    }
}

impl<F> Extend<Chunk<F>> for ChunkQueue<F> {
    fn extend<I: IntoIterator<Item = Chunk<F>>>(&mut self, chunks: I) {
        for chunk in chunks {
            self.push(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "abc", 10 bytes of file 1 from 5 on, "de".
    fn mixed() -> ChunkQueue<u8> {
        let mut queue = ChunkQueue::new();
        queue.push_bytes(Bytes::from_static(b"abc"));
        queue.push_file(FileRange { file: 1, offset: 5, length: 10 });
        queue.push_bytes(Bytes::from_static(b"de"));
        queue
    }

    /// Every byte of the queue by name, so that two queues can be compared byte for byte.
    fn spelled(queue: &ChunkQueue<u8>) -> Vec<(u8, u64)> {
        let mut out = Vec::new();
        for chunk in queue.iter() {
            match chunk {
                Chunk::Memory(bytes) => out.extend(bytes.iter().map(|byte| (0, u64::from(*byte)))),
                Chunk::File(range) => {
                    out.extend((0..range.length).map(|at| (range.file, range.offset + at)));
                }
            }
        }
        out
    }

    #[test]
    fn files_of_any_length_are_put_in_up_to_a_limit() {
        let mut queue: ChunkQueue<u8> = ChunkQueue::new();
        assert!(queue.has_room_for(QUEUE_BYTES_MAX) && !queue.has_room_for(QUEUE_BYTES_MAX + 1));
        queue.push_file(FileRange { file: 1, offset: 0, length: QUEUE_BYTES_MAX - 5 });
        assert!(queue.has_room_for(5) && !queue.has_room_for(6));
        assert!(!queue.has_room_for(u64::MAX), "no sum overflows");
    }

    #[test]
    fn lengths_are_counted() {
        let queue = mixed();
        assert_eq!((queue.len_bytes(), queue.memory_bytes(), queue.chunks.len()), (15, 5, 3));
        assert_eq!(spelled(&queue).len(), 15);
    }

    #[test]
    fn empty_chunks_are_not_held() {
        let mut queue: ChunkQueue<u8> = ChunkQueue::new();
        queue.push_bytes(Bytes::new());
        queue.push_front(Chunk::Memory(Bytes::new()));
        queue.push_file(FileRange { file: 1, offset: 9, length: 0 });
        assert!(queue.is_empty());
        assert_eq!(queue.front(), None);
    }

    #[test]
    fn split_and_advance_agree_at_every_point() {
        let all = spelled(&mixed());
        for at in 0..=16_u64 {
            let mut tail = mixed();
            let head = tail.split_to(at);
            let cut = (at as usize).min(all.len());
            assert_eq!(spelled(&head), all[..cut], "head at {at}");
            assert_eq!(spelled(&tail), all[cut..], "tail at {at}");
            assert_eq!(head.len_bytes() + tail.len_bytes(), 15);
            assert_eq!(head.memory_bytes() + tail.memory_bytes(), 5);
            if at <= 15 {
                let mut advanced = mixed();
                advanced.advance(at);
                assert_eq!(spelled(&advanced), all[cut..], "advance {at}");
                assert_eq!(advanced.memory_bytes(), tail.memory_bytes());
            }
        }
    }

    #[test]
    fn append_moves_the_pointer_and_empties_the_source() {
        let bytes = Bytes::from(vec![b'x'; 100]);
        let mut from: ChunkQueue<u8> = ChunkQueue::new();
        from.push_bytes(bytes.clone());
        let mut to = mixed();
        to.append(&mut from);
        assert!(from.is_empty() && from.len_bytes() == 0 && from.memory_bytes() == 0);
        let Some(Chunk::Memory(last)) = to.iter().last() else { panic!("memory at the end") };
        assert_eq!(last.as_ptr(), bytes.as_ptr());
        assert_eq!(to.len_bytes(), 115);
    }

    #[test]
    fn clear_and_pop_reset_the_counts() {
        let mut queue = mixed();
        assert_eq!(queue.pop_front().map(|chunk| chunk.len()), Some(3));
        assert_eq!((queue.len_bytes(), queue.memory_bytes()), (12, 2));
        queue.clear();
        assert_eq!((queue.len_bytes(), queue.memory_bytes(), queue.chunks.len()), (0, 0, 0));
    }

    #[test]
    #[should_panic(expected = "past the end")]
    fn advancing_past_the_end_is_a_bug() {
        mixed().advance(16);
    }

    #[test]
    #[should_panic(expected = "below 2^64")]
    fn more_than_a_u64_of_bytes_is_a_bug() {
        let mut queue = mixed();
        queue.push_file(FileRange { file: 1, offset: 0, length: u64::MAX });
    }
}
