//! `gthread-sendfile`: the whole `sendfile` call runs in the thread pool on a duplicate of the
//! socket. The socket stays non-blocking, so a slow client blocks no thread: the loop waits for the
//! socket, and a thread only ever waits for the disk.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lighty_buf::FileRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::gthread_aio::read_lane;
use super::socket::{sendfile_once, sendfile_unsupported};
use super::{File, Sender};
use crate::clock::Stopwatch;
use crate::process::syscall_fallback::Syscall;
use crate::transport::Stream;

/// Result of a job: bytes sent, and why it stopped early, if it did.
struct SendfileResult {
    bytes: u64,
    end: io::Result<()>,
}

impl Sender {
    /// Duplicates the socket for a job: the connection may be closed, and its descriptor number
    /// reused, before the job runs. `None` if this fails, for lack of descriptors for example.
    pub(super) fn lend(stream: &Stream) -> Option<OwnedFd> {
        if Syscall::Sendfile.is_refused() { None } else { stream.duplicate().ok() }
    }

    /// Sends one chunk, and waits for the socket if it filled up.
    pub(super) async fn sendfile_in_pool(
        &self,
        stream: &Stream,
        socket: OwnedFd,
        range: &FileRange<File>,
        left: u64,
    ) -> io::Result<u64> {
        let want = range.length.min(left).min(self.0.read_chunk_bytes);
        let file = range.file.share_fd();
        let offset = range.offset;
        self.counters().async_read();
        let since = Stopwatch::start();
        let job = move || (since.us(), lent(socket.as_fd(), file.as_fd(), offset, want));
        let (queued_us, done) = {
            let _waiting = self.counters().waiting();
            self.0.pool.run_while_wanted(read_lane(&range.file), job).await?
        };
        self.counters().waited_for_thread(queued_us);
        match done.end {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => full(stream).await?,
            Err(error) if sendfile_unsupported(&error) && done.bytes == 0 => {
                let copied = self.copied_in_loop(stream, range, want).await?;
                Syscall::Sendfile.note(&error);
                return Ok(copied);
            }
            Err(error) if done.bytes == 0 => return Err(error),
            // Bytes already sent must be counted; the error recurs with the next call.
            Err(_) => {}
        }
        Ok(done.bytes)
    }

    async fn copied_in_loop(
        &self,
        stream: &Stream,
        range: &FileRange<File>,
        want: u64,
    ) -> io::Result<u64> {
        let step = self.copy(stream, range, want)?;
        if step.full {
            stream.writable().await?;
        }
        Ok(step.bytes)
    }
}

fn lent(socket: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, want: u64) -> SendfileResult {
    let mut bytes = 0;
    while bytes < want {
        match sendfile_once(socket, file, offset + bytes, want - bytes) {
            Ok(sent) => bytes += sent,
            Err(end) => return SendfileResult { bytes, end: Err(end) },
        }
    }
    SendfileResult { bytes, end: Ok(()) }
}

/// The thread received EAGAIN, which the reactor did not see, and the socket may have drained
/// since. So the socket is tried again here, and only a refusal from now on counts.
async fn full(stream: &Stream) -> io::Result<()> {
    let outcome = stream.try_write_with(|socket| {
        let mut ask = [PollFd::new(&socket, PollFlags::OUT)];
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut ask, Some(&none))? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    match outcome.unwrap_or(Ok(())) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await,
        other => other,
    }
}
