//! `linux-aio-sendfile`: kernel AIO reads past the page cache (O_DIRECT) into the pages of a
//! memory file, and sendfile takes them from there, so no byte is copied by us.
//!
//! Each chunk gets a memory file of its own. The network stack refers to its pages until the
//! client has acknowledged them; a page written again before that would change data in flight.
//!
//! O_DIRECT wants aligned offsets and lengths: a range is widened to whole blocks, and what was
//! not asked for is skipped; the file's unaligned end comes as a short read.

mod context;
mod pages;

pub(super) use context::{AioContext, probe};

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use lighty_buf::{ChunkQueue, FileRange};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::disk::Disk;
use super::socket::{self, sendfile_unsupported, shrank};
use super::{File, Sender};
use crate::file::FsClass;
use crate::pool::Lane;
use crate::syscall_fallback::Syscall;
use crate::transport::Stream;

/// What direct reads are aligned to: the page, which every block device takes.
pub(super) const ALIGN_BYTES: u64 = 4_096;

/// The second, uncached descriptor of the file being sent.
#[derive(Default)]
pub(super) enum DirectFile {
    /// Not asked for yet.
    #[default]
    Unknown,
    /// The file system has no O_DIRECT, or nothing is gained by it.
    Refused,
    /// Open.
    Open(Rc<OwnedFd>),
}

/// Contents of a file in pages of memory.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) memory: OwnedFd,
    /// Where in the memory file they begin.
    pub(super) skip: u64,
    /// How many bytes they are; 0 at the end of the file.
    pub(super) bytes: u64,
}

impl Sender {
    /// The next chunk of the range; `None` when it cannot be had this way.
    pub(super) async fn next_segment(
        &self,
        disk: &mut Disk,
        range: &FileRange<File>,
        left: u64,
    ) -> io::Result<Option<Segment>> {
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

    /// Sends a chunk that was read; what does not go this way is left to the common one.
    pub(super) async fn send_segment(
        &self,
        disk: &mut Disk,
        stream: &Stream,
        queue: &mut ChunkQueue<File>,
        segment: &Segment,
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

    /// Opens the file a second time. A descriptor's flags are shared by everyone who uses it, so
    /// O_DIRECT cannot be switched on for the first.
    async fn open_direct(&self, file: &File) -> DirectFile {
        if file.fs() == FsClass::Memory || file.sendfile_may_block() {
            return DirectFile::Refused;
        }
        let fd = file.share_fd();
        let job = move || {
            let noatime = rustix::fs::fcntl_getfl(&fd)? & OFlags::NOATIME;
            let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | noatime;
            // Without /proc, in a chroot, this fails, and the file goes the common way.
            rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())
        };
        match self.0.pool.run(Lane::Stat, job).await {
            Ok(Ok(direct)) => DirectFile::Open(Rc::new(direct)),
            _ => DirectFile::Refused,
        }
    }
}

/// Errors that speak of O_DIRECT, of slots or of memory, and not of the file. (Where EPERM does, the
/// common way will meet it too.)
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
