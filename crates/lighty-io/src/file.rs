//! The file engines: open, stat and read without blocking the loop.
//!
//! Data in the kernel's caches is available immediately (`try_open_cached`, `try_read`,
//! `resident`). All other operations wait in a ring (io_uring) or in the thread pool. Both behave
//! the same; [`FileEngine::report`] says which one runs and why.
//!
//! Reading order: `meta` and `open_file` (metadata of a file), `root` and `resolve` (from a path to
//! a descriptor), `flight` (resources of an operation while it runs), `turns` (the order of reads
//! at a disk), `departure` (from a turn to an engine), `threads` and `ring` (the two engines),
//! `resident` (is it in memory?), `read_dir`, `fault` (for tests).

pub mod address_list;
mod buf;
pub mod cache_file;
mod counters;
mod departure;
mod fault;
mod flight;
pub mod followed;
mod front;
mod jobs;
mod meta;
mod open_file;
pub mod place_db;
mod read_dir;
mod resident;
mod resolve;
mod ring;
mod root;
pub mod small_file;
pub mod store_dir;
mod threads;
pub mod tree;
mod turns;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::task::Waker;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use buf::OwnedBuf;
pub use counters::FileCounters;
pub use fault::{Fault, FaultOp, FaultPlan, FaultRule};
pub use meta::{FileKind, FsClass, Meta};
pub use open_file::{OpenFile, RESIDENT_TRUST_MS, RESIDENT_WHOLE_BYTES_MAX};
pub use read_dir::{DirEntry, READ_DIR_BATCH, ReadDir};
pub use resident::Resident;
pub use resolve::Follow;
pub use ring::RING_ROOM_MAX;
pub(crate) use ring::watch_readable;
pub use root::{ROOT_TRUST_MS, Root};
pub use turns::{DiskReads, survey_disks, turns_text};

use crate::clock::Clock;
use crate::sandbox::note_refusal;
use crate::threads::pool::{Lane, PoolLimits, ThreadPool};
use counters::{WaitTimer as Timed, add};
use flight::{FileJob, FileJobOutput, Flight, RingOpen};
use resolve::How;
use ring::Ring;
use root::RootDir;
use turns::EngineTurns;

/// The configured engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The ring if available, otherwise the threads.
    #[default]
    Auto,
    /// The ring; without it the start fails.
    Uring,
    /// The threads.
    Threads,
}

/// Limits on concurrent operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Concurrent opens and stats (`server.max-stat-threads`). 0: the event loop performs them
    /// itself.
    pub stat_threads_max: usize,
    /// Concurrent reads (`server.max-read-threads`).
    pub read_threads_max: usize,
    /// Size of the windows in which large files are read and tracked (`server.read-chunk`).
    pub read_chunk_bytes: usize,
    /// Bulk reads at a disk (`server.max-bulk-reads`).
    pub disk_reads: DiskReads,
    /// Avoid `openat2`, as on kernels before 5.6.
    pub plain_open: bool,
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits {
            stat_threads_max: 64,
            read_threads_max: 64,
            read_chunk_bytes: 512 * 1024,
            disk_reads: DiskReads::default(),
            plain_open: false,
        }
    }
}

/// Name of the running engine and the reason for the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// `io-uring` or `threads`.
    pub name: &'static str,
    /// The reason, for the operator.
    pub why: String,
}

/// The file engine of one worker. Clones share it.
#[derive(Clone)]
pub struct FileEngine(Rc<FileEngineInner>);

struct FileEngineInner {
    limits: EngineLimits,
    report: EngineReport,
    counters: FileCounters,
    clock: Clock,
    pool: ThreadPool,
    ring: Option<Ring>,
    flight: Rc<Flight>,
    turns: EngineTurns,
    done: UnboundedSender<threads::JobReport>,
    driver: RefCell<Option<Waker>>,
    alarm: RefCell<departure::TurnAlarm>,
    asking: resident::Asking,
    faults: RefCell<Option<FaultPlan>>,
    /// `RESOLVE_CACHED` works: openat2 exists and supports it (5.12).
    cached_lookups: bool,
}

impl FileEngine {
    /// Starts an engine on this worker. Call it inside the worker's runtime.
    ///
    /// # Errors
    /// Why the ring is unavailable, if it is required.
    pub fn start(choice: EngineChoice, limits: EngineLimits) -> io::Result<FileEngine> {
        let clock = Clock::current().unwrap_or_else(ticking_clock);
        FileEngine::start_with_clock(choice, limits, clock)
    }

    /// Like [`FileEngine::start`], with the clock for its stamps.
    ///
    /// # Errors
    /// As for [`FileEngine::start`].
    pub fn start_with_clock(
        choice: EngineChoice,
        limits: EngineLimits,
        clock: Clock,
    ) -> io::Result<FileEngine> {
        let pool = ThreadPool::global().clone();
        pool.set_limits(PoolLimits {
            stat_threads_max: limits.stat_threads_max,
            read_threads_max: limits.read_threads_max,
            ..pool.limits()
        });
        let (ring, report) = choose(choice, &limits)?;
        // Bounded: an operation under way sends one report.
        let (done, landed) = unbounded_channel();
        let openat2 = resolve::has_openat2() && !limits.plain_open;
        let inner = Rc::new(FileEngineInner {
            limits: EngineLimits { plain_open: !openat2, ..limits },
            report,
            counters: FileCounters::default(),
            clock,
            pool,
            ring,
            flight: Rc::default(),
            turns: EngineTurns::new(limits.disk_reads),
            done,
            driver: RefCell::new(None),
            alarm: RefCell::default(),
            asking: resident::Asking::default(),
            faults: RefCell::new(None),
            cached_lookups: openat2 && resolve::has_cached_lookups(),
        });
        departure::spawn_driver(&inner, landed);
        Ok(FileEngine(inner))
    }

    /// Name of the running engine and the reason for the choice.
    pub fn report(&self) -> &EngineReport {
        &self.0.report
    }

    /// The limits in force.
    pub fn limits(&self) -> &EngineLimits {
        &self.0.limits
    }

    /// The engine's counters, including operations in progress.
    pub fn counters(&self) -> &FileCounters {
        let counters = &self.0.counters;
        counters.in_flight.set(self.0.flight.count());
        counters.queued.set(self.0.ring.as_ref().map_or(0, |ring| ring.waiting() as u64));
        counters.bulk_waiting.set(self.0.flight.bulk_waiting());
        counters
    }

    /// The clock for its stamps.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Makes operations fail, for tests: see [`FaultPlan`].
    pub fn set_faults(&self, plan: Option<FaultPlan>) {
        *self.0.faults.borrow_mut() = plan;
    }

    /// Opens a directory as a document root (or `/`).
    ///
    /// # Errors
    /// Errors of the system, such as `NotADirectory`.
    pub async fn open_root(&self, path: &Path) -> io::Result<Rc<Root>> {
        let owned = path.to_owned();
        let dir = self.0.pool.run_anyhow(Lane::Stat, move || RootDir::open(&owned)).await??;
        Ok(Rc::new(Root::new(path.to_owned(), dir, self.now_ms())))
    }

    /// Opens `rel` beneath the root if the kernel can do so from its caches. `rel` has no leading
    /// slash and no `..`. `None` if it would block: use [`FileEngine::open`].
    pub fn try_open_cached(
        &self,
        root: &Root,
        rel: &[u8],
        follow: Follow,
        noatime: bool,
    ) -> Option<io::Result<Rc<OpenFile>>> {
        let dir = self.cached_dir(root, FaultOp::Open, rel)?;
        let opened = resolve::open(dir.as_fd(), rel, self.how_cached(follow, noatime));
        let opened = self.note_cached(opened)?;
        let opened = opened.inspect_err(|error| note_refusal(root.path(), rel, error));
        add(&self.0.counters.opens, 1);
        Some(opened.map(|opened| Rc::new(OpenFile::new(opened, dir.fs))))
    }

    /// Stats `rel` if the kernel can do so from its caches.
    pub fn try_stat_cached(
        &self,
        root: &Root,
        rel: &[u8],
        follow: Follow,
    ) -> Option<io::Result<Meta>> {
        let dir = self.cached_dir(root, FaultOp::Stat, rel)?;
        let found = resolve::stat(dir.as_fd(), rel, self.how_cached(follow, false));
        let found = self.note_cached(found)?;
        add(&self.0.counters.stats, 1);
        Some(found)
    }

    /// Opens `rel` beneath the root. Regular files are readable; anything else has metadata and an
    /// unreadable descriptor.
    ///
    /// # Errors
    /// Errors of the system: `NotFound`, `PermissionDenied`, `ENOTDIR`, `ENAMETOOLONG`; `ELOOP` and
    /// `EXDEV` for links that [`Follow`] forbids; `EMFILE`, `ENFILE`, `EIO`.
    pub async fn open(
        &self,
        root: &Root,
        rel: &[u8],
        follow: Follow,
        noatime: bool,
    ) -> io::Result<Rc<OpenFile>> {
        add(&self.0.counters.opens, 1);
        let _timed = Timed::start(&self.0.counters.open_wait_us);
        let opening = async {
            self.fault(FaultOp::Open, rel).await?;
            let dir = self.fresh_dir(root).await?;
            let found = self.look_up(&dir, rel, self.how(follow, noatime), false).await;
            match found.inspect_err(|error| note_refusal(root.path(), rel, error))? {
                FileJobOutput::Opened(opened) => Ok(Rc::new(OpenFile::new(opened, dir.fs))),
                _ => Err(io::Error::other("file engine: not an open")),
            }
        };
        self.urgently(root, opening).await
    }

    /// Stats `rel` beneath the root.
    ///
    /// # Errors
    /// As for [`FileEngine::open`].
    pub async fn stat(&self, root: &Root, rel: &[u8], follow: Follow) -> io::Result<Meta> {
        add(&self.0.counters.stats, 1);
        let _timed = Timed::start(&self.0.counters.stat_wait_us);
        let looking = async {
            self.fault(FaultOp::Stat, rel).await?;
            let dir = self.fresh_dir(root).await?;
            match self.look_up(&dir, rel, self.how(follow, false), true).await? {
                FileJobOutput::Stat(meta) => Ok(meta),
                _ => Err(io::Error::other("file engine: not a stat")),
            }
        };
        self.urgently(root, looking).await
    }

    /// Reads into the buffer and returns it with the number of bytes; 0 at the end of the file. If
    /// the future is dropped, the engine keeps the buffer until the kernel is done with it.
    ///
    /// # Errors
    /// Errors of the system; `EBADF` if it is not a regular file.
    pub async fn read(
        &self,
        file: &Rc<OpenFile>,
        offset: u64,
        buf: OwnedBuf,
    ) -> (OwnedBuf, io::Result<usize>) {
        add(&self.0.counters.async_reads, 1);
        let _timed = Timed::start(&self.0.counters.read_wait_us);
        if !file.is_readable() || buf.is_empty() {
            let done = if buf.is_empty() { Ok(0) } else { Err(not_readable()) };
            return (buf, done);
        }
        let fault = match self.read_fault(file) {
            Ok(fault) => fault,
            Err(error) => return (buf, Err(error)),
        };
        let job = FileJob::Read { file: file.clone(), offset, buf };
        let landed = self.fly_read(file, offset, job, fault.delay).await;
        let n = count(landed.result).map(|n| fault.bytes_max.map_or(n, |most| n.min(most)));
        if let Ok(n) = n {
            add(&self.0.counters.bytes, n);
        }
        match landed.job {
            Some(FileJob::Read { buf, .. }) => (buf, n.map(|n| n as usize)),
            _ => (OwnedBuf::Heap(Vec::new()), n.map(|n| n as usize)),
        }
    }

    /// Loads a range into the page cache by reading it into scratch memory. Returns the number of
    /// bytes read: fewer than requested at the end of the file.
    ///
    /// # Errors
    /// As for [`FileEngine::read`].
    pub async fn warm(&self, file: &Rc<OpenFile>, offset: u64, length: u64) -> io::Result<u64> {
        add(&self.0.counters.async_reads, 1);
        let _timed = Timed::start(&self.0.counters.read_wait_us);
        if !file.is_readable() {
            return Err(not_readable());
        }
        let fault = self.read_fault(file)?;
        let length = fault.bytes_max.map_or(length, |most| length.min(most));
        self.take_over_read_ahead(file);
        let job = FileJob::Warm { file: file.clone(), offset, length, done: 0 };
        let done = count(self.fly_read(file, offset, job, fault.delay).await.result)?;
        add(&self.0.counters.bytes, done);
        if file.fs().answers_from_cache() {
            file.note_cold(self.now_ms());
        } else {
            // Such a file system cannot be queried; assume that the data just read is resident.
            file.believe_resident(self.span(offset, done), self.now_ms());
        }
        Ok(done)
    }

    /// The value of an extended attribute; `None` if it does not exist or is unsupported.
    ///
    /// # Errors
    /// Other errors of the system; `E2BIG` beyond [`XATTR_BYTES_MAX`].
    pub async fn get_xattr(&self, file: &Rc<OpenFile>, name: &str) -> io::Result<Option<Vec<u8>>> {
        let fd = file.share_fd();
        let name = name.to_owned();
        let turn = self.0.turns.urgent(file.meta().dev);
        let job = move || {
            let _turn = turn;
            get_xattr(&fd, &name)
        };
        self.0.pool.run_anyhow(stat_lane(file.fs()), job).await?
    }

    /// Starts reading a directory; see [`ReadDir::next_batch`].
    ///
    /// # Errors
    /// As for [`FileEngine::open`]; `ENOTDIR`, and `EACCES` for a directory that may be traversed
    /// but not listed.
    pub async fn read_dir(&self, root: &Root, rel: &[u8], follow: Follow) -> io::Result<ReadDir> {
        let dir = self.fresh_dir(root).await?;
        let opened = ReadDir::open(self.0.pool.clone(), &dir, rel, self.how(follow, false)).await;
        opened.inspect_err(|error| note_refusal(root.path(), rel, error))
    }

    /// Removes the file or link `rel` beneath the root.
    ///
    /// # Errors
    /// As for [`FileEngine::open`], and errors of `unlinkat`.
    pub async fn remove(&self, root: &Root, rel: &[u8], follow: Follow) -> io::Result<()> {
        let dir = self.fresh_dir(root).await?.as_fd().try_clone_to_owned()?;
        let (how, rel) = (self.how(follow, false), rel.to_vec());
        self.0.pool.run_anyhow(Lane::Other, move || resolve::remove(dir.as_fd(), &rel, how)).await?
    }

    /// A directory beneath which changes will be made. Links are followed according to `follow`,
    /// but never out of the directory.
    ///
    /// # Errors
    /// As for [`FileEngine::open_root`].
    pub async fn tree(&self, root: &Root, follow: Follow) -> io::Result<tree::Tree> {
        let dir = self.fresh_dir(root).await?.as_fd().try_clone_to_owned()?;
        let follow = if follow == Follow::None { Follow::None } else { Follow::Beneath };
        Ok(tree::Tree::new(dir, root.path(), self.how(follow, false)))
    }
}

/// Maximum length of an extended attribute's value.
pub const XATTR_BYTES_MAX: usize = 1024;

impl FileEngine {
    pub(crate) fn now_ms(&self) -> u64 {
        self.0.clock.mono_ms()
    }

    /// True if the root's path was verified within the last second, or can be verified now from the
    /// kernel's caches.
    pub(crate) fn root_is_current(&self, root: &Root) -> bool {
        let now_ms = self.now_ms();
        let asks_kernel = self.0.cached_lookups && !self.replays_faults();
        if asks_kernel { root.check_cached(now_ms) } else { root.is_fresh(now_ms) }
    }

    /// True if the faults of operations are drawn, so that none may depend on the kernel's caches:
    /// a rename or a mount anywhere on the machine makes it look a path up again.
    fn replays_faults(&self) -> bool {
        self.0.faults.borrow().as_ref().is_some_and(FaultPlan::is_drawn)
    }

    fn how(&self, follow: Follow, noatime: bool) -> How {
        let plain = self.0.limits.plain_open;
        How { follow, noatime, no_xdev: false, cached: false, plain }
    }

    fn how_cached(&self, follow: Follow, noatime: bool) -> How {
        How { follow, noatime, no_xdev: true, cached: true, plain: false }
    }

    /// The root's directory, if look-ups beneath it can be tried in the caches.
    fn cached_dir(&self, root: &Root, op: FaultOp, rel: &[u8]) -> Option<Rc<RootDir>> {
        if !self.0.cached_lookups || !root.fs().answers_from_cache() {
            return None;
        }
        if let Some(plan) = &*self.0.faults.borrow()
            && plan.concerns(op, rel)
        {
            return None;
        }
        root.check_cached(self.now_ms()).then(|| root.dir())
    }

    /// Counts a look-up served from the caches. `None` if they did not suffice.
    fn note_cached<T>(&self, response: io::Result<T>) -> Option<io::Result<T>> {
        match response.as_ref().err().and_then(io::Error::raw_os_error) {
            // EXDEV: another mount, or a link out of the root; left to the engine.
            Some(libc::EAGAIN | libc::EXDEV) => None,
            _ => {
                add(&self.0.counters.lookups_cached, 1);
                Some(response)
            }
        }
    }

    /// True if look-ups block the event loop, as lighttpd's do without stat threads.
    fn looks_up_in_the_loop(&self) -> bool {
        self.0.limits.stat_threads_max == 0
    }

    /// The root's directory, with its path verified within the last second.
    async fn fresh_dir(&self, root: &Root) -> io::Result<Rc<RootDir>> {
        let now_ms = self.now_ms();
        if !self.root_is_current(root) {
            let path = root.path().to_owned();
            let (lane, turn) = (stat_lane(root.fs()), self.look_up_turn(root));
            let job = move || {
                let _turn = turn;
                RootDir::open(&path)
            };
            let dir = if self.looks_up_in_the_loop() {
                job()?
            } else {
                self.0.pool.run_anyhow(lane, job).await??
            };
            root.adopt(dir, now_ms);
        }
        Ok(root.dir())
    }

    /// Looks a path up within the root's file system first and, if necessary, across mounts in a
    /// separate lane, because another file system may respond late or never.
    async fn look_up(
        &self,
        dir: &Rc<RootDir>,
        rel: &[u8],
        how: How,
        stat_only: bool,
    ) -> io::Result<FileJobOutput> {
        let path = resolve::c_path(rel)?;
        if self.looks_up_in_the_loop() {
            return if stat_only {
                resolve::stat(dir.as_fd(), rel, how).map(FileJobOutput::Stat)
            } else {
                resolve::open(dir.as_fd(), rel, how).map(FileJobOutput::Opened)
            };
        }
        let job = |how| {
            let (dir, path) = (dir.clone(), path.clone());
            FileJob::Open { dir, path, how, stat_only, ring: Box::<RingOpen>::default() }
        };
        if !how.plain && dir.fs != FsClass::Remote {
            let inside = How { no_xdev: true, ..how };
            match self.fly_look_up(dir, Lane::Stat, job(inside)).await.result {
                Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {}
                done => return done,
            }
        }
        // Without openat2, a mount is not recognisable before it is entered.
        let lane = if how.plain { stat_lane(dir.fs) } else { Lane::StatRemote };
        self.fly_look_up(dir, lane, job(how)).await.result
    }

    fn span(&self, offset: u64, length: u64) -> open_file::Span {
        let window_bytes = (self.0.limits.read_chunk_bytes as u64).max(4096);
        open_file::Span { offset, length, window_bytes }
    }
}

/// Selects the ring if it is wanted and available, and reports why.
fn choose(choice: EngineChoice, limits: &EngineLimits) -> io::Result<(Option<Ring>, EngineReport)> {
    let threads = |why: String| Ok((None, EngineReport { name: "threads", why }));
    if choice == EngineChoice::Threads {
        return threads("asked for".to_owned());
    }
    match Ring::start(limits) {
        Ok(ring) => {
            let why = match choice {
                EngineChoice::Uring => "asked for",
                _ => "io_uring works here",
            };
            Ok((Some(ring), EngineReport { name: "io-uring", why: why.to_owned() }))
        }
        Err(error) if choice == EngineChoice::Auto => threads(error.to_string()),
        Err(error) => Err(io::Error::new(io::ErrorKind::Unsupported, error.to_string())),
    }
}

impl Drop for FileEngineInner {
    /// Does not wait: operations in progress leak their memory.
    fn drop(&mut self) {
        self.flight.leak_started();
        self.wake_driver();
    }
}

impl fmt::Debug for FileEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileEngine").field("report", &self.0.report).finish_non_exhaustive()
    }
}

/// Metadata of a file that was not opened by an engine. May block on a remote file system.
pub(crate) fn describe(fd: BorrowedFd<'_>) -> io::Result<(FsClass, Meta)> {
    Ok((resolve::fs_class(fd), resolve::meta_of(fd, false)?))
}

fn count(result: io::Result<FileJobOutput>) -> io::Result<u64> {
    match result? {
        FileJobOutput::Read(n) => Ok(n),
        _ => Err(io::Error::other("file engine: not a read")),
    }
}

fn not_readable() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

fn read_lane(file: &OpenFile) -> Lane {
    if file.fs() == FsClass::Remote { Lane::ReadRemote } else { Lane::Read }
}

fn stat_lane(fs: FsClass) -> Lane {
    if fs == FsClass::Remote { Lane::StatRemote } else { Lane::Stat }
}

fn get_xattr(fd: &impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0u8; XATTR_BYTES_MAX];
    match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
        Ok(n) => {
            value.truncate(n);
            Ok(Some(value))
        }
        // EBADF: directories are held by O_PATH descriptors.
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::BADF) => {
            Ok(None)
        }
        Err(rustix::io::Errno::RANGE) => Err(io::Error::from_raw_os_error(libc::E2BIG)),
        Err(error) => Err(error.into()),
    }
}

/// A self-refreshing clock for an engine outside a worker.
fn ticking_clock() -> Clock {
    let clock = Clock::start();
    clock.spawn_tick();
    clock
}
