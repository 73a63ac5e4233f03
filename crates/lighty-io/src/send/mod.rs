//! Sending: queues of chunks go to clients here, and nowhere else.
//!
//! [`Sender::try_send`] is the hot path: it sends what can be sent without waiting for anything,
//! and says why it stopped. [`Sender::send`] is the same until everything is out: it waits for
//! the socket and for the disk. What to do about a file is the network backend's business, one
//! file for each:
//!
//! | backend | file |
//! |---|---|
//! | `linux-sendfile` | `socket`, right in the loop |
//! | `writev`, `write` | `copy` |
//! | `auto` | `auto` |
//! | `io-uring`, `gthread-aio`, `posix-aio` | `buffered`, over `gthread_aio` and `posix_aio` |
//! | `gthread-sendfile` | `gthread_sendfile` |
//! | `linux-aio-sendfile` | `linux_aio` |
//!
//! A file that turns out shorter than announced is an error of the kind `UnexpectedEof`, and
//! never padded; of a file that has grown only the announced length is sent.

mod auto;
mod backend;
mod buffered;
mod buffers;
mod copy;
mod counters;
mod disk;
mod gthread_aio;
mod gthread_sendfile;
mod linux_aio;
mod posix_aio;
mod socket;
#[cfg(test)]
mod tests;

pub use backend::{NetworkBackend, UnknownBackend};
pub use counters::SendCounters;

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;

use lighty_buf::{Chunk, ChunkQueue, FileRange};

use crate::file::{FileEngine, OpenFile, Resident};
use crate::pool::ThreadPool;
use crate::syscall_fallback::Syscall;
use crate::transport::Stream;
use buffers::ReadBuffers;
use disk::Disk;
use linux_aio::AioContext;
use socket::Step;

/// What the file ranges of a queue hold.
pub type File = Rc<OpenFile>;

/// What one connection may send before the others get their turn.
pub const TURN_BYTES_MAX: u64 = 1 << 20;

/// How much of a file is read at a time by default (`server.read-chunk`). Below 384 KiB many
/// parallel downloads turn into seeks.
pub const READ_CHUNK_BYTES_DEFAULT: usize = 512 << 10;

/// The smallest chunk that makes sense: one page.
pub const READ_CHUNK_BYTES_MIN: usize = 4_096;

/// How many chunks the buffers for file contents of one worker may hold together. A connection
/// that finds no room goes on in small pieces.
pub const SEND_BUFFERS_MAX_DEFAULT: usize = 64;

/// Remainders up to this size are sent at once by the thread and AIO backends if they are
/// resident: handing them over costs more than it gains.
const HANDOVER_BYTES_MIN: u64 = 4_096;

/// How a [`Sender`] is set up.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The network backend.
    pub backend: NetworkBackend,
    /// How much of a file is read at a time, in bytes.
    pub read_chunk_bytes: usize,
    /// How many chunks of `read_chunk_bytes` the buffers for file contents may hold together;
    /// smaller files have smaller buffers, and more of them.
    pub buffers_max: usize,
    /// How many requests of kernel AIO may be under way (`server.max-read-threads`).
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

/// Sends queues of chunks, on one worker. Clones are handles to the same.
#[derive(Clone)]
pub struct Sender(Rc<Inner>);

struct Inner {
    backend: NetworkBackend,
    engine: FileEngine,
    pool: ThreadPool,
    buffers: ReadBuffers,
    read_chunk_bytes: u64,
    counters: SendCounters,
    scratch: RefCell<Vec<u8>>,
    aio: Option<Rc<AioContext>>,
}

/// What [`Sender::try_send`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes that the socket took.
    pub bytes: u64,
    /// Why it stopped.
    pub state: SendState,
}

/// Why a sender stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// The queue is empty.
    Done,
    /// The budget, or one turn of the loop, is used up; more could go.
    Spent,
    /// The socket takes no more for now.
    WouldBlock,
    /// What comes next must be fetched from the disk first: [`Sender::send`] does.
    NeedsDisk,
}

/// What to do with the range at the front of a queue.
enum Plan {
    /// Send this many bytes straight from the page cache.
    Sendfile(u64),
    /// Read in the loop and write.
    Copy(u64),
    /// Wait for the disk.
    Disk,
}

impl Sender {
    /// A sender for this worker.
    ///
    /// # Errors
    /// Why the backend cannot run on this machine.
    ///
    /// # Panics
    /// Outside a tokio runtime with a `LocalSet`.
    pub fn start(engine: FileEngine, pool: ThreadPool, options: SendOptions) -> io::Result<Self> {
        options.backend.available()?;
        let aio = match options.backend {
            NetworkBackend::LinuxAioSendfile => Some(AioContext::start(options.aio_requests_max)?),
            _ => None,
        };
        let read_chunk_bytes = options.read_chunk_bytes.max(READ_CHUNK_BYTES_MIN);
        Ok(Sender(Rc::new(Inner {
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

    /// The backend it was set up with.
    pub fn backend(&self) -> NetworkBackend {
        self.0.backend
    }

    /// What it has done so far.
    pub fn counters(&self) -> &SendCounters {
        &self.0.counters
    }

    /// Gives back memory that was not needed lately: call it once a second or so.
    pub fn trim(&self) {
        self.0.buffers.trim();
        if self.0.backend == NetworkBackend::PosixAio {
            posix_aio::recover_lost();
        }
    }

    /// Sends what can be sent without waiting for the socket or the disk, `budget` bytes and
    /// [`TURN_BYTES_MAX`] at most. What was sent is gone from the queue.
    ///
    /// # Errors
    /// Those of the socket and of the file; the connection cannot go on after one.
    pub fn try_send(
        &self,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        budget: u64,
    ) -> io::Result<Sent> {
        let limit = budget.min(TURN_BYTES_MAX);
        let mut bytes = 0;
        let state = loop {
            let left = limit - bytes;
            let Some(front) = queue.front() else { break SendState::Done };
            if left == 0 {
                break SendState::Spent;
            }
            let step = match front {
                Chunk::Memory(_) if self.0.backend == NetworkBackend::Writev => {
                    self.write_with_file(stream, queue, left)
                }
                Chunk::Memory(_) => socket::write_memory(stream, queue, left, None),
                Chunk::File(range) => match self.plan(range, left) {
                    Plan::Sendfile(want) => self.sendfile(stream, range, want),
                    Plan::Copy(want) => self.copy(stream, range, want),
                    Plan::Disk => break SendState::NeedsDisk,
                },
            };
            let step = match step {
                Ok(step) => step,
                // What went out before must be counted; the error comes again with the next call.
                Err(_) if bytes > 0 => break SendState::Spent,
                Err(error) => return Err(error),
            };
            queue.advance(step.bytes);
            bytes += step.bytes;
            if step.full {
                break if queue.is_empty() { SendState::Done } else { SendState::WouldBlock };
            }
        };
        self.counters().sent(bytes);
        Ok(Sent { bytes, state })
    }

    /// Sends until the queue is empty or `budget` bytes are out, waiting for socket and disk as
    /// needed; returns how many bytes went. `progress` grows with each of them, so that a sweep
    /// can tell a slow client from one that stands still.
    ///
    /// A future that is dropped leaves the queue saying what is left, with one exception: with
    /// `gthread-sendfile` a thread may still be sending, so the connection must be closed then.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub async fn send(
        &self,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        budget: u64,
        progress: &Cell<u64>,
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
                SendState::Spent => tokio::task::yield_now().await,
                SendState::WouldBlock => {
                    if let Some(disk) = &mut disk {
                        self.keep_ahead(disk, queue);
                    }
                    stream.writable().await?;
                }
                SendState::NeedsDisk => {
                    let disk = disk.get_or_insert_default();
                    // Boxed, because a connection that never meets a cold file should not carry
                    // the state of this.
                    let step = self.fetch(disk, stream, queue, budget - sent, progress);
                    sent += Box::pin(step).await?;
                }
            }
        }
    }

    fn plan(&self, range: &FileRange<File>, left: u64) -> Plan {
        let want = range.length.min(left);
        match self.0.backend {
            NetworkBackend::LinuxSendfile => Plan::Sendfile(want),
            NetworkBackend::Writev | NetworkBackend::Write => Plan::Copy(want),
            NetworkBackend::IoUring => Plan::Disk,
            NetworkBackend::Auto => {
                let want = want.min(self.window_rest(range.offset));
                if self.ready_for_sendfile(range, want) { Plan::Sendfile(want) } else { Plan::Disk }
            }
            NetworkBackend::LinuxAioSendfile
            | NetworkBackend::PosixAio
            | NetworkBackend::GthreadAio
            | NetworkBackend::GthreadSendfile => {
                let small = range.length <= HANDOVER_BYTES_MIN;
                if small && self.ready_for_sendfile(range, want) {
                    Plan::Sendfile(want)
                } else {
                    Plan::Disk
                }
            }
        }
    }

    /// Whether a sendfile of the range would not wait for anything.
    fn ready_for_sendfile(&self, range: &FileRange<File>, want: u64) -> bool {
        !range.file.sendfile_may_block()
            && self.0.engine.resident(&range.file, range.offset, want) == Resident::Yes
    }

    /// Bytes from `offset` to the end of the chunk of the file that it lies in: chunks begin at
    /// multiples of their size, so that what is remembered about one is found again.
    fn window_rest(&self, offset: u64) -> u64 {
        self.0.read_chunk_bytes - offset % self.0.read_chunk_bytes
    }

    /// The number of that chunk.
    fn window(&self, offset: u64) -> u64 {
        offset / self.0.read_chunk_bytes
    }

    fn sendfile(&self, stream: &Stream, range: &FileRange<File>, want: u64) -> io::Result<Step> {
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
                // Only now: of a file that nobody may read it would have said the same.
                Syscall::Sendfile.note(&error);
                Ok(step)
            }
            Err(error) => Err(error),
        }
    }

    fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.0.scratch.borrow_mut()
    }
}
