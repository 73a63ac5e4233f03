//! `io-uring`, `gthread-aio`, `posix-aio`: file data is read into a buffer that replaces the file
//! at the front of the queue. While it is sent, the next one is read.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange};

use super::disk::{Disk, ReadResult};
use super::socket::shrank;
use super::ways::Fill;
use super::{File, Sender};
use crate::file::{OwnedBuf, Resident};

/// Bytes that a connection reads at a time when all pooled buffers are taken. Small enough for each
/// connection to have one, so that slow clients holding the buffers cannot starve others.
pub(super) const SPARE_BUFFER_BYTES: usize = 16 << 10;

impl Sender {
    /// Replaces the start of the front range by its contents.
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

    /// Starts to read the data after the first `done` bytes of the range, if buffers are plentiful.
    fn read_next(&self, disk: &mut Disk, range: FileRange<File>, done: u64, left: u64) {
        let want = (range.length - done).min(left);
        if want == 0 || self.0.buffers.are_scarce() {
            return;
        }
        let Some(buf) = self.0.buffers.take(want) else { return };
        let (offset, buf) = (range.offset + done, OwnedBuf::Pooled(buf));
        disk.read_ahead.begin(offset, self.clone().read_into(range.file, offset, buf));
    }

    /// If no buffer is free, the file engine loads the front chunk into the page cache and a small
    /// piece is copied from there. Small disk reads for many clients would cause seeks between
    /// them, and a piece queued behind other reads would come too late.
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
            // Without yielding, a run of such pieces would never end the turn.
            tokio::task::yield_now().await;
            return Ok((buf, result));
        }
        Ok(self.waited(self.read_at(range, buf)).await)
    }

    /// Counts a read and its duration as waiting time.
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
        match self.0.backend.ways().fill {
            Fill::Threads => self.read_in_pool(&file, offset, buf).await,
            Fill::PosixAio => super::posix_aio::read(&file, offset, buf).await,
            Fill::Engine => {
                self.0.engine.take_over_read_ahead(&file);
                self.0.engine.read(&file, offset, buf).await
            }
        }
    }
}

pub(super) fn freeze(buf: OwnedBuf, bytes: usize) -> Bytes {
    match buf {
        OwnedBuf::Pooled(buf) => buf.freeze(bytes),
        OwnedBuf::Heap(mut heap) => {
            heap.truncate(bytes);
            Bytes::from(heap)
        }
    }
}
