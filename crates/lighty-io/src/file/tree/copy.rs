//! Copying files and trees.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use super::super::meta::{FileKind, Meta};
use super::super::resolve::{self, READ_FLAGS, retry};
use super::remove::push_name;
use super::{
    Cancel, DIRECTORY_MODE, EntryFailure, FAILURES_MAX, FILE_MODE, TREE_DEPTH_MAX, ends_all,
    is_one_of, look_at, open_dir,
};

/// Bytes copied between two checks for cancellation.
const STEP_BYTES: usize = 16 << 20;
/// Bytes copied at a time where the kernel cannot copy by itself.
const BUFFER_BYTES: usize = 256 << 10;

/// A directory that is being copied.
struct CopyLevel {
    from: OwnedFd,
    to: OwnedFd,
    entries: Dir,
    path_len: usize,
}

/// Copies the entries of a directory into another. Links, devices and other special files are
/// skipped.
///
/// # Errors
/// Errors that end the whole copy: no space, cancelled. Errors of single entries go to `failures`.
pub(super) fn copy_entries(
    from: OwnedFd,
    to: OwnedFd,
    cancel: &Cancel,
    failures: &mut Vec<EntryFailure>,
) -> io::Result<()> {
    let entries = Dir::read_from(&from)?;
    let mut levels = vec![CopyLevel { from, to, entries, path_len: 0 }];
    let mut path = Vec::new();
    while let Some(level) = levels.last_mut() {
        cancel.check()?;
        path.truncate(level.path_len);
        let name = match level.entries.read() {
            None => {
                levels.pop();
                continue;
            }
            Some(entry) => entry?.file_name().to_bytes().to_vec(),
        };
        if name == b"." || name == b".." || super::is_staging(&name) {
            continue;
        }
        push_name(&mut path, &name);
        match copy_entry(&name, &path, &mut levels, cancel) {
            Err(error) if ends_all(&error) || failures.len() >= FAILURES_MAX => return Err(error),
            Err(error) => failures.push(EntryFailure { path: path.clone(), error }),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn copy_entry(
    name: &[u8],
    path: &[u8],
    levels: &mut Vec<CopyLevel>,
    cancel: &Cancel,
) -> io::Result<()> {
    let depth = levels.len();
    let Some(level) = levels.last() else { return Ok(()) };
    let meta = look_at(level.from.as_fd(), name)?;
    match meta.kind {
        FileKind::File => {
            let from = open_file(level.from.as_fd(), name)?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            // The copy must never be readable for more users than the original, not even for a
            // moment.
            let mode = mode_of(&meta) & FILE_MODE;
            let to = retry(|| rustix::fs::openat(&level.to, name, flags, mode))?;
            copy_bytes(&from, &to, cancel)?;
            copy_mode(to.as_fd(), &meta);
        }
        FileKind::Directory if depth >= TREE_DEPTH_MAX => return Err(Errno::NAMETOOLONG.into()),
        FileKind::Directory => {
            let from = open_dir(level.from.as_fd(), name)?;
            let entries = Dir::read_from(&from)?;
            // A private directory may be the only protection of its files.
            let mode = mode_of(&meta) & DIRECTORY_MODE | Mode::RWXU;
            retry(|| rustix::fs::mkdirat(&level.to, name, mode))?;
            let to = open_dir(level.to.as_fd(), name)?;
            levels.push(CopyLevel { from, to, entries, path_len: path.len() });
        }
        FileKind::Symlink | FileKind::Other => {}
    }
    Ok(())
}

/// Opens a regular file for reading; a link or anything else is refused.
pub(super) fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = READ_FLAGS | OFlags::NOFOLLOW;
    let file = retry(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    match resolve::meta_of(file.as_fd(), false)?.kind {
        FileKind::File => Ok(file),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Gives a copy the access bits of the original, without the special bits.
pub(super) fn copy_mode(to: BorrowedFd<'_>, meta: &Meta) {
    // If that is not permitted, the copy keeps the mode of a new file.
    let _ = rustix::fs::fchmod(to, mode_of(meta));
}

/// The access bits, without special ones.
fn mode_of(meta: &Meta) -> Mode {
    Mode::from_raw_mode(u32::from(meta.mode) & 0o777)
}

/// Copies all bytes of a file to an empty one: by sharing extents where the file system can, within
/// the kernel where that can, and through a buffer elsewhere.
pub(super) fn copy_bytes(from: &OwnedFd, to: &OwnedFd, cancel: &Cancel) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let (mut read_at, mut write_at) = (0, 0);
    loop {
        cancel.check()?;
        let step = || {
            let (mut read_at, mut write_at) = (read_at, write_at);
            rustix::fs::copy_file_range(
                from,
                Some(&mut read_at),
                to,
                Some(&mut write_at),
                STEP_BYTES,
            )
        };
        match retry(step) {
            // Some file systems return 0 for files without blocks to copy.
            Ok(0) => return copy_by_hand(from, to, read_at, cancel),
            Ok(count) => {
                read_at += count as u64;
                write_at += count as u64;
            }
            Err(error) if is_one_of(&error, CANNOT) => {
                return copy_by_hand(from, to, read_at, cancel);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Errors of copy_file_range(2) by which kernels and file systems report lack of support.
const CANNOT: &[Errno] =
    &[Errno::XDEV, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM, Errno::BADF];

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd, mut at: u64, cancel: &Cancel) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        cancel.check()?;
        let count = retry(|| rustix::io::pread(from, &mut buffer[..], at))?;
        if count == 0 {
            return Ok(());
        }
        write_at(to.as_fd(), &buffer[..count], at)?;
        at += count as u64;
    }
}

/// Writes all bytes.
pub(super) fn write_at(to: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry(|| rustix::io::pwrite(to, bytes, at))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = &bytes[written..];
                at += written as u64;
            }
        }
    }
    Ok(())
}
