//! A queue of chunks that knows its length in bytes.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::chunk::{Chunk, FileRange};

/// Maximum length of a queue: a length that the kernel and every client can express.
pub const QUEUE_BYTES_MAX: u64 = i64::MAX as u64;

/// Chunks in the order in which they will be sent.
///
/// Empty chunks are never held, so a queue is empty exactly if it has no bytes. An empty queue that
/// was never filled owns no memory. The caller that fills it must limit its length: see
/// [`len_bytes`](Self::len_bytes) and [`memory_bytes`](Self::memory_bytes).
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
    /// Creates an empty queue; allocates nothing.
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
    /// If the queue's length would exceed `u64::MAX` bytes.
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

    /// Moves all chunks of `other` to the end of this queue, without copying bytes.
    pub fn append(&mut self, other: &mut Self) {
        self.len_bytes = self.len_bytes.checked_add(other.len_bytes).expect("body below 2^64");
        self.memory_bytes += other.memory_bytes;
        self.chunks.append(&mut other.chunks);
        (other.len_bytes, other.memory_bytes) = (0, 0);
        debug_assert!(self.memory_bytes <= self.len_bytes, "{}", self.memory_bytes);
        debug_assert_eq!(self.chunks.is_empty(), self.len_bytes == 0, "{}", self.len_bytes);
    }

    /// The next chunk to send.
    pub fn front(&self) -> Option<&Chunk<F>> {
        self.chunks.front()
    }

    /// Removes and returns the first chunk.
    pub fn pop_front(&mut self) -> Option<Chunk<F>> {
        let chunk = self.chunks.pop_front()?;
        self.count_out(chunk.len(), matches!(chunk, Chunk::Memory(_)));
        debug_assert_eq!(self.chunks.is_empty(), self.len_bytes == 0, "{}", self.len_bytes);
        Some(chunk)
    }

    /// Removes the first `bytes` bytes, after they were sent.
    ///
    /// # Panics
    /// If the queue has fewer bytes.
    pub fn advance(&mut self, mut bytes: u64) {
        assert!(bytes <= self.len_bytes, "advance past the end of a queue");
        while bytes > 0 {
            let front = self.chunks.front_mut().expect("bytes are left, so a chunk is");
            let in_memory = matches!(front, Chunk::Memory(_));
            debug_assert!(!front.is_empty(), "an empty chunk is never held");
            let step = bytes.min(front.len());
            if step == front.len() {
                self.chunks.pop_front();
            } else {
                front.advance(step);
            }
            self.count_out(step, in_memory);
            bytes -= step;
        }
        debug_assert_eq!(self.chunks.is_empty(), self.len_bytes == 0, "{}", self.len_bytes);
    }

    /// True if a file range of this length still fits. Sparse files have arbitrary lengths, so
    /// callers must check this before adding a range that a client or backend specified. A range
    /// may fill the queue up to [`QUEUE_BYTES_MAX`]; the rest up to `u64::MAX` suffices for bytes
    /// in memory.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.len_bytes.checked_add(bytes).is_some_and(|sum| sum <= QUEUE_BYTES_MAX)
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }

    /// Length of the queue in bytes, in memory and in files.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Number of its bytes in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// True if no bytes are left to send.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Removes all chunks, and keeps the capacity.
    #[inline]
    pub fn clear(&mut self) {
        if !self.chunks.is_empty() {
            debug_assert!(self.len_bytes > 0, "an empty chunk");
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
        debug_assert!(self.memory_bytes <= self.len_bytes, "{}", self.memory_bytes);
        Some(chunk)
    }

    fn count_out(&mut self, bytes: u64, in_memory: bool) {
        debug_assert!(bytes <= self.len_bytes, "{bytes} of {}", self.len_bytes);
        self.len_bytes -= bytes;
        if in_memory {
            debug_assert!(bytes <= self.memory_bytes, "{bytes} of {}", self.memory_bytes);
            self.memory_bytes -= bytes;
        }
        debug_assert!(self.memory_bytes <= self.len_bytes, "{}", self.memory_bytes);
    }
}

impl<F: Clone> ChunkQueue<F> {
    /// Splits off the first `bytes` bytes as a queue of their own, without copying, or all bytes if
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
        debug_assert_eq!(head.len_bytes, bytes, "split");
        debug_assert!(self.len_bytes > 0, "all bytes were split off");
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

    /// A queue of "abc", 10 bytes of file 1 from 5 on, and "de".
    fn mixed() -> ChunkQueue<u8> {
        let mut queue = ChunkQueue::new();
        queue.push_bytes(Bytes::from_static(b"abc"));
        queue.push_file(FileRange { file: 1, offset: 5, length: 10 });
        queue.push_bytes(Bytes::from_static(b"de"));
        queue
    }

    /// The origin of every byte, for comparing two queues.
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
