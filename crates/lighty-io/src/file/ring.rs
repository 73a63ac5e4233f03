//! The ring engine: opens and reads through io_uring.
//!
//! The worker's reactor watches the ring's descriptor. One task takes completions and submits the
//! operations queued since the last turn with a single system call.
//!
//! All operations go to the kernel's own workers (`IOSQE_ASYNC`). Tried inline, an open could block
//! the loop on a directory block, and even a read on an extent block or a full device queue. Opens
//! and stats have separate limits from reads, so that readers stuck on a disk leave workers for
//! opens.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};

use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::EngineLimits;
use super::flight::{FileJob, FileJobOutput, Flight, Id};
use super::resolve::{self, How};
use super::threads;
use crate::sandbox;
use crate::threads::pool::Lane;

/// Maximum operations of one kind in flight per ring.
pub const RING_ROOM_MAX: usize = 2_048;
/// Extra slots for cancellations.
const CANCEL_PLACES: u32 = 32;
/// User data of cancellations and probes, whose completions are ignored.
const NOBODY: u64 = u64::MAX;

/// A ring and the operations waiting for a slot in it.
pub(super) struct Ring {
    /// A second descriptor of the ring, for the reactor.
    readiness: AsyncFd<OwnedFd>,
    ring: RefCell<IoUring>,
    lookups: RefCell<RingQuota>,
    reads: RefCell<RingQuota>,
    refused: RefCell<Vec<(Lane, Id)>>,
    /// Entries were pushed but not submitted to the kernel.
    unsubmitted: Cell<bool>,
}

/// Operations of one kind: the number running, its limit, and the waiting ones.
struct RingQuota {
    running: usize,
    running_max: usize,
    waiting: VecDeque<Id>,
}

impl RingQuota {
    fn new(running_max: usize) -> RefCell<RingQuota> {
        RefCell::new(RingQuota { running: 0, running_max, waiting: VecDeque::new() })
    }
}

/// Next step after a completion.
enum CompletionStep {
    Done(io::Result<FileJobOutput>),
    /// Submit the same operation again.
    Again,
    /// The kernel could not create a thread for it, so the pool must run it.
    Elsewhere,
}

/// Reason for not using a ring, for the operator.
#[derive(Debug, thiserror::Error)]
pub(super) enum RingError {
    #[error("io_uring_setup: {0}{hint}", hint = setup_hint(.0))]
    Setup(io::Error),
    #[error("io_uring_register: {0}")]
    Register(io::Error),
    /// The kernel's ring lacks this operation.
    #[error("io_uring of this kernel cannot {0}")]
    Lacks(&'static str),
    /// The trial operation could not be queued.
    #[error("io_uring: the submission queue is full")]
    Full,
    #[error("io_uring_enter: {0}")]
    Enter(io::Error),
    /// The trial operation did not complete.
    #[error("io_uring: the trial operation did not complete")]
    Trial,
    #[error("watching the ring: {0}")]
    Watch(io::Error),
}

/// Advice for the operator about an error of `io_uring_setup`.
fn setup_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            " (blocked by a container runtime, or by sysctl kernel.io_uring_disabled)"
        }
        Some(libc::ENOSYS) => " (this kernel has none)",
        Some(libc::ENOMEM) => " (too little memory may be locked: ulimit -l)",
        _ => "",
    }
}

impl Ring {
    /// Creates a ring and tests it.
    pub(super) fn start(limits: &EngineLimits) -> Result<Ring, RingError> {
        let lookups_max = limits.stat_threads_max.clamp(1, RING_ROOM_MAX);
        let reads_max = limits.read_threads_max.clamp(1, RING_ROOM_MAX);
        let entries = (lookups_max + reads_max) as u32 + CANCEL_PLACES;
        let (mut ring, is_disabled) = build(entries).map_err(RingError::Setup)?;
        check_operations(&ring)?;
        // Bounded workers are the ones for files. Kernels before 5.15 have four per core.
        let _ =
            ring.submitter().register_iowq_max_workers(&mut [(lookups_max + reads_max) as u32, 0]);
        sandbox::note_ring(is_disabled && restrict(&ring)?);
        try_out(&mut ring)?;
        // SAFETY: the ring owns this descriptor and outlives the borrow.
        let ring_fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let readiness =
            ring_fd.try_clone_to_owned().and_then(watch_readable).map_err(RingError::Watch)?;
        Ok(Ring {
            readiness,
            ring: RefCell::new(ring),
            lookups: RingQuota::new(lookups_max),
            reads: RingQuota::new(reads_max),
            refused: RefCell::default(),
            unsubmitted: Cell::new(false),
        })
    }

    fn room(&self, lane: Lane) -> &RefCell<RingQuota> {
        if lane == Lane::Read { &self.reads } else { &self.lookups }
    }

    /// An operation for which the kernel had no thread; the poller must run it in the pool.
    pub(super) fn take_refused(&self) -> Option<(Lane, Id)> {
        self.refused.borrow_mut().pop()
    }

    /// Queues an operation. The caller wakes the task that polls the ring.
    pub(super) fn enqueue(&self, lane: Lane, id: Id, flight: &Flight) {
        let room = self.room(lane);
        room.borrow_mut().waiting.push_back(id);
        self.fill(room, flight);
    }

    /// Asks the kernel to cancel an operation.
    pub(super) fn cancel(&self, id: Id) {
        let cancel = opcode::AsyncCancel::new(id.to_u64()).build().user_data(NOBODY);
        // SAFETY: a cancellation points to no memory.
        let pushed = unsafe { self.ring.borrow_mut().submission().push(&cancel) };
        // Without a free slot it is not cancelled, and completes normally.
        if pushed.is_ok() {
            self.unsubmitted.set(true);
        }
    }

    /// Operations waiting for a slot.
    pub(super) fn waiting(&self) -> usize {
        self.lookups.borrow().waiting.len() + self.reads.borrow().waiting.len()
    }

    /// Takes completions and submits queued operations.
    pub(super) fn poll(&self, cx: &mut Context<'_>, flight: &Flight) {
        while let Poll::Ready(Ok(mut ready)) = self.readiness.poll_read_ready(cx) {
            // Cleared first: a completion that arrives during the loop sets it again.
            ready.clear_ready();
            self.take_completions(flight);
        }
        self.fill(&self.lookups, flight);
        self.fill(&self.reads, flight);
        if self.unsubmitted.get() && !self.submit() {
            cx.waker().wake_by_ref();
        }
    }

    fn submit(&self) -> bool {
        match self.ring.borrow().submit() {
            Ok(_) => {
                self.unsubmitted.set(false);
                true
            }
            // EINTR, or EAGAIN and EBUSY if the kernel lacks resources: retry.
            Err(_) => false,
        }
    }

    fn take_completions(&self, flight: &Flight) {
        loop {
            let next = self.ring.borrow_mut().completion().next();
            let Some(entry) = next else { break };
            if entry.user_data() != NOBODY {
                self.land(Id::from_u64(entry.user_data()), entry.result(), flight);
            }
        }
    }

    fn land(&self, id: Id, result: i32, flight: &Flight) {
        let landed = flight.with_job(id, |job| {
            let lane = if matches!(job, FileJob::Open { .. }) { Lane::Stat } else { Lane::Read };
            (lane, next_step(job, result))
        });
        let Some((lane, next)) = landed else { return };
        let room = self.room(lane);
        room.borrow_mut().running -= 1;
        match next {
            CompletionStep::Done(result) => flight.complete(id, result),
            CompletionStep::Again => room.borrow_mut().waiting.push_front(id),
            CompletionStep::Elsewhere => self.refused.borrow_mut().push((lane, id)),
        }
    }

    /// Moves waiting operations into the ring while there are slots.
    fn fill(&self, room: &RefCell<RingQuota>, flight: &Flight) {
        loop {
            let mut room = room.borrow_mut();
            if room.running >= room.running_max {
                return;
            }
            let Some(id) = room.waiting.pop_front() else { return };
            let mut ring = self.ring.borrow_mut();
            // SAFETY: the memory that the entry points to belongs to the slot, which lives until
            // the completion of this entry has been taken, or is leaked with the engine.
            let pushed = flight.start(id, |job| unsafe {
                ring.submission().push(&entry_for(job).user_data(id.to_u64()))
            });
            match pushed {
                Some(Ok(())) => {
                    room.running += 1;
                    self.unsubmitted.set(true);
                }
                // Full until the next submission.
                Some(Err(_)) => return room.waiting.push_front(id),
                // It is no longer needed.
                None => {}
            }
        }
    }
}

/// Registers a descriptor with the reactor.
#[allow(deprecated, reason = "its replacement is newer than the tokio we ask for; we own the fd")]
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Returns a ring, and true if it is disabled until [`restrict`] enables it.
fn build(entries: u32) -> io::Result<(IoUring, bool)> {
    let mut builder = IoUring::builder();
    builder.setup_clamp();
    let mut disabled = builder.clone();
    // A disabled ring accepts restrictions (5.10).
    disabled.setup_r_disabled();
    let mut quiet = disabled.clone();
    // Completions need not interrupt the running thread (5.19).
    quiet.setup_coop_taskrun();
    for candidate in [&quiet, &disabled] {
        match candidate.build(entries) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            built => return built.map(|ring| (ring, true)),
        }
    }
    builder.build(entries).map(|ring| (ring, false))
}

/// Operations that the engine submits, with names for messages. The ring accepts no others.
const OPERATIONS: [(u8, &str); 4] = [
    (opcode::OpenAt2::CODE, "openat2"),
    (opcode::Read::CODE, "read"),
    (opcode::AsyncCancel::CODE, "cancel"),
    (opcode::Nop::CODE, "do nothing"),
];

/// Checks that the ring has the engine's operations.
fn check_operations(ring: &IoUring) -> Result<(), RingError> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(RingError::Register)?;
    let lacks = OPERATIONS.iter().find(|(code, _)| !probe.is_supported(*code));
    lacks.map_or(Ok(()), |(_, name)| Err(RingError::Lacks(name)))
}

/// Limits a disabled ring to the engine's operations, and enables it. Returns false if the kernel
/// cannot limit it. Code that runs in the process could otherwise use a ring to evade the filter of
/// system calls.
fn restrict(ring: &IoUring) -> Result<bool, RingError> {
    let operations = OPERATIONS.iter().map(|(code, _)| Restriction::sqe_op(*code));
    let flags = Restriction::sqe_flags_allowed(squeue::Flags::ASYNC.bits());
    let mut all: Vec<Restriction> = operations.chain([flags]).collect();
    let submitter = ring.submitter();
    let is_restricted = submitter.register_restrictions(&mut all).is_ok();
    submitter.register_enable_rings().map_err(RingError::Register)?;
    Ok(is_restricted)
}

/// Tests the ring: entering it may be forbidden.
fn try_out(ring: &mut IoUring) -> Result<(), RingError> {
    let nop = opcode::Nop::new().build().user_data(NOBODY);
    // SAFETY: a no-operation points to no memory.
    let pushed = unsafe { ring.submission().push(&nop) };
    pushed.map_err(|_| RingError::Full)?;
    ring.submit_and_wait(1).map_err(RingError::Enter)?;
    match ring.completion().next() {
        Some(done) if done.result() == 0 => Ok(()),
        _ => Err(RingError::Trial),
    }
}

fn entry_for(job: &mut FileJob) -> squeue::Entry {
    let entry = match job {
        FileJob::Open { dir, path, how, ring, .. } => {
            let flags = match (ring.for_reading, how.noatime) {
                (false, _) => resolve::LOOK_FLAGS,
                (true, false) => resolve::READ_FLAGS,
                (true, true) => resolve::READ_FLAGS | OFlags::NOATIME,
            };
            ring.how = types::OpenHow::new()
                .flags(u64::from(flags.bits()))
                .resolve(resolve::resolve_flags(*how).bits());
            let dir = types::Fd(dir.as_fd().as_raw_fd());
            opcode::OpenAt2::new(dir, path.as_ptr(), &raw const ring.how).build()
        }
        FileJob::Read { file, offset, buf } => {
            let length = u32::try_from(buf.len()).unwrap_or(u32::MAX);
            let fd = types::Fd(file.as_fd().as_raw_fd());
            opcode::Read::new(fd, buf.as_mut_ptr(), length).offset(*offset).build()
        }
        FileJob::Warm { file, offset, length, done } => {
            let want = (*length - *done).min(threads::SCRATCH_BYTES as u64) as u32;
            let fd = types::Fd(file.as_fd().as_raw_fd());
            opcode::Read::new(fd, threads::scratch(), want).offset(*offset + *done).build()
        }
    };
    entry.flags(squeue::Flags::ASYNC)
}

fn next_step(job: &mut FileJob, result: i32) -> CompletionStep {
    if result < 0 {
        return after_error(job, -result);
    }
    match job {
        FileJob::Open { .. } => {
            // SAFETY: a successful open returned this descriptor, which has no other owner.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            after_open(job, fd)
        }
        FileJob::Read { .. } => CompletionStep::Done(Ok(FileJobOutput::Read(result as u64))),
        FileJob::Warm { length, done, .. } => {
            *done += result as u64;
            if result > 0 && *done < *length {
                return CompletionStep::Again;
            }
            CompletionStep::Done(Ok(FileJobOutput::Read(*done)))
        }
    }
}

fn after_error(job: &mut FileJob, errno: i32) -> CompletionStep {
    match job {
        // A signal to the kernel's worker, or a ".." that raced with a rename.
        FileJob::Open { .. } if matches!(errno, libc::EINTR | libc::EAGAIN) => {
            CompletionStep::Again
        }
        FileJob::Read { .. } | FileJob::Warm { .. } if errno == libc::EINTR => {
            CompletionStep::Again
        }
        // Cancelled by the kernel itself (io_wq_enqueue). Operations that we cancel have no waiter.
        _ if errno == libc::ECANCELED => CompletionStep::Elsewhere,
        // Only the owner may leave access times unchanged.
        FileJob::Open { how, ring, .. }
            if errno == libc::EPERM && how.noatime && ring.for_reading =>
        {
            how.noatime = false;
            CompletionStep::Again
        }
        _ => CompletionStep::Done(Err(io::Error::from_raw_os_error(errno))),
    }
}

/// Continues after an inspection: opens a regular file from the caches, which the inspection has
/// filled, or, if that fails, through the ring.
fn after_open(job: &mut FileJob, fd: OwnedFd) -> CompletionStep {
    let FileJob::Open { dir, path, how, stat_only, ring } = job else {
        return CompletionStep::Done(Err(io::Error::other("file engine: not an open")));
    };
    if *stat_only {
        return CompletionStep::Done(resolve::meta_of(fd.as_fd(), true).map(FileJobOutput::Stat));
    }
    if ring.for_reading {
        return CompletionStep::Done(resolve::finish_open(fd).map(FileJobOutput::Opened));
    }
    let cached = How { cached: true, ..*how };
    match resolve::open_looked_at(dir.as_fd(), path.as_bytes(), fd, cached) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            ring.for_reading = true;
            CompletionStep::Again
        }
        done => CompletionStep::Done(done.map(FileJobOutput::Opened)),
    }
}
