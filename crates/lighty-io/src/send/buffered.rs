//! `io-uring`, `gthread-aio`, `posix-aio`: file contents are read into a buffer, which takes the
//! place of the file at the front of the queue. While it is being sent the next one is read.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange};

use super::disk::{Disk, ReadResult};
use super::socket::shrank;
use super::{File, NetworkBackend, Sender};
use crate::file::{OwnedBuf, Resident};

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
        let (buf, result) = match disk.read_ahead.take(range.offset) {
            Some(begun) => self.waited(begun).await,
            None => match self.0.buffers.take(range.length.min(left)) {
                Some(buf) => self.waited(self.read_at(&range, OwnedBuf::Pooled(buf))).await,
                None => self.read_piece(disk, &range, left).await?,
            },
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
        if want == 0 || self.0.buffers.are_scarce() {
            return;
        }
        let Some(buf) = self.0.buffers.take(want) else { return };
        let (offset, buf) = (range.offset + done, OwnedBuf::Pooled(buf));
        disk.read_ahead.begin(offset, self.clone().read_into(range.file, offset, buf));
    }

    /// Without a pooled buffer: sees to it that the chunk at the front is in the page cache, and
    /// copies a small piece from there. A disk that is asked for small pieces by many clients
    /// seeks between them, and a piece that waits its turn behind their reads comes too late.
    async fn read_piece(
        &self,
        disk: &mut Disk,
        range: &FileRange<File>,
        left: u64,
    ) -> io::Result<ReadResult> {
        let want = range.length.min(left).min(SPARE_BUFFER_BYTES as u64);
        let chunk = range.length.min(self.window_rest(range.offset));
        if want < chunk
            && !disk.has_warmed(self.window(range.offset))
            && self.0.engine.resident(&range.file, range.offset, chunk) == Resident::No
        {
            self.warm_front(disk, range).await?;
        }
        let mut buf = OwnedBuf::zeroed(want as usize);
        if let Some(result) = self.0.engine.try_read(&range.file, range.offset, &mut buf) {
            self.counters().sync_read();
            // Piece after piece like this would be a turn without an end.
            tokio::task::yield_now().await;
            return Ok((buf, result));
        }
        Ok(self.waited(self.read_at(range, buf)).await)
    }

    /// Counts a read, and the time until it is over as waiting.
    async fn waited(&self, reading: impl Future<Output = ReadResult>) -> ReadResult {
        self.counters().async_read();
        let _waiting = self.counters().waiting();
        reading.await
    }

    fn read_at(
        &self,
        range: &FileRange<File>,
        buf: OwnedBuf,
    ) -> impl Future<Output = ReadResult> + use<> {
        self.clone().read_into(Rc::clone(&range.file), range.offset, buf)
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
