//! The thread pool: runs system calls that may block outside the event loops.
//!
//! One pool serves the whole process. Work is sorted into lanes, each with its own thread limit, so
//! that a hundred readers stuck on one disk do not block opens, and a stalled remote file system
//! does not block a healthy local one. Threads are created when none is idle, and exit after being
//! idle for a while. The thread that became idle last gets the next job, so little work keeps few
//! threads.
//!
//! Threads are never joined: one stuck in `read` must not delay a stop. The process ends with
//! `exit`, which ends its threads.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::lane::LANES;
use crate::process::memory;
use crate::threads::panics;
use crate::{sandbox, simulated, threads};

pub use super::lane::Lane;

/// Stack size of a pool thread in bytes: system calls and small closures, nothing deep.
pub const STACK_BYTES: usize = 128 * 1024;
/// Stack size of a compute thread in bytes: encoders keep tables on it.
pub const COMPUTE_STACK_BYTES: usize = 1024 * 1024;
/// Stack size in bytes of a thread for other jobs. The C library looks users up there, with modules
/// that the administrator has configured (nsswitch.conf), which expect the usual size.
pub const OTHER_STACK_BYTES: usize = 2 * 1024 * 1024;
/// Niceness of compute threads relative to event loops: a request that needs a few microseconds
/// does not wait for a block that needs a thousand.
pub const COMPUTE_NICENESS: i32 = 10;
/// Time for which a thread waits for work before it exits, in milliseconds.
pub const IDLE_MS: u64 = 5_000;
/// Threads for other jobs: error files, opening logs.
pub const OTHER_THREADS_MAX: usize = 16;
/// Maximum queued jobs per lane. Jobs belong to requests, which are bounded themselves; this is the
/// safety net that keeps a lane of stuck threads from exhausting memory.
pub const QUEUED_JOBS_MAX: usize = 65_536;

/// Thread limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Threads for opens and stats (`server.max-stat-threads`), local and remote each.
    pub stat_threads_max: usize,
    /// Threads for reads (`server.max-read-threads`), local and remote each; as many write.
    pub read_threads_max: usize,
    /// Maximum queued jobs per lane.
    pub queued_jobs_max: usize,
    /// Time for which an idle thread stays, in milliseconds.
    pub idle_ms: u64,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits {
            stat_threads_max: 64,
            read_threads_max: 64,
            queued_jobs_max: QUEUED_JOBS_MAX,
            idle_ms: IDLE_MS,
        }
    }
}

impl PoolLimits {
    fn threads_max(&self, lane: Lane) -> usize {
        let wanted = match lane {
            Lane::Stat | Lane::StatRemote => self.stat_threads_max,
            Lane::Read | Lane::ReadRemote | Lane::Write => self.read_threads_max,
            Lane::Compute | Lane::Hash => {
                std::thread::available_parallelism().map_or(1, usize::from)
            }
            Lane::Other => OTHER_THREADS_MAX,
        };
        wanted.max(1)
    }
}

type PoolJob = Box<dyn FnOnce() + Send>;

/// A handle to a pool; clones share it.
#[derive(Clone)]
pub struct ThreadPool(Arc<SharedThreadPool>);

struct SharedThreadPool {
    limits: Mutex<PoolLimits>,
    lanes: [Mutex<LaneQueue>; LANES],
}

#[derive(Default)]
struct LaneQueue {
    jobs: VecDeque<PoolJob>,
    threads: usize,
    /// Condvars of the idle threads, most recent last. The waker removes the entry.
    idle: Vec<Arc<Condvar>>,
}

impl LaneQueue {
    /// Wakes an idle thread, if there is one.
    fn wake_one(&mut self) -> bool {
        self.idle.pop().inspect(|thread| thread.notify_one()).is_some()
    }

    /// Removes an idle thread. Returns `false` if it was already woken.
    fn forget(&mut self, thread: &Arc<Condvar>) -> bool {
        let place = self.idle.iter().position(|other| Arc::ptr_eq(other, thread));
        place.map(|place| self.idle.remove(place)).is_some()
    }
}

/// A lane's load, for status pages and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneLoad {
    /// Number of threads.
    pub threads: usize,
    /// Number of idle threads.
    pub idle: usize,
    /// Number of queued jobs.
    pub queued: usize,
}

impl ThreadPool {
    /// The process's pool.
    pub fn global() -> &'static ThreadPool {
        static POOL: OnceLock<ThreadPool> = OnceLock::new();
        POOL.get_or_init(|| ThreadPool::new(PoolLimits::default()))
    }

    /// A separate pool, for tests and tools.
    pub fn new(limits: PoolLimits) -> ThreadPool {
        ThreadPool(Arc::new(SharedThreadPool {
            limits: Mutex::new(limits),
            lanes: Default::default(),
        }))
    }

    /// Sets the limits. Surplus threads exit after their current job.
    pub fn set_limits(&self, limits: PoolLimits) {
        if simulated::is_on() {
            return;
        }
        *unpoisoned(self.0.limits.lock()) = limits;
        for lane in &self.0.lanes {
            // Locked, so that no thread is between checking the limits and waiting.
            let mut work = unpoisoned(lane.lock());
            while work.wake_one() {}
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> PoolLimits {
        *unpoisoned(self.0.limits.lock())
    }

    /// A lane's load.
    pub fn load(&self, lane: Lane) -> LaneLoad {
        let work = unpoisoned(self.0.lanes[lane as usize].lock());
        LaneLoad { threads: work.threads, idle: work.idle.len(), queued: work.jobs.len() }
    }

    /// Runs a job on a thread of the lane, eventually.
    ///
    /// # Errors
    /// `WouldBlock` if `queued_jobs_max` jobs are queued, or the system's error if the lane has no
    /// thread and none can be created.
    pub fn spawn(&self, lane: Lane, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        if let Some(world) = simulated::world() {
            return run_simulated(world.job(lane)?, job);
        }
        let limits = self.limits();
        let mut work = unpoisoned(self.0.lanes[lane as usize].lock());
        if work.jobs.len() >= limits.queued_jobs_max {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "thread pool: queue is full"));
        }
        debug_assert!(work.idle.len() <= work.threads, "{} {}", work.idle.len(), work.threads);
        work.jobs.push_back(Box::new(job));
        if work.wake_one() {
            return Ok(());
        }
        if work.threads < limits.threads_max(lane) {
            work.threads += 1;
            if let Err(error) = self.start_thread(lane) {
                work.threads -= 1;
                if work.threads == 0 {
                    work.jobs.pop_back();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Runs a job on a thread of the lane and returns its result.
    ///
    /// # Errors
    /// As for [`ThreadPool::spawn`]; `Other` if the job panicked.
    pub fn run<T, F>(&self, lane: Lane, job: F) -> impl Future<Output = io::Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        let spawned = self.spawn(lane, move || {
            // The receiver may be gone; the result is then dropped.
            let _ = give.send(job());
        });
        async move {
            spawned?;
            take.await.map_err(|_| io::Error::other("thread pool: the job panicked"))
        }
    }

    /// Like [`ThreadPool::spawn`], for a job that can be revoked while it is queued.
    ///
    /// # Errors
    /// As for [`ThreadPool::spawn`].
    pub fn spawn_revocable(
        &self,
        lane: Lane,
        job: impl FnOnce() + Send + 'static,
    ) -> io::Result<Ticket> {
        let ticket = Ticket(Arc::new(Mutex::new(Some(Box::new(job)))));
        let waiting = Ticket(Arc::clone(&ticket.0));
        self.spawn(lane, move || {
            // Taken out first, so that a revoker does not wait for the job to finish.
            let job = waiting.take();
            job.into_iter().for_each(|job| job());
        })?;
        Ok(ticket)
    }

    /// Like [`ThreadPool::run`], but when the future is dropped, a job that is still queued is
    /// dropped with everything it holds.
    ///
    /// # Errors
    /// As for [`ThreadPool::run`].
    pub fn run_while_wanted<T, F>(
        &self,
        lane: Lane,
        job: F,
    ) -> impl Future<Output = io::Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        let spawned = self.spawn_revocable(lane, move || {
            let _ = give.send(job());
        });
        let wanted = spawned.map(RevokedWhenDropped);
        async move {
            let _wanted = wanted?;
            take.await.map_err(|_| io::Error::other("thread pool: the job panicked"))
        }
    }

    /// Like [`ThreadPool::run`], but runs the job inline, before it returns, if no thread can be
    /// created: for short jobs that a response depends on.
    ///
    /// # Errors
    /// As for [`ThreadPool::run`].
    pub fn run_anyhow<T, F>(
        &self,
        lane: Lane,
        job: F,
    ) -> impl Future<Output = io::Result<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (give, take) = oneshot::channel();
        let held = Arc::new(Mutex::new(Some(job)));
        let its = Arc::clone(&held);
        let spawned = self.spawn(lane, move || {
            let job = unpoisoned_job(&its).take();
            // The receiver may be gone; the result is then dropped.
            job.map(|job| give.send(job()));
        });
        let begun = match spawned {
            Ok(()) => Ok(None),
            Err(error) if self.load(lane).threads > 0 => Err(error),
            Err(error) => match unpoisoned_job(&held).take() {
                Some(job) => Ok(Some(job())),
                None => Err(error),
            },
        };
        async move {
            match begun? {
                Some(done) => Ok(done),
                None => take.await.map_err(|_| io::Error::other("thread pool: the job panicked")),
            }
        }
    }

    fn start_thread(&self, lane: Lane) -> io::Result<()> {
        let shared = self.0.clone();
        let name = format!("io-{lane:?}").to_lowercase();
        let stack = match lane {
            _ if lane.computes() => COMPUTE_STACK_BYTES,
            Lane::Other => OTHER_STACK_BYTES,
            _ => STACK_BYTES,
        };
        let work = move || {
            sandbox::restrict_thread();
            if lane.computes() {
                // Per thread on Linux. If refused, it keeps the normal priority.
                let _ = rustix::process::nice(COMPUTE_NICENESS);
            }
            shared.work_on(lane);
            if lane == Lane::Compute {
                memory::give_back();
            }
        };
        threads::start(&name, Some(stack), work).map(drop)
    }
}

/// Runs a job on the simulated thread itself.
fn run_simulated(late: Option<Duration>, job: impl FnOnce() + 'static) -> io::Result<()> {
    let Some(late) = late else {
        // A pool thread would survive a panic too.
        let _ = panics::caught_in(job);
        return Ok(());
    };
    tokio::task::spawn_local(async move {
        tokio::time::sleep(late).await;
        job();
    });
    Ok(())
}

/// Revokes a queued job.
pub struct Ticket(Arc<Mutex<Option<PoolJob>>>);

impl Ticket {
    /// Drops the job with everything it holds. Returns `false` if a thread has started it.
    pub fn revoke(&self) -> bool {
        self.take().is_some()
    }

    fn take(&self) -> Option<PoolJob> {
        unpoisoned(self.0.lock()).take()
    }
}

struct RevokedWhenDropped(Ticket);

impl Drop for RevokedWhenDropped {
    fn drop(&mut self) {
        self.0.revoke();
    }
}

impl SharedThreadPool {
    fn work_on(&self, lane: Lane) {
        let lane_work = &self.lanes[lane as usize];
        let wake = Arc::new(Condvar::new());
        let mut work = unpoisoned(lane_work.lock());
        loop {
            let limits = *unpoisoned(self.limits.lock());
            if work.threads > limits.threads_max(lane) {
                // This thread may have been woken for a job that another one can do.
                work.wake_one();
                break;
            }
            if let Some(job) = work.jobs.pop_front() {
                drop(work);
                // A panicking job loses its result (the receiver notices), not the thread.
                let _ = catch_unwind(AssertUnwindSafe(job));
                work = unpoisoned(lane_work.lock());
                continue;
            }
            debug_assert!(!work.idle.iter().any(|idle| Arc::ptr_eq(idle, &wake)), "idle twice");
            work.idle.push(Arc::clone(&wake));
            let idle = Duration::from_millis(limits.idle_ms);
            let (guard, timeout) =
                wake.wait_timeout(work, idle).unwrap_or_else(PoisonError::into_inner);
            work = guard;
            // A job queued now is meant for a woken thread.
            if work.forget(&wake) && timeout.timed_out() {
                break;
            }
        }
        work.threads -= 1;
    }
}

/// The lock is held only to take the job.
fn unpoisoned_job<F>(held: &Mutex<Option<F>>) -> MutexGuard<'_, Option<F>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

// The guarded counters and queue are consistent between any two statements.
fn unpoisoned<'a, T>(
    lock: Result<MutexGuard<'a, T>, PoisonError<MutexGuard<'a, T>>>,
) -> MutexGuard<'a, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    fn limits(n: usize) -> PoolLimits {
        PoolLimits { stat_threads_max: n, read_threads_max: n, ..PoolLimits::default() }
    }

    fn wait_for(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < deadline, "it does not come to pass");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_lane_has_n_threads_and_no_more() {
        let pool = ThreadPool::new(limits(3));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, finished) = channel();
        // The barrier needs three concurrent jobs, so there are three threads.
        let barrier = Arc::new(Barrier::new(3));
        for _ in 0..300 {
            let (running, most, done) = (running.clone(), most.clone(), done.clone());
            let barrier = barrier.clone();
            let job = move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                barrier.wait();
                running.fetch_sub(1, Ordering::SeqCst);
                let _ = done.send(());
            };
            pool.spawn(Lane::Read, job).expect("spawned");
        }
        for _ in 0..300 {
            finished.recv_timeout(Duration::from_secs(20)).expect("done");
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert_eq!(pool.load(Lane::Read).threads, 3);
    }

    #[test]
    fn stuck_lanes_leave_the_others_alone() {
        let pool = ThreadPool::new(limits(2));
        let (release, stuck) = channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        for _ in 0..10 {
            let stuck = stuck.clone();
            let hang = move || {
                let _ = unpoisoned(stuck.lock()).recv();
            };
            pool.spawn(Lane::Read, hang).expect("spawned");
        }
        wait_for(|| pool.load(Lane::Read) == LaneLoad { threads: 2, idle: 0, queued: 8 });
        for lane in [Lane::Stat, Lane::StatRemote, Lane::ReadRemote, Lane::Write, Lane::Other] {
            let (done, finished) = channel();
            pool.spawn(lane, move || done.send(()).expect("heard")).expect("spawned");
            finished.recv_timeout(Duration::from_secs(20)).expect("done");
        }
        drop(release);
        wait_for(|| pool.load(Lane::Read).queued == 0);
    }

    #[test]
    fn the_queue_has_a_limit() {
        let pool = ThreadPool::new(PoolLimits { queued_jobs_max: 4, ..limits(1) });
        let (release, stuck) = channel::<()>();
        let hang = move || {
            let _ = stuck.recv();
        };
        pool.spawn(Lane::Stat, hang).expect("runs");
        wait_for(|| pool.load(Lane::Stat).queued == 0);
        for n in 1..=4 {
            pool.spawn(Lane::Stat, || {}).expect("queued");
            assert_eq!(pool.load(Lane::Stat).queued, n);
        }
        let refused = pool.spawn(Lane::Stat, || {}).expect_err("one too many");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(release);
        wait_for(|| pool.load(Lane::Stat).queued == 0);
        pool.spawn(Lane::Stat, || {}).expect("room again");
    }

    #[test]
    fn idle_threads_leave_and_come_back() {
        let pool = ThreadPool::new(PoolLimits { idle_ms: 1, ..limits(4) });
        for _ in 0..3 {
            for _ in 0..20 {
                pool.spawn(Lane::Stat, || {}).expect("spawned");
            }
            wait_for(|| pool.load(Lane::Stat) == LaneLoad::default());
        }
    }

    #[test]
    fn little_work_keeps_few_threads() {
        let pool = ThreadPool::new(PoolLimits { idle_ms: 300, ..limits(4) });
        let meet = Arc::new(Barrier::new(4));
        for _ in 0..4 {
            let meet = meet.clone();
            pool.spawn(Lane::Read, move || {
                meet.wait();
            })
            .expect("spawned");
        }
        wait_for(|| pool.load(Lane::Read).idle == 4);
        // The jobs come too fast for any thread to time out, unless always the same thread gets
        // them.
        wait_for(|| {
            pool.spawn(Lane::Read, || {}).expect("spawned");
            let at_rest = |load: LaneLoad| load.queued == 0 && load.idle == load.threads;
            wait_for(|| at_rest(pool.load(Lane::Read)));
            pool.load(Lane::Read).threads == 1
        });
    }

    #[test]
    fn a_lowered_limit_takes_threads_away() {
        let pool = ThreadPool::new(limits(4));
        let barrier = Arc::new(Barrier::new(5));
        for _ in 0..4 {
            let barrier = barrier.clone();
            let meet = move || {
                barrier.wait();
            };
            pool.spawn(Lane::Read, meet).expect("spawned");
        }
        barrier.wait();
        assert_eq!(pool.load(Lane::Read).threads, 4);
        pool.set_limits(limits(1));
        wait_for(|| pool.load(Lane::Read).threads == 1);
        let (done, finished) = channel();
        pool.spawn(Lane::Read, move || done.send(()).expect("sent")).expect("spawned");
        finished.recv().expect("the one that is left works");
    }

    #[tokio::test]
    async fn a_cancelled_job_is_dropped_while_it_waits() {
        let pool = ThreadPool::new(limits(1));
        let (release, stuck) = channel::<()>();
        pool.spawn(Lane::Read, move || _ = stuck.recv()).expect("spawned");
        wait_for(|| pool.load(Lane::Read).queued == 0);
        let held = Arc::new(());
        let reads: Vec<_> = (0..100)
            .map(|_| {
                let buffer = Arc::clone(&held);
                pool.run_while_wanted(Lane::Read, move || drop(buffer))
            })
            .collect();
        assert_eq!(Arc::strong_count(&held), 101);
        drop(reads);
        assert_eq!(Arc::strong_count(&held), 1, "though no thread is free");
        let wanted = pool.run_while_wanted(Lane::Read, || 7);
        drop(release);
        assert_eq!(wanted.await.expect("it was wanted to the end"), 7);
    }

    #[test]
    fn a_look_up_of_a_user_has_the_stack_of_a_usual_thread() {
        fn deep(levels: usize) -> u64 {
            let filled = std::hint::black_box([levels as u8; 4096]);
            let below = if levels == 0 { 0 } else { deep(levels - 1) };
            below + u64::from(filled[levels % 4096])
        }
        let pool = ThreadPool::new(limits(1));
        let (done, finished) = channel();
        pool.spawn(Lane::Other, move || done.send(deep(128)).expect("heard")).expect("spawned");
        finished.recv_timeout(Duration::from_secs(20)).expect("it came back");
    }

    #[tokio::test]
    async fn a_panic_costs_the_response_and_not_the_thread() {
        let pool = ThreadPool::new(limits(1));
        let lost = pool.run(Lane::Other, || -> u32 { panic!("as the test wants it") }).await;
        assert_eq!(lost.expect_err("lost").kind(), io::ErrorKind::Other);
        wait_for(|| pool.load(Lane::Other).idle == 1);
        assert_eq!(pool.run(Lane::Other, || 7).await.expect("kept"), 7);
        assert_eq!(pool.load(Lane::Other).threads, 1);
    }
}
