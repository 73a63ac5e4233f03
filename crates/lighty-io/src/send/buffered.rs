//! `io-uring`, `gthread-aio`, `posix-aio`: file contents are read into a buffer, which takes the
//! place of the file at the front of the queue. While it is being sent the next one is read.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange};

use super::disk::{Disk, ReadResult};
use super::socket::shrank;
use super::{File, NetworkBackend, Sender};
use crate::file::OwnedBuf;

/// What a connection reads at a time when every pooled buffer is taken: small enough to give to
/// each of them, so that slow clients who hold the buffers cannot keep others from being served.
pub(super) const SPARE_BUFFER_BYTES: usize = 16 << 10;

impl Sender {
    /// Replaces the start of the range at the front of the queue by its contents.
    pub(super) async fn fill_buffer(
        &self,
        disk: &mut Disk,
        queue: &mut ChunkQueue<File>,
        range: FileRange<File>,
        left: u64,
    ) -> io::Result<()> {
        self.counters().async_read();
        let (buf, result) = {
            let _waiting = self.counters().waiting();
            match disk.read_ahead.take(range.offset) {
                Some(begun) => begun.await,
                None => {
                    let buf = self.buffer(range.length.min(left));
                    self.clone().read_into(Rc::clone(&range.file), range.offset, buf).await
                }
            }
        };
        let bytes = result?.min(usize::try_from(range.length).unwrap_or(usize::MAX));
        if bytes == 0 {
            return Err(shrank());
        }
        queue.advance(bytes as u64);
        queue.push_front(Chunk::Memory(freeze(buf, bytes)));
        let left = left.saturating_sub(bytes as u64);
        self.read_next(disk, range, bytes as u64, left);
        Ok(())
    }

    /// Begins to read what follows the first `done` bytes of the range, if buffers are plenty.
    fn read_next(&self, disk: &mut Disk, range: FileRange<File>, done: u64, left: u64) {
        let want = (range.length - done).min(left);
        if want == 0 || self.0.buffers.in_use() * 2 > self.0.buffers.buffers_max() {
            return;
        }
        let offset = range.offset + done;
        let buf = self.buffer(want);
        disk.read_ahead.begin(offset, self.clone().read_into(range.file, offset, buf));
    }

    /// A buffer that shows at most `want` bytes.
    fn buffer(&self, want: u64) -> OwnedBuf {
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        match self.0.buffers.take() {
            Some(mut buf) => {
                buf.truncate(want);
                OwnedBuf::Pooled(buf)
            }
            None => OwnedBuf::zeroed(want.min(SPARE_BUFFER_BYTES)),
        }
    }

    async fn read_into(self, file: File, offset: u64, buf: OwnedBuf) -> ReadResult {
        match self.0.backend {
            NetworkBackend::GthreadAio => self.read_in_pool(&file, offset, buf).await,
            NetworkBackend::PosixAio => super::posix_aio::read(&file, offset, buf).await,
            _ => self.0.engine.read(&file, offset, buf).await,
        }
    }
}

fn freeze(buf: OwnedBuf, bytes: usize) -> Bytes {
    match buf {
        OwnedBuf::Pooled(buf) => buf.freeze(bytes),
        OwnedBuf::Heap(mut heap) => {
            heap.truncate(bytes);
            Bytes::from(heap)
        }
    }
}
