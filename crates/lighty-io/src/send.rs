//! Sends queues of chunks to clients; all sending goes through this module.
//!
//! [`Sender::try_send`] is the hot path: it sends as much as it can without waiting and returns why
//! it stopped.
//! [`Sender::send`] continues until everything is sent, waiting for the socket and the disk. The
//! network backend decides how file data is sent, one source file for each:
//!
//! | backend | file |
//! |---|---|
//! | `linux-sendfile` | `socket`, directly in the loop |
//! | `writev`, `write` | `copy` |
//! | `auto` | `auto` |
//! | `io-uring`, `gthread-aio`, `posix-aio` | `buffered`, over `gthread_aio` and `posix_aio` |
//! | `gthread-sendfile` | `gthread_sendfile` |
//! | `linux-aio-sendfile` | `linux_aio` |
//!
//! [`Sender::try_load`] and [`Sender::load`] (`load`) only bring file data into memory, for
//! protocols that frame it.
//!
//! A file shorter than announced is an error of kind `UnexpectedEof` and is never padded. Of a file
//! that has grown, only the announced length is sent.

mod auto;
mod backend;
mod buffered;
mod buffers;
mod copy;
mod counters;
mod direct;
mod disk;
mod gthread_aio;
mod gthread_sendfile;
mod linux_aio;
mod load;
mod posix_aio;
mod socket;
#[cfg(test)]
mod tests;
mod ways;

pub use backend::{NetworkBackend, UnknownBackend};
pub use counters::SendCounters;
pub use load::{LOAD_BYTES_MAX, ResponseLoading};

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;

use lighty_buf::{Chunk, ChunkQueue, FileRange};

use crate::clock::Stopwatch;
use crate::file::{FileEngine, OpenFile, Resident};
use crate::process::syscall_fallback::Syscall;
use crate::threads::pool::ThreadPool;
use crate::transport::Stream;
use buffers::ReadBuffers;
use disk::Disk;
use linux_aio::AioContext;
use socket::SocketStep;
use ways::Warm;

/// A file in the file ranges of a queue.
pub type File = Rc<OpenFile>;

/// Maximum bytes that one connection may send before yielding to others.
pub const TURN_BYTES_MAX: u64 = 1 << 20;

/// Pieces that one connection may send before yielding to others, a file range or up to 64 chunks
/// of memory each: of many small files, these take longer than the bytes.
pub const TURN_PIECES_MAX: u32 = 64;

/// Default bytes of a file read at a time (`server.read-chunk`). Below 384 KiB, many parallel
/// downloads turn into seeks.
pub const READ_CHUNK_BYTES_DEFAULT: usize = 512 << 10;

/// The smallest useful chunk: one page.
pub const READ_CHUNK_BYTES_MIN: usize = 4_096;

/// Chunks of file data that one worker's buffers may hold in total. A connection that gets no
/// buffer continues in small pieces.
pub const SEND_BUFFERS_MAX_DEFAULT: usize = 64;

/// The thread and AIO backends send resident remainders up to this size directly, because a
/// handover would cost more than it gains.
const HANDOVER_BYTES_MIN: u64 = 4_096;

/// Options of a [`Sender`].
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The network backend.
    pub backend: NetworkBackend,
    /// Bytes of a file read at a time.
    pub read_chunk_bytes: usize,
    /// Total buffer budget for file data, in chunks of `read_chunk_bytes`. Smaller files use
    /// smaller buffers, and so more of them.
    pub buffers_max: usize,
    /// Maximum kernel AIO requests in flight (`server.max-read-threads`).
    pub aio_requests_max: usize,
}

impl Default for SendOptions {
    fn default() -> Self {
        SendOptions {
            backend: NetworkBackend::Auto,
            read_chunk_bytes: READ_CHUNK_BYTES_DEFAULT,
            buffers_max: SEND_BUFFERS_MAX_DEFAULT,
            aio_requests_max: 64,
        }
    }
}

/// Sends queues of chunks on one worker. Clones share it.
#[derive(Clone)]
pub struct Sender(Rc<SendEngineInner>);

struct SendEngineInner {
    backend: NetworkBackend,
    engine: FileEngine,
    pool: ThreadPool,
    buffers: ReadBuffers,
    read_chunk_bytes: u64,
    counters: SendCounters,
    scratch: RefCell<Vec<u8>>,
    aio: Option<Rc<AioContext>>,
}

/// Result of [`Sender::try_send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes accepted by the socket.
    pub bytes: u64,
    /// Reason for stopping.
    pub state: SendState,
}

/// Waiting times of a [`Sender::send_timed`] in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWaits {
    /// Waiting for the socket, because the client reads slowly.
    pub client_us: u64,
    /// Waiting for a free thread to read from the disk.
    pub thread_us: u64,
    /// Waiting for the disk.
    pub disk_us: u64,
}

/// Reason why a sender stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// The queue is empty.
    Done,
    /// The budget or the loop turn is used up; more could be sent.
    Spent,
    /// The socket accepts no more for now.
    WouldBlock,
    /// The next data must first be read from the disk, which [`Sender::send`] does.
    NeedsDisk,
}

/// Method of sending the range at the front of a queue.
enum SendMethod {
    /// Send this many bytes straight from the page cache.
    Sendfile(u64),
    /// Read in the loop, then write.
    Copy(u64),
    /// Wait for the disk.
    Disk,
}

impl Sender {
    /// Creates a sender for this worker.
    ///
    /// # Errors
    /// Why the backend cannot run on this machine.
    ///
    /// # Panics
    /// Outside a worker's runtime.
    pub fn start(engine: FileEngine, pool: ThreadPool, options: SendOptions) -> io::Result<Self> {
        options.backend.available()?;
        let aio = match options.backend {
            NetworkBackend::LinuxAioSendfile => Some(AioContext::start(options.aio_requests_max)?),
            _ => None,
        };
        let read_chunk_bytes = options.read_chunk_bytes.max(READ_CHUNK_BYTES_MIN);
        Ok(Sender(Rc::new(SendEngineInner {
            backend: options.backend,
            engine,
            pool,
            buffers: ReadBuffers::new(read_chunk_bytes, read_chunk_bytes * options.buffers_max),
            read_chunk_bytes: read_chunk_bytes as u64,
            counters: SendCounters::default(),
            scratch: RefCell::new(Vec::new()),
            aio,
        })))
    }

    /// The configured backend.
    pub fn backend(&self) -> NetworkBackend {
        self.0.backend
    }

    /// The sender's counters.
    pub fn counters(&self) -> &SendCounters {
        &self.0.counters
    }

    /// Frees memory not needed recently; call about once a second.
    pub fn trim(&self) {
        self.0.buffers.trim();
        if self.0.backend == NetworkBackend::PosixAio {
            posix_aio::recover_lost();
        }
    }

    /// Sends a head and the beginning of a body in memory in one call. Returns the number of bytes,
    /// of the head first; 0 if the socket accepts none.
    ///
    /// # Errors
    /// Errors of the socket; the connection must then be closed.
    pub fn try_send_joined(&self, stream: &Stream, head: &[u8], body: &[u8]) -> io::Result<u64> {
        let body = &body[..body.len().min(TURN_BYTES_MAX as usize)];
        let bytes = socket::write_both(stream, head, body)?.bytes;
        self.0.counters.sent(bytes.saturating_sub(head.len() as u64));
        Ok(bytes)
    }

    /// Sends as much as possible without waiting for the socket or the disk, up to `budget` bytes,
    /// [`TURN_BYTES_MAX`] and [`TURN_PIECES_MAX`]. Sent data is removed from the queue.
    ///
    /// # Errors
    /// Errors of the socket or the file; the connection must then be closed.
    pub fn try_send(
        &self,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        budget: u64,
    ) -> io::Result<Sent> {
        let limit = budget.min(TURN_BYTES_MAX);
        let (mut bytes, mut pieces) = (0, 0);
        let state = loop {
            let left = limit - bytes;
            let Some(front) = queue.front() else { break SendState::Done };
            if left == 0 || pieces == TURN_PIECES_MAX {
                break SendState::Spent;
            }
            pieces += 1;
            let step = match front {
                Chunk::Memory(_) if self.0.backend == NetworkBackend::Writev => {
                    self.write_with_file(stream, queue, left)
                }
                Chunk::Memory(_) => socket::write_memory(stream, queue, left, None),
                Chunk::File(range) => match self.plan(range, left) {
                    SendMethod::Sendfile(want) => self.sendfile(stream, range, want),
                    SendMethod::Copy(want) => self.copy(stream, range, want),
                    SendMethod::Disk => break SendState::NeedsDisk,
                },
            };
            let step = match step {
                Ok(step) => step,
                // Bytes already sent must be counted; the error recurs with the next call.
                Err(_) if bytes > 0 => break SendState::Spent,
                Err(error) => return Err(error),
            };
            debug_assert!(step.bytes <= left, "{} of {left}", step.bytes);
            queue.advance(step.bytes);
            bytes += step.bytes;
            if step.full {
                break if queue.is_empty() { SendState::Done } else { SendState::WouldBlock };
            }
        };
        self.counters().sent(bytes);
        Ok(Sent { bytes, state })
    }

    /// Like [`send_timed`](Self::send_timed), without the times.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    #[cfg(test)]
    pub(crate) async fn send(
        &self,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        budget: u64,
        progress: &Cell<u64>,
    ) -> io::Result<u64> {
        self.send_timed(stream, queue, budget, progress, &mut SendWaits::default()).await
    }

    /// Sends until the queue is empty or `budget` bytes are sent, waiting for the socket and the
    /// disk as needed. Returns the number of bytes sent. `progress` is updated continuously, so
    /// that a sweep can distinguish a slow client from a stalled one; each wait adds its time to
    /// `waits`.
    ///
    /// If the future is dropped, the queue holds the unsent remainder, with one exception: with
    /// `gthread-sendfile` a thread may still be sending, so the connection must be closed.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    pub async fn send_timed(
        &self,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        budget: u64,
        progress: &Cell<u64>,
        waits: &mut SendWaits,
    ) -> io::Result<u64> {
        let mut sent = 0;
        let mut disk: Option<Box<Disk>> = None;
        loop {
            let now = self.try_send(stream, queue, budget - sent)?;
            sent += now.bytes;
            progress.set(progress.get() + now.bytes);
            match now.state {
                SendState::Done => return Ok(sent),
                SendState::Spent if sent >= budget => return Ok(sent),
                SendState::Spent => {
                    if let Some(disk) = &mut disk {
                        self.keep_ahead(disk, queue);
                    }
                    tokio::task::yield_now().await;
                }
                SendState::WouldBlock => {
                    if let Some(disk) = &mut disk {
                        self.keep_ahead(disk, queue);
                    }
                    let since = Stopwatch::start();
                    stream.writable().await?;
                    waits.client_us += since.us();
                }
                SendState::NeedsDisk => {
                    let disk = disk.get_or_insert_default();
                    // Boxed, so that connections that never meet a cold file do not carry this
                    // state.
                    let step = self.fetch(disk, stream, queue, budget - sent, progress);
                    sent += self.timed(Box::pin(step), waits).await?;
                }
            }
        }
    }

    /// Awaits a read from the disk and measures it. Its waiting time for threads is the growth of
    /// the counter during its own polls.
    async fn timed<T>(
        &self,
        mut reading: Pin<Box<impl Future<Output = T>>>,
        waits: &mut SendWaits,
    ) -> T {
        let (since, queue_us) = (Stopwatch::start(), &self.counters().read_queue_us);
        let mut thread_us = 0;
        let done = std::future::poll_fn(|cx| {
            let before_us = queue_us.get();
            let step = reading.as_mut().poll(cx);
            thread_us += queue_us.get() - before_us;
            step
        })
        .await;
        waits.thread_us += thread_us;
        waits.disk_us += since.us().saturating_sub(thread_us);
        done
    }

    fn plan(&self, range: &FileRange<File>, left: u64) -> SendMethod {
        let want = range.length.min(left);
        match self.0.backend.ways().warm {
            Warm::Sendfile => SendMethod::Sendfile(want),
            Warm::Copy => SendMethod::Copy(want),
            Warm::Never => SendMethod::Disk,
            Warm::ResidentChunk => {
                let want = want.min(self.window_rest(range.offset));
                if self.ready_for_sendfile(range, want) {
                    SendMethod::Sendfile(want)
                } else {
                    SendMethod::Disk
                }
            }
            Warm::ResidentRest => {
                let small = range.length <= HANDOVER_BYTES_MIN;
                if small && self.ready_for_sendfile(range, want) {
                    SendMethod::Sendfile(want)
                } else {
                    SendMethod::Disk
                }
            }
        }
    }

    /// True if sendfile on the range would not block.
    fn ready_for_sendfile(&self, range: &FileRange<File>, want: u64) -> bool {
        !range.file.sendfile_may_block()
            && self.0.engine.resident(&range.file, range.offset, want) == Resident::Yes
    }

    /// Bytes from `offset` to the end of its chunk in the file. Chunks begin at multiples of their
    /// size, so that residency cached for one is found again.
    fn window_rest(&self, offset: u64) -> u64 {
        self.0.read_chunk_bytes - offset % self.0.read_chunk_bytes
    }

    /// The number of the chunk at `offset`.
    fn window(&self, offset: u64) -> u64 {
        offset / self.0.read_chunk_bytes
    }

    fn sendfile(
        &self,
        stream: &Stream,
        range: &FileRange<File>,
        want: u64,
    ) -> io::Result<SocketStep> {
        if Syscall::Sendfile.is_refused() {
            return self.copy(stream, range, want);
        }
        match socket::sendfile(stream, &range.file, range.offset, want) {
            Ok(step) => {
                self.counters().sync_read();
                self.counters().sendfile(step.bytes);
                Ok(step)
            }
            Err(error) if socket::sendfile_unsupported(&error) => {
                let step = self.copy(stream, range, want)?;
                // Only here: an unreadable file would have failed the same way.
                if stream.plain_fd().is_some() {
                    Syscall::Sendfile.note(&error);
                }
                Ok(step)
            }
            Err(error) => Err(error),
        }
    }

    fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.0.scratch.borrow_mut()
    }
}
