//! A document root: a directory held by a descriptor, and looked up again when its path changes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::meta::{FsClass, Meta};
use super::resolve;

/// Time for which a root's path is not looked up again, in milliseconds.
pub const ROOT_TRUST_MS: u64 = 1_000;

/// The directory beneath which paths are resolved. Held open, and looked up again at most once a
/// second, so that changes of a link such as `current -> releases/42` are noticed.
pub struct Root {
    path: PathBuf,
    id: u64,
    dir: RefCell<Rc<RootDir>>,
    checked_ms: Cell<u64>,
    /// Increases when the path leads to another directory than before.
    generation: Cell<u64>,
}

/// The directory that a root's path led to.
#[derive(Debug)]
pub(crate) struct RootDir {
    fd: OwnedFd,
    meta: Meta,
    pub(super) fs: FsClass,
}

impl RootDir {
    /// Opens the directory at a path. May block.
    pub(super) fn open(path: &Path) -> io::Result<RootDir> {
        let (fd, meta) = resolve::open_directory(path.as_os_str().as_bytes(), false)?;
        let fs = resolve::fs_class(fd.as_fd());
        Ok(RootDir { fd, meta, fs })
    }

    /// Number of the device that it is on.
    pub(super) fn device(&self) -> u64 {
        self.meta.dev
    }
}

impl AsFd for RootDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Root {
    pub(super) fn new(path: PathBuf, dir: RootDir, now_ms: u64) -> Root {
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(1) };
        }
        let id = NEXT.get();
        NEXT.set(id + 1);
        let dir = RefCell::new(Rc::new(dir));
        Root { path, id, dir, checked_ms: Cell::new(now_ms), generation: Cell::new(0) }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Class of the directory's file system.
    pub fn fs(&self) -> FsClass {
        self.dir.borrow().fs
    }

    /// A number that no other root of this thread has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Increases each time the path was found to lead to another directory.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Time when the path was last found to lead to the held directory, in the clock's
    /// milliseconds. A look-up beneath it more than a second later checks the path again.
    pub fn checked_ms(&self) -> u64 {
        self.checked_ms.get()
    }

    pub(super) fn dir(&self) -> Rc<RootDir> {
        self.dir.borrow().clone()
    }

    pub(super) fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms.wrapping_sub(self.checked_ms.get()) < ROOT_TRUST_MS
    }

    /// Looks the path up in the kernel's caches if the last check is more than a second old.
    /// `false`: the caches lack it, or the path leads elsewhere now; then call [`Root::adopt`].
    pub(super) fn check_cached(&self, now_ms: u64) -> bool {
        if self.is_fresh(now_ms) {
            return true;
        }
        let found = resolve::open_directory(self.path.as_os_str().as_bytes(), true);
        let same = found.is_ok_and(|(_, meta)| meta.same_file(&self.dir.borrow().meta));
        if same {
            self.checked_ms.set(now_ms);
        }
        same
    }

    /// Takes over the result of a fresh look-up of the path.
    pub(super) fn adopt(&self, dir: RootDir, now_ms: u64) {
        self.checked_ms.set(now_ms);
        if !dir.meta.same_file(&self.dir.borrow().meta) {
            *self.dir.borrow_mut() = Rc::new(dir);
            self.generation.set(self.generation.get() + 1);
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("path", &self.path).field("fs", &self.fs()).finish()
    }
}
