//! Reads the output of child processes line by line.

use std::io;
use std::time::Duration;

use super::OutputPipe;

/// Maximum length of a line in bytes; the rest of a longer one is dropped.
pub const LINE_BYTES_MAX: usize = 8_192;

/// Bytes per read.
const READ_BYTES: usize = 4_096;

/// After this many unwanted bytes, reading pauses for [`UNWANTED_PAUSE_MS`]: useless output then
/// costs little, and the child is not stopped.
const UNWANTED_BYTES: usize = 64 * 1024;
const UNWANTED_PAUSE_MS: u64 = 10;

/// Reads to the end and passes each line on, without its terminator; also an unterminated last
/// line. `each` returns whether it wanted the line.
///
/// # Errors
/// Errors of reading.
pub async fn forward_lines(
    from: &OutputPipe,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let (mut lines, mut unwanted) = (PartialLine::default(), 0);
    loop {
        // Wait without holding a buffer.
        from.readable().await?;
        let mut buffer = [0; READ_BYTES];
        match from.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(length) if lines.feed(&buffer[..length], &mut each) => {}
            Ok(length) => unwanted += length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        // A program that never stops writing must not delay other tasks.
        tokio::task::yield_now().await;
        if unwanted >= UNWANTED_BYTES {
            unwanted = 0;
            tokio::time::sleep(Duration::from_millis(UNWANTED_PAUSE_MS)).await;
        }
    }
    lines.finish(&mut each);
    Ok(())
}

/// An incomplete line.
#[derive(Debug, Default)]
struct PartialLine {
    begun: Vec<u8>,
}

impl PartialLine {
    /// Splits bytes into lines. True if all of them were wanted.
    fn feed(&mut self, mut bytes: &[u8], each: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let mut wanted = true;
        while let Some(at) = bytes.iter().position(|&byte| byte == b'\n') {
            wanted &= self.keep(&bytes[..at]);
            wanted &= each(self.begun.strip_suffix(b"\r").unwrap_or(&self.begun));
            self.begun.clear();
            bytes = &bytes[at + 1..];
        }
        self.keep(bytes) && wanted
    }

    fn finish(&mut self, each: &mut impl FnMut(&[u8]) -> bool) {
        if !self.begun.is_empty() {
            each(&self.begun);
            self.begun.clear();
        }
    }

    /// Appends to the line. False if it became too long.
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let room = LINE_BYTES_MAX - self.begun.len();
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
        bytes.len() <= room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut heard = Vec::new();
        let mut each = |line: &[u8]| {
            heard.push(line.to_vec());
            true
        };
        let mut lines = PartialLine::default();
        for piece in pieces {
            lines.feed(piece, &mut each);
        }
        lines.finish(&mut each);
        heard
    }

    #[test]
    fn lines_are_the_same_wherever_they_are_split() {
        let written = b"one\r\n\ntwo\nrest";
        let want: [&[u8]; 4] = [b"one", b"", b"two", b"rest"];
        for at in 0..=written.len() {
            assert_eq!(lines_of(&[&written[..at], &written[at..]]), want, "split at {at}");
        }
        assert!(lines_of(&[]).is_empty());
    }

    #[test]
    fn a_line_has_n_bytes_at_most() {
        for length in [LINE_BYTES_MAX, LINE_BYTES_MAX + 1] {
            let written = [vec![b'x'; length], b"\nnext\n".to_vec()].concat();
            let heard = lines_of(&[&written[..100], &written[100..]]);
            assert_eq!(heard, [vec![b'x'; LINE_BYTES_MAX], b"next".to_vec()]);
        }
    }
}
