//! The cold path: the state of a sender that waits for the disk, and the waiting.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lighty_buf::{Chunk, ChunkQueue, FileRange};

use super::direct::{DirectFile, PageSegment};
use super::ways::Cold;
use super::{File, NetworkBackend, Sender};
use crate::file::OwnedBuf;
use crate::transport::Stream;

/// Result of a buffered read: the buffer, and the bytes in it.
pub(super) type ReadResult = (OwnedBuf, io::Result<usize>);

/// State of a [`Sender::send`] that has met cold data. It concerns one file at a time.
#[derive(Default)]
pub(super) struct Disk {
    file: Option<File>,
    /// The chunk warmed last, and how often in a row.
    pub(super) warmed: (u64, u32),
    pub(super) warm_ahead: Ahead<io::Result<u64>>,
    pub(super) read_ahead: Ahead<ReadResult>,
    pub(super) segment_ahead: Ahead<io::Result<PageSegment>>,
    pub(super) direct: DirectFile,
}

/// Operations started in advance, with the offsets they are for, in order.
pub(super) struct Ahead<T>(VecDeque<(u64, Waited<T>)>);

type Waited<T> = Pin<Box<dyn Future<Output = T>>>;

impl<T> Default for Ahead<T> {
    fn default() -> Self {
        Ahead(VecDeque::new())
    }
}

impl<T: 'static> Ahead<T> {
    /// Starts an operation for `offset` without waiting. A result available at once is kept like
    /// any other.
    pub(super) fn begin(&mut self, offset: u64, future: impl Future<Output = T> + 'static) {
        let mut future: Waited<T> = Box::pin(future);
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            future = Box::pin(std::future::ready(done));
        }
        self.0.push_back((offset, future));
    }

    /// Takes the operation started for this offset, if any. Earlier ones are cancelled, and all if
    /// none is for this offset.
    pub(super) fn take(&mut self, offset: u64) -> Option<Waited<T>> {
        self.forget_before(offset);
        match self.0.pop_front() {
            Some((begun, future)) if begun == offset => Some(future),
            _ => {
                self.0.clear();
                None
            }
        }
    }

    /// Cancels operations for offsets before this one.
    pub(super) fn forget_before(&mut self, offset: u64) {
        while self.0.front().is_some_and(|(begun, _)| *begun < offset) {
            self.0.pop_front();
        }
    }

    /// True if an operation was started for this offset.
    pub(super) fn is_for(&self, offset: u64) -> bool {
        self.0.iter().any(|(begun, _)| *begun == offset)
    }
}

impl Disk {
    /// True if this chunk was the last one warmed.
    pub(super) fn has_warmed(&self, window: u64) -> bool {
        let (last, rounds) = self.warmed;
        rounds > 0 && last == window
    }

    /// Resets the state if the file has changed.
    pub(super) fn turn_to(&mut self, file: &File) {
        if !self.file.as_ref().is_some_and(|known| Rc::ptr_eq(known, file)) {
            *self = Disk { file: Some(Rc::clone(file)), ..Disk::default() };
        }
    }
}

impl Sender {
    /// Fetches the data needed at the front of the queue, in the backend's way. Afterwards
    /// [`try_send`](Self::try_send) can make progress, unless the data was already sent. Returns
    /// the number of bytes sent.
    pub(super) async fn fetch(
        &self,
        disk: &mut Disk,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        left: u64,
        progress: &Cell<u64>,
    ) -> io::Result<u64> {
        let Some(range) = front_file(queue) else { return Ok(0) };
        disk.turn_to(&range.file);
        match self.0.backend.ways().cold {
            Cold::Buffer => {
                self.fill_buffer(disk, queue, range, left).await?;
                Ok(0)
            }
            Cold::ThreadSendfile => {
                let Some(socket) = Sender::lend(stream) else {
                    self.fill_buffer(disk, queue, range, left).await?;
                    return Ok(0);
                };
                let sent = self.sendfile_in_pool(stream, socket, &range, left).await?;
                self.note_sent(queue, sent, progress);
                Ok(sent)
            }
            Cold::Pages => match self.next_segment(disk, &range, left).await? {
                Some(segment) => self.send_segment(disk, stream, queue, &segment, progress).await,
                None => self.bring_in(disk, stream, queue, range, left, progress).await,
            },
            Cold::PageCache => self.bring_in(disk, stream, queue, range, left, progress).await,
        }
    }

    /// Prefetches the next data while the socket is full.
    pub(super) fn keep_ahead(&self, disk: &mut Disk, queue: &ChunkQueue<File>) {
        if self.0.backend != NetworkBackend::Auto {
            return;
        }
        if let Some(range) = front_file(queue) {
            disk.turn_to(&range.file);
            self.warm_next(disk, &range);
        }
    }

    /// Removes bytes from the queue that were not sent through [`try_send`](Self::try_send).
    pub(super) fn note_sent(&self, queue: &mut ChunkQueue<File>, bytes: u64, progress: &Cell<u64>) {
        queue.advance(bytes);
        progress.set(progress.get() + bytes);
        self.counters().sent(bytes);
        self.counters().sendfile(bytes);
    }
}

pub(super) fn front_file(queue: &ChunkQueue<File>) -> Option<FileRange<File>> {
    match queue.front() {
        Some(Chunk::File(range)) => Some(range.clone()),
        _ => None,
    }
}
