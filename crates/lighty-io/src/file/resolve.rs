//! From a path beneath a directory to a descriptor: the blocking system calls.
//!
//! Every function here may block on a disk unless `How::cached` is set. Callers run them in the
//! pool, or set it.
//!
//! A file is inspected before it is opened: first with `O_PATH`, which has no side effects, then,
//! if it is a regular file, for reading. So a request cannot wake a FIFO's writer or start a
//! device. Directories keep the `O_PATH` descriptor, because traversing a directory needs no
//! permission to list it.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::meta::{FileKind, FsClass, Meta, STATX_MASK};

/// Which symbolic links a path may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Follow {
    /// All links, whatever their target (`server.follow-symlink = "enable"`).
    All,
    /// Links that stay beneath the root; others fail with `EXDEV`.
    Beneath,
    /// None: a link anywhere in the path fails with `ELOOP`.
    None,
}

/// Options for resolving and opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) follow: Follow,
    /// Do not update access times, if permitted.
    pub(super) noatime: bool,
    /// Fail with `EXDEV` rather than enter another mount.
    pub(super) no_xdev: bool,
    /// Fail with `EAGAIN` rather than block.
    pub(super) cached: bool,
    /// Avoid `openat2`.
    pub(super) plain: bool,
}

/// Result of an open: a readable descriptor for files, an `O_PATH` one for all else.
#[derive(Debug)]
pub(super) struct OpenedPath {
    pub(super) fd: OwnedFd,
    pub(super) meta: Meta,
    /// `None` if it is the root's because no mount was crossed.
    pub(super) fs: Option<FsClass>,
}

/// Flags for regular files: never wait for a writer, never acquire a terminal.
pub(super) const READ_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);
/// Flags for inspecting a path.
pub(super) const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Symbolic links followed per path, the same as the kernel's limit.
const LINKS_MAX: usize = 40;
/// Retries of a look-up that the kernel aborted because of concurrent renames.
const RENAME_RETRIES_MAX: usize = 16;

/// Opens `path` beneath `dir`.
pub(super) fn open(dir: BorrowedFd<'_>, path: &[u8], how: How) -> io::Result<OpenedPath> {
    let (probe, meta) = find(dir, path, how)?;
    let fs = if how.no_xdev { None } else { Some(fs_class(probe.fd.as_fd())) };
    if meta.kind != FileKind::File {
        return Ok(OpenedPath { fd: probe.fd, meta, fs });
    }
    let fd = open_file(dir, path, &probe, how)?;
    let now = meta_of(fd.as_fd(), how.cached)?;
    if now.kind != FileKind::File {
        // The file was replaced between the inspection and the open.
        return Ok(OpenedPath { fd: probe.fd, meta, fs });
    }
    Ok(OpenedPath { fd, meta: now, fs })
}

/// Stats `path` beneath `dir`.
pub(super) fn stat(dir: BorrowedFd<'_>, path: &[u8], how: How) -> io::Result<Meta> {
    find(dir, path, how).map(|(_, meta)| meta)
}

/// Removes the last name of `path`; the path is resolved as for an open.
pub(super) fn remove(dir: BorrowedFd<'_>, path: &[u8], how: How) -> io::Result<()> {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (way, name) = slash.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
    let (parent, _) = find(dir, way, how)?;
    retry(|| rustix::fs::unlinkat(&parent.fd, name, AtFlags::empty()))
}

/// An `O_PATH` descriptor of the target of `path`.
pub(super) fn find_fd(dir: BorrowedFd<'_>, path: &[u8], how: How) -> io::Result<OwnedFd> {
    find(dir, path, how).map(|(found, _)| found.fd)
}

/// The parent directory of `path` as an `O_PATH` descriptor, and the name in it.
pub(super) fn find_parent<'a>(
    dir: BorrowedFd<'_>,
    path: &'a [u8],
    how: How,
) -> io::Result<(OwnedFd, &'a [u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (way, name) = slash.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
    let (parent, meta) = find(dir, way, how)?;
    match meta.kind {
        FileKind::Directory => Ok((parent.fd, name)),
        _ => Err(Errno::NOTDIR.into()),
    }
}

/// The second half of an open, after the inspection returned `fd`.
///
/// # Errors
/// `EAGAIN` if the data is no longer cached, or if there is no `openat2`, without which a link that
/// replaced the file would be followed.
pub(super) fn open_looked_at(
    dir: BorrowedFd<'_>,
    path: &[u8],
    looked: OwnedFd,
    how: How,
) -> io::Result<OpenedPath> {
    let meta = meta_of(looked.as_fd(), true)?;
    let looked = FoundPath { fd: looked, place: None };
    if meta.kind != FileKind::File {
        return Ok(OpenedPath { fd: looked.fd, meta, fs: None });
    }
    if how.plain {
        return Err(Errno::AGAIN.into());
    }
    let fd = open_file(dir, path, &looked, how)?;
    finish_open(fd)
}

/// The last part of an open within the root's file system.
pub(super) fn finish_open(fd: OwnedFd) -> io::Result<OpenedPath> {
    let meta = meta_of(fd.as_fd(), true)?;
    Ok(OpenedPath { fd, meta, fs: None })
}

/// Opens a directory by its own path, for a root.
pub(super) fn open_directory(path: &[u8], cached: bool) -> io::Result<(OwnedFd, Meta)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = if cached {
        retry(|| {
            let resolve = ResolveFlags::CACHED;
            rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve)
        })?
    } else {
        retry(|| rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty()))?
    };
    let meta = meta_of(fd.as_fd(), cached)?;
    Ok((fd, meta))
}

/// The class of a descriptor's file system. May block on a remote one.
pub(super) fn fs_class(fd: BorrowedFd<'_>) -> FsClass {
    match retry(|| rustix::fs::fstatfs(fd)) {
        #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
        Ok(stat) => FsClass::from_magic(stat.f_type as i64),
        // Never fails on a local file system.
        Err(_) => FsClass::Remote,
    }
}

/// The metadata of a descriptor; `cached` accepts slightly stale data from a remote file system.
pub(super) fn meta_of(fd: BorrowedFd<'_>, cached: bool) -> io::Result<Meta> {
    let sync = if cached { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() };
    let stat = retry(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | sync, STATX_MASK))?;
    Ok(Meta::from_statx(&stat))
}

/// The `openat2` flags for `How`.
pub(super) fn resolve_flags(how: How) -> ResolveFlags {
    let mut flags = ResolveFlags::NO_MAGICLINKS;
    flags |= match how.follow {
        Follow::All => ResolveFlags::empty(),
        Follow::Beneath => ResolveFlags::BENEATH,
        Follow::None => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    };
    flags.set(ResolveFlags::NO_XDEV, how.no_xdev);
    flags.set(ResolveFlags::CACHED, how.cached);
    flags
}

/// The path as given to the kernel: the root itself is `.`.
pub(super) fn or_dot(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// True if the kernel, and any system call filter, provides `openat2`. Tested once.
pub(super) fn has_openat2() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| knows(ResolveFlags::NO_MAGICLINKS))
}

/// True if it supports cache-only look-ups (Linux 5.12). Tested once.
pub(super) fn has_cached_lookups() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| knows(ResolveFlags::CACHED))
}

fn knows(resolve: ResolveFlags) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(rustix::fs::CWD, c"/", flags, Mode::empty(), resolve);
    !matches!(opened, Err(Errno::NOSYS | Errno::PERM | Errno::INVAL))
}

/// A path found without opening: an `O_PATH` descriptor and, after a walk, its place.
struct FoundPath {
    fd: OwnedFd,
    /// Its parent directory and its name there; known only after a walk.
    place: Option<(OwnedFd, CString)>,
}

fn find(dir: BorrowedFd<'_>, path: &[u8], how: How) -> io::Result<(FoundPath, Meta)> {
    if path.contains(&0) {
        return Err(Errno::NOENT.into());
    }
    let flags = LOOK_FLAGS;
    let path = or_dot(path);
    let found = if !how.plain {
        FoundPath { fd: openat2(dir, path, flags, how)?, place: None }
    } else if how.follow == Follow::All {
        FoundPath {
            fd: retry(|| rustix::fs::openat(dir, path, flags, Mode::empty()))?,
            place: None,
        }
    } else {
        walk(dir, path, how.follow)?
    };
    let meta = meta_of(found.fd.as_fd(), how.cached)?;
    Ok((found, meta))
}

fn open_file(dir: BorrowedFd<'_>, path: &[u8], found: &FoundPath, how: How) -> io::Result<OwnedFd> {
    let flags = READ_FLAGS;
    let with = |flags: OFlags| -> io::Result<OwnedFd> {
        match &found.place {
            Some((parent, name)) => {
                let flags = flags | OFlags::NOFOLLOW;
                retry(|| rustix::fs::openat(parent, name.as_c_str(), flags, Mode::empty()))
            }
            None if how.plain => {
                retry(|| rustix::fs::openat(dir, or_dot(path), flags, Mode::empty()))
            }
            None => openat2(dir, or_dot(path), flags, how),
        }
    };
    if how.noatime {
        match with(flags | OFlags::NOATIME) {
            // Only the owner may do this; others read normally.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            done => return done,
        }
    }
    with(flags)
}

fn openat2(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, how: How) -> io::Result<OwnedFd> {
    let resolve = resolve_flags(how);
    let mut retries = 0;
    loop {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::INTR) => {}
            // Without RESOLVE_CACHED this is a ".." that raced with a rename: openat2(2).
            Err(Errno::AGAIN) if !how.cached && retries < RENAME_RETRIES_MAX => retries += 1,
            done => return Ok(done?),
        }
    }
}

/// Resolves component by component, for kernels without `openat2`.
fn walk(root: BorrowedFd<'_>, path: &[u8], follow: Follow) -> io::Result<FoundPath> {
    let must_be_directory = path.ends_with(b"/");
    let mut todo: VecDeque<Vec<u8>> = components(path).collect();
    let mut dirs = vec![root.try_clone_to_owned()?];
    let mut links = 0;
    let mut found = None;
    while let Some(name) = todo.pop_front() {
        found = None;
        if name == b".." {
            dirs.pop();
            if dirs.is_empty() {
                return Err(Errno::XDEV.into());
            }
            continue;
        }
        let parent = dirs.last().ok_or(Errno::XDEV)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = retry(|| rustix::fs::openat(parent, &name[..], flags, Mode::empty()))?;
        match meta_of(fd.as_fd(), false)?.kind {
            FileKind::Symlink => {
                links += 1;
                if follow == Follow::None || links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                follow_link(&fd, &mut todo)?;
            }
            FileKind::Directory => dirs.push(fd),
            _ if !todo.is_empty() || must_be_directory => return Err(Errno::NOTDIR.into()),
            _ => {
                let name = CString::new(name).map_err(|_| Errno::NOENT)?;
                let parent = parent.try_clone()?;
                found = Some(FoundPath { fd, place: Some((parent, name)) });
            }
        }
    }
    match (found, dirs.pop()) {
        (Some(found), _) => Ok(found),
        (None, Some(fd)) => Ok(FoundPath { fd, place: None }),
        (None, None) => Err(Errno::XDEV.into()),
    }
}

/// Puts the components of a link's target before the remaining ones.
fn follow_link(link: &OwnedFd, todo: &mut VecDeque<Vec<u8>>) -> io::Result<()> {
    let target = rustix::fs::readlinkat(link, c"", Vec::new())?;
    let target = target.as_bytes();
    if target.starts_with(b"/") {
        return Err(Errno::XDEV.into());
    }
    for name in components(target).collect::<Vec<_>>().into_iter().rev() {
        todo.push_front(name);
    }
    Ok(())
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    Ok(rustix::io::retry_on_intr(call)?)
}

/// A name with its terminator, for a pool thread.
pub(super) fn c_path(path: &[u8]) -> io::Result<CString> {
    Ok(CString::new(or_dot(path)).map_err(|_| Errno::NOENT)?)
}
