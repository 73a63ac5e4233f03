//! The thread engine: each operation is one job in the pool.
//!
//! It runs everything if io_uring is unavailable. Next to the ring it runs operations on remote
//! file systems, whose stalls must not occupy the ring's slots.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

use tokio::sync::mpsc::UnboundedSender;

use super::flight::{FileJob, FileJobOutput, Id};
use super::resolve;
use crate::threads::pool::{Lane, ThreadPool, Ticket};

/// Message from a pool thread: the slot and its result.
pub(super) type JobReport = (Id, io::Result<FileJobOutput>);

/// Starts the job of slot `id` in the pool. The result arrives through `done`; the ticket revokes
/// the job until a thread has started it.
pub(super) fn start(
    pool: &ThreadPool,
    lane: Lane,
    id: Id,
    job: &mut FileJob,
    done: UnboundedSender<JobReport>,
) -> io::Result<Ticket> {
    match job {
        FileJob::Open { dir, path, how, stat_only, .. } => {
            let (dir, path) = (LentDescriptor(dir.as_fd().as_raw_fd()), path.clone());
            let (how, stat_only) = (*how, *stat_only);
            pool.spawn_revocable(lane, move || {
                let dir = dir.borrow();
                let result = if stat_only {
                    resolve::stat(dir, path.as_bytes(), how).map(FileJobOutput::Stat)
                } else {
                    resolve::open(dir, path.as_bytes(), how).map(FileJobOutput::Opened)
                };
                let _ = done.send((id, result));
            })
        }
        FileJob::Read { file, offset, buf } => {
            let target = ReadMemory { at: buf.as_mut_ptr(), length: buf.len() };
            let (file, offset) = (LentDescriptor(file.as_fd().as_raw_fd()), *offset);
            pool.spawn_revocable(lane, move || {
                let _ = done.send((id, target.read(file, offset).map(FileJobOutput::Read)));
            })
        }
        FileJob::Warm { file, offset, length, .. } => {
            let (file, offset, length) =
                (LentDescriptor(file.as_fd().as_raw_fd()), *offset, *length);
            pool.spawn_revocable(lane, move || {
                let _ = done.send((id, warm(file, offset, length).map(FileJobOutput::Read)));
            })
        }
    }
}

/// Runs a job inline. This blocks the event loop on the disk, and is used only if no thread can be
/// created, since otherwise no file could be sent at all.
#[cold]
pub(super) fn run_here(job: &mut FileJob) -> io::Result<FileJobOutput> {
    match job {
        FileJob::Open { dir, path, how, stat_only: true, .. } => {
            resolve::stat(dir.as_fd(), path.as_bytes(), *how).map(FileJobOutput::Stat)
        }
        FileJob::Open { dir, path, how, .. } => {
            resolve::open(dir.as_fd(), path.as_bytes(), *how).map(FileJobOutput::Opened)
        }
        FileJob::Read { file, offset, buf } => {
            let target = ReadMemory { at: buf.as_mut_ptr(), length: buf.len() };
            target.read(LentDescriptor(file.as_fd().as_raw_fd()), *offset).map(FileJobOutput::Read)
        }
        FileJob::Warm { file, offset, length, .. } => {
            warm(LentDescriptor(file.as_fd().as_raw_fd()), *offset, *length)
                .map(FileJobOutput::Read)
        }
    }
}

/// A descriptor that the slot of the operation keeps open until the operation has ended.
#[derive(Clone, Copy)]
struct LentDescriptor(RawFd);

impl LentDescriptor {
    fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: the slot owns the file or directory of this descriptor and lives until the
        // result of the job that uses it has been received, or is leaked with the engine.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Memory that a pool thread lets the kernel write to.
struct ReadMemory {
    at: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to a slot (or is the scratch, which is never read); nothing else
// touches it between the start of the job and its completion.
unsafe impl Send for ReadMemory {}

impl ReadMemory {
    fn read(&self, file: LentDescriptor, offset: u64) -> io::Result<u64> {
        let offset = libc::off_t::try_from(offset)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        loop {
            // SAFETY: `at` points to `length` writable bytes, see `ReadMemory`.
            let n = unsafe { libc::pread(file.0, self.at.cast(), self.length, offset) };
            if n >= 0 {
                return Ok(n as u64);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn warm(file: LentDescriptor, offset: u64, length: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < length {
        let want = (length - done).min(SCRATCH_BYTES as u64) as usize;
        let n = ReadMemory { at: scratch(), length: want }.read(file, offset + done)?;
        if n == 0 {
            break;
        }
        done += n;
    }
    Ok(done)
}

/// Maximum number of bytes per read into the scratch memory.
pub(super) const SCRATCH_BYTES: usize = 1024 * 1024;

/// Write-only memory for reads whose data is discarded, one for the process. All workers' warming
/// reads write to it concurrently, and it is never read.
pub(super) fn scratch() -> *mut u8 {
    static SCRATCH: OnceLock<usize> = OnceLock::new();
    let at = *SCRATCH.get_or_init(|| {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                SCRATCH_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            Box::leak(vec![0u8; SCRATCH_BYTES].into_boxed_slice()).as_mut_ptr() as usize
        } else {
            at as usize
        }
    });
    at as *mut u8
}
