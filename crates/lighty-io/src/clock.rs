//! A worker's coarse clock for stamps, timeouts and dates.
//!
//! Reading it costs one load. It is set once per turn of the event loop (see
//! [`Clock::refresh_current`]) and by a slow tick for a loop too busy to park, so that no request
//! asks the kernel for the time. A turn reads only the monotonic clock. The wall clock is assumed
//! to advance with it, and is compared at each tick.

pub mod alarms;
pub mod deadline;
pub mod local_time;
pub mod ticks;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock::ticks::Ticks;
use crate::simulated;
use crate::threads::{keep, panics};

/// Maximum staleness of the clock in a loop that never parks.
pub const CLOCK_TICK_MS: u64 = 100;

/// A handle to the clock of one worker. Clones share the time.
#[derive(Clone, Debug)]
pub struct Clock(Rc<Times>);

#[derive(Debug)]
struct Times {
    source: TimeSource,
    /// The wall-clock time at its start, in microseconds since 1970, as currently known.
    started_unix_us: Cell<u64>,
    mono_ms: Cell<u64>,
    mono_us: Cell<u64>,
    unix_s: Cell<i64>,
    unix_us: Cell<u32>,
    /// The longest delay of a tick since the last [`Clock::take_late_us`].
    late_us: Cell<u64>,
}

/// Source of the time.
#[derive(Clone, Copy, Debug)]
enum TimeSource {
    /// The machine's monotonic clock, since this reading of it in microseconds.
    Machine(u64),
    /// The runtime's time, which a simulation pauses.
    Runtime(tokio::time::Instant),
    /// Only [`Clock::advance`] moves it.
    Manual,
}

impl TimeSource {
    #[inline]
    fn elapsed_us(self) -> Option<u64> {
        match self {
            TimeSource::Machine(started_us) => Some(machine_us().saturating_sub(started_us)),
            TimeSource::Runtime(started) => Some(whole_us(started.elapsed())),
            TimeSource::Manual => None,
        }
    }
}

/// The machine's monotonic clock in microseconds. An `Instant` counts nanoseconds and checks for
/// overflows that cannot happen here; this is read once in each turn of the loop.
#[inline]
pub(crate) fn machine_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a local timespec, which the call fills in. It fails only for a clock that
    // does not exist. (The vDSO is only reached through libc: valgrind hides it from other
    // readers.)
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

/// Microseconds of processor time that this thread has used.
#[must_use]
pub fn thread_cpu_us() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec.unsigned_abs() * 1_000_000 + used.tv_nsec.unsigned_abs() / 1000
}

fn whole_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}

/// The wall clock now, since 1970, for comparison with the times of files. 0 if the machine's clock
/// is set to a time before 1970.
pub(crate) fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Measures a wait to the microsecond, which the coarse clock cannot: it is constant during a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Microseconds since the start.
    pub(crate) fn us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(0)
    }
}

/// A monotonic time of 0 would look like "never" in a stamp.
const MONO_START_US: u64 = 1_000_000;

/// Common origin of all workers' clocks, so that stamps are comparable between them.
static PROCESS_STARTED_US: LazyLock<u64> = LazyLock::new(machine_us);

/// The wall clock at [`PROCESS_STARTED_US`], in microseconds since 1970.
static PROCESS_STARTED_UNIX_US: LazyLock<u64> = LazyLock::new(|| {
    whole_us(unix_now()).saturating_sub(machine_us().saturating_sub(*PROCESS_STARTED_US))
});

/// [`Clock::steady_unix_s`] of a thread that has no clock.
pub fn steady_unix_s() -> u64 {
    let elapsed_us = machine_us().saturating_sub(*PROCESS_STARTED_US);
    (*PROCESS_STARTED_UNIX_US + elapsed_us) / 1_000_000
}

/// [`Clock::steady_unix_s`] of all workers, for threads that have no clock.
pub fn shared_unix_s() -> u64 {
    match simulated::started() {
        Some(_) => {
            let elapsed_us = shared_mono_us() - MONO_START_US;
            simulated::STARTED_UNIX_S.unsigned_abs() + elapsed_us / 1_000_000
        }
        None => steady_unix_s(),
    }
}

/// [`Clock::precise_us`] of all workers, for threads that have no clock.
pub(crate) fn shared_mono_us() -> u64 {
    let source = match simulated::started() {
        Some(started) => TimeSource::Runtime(started),
        None => TimeSource::Machine(*PROCESS_STARTED_US),
    };
    MONO_START_US + source.elapsed_us().unwrap_or(0)
}

thread_local! {
    static CURRENT: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

impl Clock {
    /// Starts a clock with the current time; that of the runtime on a simulated thread.
    pub fn start() -> Self {
        let source = match simulated::started() {
            Some(started) => TimeSource::Runtime(started),
            None => TimeSource::Machine(*PROCESS_STARTED_US),
        };
        let clock = Clock::new(source, 0);
        clock.compare();
        clock.refresh();
        clock
    }

    /// A clock that starts at `unix_s` and moves only by [`advance`](Self::advance), for tests that
    /// must not wait.
    pub fn manual(unix_s: i64) -> Self {
        Clock::new(TimeSource::Manual, unix_s)
    }

    fn new(source: TimeSource, unix_s: i64) -> Self {
        Clock(Rc::new(Times {
            source,
            started_unix_us: Cell::new(unix_s.unsigned_abs() * 1_000_000),
            mono_ms: Cell::new(MONO_START_US / 1000),
            mono_us: Cell::new(MONO_START_US),
            unix_s: Cell::new(unix_s),
            unix_us: Cell::new(0),
            late_us: Cell::new(0),
        }))
    }

    /// Milliseconds since a moment before the process started to serve, the same for all workers;
    /// never 0, never goes back.
    pub fn mono_ms(&self) -> u64 {
        self.0.mono_ms.get()
    }

    /// Like [`mono_ms`](Self::mono_ms), in microseconds.
    pub fn mono_us(&self) -> u64 {
        self.0.mono_us.get()
    }

    /// The current monotonic time instead of that of this turn; asks the kernel.
    pub fn precise_us(&self) -> u64 {
        match self.0.source.elapsed_us() {
            Some(elapsed_us) => MONO_START_US + elapsed_us,
            None => self.mono_us(),
        }
    }

    /// Seconds since 1970-01-01 00:00 UTC; follows the wall clock, so it may jump.
    pub fn unix_s(&self) -> i64 {
        self.0.unix_s.get()
    }

    /// Seconds since 1970: the wall clock at the start of the process, advanced by the monotonic
    /// clock. The same for all workers, never goes back.
    pub fn steady_unix_s(&self) -> u64 {
        let started_us = match self.0.source {
            TimeSource::Machine(_) => *PROCESS_STARTED_UNIX_US,
            TimeSource::Runtime(_) => simulated::STARTED_UNIX_S.unsigned_abs() * 1_000_000,
            TimeSource::Manual => self.0.started_unix_us.get(),
        };
        (started_us + (self.0.mono_us.get() - MONO_START_US)) / 1_000_000
    }

    /// Microseconds within the second of [`unix_s`](Self::unix_s).
    pub fn unix_us(&self) -> u32 {
        self.0.unix_us.get()
    }

    /// Reads the monotonic clock. A manual clock does not change.
    #[inline]
    pub fn refresh(&self) {
        let times = &*self.0;
        let Some(elapsed_us) = times.source.elapsed_us() else { return };
        let us = MONO_START_US + elapsed_us;
        debug_assert!(us >= times.mono_us.get(), "{us} after {}", times.mono_us.get());
        times.mono_us.set(us);
        times.mono_ms.set(us / 1000);
        let unix_us = times.started_unix_us.get() + elapsed_us;
        times.unix_s.set((unix_us / 1_000_000) as i64);
        times.unix_us.set((unix_us % 1_000_000) as u32);
    }

    /// Compares with the wall clock, which may have been set. Ignored by a manual clock.
    fn compare(&self) {
        let times = &*self.0;
        let started_unix_us = match times.source {
            TimeSource::Machine(started_us) => {
                whole_us(unix_now()).saturating_sub(machine_us().saturating_sub(started_us))
            }
            TimeSource::Runtime(_) => simulated::STARTED_UNIX_S.unsigned_abs() * 1_000_000,
            TimeSource::Manual => return,
        };
        times.started_unix_us.set(started_unix_us);
    }

    /// Advances a manual clock. Ignored by a real one.
    pub fn advance(&self, by: Duration) {
        let times = &*self.0;
        if !matches!(times.source, TimeSource::Manual) {
            return;
        }
        let us = u64::from(times.unix_us.get()) + u64::from(by.subsec_micros());
        times.unix_us.set((us % 1_000_000) as u32);
        times.unix_s.set(times.unix_s.get() + by.as_secs() as i64 + (us / 1_000_000) as i64);
        times.mono_us.set(times.mono_us.get() + by.as_micros() as u64);
        times.mono_ms.set(times.mono_us.get() / 1000);
    }

    /// Makes this the clock that [`refresh_current`](Self::refresh_current) sets on this thread.
    pub fn install(&self) {
        CURRENT.with_borrow_mut(|current| *current = Some(self.clone()));
    }

    /// The clock installed on this thread.
    pub fn current() -> Option<Clock> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Refreshes this thread's clock, if any: meant for the runtime's `on_thread_unpark`, which
    /// runs each time the loop wakes up.
    pub fn refresh_current() {
        CURRENT.with_borrow(|current| {
            if let Some(clock) = current {
                clock.refresh();
            }
        });
    }

    /// Refreshes the clock every [`CLOCK_TICK_MS`], forever: spawn it on the worker.
    pub async fn tick(self) {
        let mut ticks = Ticks::every(Duration::from_millis(CLOCK_TICK_MS));
        self.refresh();
        let mut due_us = self.mono_us() + CLOCK_TICK_MS * 1000;
        loop {
            ticks.next().await;
            panics::point("clock");
            self.compare();
            self.refresh();
            let late_us = self.mono_us().saturating_sub(due_us);
            self.0.late_us.set(self.0.late_us.get().max(late_us));
            due_us = self.mono_us() + CLOCK_TICK_MS * 1000;
        }
    }

    /// The longest delay of a tick since the last call, in microseconds. For this long one task
    /// kept the loop busy, or the loop had no processor.
    pub fn take_late_us(&self) -> u64 {
        self.0.late_us.take()
    }

    /// Spawns [`tick`](Self::tick) as a task of this thread, restarted if it panics.
    pub fn spawn_tick(&self) {
        let clock = self.clone();
        keep::keep("clock", move || clock.clone().tick());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_set() {
        let clock = Clock::manual(1_000);
        let before = clock.mono_ms();
        clock.refresh();
        assert_eq!((clock.mono_ms(), clock.unix_s(), clock.unix_us()), (before, 1_000, 0));
        clock.advance(Duration::from_millis(1_500));
        assert_eq!((clock.mono_ms(), clock.unix_s()), (before + 1_500, 1_001));
        assert_eq!(clock.steady_unix_s(), 1_001);
        clock.clone().advance(Duration::from_millis(500));
        assert_eq!((clock.unix_s(), clock.unix_us()), (1_002, 0));
        assert_eq!(clock.precise_us(), clock.mono_us());
    }

    #[test]
    fn a_real_clock_shows_now_and_ignores_advance() {
        let clock = Clock::start();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!((clock.unix_s() - wall as i64).abs() <= 1);
        let before = clock.mono_ms();
        assert!(before >= MONO_START_US / 1000);
        clock.advance(Duration::from_secs(100));
        assert_eq!(clock.mono_ms(), before);
        while clock.precise_us() == clock.mono_us() {
            std::hint::spin_loop();
        }
        assert!(clock.precise_us() > clock.mono_us());
    }

    #[test]
    fn steady_time_ignores_steps_of_the_wall_clock() {
        let clock = Clock::start();
        let (wall, steady) = (clock.unix_s(), clock.steady_unix_s());
        assert!(steady.abs_diff(steady_unix_s()) <= 1);
        // As `compare` does after the wall clock was set back by an hour.
        let started_us = clock.0.started_unix_us.get();
        clock.0.started_unix_us.set(started_us - 3_600_000_000);
        clock.refresh();
        assert!(clock.unix_s() < wall - 3_000);
        assert!(clock.steady_unix_s().abs_diff(steady) <= 1);
    }

    #[test]
    fn the_installed_clock_is_refreshed_when_the_loop_wakes() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_unpark(Clock::refresh_current)
            .build()
            .expect("runtime");
        let clock = Clock::start();
        clock.install();
        let before = clock.mono_ms();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
        assert!(clock.mono_ms() > before);
    }
}
