//! A buffer of bytes that were read and are not consumed yet, and a pool of memory for many.

use std::cell::RefCell;
use std::rc::Rc;

/// A growing buffer between a reader and a parser. It owns no memory before the first call of
/// [`ReadBuf::room`].
#[derive(Debug, Default)]
pub struct ReadBuf {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuf {
    /// The bytes read and not consumed.
    #[inline]
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// True if all bytes read are consumed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Consumes `count` of the pending bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Discards the pending bytes.
    #[inline]
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Free space after the pending bytes, at least one byte; [`ReadBuf::filled`] reports the
    /// number of bytes read into it. A full buffer moves the pending bytes to its front or doubles,
    /// between `least` and `most` bytes. `None`: it is full at `most`.
    #[inline]
    pub fn room(&mut self, least: usize, most: usize) -> Option<&mut [u8]> {
        if self.end == self.bytes.len() && !self.make_room(least, most) {
            return None;
        }
        Some(&mut self.bytes[self.end..])
    }

    fn make_room(&mut self, least: usize, most: usize) -> bool {
        if self.start > 0 {
            debug_assert!(self.start <= self.end && self.end <= self.bytes.len());
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            return true;
        }
        let grown = (self.bytes.len() * 2).max(least).min(most);
        let grows = grown > self.bytes.len();
        if grows {
            self.bytes.resize(grown, 0);
        }
        grows
    }

    /// Reports that `count` bytes were read into [`ReadBuf::room`].
    #[inline]
    pub fn filled(&mut self, count: usize) {
        debug_assert!(self.end + count <= self.bytes.len());
        self.end += count;
    }

    /// Appends bytes read elsewhere; a buffer without memory gets at least `least` bytes.
    pub fn push(&mut self, read: &[u8], least: usize) {
        let end = self.end + read.len();
        if end > self.bytes.len() {
            self.bytes.resize(end.max(least), 0);
        }
        self.bytes[self.end..end].copy_from_slice(read);
        self.end = end;
    }

    /// Discards the pending bytes, and frees a buffer of more than `kept_max` bytes.
    #[inline]
    pub fn recycle(&mut self, kept_max: usize) {
        self.clear();
        if self.bytes.len() > kept_max {
            self.bytes = Vec::new();
        }
    }
}

/// Memory for the read buffers of one thread. A buffer without bytes needs none: however many
/// connections wait for their peers, only those that are being read have memory, and it is always
/// the same, which the processor has in its caches. Clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct ReadBufPool {
    kept: Rc<RefCell<Vec<Vec<u8>>>>,
    buffer_bytes: usize,
    kept_max: usize,
}

impl ReadBufPool {
    /// Creates a pool that keeps at most `kept_max` buffers of `buffer_bytes` bytes each. Allocates
    /// nothing yet.
    #[must_use]
    pub fn new(buffer_bytes: usize, kept_max: usize) -> Self {
        Self { kept: Rc::default(), buffer_bytes, kept_max }
    }

    /// Lends memory to a buffer that has none.
    #[inline]
    pub fn lend(&self, buffer: &mut ReadBuf) {
        if buffer.bytes.is_empty() {
            let kept = self.kept.borrow_mut().pop();
            buffer.bytes = kept.unwrap_or_else(|| vec![0; self.buffer_bytes]);
        }
    }

    /// Takes the memory of a buffer that has no bytes. One that has grown keeps its own.
    #[inline]
    pub fn take_back(&self, buffer: &mut ReadBuf) {
        if buffer.is_empty() && buffer.bytes.len() == self.buffer_bytes {
            let memory = std::mem::take(&mut buffer.bytes);
            let mut kept = self.kept.borrow_mut();
            if kept.len() < self.kept_max {
                kept.push(memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_without_bytes_share_their_memory() {
        let pool = ReadBufPool::new(4, 1);
        let (mut one, mut two) = (ReadBuf::default(), ReadBuf::default());
        pool.lend(&mut one);
        assert!(read(&mut one, b"ab", 8));
        pool.take_back(&mut one);
        assert_eq!(one.pending(), b"ab", "memory in use stays");
        let memory = one.bytes.as_ptr();
        one.consume(2);
        pool.take_back(&mut one);
        assert_eq!((one.bytes.len(), one.pending()), (0, &b""[..]));
        pool.lend(&mut two);
        assert_eq!(two.bytes.as_ptr(), memory);
        // A second one is not kept.
        pool.lend(&mut one);
        pool.take_back(&mut one);
        pool.take_back(&mut two);
        assert_eq!(pool.kept.borrow().len(), 1);
    }

    #[test]
    fn a_buffer_that_has_grown_keeps_its_memory() {
        let pool = ReadBufPool::new(4, 9);
        let mut buf = ReadBuf::default();
        pool.lend(&mut buf);
        assert!(read(&mut buf, b"abcd", 8) && read(&mut buf, b"e", 8));
        buf.clear();
        pool.take_back(&mut buf);
        assert_eq!((buf.bytes.len(), pool.kept.borrow().len()), (8, 0));
    }

    fn read(buf: &mut ReadBuf, bytes: &[u8], most: usize) -> bool {
        let Some(room) = buf.room(4, most) else { return false };
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        buf.filled(count);
        count == bytes.len()
    }

    #[test]
    fn bytes_come_out_as_they_were_read() {
        let mut buf = ReadBuf::default();
        assert!(read(&mut buf, b"abc", 8));
        buf.consume(1);
        assert_eq!(buf.pending(), b"bc");
        assert!(read(&mut buf, b"d", 8));
        // The consumed byte's space is used before the buffer grows.
        assert!(read(&mut buf, b"e", 8));
        assert_eq!((buf.pending(), buf.bytes.len()), (&b"bcde"[..], 4));
        assert!(read(&mut buf, b"fghi", 8));
        assert_eq!(buf.pending(), b"bcdefghi");
        buf.consume(8);
        assert!(buf.is_empty());
    }

    #[test]
    fn buffer_grows_up_to_its_limit_and_no_further() {
        let mut buf = ReadBuf::default();
        assert!(read(&mut buf, b"abcd", 6));
        assert!(read(&mut buf, b"ef", 6));
        assert!(buf.room(4, 6).is_none());
        assert_eq!(buf.pending(), b"abcdef");
        buf.consume(2);
        assert!(read(&mut buf, b"gh", 6));
        assert_eq!(buf.pending(), b"cdefgh");
        assert!(buf.room(4, 6).is_none(), "full again");
    }

    #[test]
    fn bytes_read_elsewhere_come_in_their_turn() {
        let mut buf = ReadBuf::default();
        buf.push(b"ab", 4);
        assert_eq!((buf.pending(), buf.bytes.len()), (&b"ab"[..], 4));
        assert!(read(&mut buf, b"c", 8));
        buf.push(b"defg", 4);
        assert_eq!(buf.pending(), b"abcdefg");
    }

    #[test]
    fn only_a_large_buffer_is_freed() {
        let mut buf = ReadBuf::default();
        assert!(read(&mut buf, b"abcd", 8));
        buf.recycle(4);
        assert!(buf.is_empty() && buf.bytes.len() == 4);
        assert!(read(&mut buf, b"abcd", 8) && read(&mut buf, b"e", 8));
        buf.recycle(4);
        assert!(buf.is_empty() && buf.bytes.is_empty());
    }
}
