//! `writev` and `write`: read in the loop, then write. The baseline for measurements, and the
//! fallback for file systems without sendfile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use lighty_buf::{Chunk, ChunkQueue, FileRange};

use super::socket::{self, SocketStep, shrank};
use super::{File, Sender};
use crate::transport::Stream;

/// Bytes read and written at a time. The part that the socket does not accept is read again later,
/// so larger is not better.
pub(super) const COPY_BYTES: usize = 128 * 1024;

impl Sender {
    /// Reads the file range at the front of the queue and writes the result.
    pub(super) fn copy(
        &self,
        stream: &Stream,
        range: &FileRange<File>,
        want: u64,
    ) -> io::Result<SocketStep> {
        let scratch = &mut *self.scratch();
        let bytes = read_some(range, want, scratch)?;
        self.counters().sync_read();
        socket::write_bytes(stream, bytes)
    }

    /// `writev`: sends the memory at the front of the queue and the file after it in one call.
    pub(super) fn write_with_file(
        &self,
        stream: &Stream,
        queue: &ChunkQueue<File>,
        left: u64,
    ) -> io::Result<SocketStep> {
        let mut memory = 0;
        for (place, chunk) in queue.iter().enumerate() {
            match chunk {
                Chunk::Memory(bytes) => memory += bytes.len() as u64,
                Chunk::File(range) if memory < left && place < socket::PIECES_MAX => {
                    let scratch = &mut *self.scratch();
                    let bytes = read_some(range, left - memory, scratch)?;
                    self.counters().sync_read();
                    return socket::write_memory(stream, queue, left, Some(bytes));
                }
                Chunk::File(_) => break,
            }
        }
        socket::write_memory(stream, queue, left, None)
    }
}

fn read_some<'a>(
    range: &FileRange<File>,
    want: u64,
    scratch: &'a mut Vec<u8>,
) -> io::Result<&'a [u8]> {
    scratch.resize(COPY_BYTES, 0);
    let want = want.min(range.length).min(COPY_BYTES as u64) as usize;
    let bytes = read_at(range.file.as_fd(), range.offset, &mut scratch[..want])?;
    if bytes == 0 { Err(shrank()) } else { Ok(&scratch[..bytes]) }
}

/// One `pread`, repeated if interrupted by signals.
pub(super) fn read_at(file: BorrowedFd<'_>, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buf, offset))?)
}
