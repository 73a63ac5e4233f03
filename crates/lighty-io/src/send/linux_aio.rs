//! `linux-aio-sendfile`: kernel AIO reads past the page cache (O_DIRECT) into the pages of a memory
//! file, and sendfile sends from there, so user space copies nothing.
//!
//! Each chunk has its own memory file. The network stack refers to its pages until the client has
//! acknowledged them; overwriting a page earlier would corrupt data in flight.
//!
//! O_DIRECT requires aligned offsets and lengths. A range is widened to whole blocks and the excess
//! is skipped; the unaligned end of a file is a short read.

mod context;
mod pages;

pub(super) use context::{AioContext, probe};

use std::cell::Cell;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use lighty_buf::{ChunkQueue, FileRange};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::direct::{DirectFile, PageSegment};
use super::disk::Disk;
use super::socket::{self, sendfile_unsupported, shrank};
use super::{File, Sender};
use crate::file::FsClass;
use crate::process::syscall_fallback::Syscall;
use crate::threads::pool::Lane;
use crate::transport::Stream;

/// Alignment of direct reads: the page size, which every block device accepts.
pub(super) const ALIGN_BYTES: u64 = 4_096;

impl Sender {
    /// The next chunk of the range; `None` if it cannot be read this way.
    pub(super) async fn next_segment(
        &self,
        disk: &mut Disk,
        range: &FileRange<File>,
        left: u64,
    ) -> io::Result<Option<PageSegment>> {
        let Some(aio) = &self.0.aio else { return Ok(None) };
        if matches!(disk.direct, DirectFile::Unknown) {
            let needed = [Syscall::Sendfile, Syscall::MemfdCreate, Syscall::IoSubmit];
            disk.direct = match needed.into_iter().any(Syscall::is_refused) {
                true => DirectFile::Refused,
                false => self.open_direct(&range.file).await,
            };
        }
        let DirectFile::Open(direct) = &disk.direct else { return Ok(None) };
        let want = |length: u64| length.min(self.0.read_chunk_bytes);
        let result = {
            let _waiting = self.counters().waiting();
            match disk.segment_ahead.take(range.offset) {
                Some(begun) => begun.await,
                None => {
                    let want = want(range.length.min(left));
                    Rc::clone(aio).read(Rc::clone(direct), range.offset, want).await
                }
            }
        };
        let segment = match result {
            Ok(segment) if segment.bytes == 0 => return Err(shrank()),
            Ok(segment) => segment,
            Err(error) if is_refusal(&error) => {
                disk.direct = DirectFile::Refused;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.counters().async_read();
        let rest = range.length.min(left) - segment.bytes.min(range.length.min(left));
        if rest > 0 {
            let next = range.offset + segment.bytes;
            let read = Rc::clone(aio).read(Rc::clone(direct), next, want(rest));
            disk.segment_ahead.begin(next, read);
        }
        Ok(Some(segment))
    }

    /// Sends a chunk from memory pages. If sendfile is not supported, the common path sends the
    /// rest.
    pub(super) async fn send_segment(
        &self,
        disk: &mut Disk,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        segment: &PageSegment,
        progress: &Cell<u64>,
    ) -> io::Result<u64> {
        let mut sent = 0;
        while sent < segment.bytes {
            let (from, want) = (segment.skip + sent, segment.bytes - sent);
            let step = match socket::sendfile(stream, &segment.memory, from, want) {
                Err(error) if sendfile_unsupported(&error) => {
                    disk.direct = DirectFile::Refused;
                    return Ok(sent);
                }
                step => step?,
            };
            self.note_sent(queue, step.bytes, progress);
            sent += step.bytes;
            if step.full {
                stream.writable().await?;
            }
        }
        Ok(sent)
    }

    /// Opens the file a second time. Descriptor flags are shared by all users, so O_DIRECT cannot
    /// be set on the first one.
    async fn open_direct(&self, file: &File) -> DirectFile {
        if file.fs() == FsClass::Memory || file.sendfile_may_block() {
            return DirectFile::Refused;
        }
        let fd = file.share_fd();
        let job = move || {
            let noatime = rustix::fs::fcntl_getfl(&fd)? & OFlags::NOATIME;
            let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | noatime;
            // Fails without /proc, as in a chroot; the file then takes the common path.
            rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())
        };
        match self.0.pool.run(Lane::Stat, job).await {
            Ok(Ok(direct)) => DirectFile::Open(Rc::new(direct)),
            _ => DirectFile::Refused,
        }
    }
}

/// Errors caused by O_DIRECT, slots or memory rather than by the file. (If EPERM concerns the file,
/// the common path meets it too.)
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::INVAL
                | Errno::AGAIN
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOSPC
                | Errno::PERM
        )
    )
}
