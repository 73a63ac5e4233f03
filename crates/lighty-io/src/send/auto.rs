//! `auto`: the file engine loads cold chunks into the page cache, and they are sent from there. A
//! slow client ties up no memory of the process. While one chunk is being sent, the next is loaded
//! from disk.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use lighty_buf::{ChunkQueue, FileRange};

use super::disk::Disk;
use super::socket::shrank;
use super::{File, Sender};
use crate::file::Resident;
use crate::transport::Stream;

/// Maximum number of loads of a chunk for one client before it is sent through a buffer. If data
/// leaves the page cache faster than the client reads it, loading it again does not help.
pub(super) const WARM_ROUNDS_MAX: u32 = 2;

/// Chunks read ahead of a client at a disk where reads take turns, in place of the kernel's
/// read-ahead.
const CHUNKS_AHEAD: u32 = 3;

impl Sender {
    /// Loads the front chunk into the page cache or, if that does not help, into a buffer at the
    /// front of the queue.
    pub(super) async fn bring_in(
        &self,
        disk: &mut Disk,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        range: FileRange<File>,
        left: u64,
        progress: &Cell<u64>,
    ) -> io::Result<u64> {
        if range.file.sendfile_may_block() || !self.warm_front(disk, &range).await? {
            self.fill_buffer(disk, queue, range, left).await?;
            return Ok(0);
        }
        self.warm_next(disk, &range);
        if self.0.backend == super::NetworkBackend::Auto {
            return Ok(0);
        }
        // Reached for other backends that could not use their own method: send the resident data.
        let want = self.window_rest(range.offset).min(range.length).min(left);
        let step = self.sendfile(stream, &range, want)?;
        self.counters().sent(step.bytes);
        queue.advance(step.bytes);
        progress.set(progress.get() + step.bytes);
        if step.full {
            stream.writable().await?;
        }
        Ok(step.bytes)
    }

    /// Warms the front chunk. Returns false if that was done too often without success.
    pub(super) async fn warm_front(
        &self,
        disk: &mut Disk,
        range: &FileRange<File>,
    ) -> io::Result<bool> {
        let window = self.window(range.offset);
        let (last, rounds) = disk.warmed;
        let rounds = if last == window { rounds + 1 } else { 1 };
        disk.warmed = (window, rounds);
        if rounds > WARM_ROUNDS_MAX {
            return Ok(false);
        }
        self.counters().async_read();
        let _waiting = self.counters().waiting();
        if let Some(begun) = disk.warm_ahead.take(range.offset) {
            begun.await?;
            if rounds == 1 {
                return Ok(true);
            }
        }
        let want = self.window_rest(range.offset).min(range.length);
        match self.0.engine.warm(&range.file, range.offset, want).await? {
            0 => Err(shrank()),
            _ => Ok(true),
        }
    }

    /// Starts to warm the chunks after the front one that are part of the range and not resident:
    /// several at a disk where reads take turns, so that others wait there when one ends.
    pub(super) fn warm_next(&self, disk: &mut Disk, range: &FileRange<File>) {
        let chunks = if self.0.engine.takes_turns(&range.file) { CHUNKS_AHEAD } else { 1 };
        disk.warm_ahead.forget_before(range.offset);
        let mut step = self.window_rest(range.offset);
        for _ in 0..chunks {
            if step >= range.length {
                return;
            }
            self.warm_ahead(disk, range, step);
            step += self.0.read_chunk_bytes;
        }
    }

    /// Starts to warm the chunk `step` bytes after the beginning of the range.
    fn warm_ahead(&self, disk: &mut Disk, range: &FileRange<File>, step: u64) {
        let next = range.offset + step;
        let want = self.0.read_chunk_bytes.min(range.length - step);
        if disk.warm_ahead.is_for(next)
            || self.0.engine.resident(&range.file, next, want) == Resident::Yes
        {
            return;
        }
        let (engine, file) = (self.0.engine.clone(), Rc::clone(&range.file));
        disk.warm_ahead.begin(next, async move { engine.warm(&file, next, want).await });
    }
}
