//! Unnamed files, and the operations on them that run in the pool.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::file::{FsClass, Meta};

/// Number of names to try for a file that needs one for a moment.
const NAMES_MAX: u32 = 16;

/// Two descriptors of one file, so that each side may close its own.
pub(super) struct Descriptors {
    pub(super) writer: OwnedFd,
    pub(super) reader: OwnedFd,
    pub(super) fs: FsClass,
    pub(super) meta: Meta,
}

/// Creates a file in this directory that no other process can open, now or after a crash.
pub(super) fn create(dir: &Path) -> io::Result<Descriptors> {
    let writer = match create_unnamed(dir) {
        // open(2): errors of file systems and kernels without O_TMPFILE.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => create_and_unlink(dir)?,
        done => done?,
    };
    let reader = writer.try_clone()?;
    let (fs, meta) = crate::file::describe(writer.as_fd())?;
    Ok(Descriptors { writer, reader, fs, meta })
}

fn create_unnamed(dir: &Path) -> Result<OwnedFd, Errno> {
    // O_EXCL: it cannot be given a name later.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR))
}

pub(super) fn create_and_unlink(dir: &Path) -> io::Result<OwnedFd> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut last = Errno::EXIST;
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".lighty-spool-{}-{number}", std::process::id()));
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                rustix::fs::unlink(&path)?;
                return Ok(file);
            }
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(error) => {
                last = error;
                break;
            }
        }
    }
    Err(last.into())
}

/// Writes as many bytes as possible. Returns their number, and the error, if any.
pub(crate) fn write_all(
    file: BorrowedFd<'_>,
    bytes: &[u8],
    offset: u64,
) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(file, &bytes[done..], at)) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(written) => done += written,
            Err(error) => return (done, Some(error.into())),
        }
    }
    (done, None)
}

/// Frees the space of a range; the file keeps its length.
pub(super) fn punch(file: BorrowedFd<'_>, from: u64, length: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Not supported by every file system; then the space stays in use.
    let _ = rustix::fs::fallocate(file, flags, from, length);
}
