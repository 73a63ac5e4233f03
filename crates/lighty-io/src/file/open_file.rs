//! An open file, and the recorded residency of its pages.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::meta::{FileKind, FsClass, Meta};
use super::resolve::OpenedPath;
use crate::threads::pool::{Lane, ThreadPool};

/// Residency is tracked per file up to this size, and per window beyond.
pub const RESIDENT_WHOLE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Time for which a residency result is trusted, in milliseconds.
pub const RESIDENT_TRUST_MS: u64 = 1_000;
/// Time for which a file counts as cold after it had to be loaded, in milliseconds; its residency
/// is then queried each time. When memory is short, fresh data is evicted within a second.
pub(super) const COLD_MS: u64 = 10_000;
/// A file found resident twice within this time is expected to stay.
const FOUND_AGAIN_MS: u64 = 10_000;
/// Windows of a large file tracked at once.
const WINDOWS: usize = 32;

/// A file opened through an engine. Shared as `Rc<OpenFile>`; the descriptor closes with the last
/// reference.
pub struct OpenFile {
    /// `None` only while being dropped.
    fd: Option<Arc<OwnedFd>>,
    meta: Meta,
    fs: FsClass,
    whole: Cell<ResidencyHit>,
    cold_until_ms: Cell<u64>,
    /// The kernel's read-ahead is off.
    reads_singly: Cell<bool>,
    /// Closing it frees its storage, which takes time.
    closes_slowly: bool,
    windows: OnceCell<Box<[Cell<Window>; WINDOWS]>>,
}

/// Window `index` was found resident.
#[derive(Clone, Copy, Default)]
struct Window {
    index: u64,
    found: ResidencyHit,
}

/// Time when a query at offset `query_offset` found something resident.
///
/// One result is not enough: the kernel evicts pages used once first. Pages used by two requests
/// stay for a while.
#[derive(Clone, Copy, Default)]
struct ResidencyHit {
    at_ms: u64,
    query_offset: u64,
    again: bool,
}

impl ResidencyHit {
    /// Records a result at `now_ms`. A continuing transfer queries later offsets, which counts as
    /// the same use.
    fn anew(self, query_offset: u64, now_ms: u64) -> ResidencyHit {
        let lately = self.at_ms != 0 && now_ms.wrapping_sub(self.at_ms) < FOUND_AGAIN_MS;
        let again = lately && (self.again || query_offset <= self.query_offset);
        ResidencyHit { at_ms: now_ms, query_offset, again }
    }

    fn is_believed(self, now_ms: u64) -> bool {
        self.again && now_ms.wrapping_sub(self.at_ms) < RESIDENT_TRUST_MS
    }
}

impl OpenFile {
    pub(super) fn new(opened: OpenedPath, root_fs: FsClass) -> OpenFile {
        OpenFile {
            fd: Some(Arc::new(opened.fd)),
            meta: opened.meta,
            fs: opened.fs.unwrap_or(root_fs),
            whole: Cell::new(ResidencyHit::default()),
            cold_until_ms: Cell::new(0),
            reads_singly: Cell::new(false),
            closes_slowly: false,
            windows: OnceCell::new(),
        }
    }

    /// An unnamed file of the server's own, which grows while it is read. Its size is unknown, so
    /// its metadata has the largest possible size.
    pub(crate) fn growing(fd: OwnedFd, fs: FsClass, meta: Meta) -> OpenFile {
        OpenFile::shared(Arc::new(fd), fs, meta)
    }

    /// A file of the server's own, which may grow, and of which others have the descriptor, too.
    pub(super) fn shared(fd: Arc<OwnedFd>, fs: FsClass, meta: Meta) -> OpenFile {
        OpenFile {
            fd: Some(fd),
            meta: Meta { size: i64::MAX as u64, ..meta },
            fs,
            whole: Cell::new(ResidencyHit::default()),
            cold_until_ms: Cell::new(0),
            reads_singly: Cell::new(false),
            closes_slowly: true,
            windows: OnceCell::new(),
        }
    }

    /// The descriptor, for a job in another thread. While this is held, it stays open and refers to
    /// this file, even if the request has ended. It needs no new descriptor, so a shortage cannot
    /// interrupt a response.
    pub(crate) fn share_fd(&self) -> Arc<OwnedFd> {
        Arc::clone(self.held())
    }

    fn held(&self) -> &Arc<OwnedFd> {
        #[allow(clippy::expect_used, reason = "taken out only by drop")]
        self.fd.as_ref().expect("an open file has its descriptor")
    }

    /// True for a file of the server's own, which may grow.
    pub(super) fn is_shared(&self) -> bool {
        self.meta.size == i64::MAX as u64
    }

    /// Turns the kernel's read-ahead off, with one system call for each open file.
    pub(super) fn turn_read_ahead_off(&self) {
        if !self.reads_singly.replace(true) {
            // If refused, the kernel reads ahead as before.
            let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::Random);
        }
    }

    /// The metadata at the time of opening.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Class of the file's file system.
    pub fn fs(&self) -> FsClass {
        self.fs
    }

    /// True if even `sendfile` of resident data may wait for another process or machine (FUSE and
    /// NFS query attributes first). Such files are better read through the engine.
    pub fn sendfile_may_block(&self) -> bool {
        self.fs == FsClass::Remote
    }

    /// True if the descriptor is readable, which requires a regular file.
    pub fn is_readable(&self) -> bool {
        self.meta.kind == FileKind::File
    }

    /// True if every window of a range, or the whole file, was found resident within
    /// [`RESIDENT_TRUST_MS`], and not for the first time.
    pub(super) fn believed_resident(&self, range: Span, now_ms: u64) -> bool {
        if now_ms < self.cold_until_ms.get() {
            return false;
        }
        if self.whole.get().is_believed(now_ms) {
            return true;
        }
        let Some(windows) = self.windows.get() else { return false };
        range.windows().all(|index| {
            let window = windows[index as usize % WINDOWS].get();
            window.index == index && window.found.is_believed(now_ms)
        })
    }

    /// Records that a query at `query_offset` found a range resident: for the file if the range
    /// covers it, otherwise for the windows that the range covers completely.
    pub(super) fn remember_resident(&self, range: Span, query_offset: u64, now_ms: u64) {
        self.for_each_found(range, |found| found.anew(query_offset, now_ms));
    }

    /// Assumes that a range is resident, where the kernel cannot be queried.
    pub(super) fn believe_resident(&self, range: Span, now_ms: u64) {
        self.for_each_found(range, |_| ResidencyHit {
            at_ms: now_ms,
            query_offset: 0,
            again: true,
        });
    }

    fn for_each_found(&self, range: Span, change: impl Fn(ResidencyHit) -> ResidencyHit) {
        if self.meta.size <= RESIDENT_WHOLE_BYTES_MAX
            && range.offset == 0
            && range.length >= self.meta.size
        {
            self.whole.set(change(self.whole.get()));
            return;
        }
        let windows = self.windows.get_or_init(Box::default);
        for index in range.windows_covered(self.meta.size) {
            let place = &windows[index as usize % WINDOWS];
            let before = place.get();
            let known = if before.index == index { before.found } else { ResidencyHit::default() };
            place.set(Window { index, found: change(known) });
        }
    }

    /// Records that data had to be loaded.
    pub(super) fn note_cold(&self, now_ms: u64) {
        self.cold_until_ms.set(now_ms + COLD_MS);
    }

    /// Clears the recorded residency.
    pub(super) fn forget_resident(&self) {
        self.whole.set(ResidencyHit::default());
        for window in self.windows.get().into_iter().flat_map(|windows| windows.iter()) {
            window.set(Window::default());
        }
    }
}

/// A range of a file and the width of its windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) window_bytes: u64,
}

impl Span {
    fn windows(self) -> impl Iterator<Item = u64> {
        let last = self.offset.saturating_add(self.length.saturating_sub(1)) / self.window_bytes;
        self.offset / self.window_bytes..=last
    }

    fn windows_covered(self, file_bytes: u64) -> impl Iterator<Item = u64> {
        let end = self.offset.saturating_add(self.length);
        let first = self.offset.div_ceil(self.window_bytes);
        // The last window of a file ends with the file.
        let past = if end >= file_bytes {
            file_bytes.div_ceil(self.window_bytes)
        } else {
            end / self.window_bytes
        };
        first..past
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held().as_fd()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if self.fs == FsClass::Remote && self.is_readable() {
            // FUSE flushes at close and NFS may contact its server: both wait for a response. If
            // the lane is full, the descriptor is closed right here, which may block.
            let _ = ThreadPool::global().spawn(Lane::StatRemote, move || drop(fd));
        } else if self.closes_slowly && Arc::strong_count(&fd) == 1 {
            let _ = ThreadPool::global().spawn(Lane::Write, move || drop(fd));
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("meta", &self.meta).field("fs", &self.fs).finish()
    }
}
