//! A buffer of bytes that were read and are not consumed yet.

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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn it_grows_up_to_its_limit_and_no_further() {
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
