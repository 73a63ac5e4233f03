//! Schedule of requests, and the end of the run.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::clock::ticks::Ticks;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Minimum and maximum time between two checks for due requests.
const TICK_US_MIN: f64 = 50.0;
const TICK_US_MAX: f64 = 1000.0;

/// Number of requests that may still begin, for all threads.
#[derive(Clone, Debug)]
pub(super) struct Quota(Arc<AtomicU64>);

impl Quota {
    pub(super) fn new(requests: Option<u64>) -> Self {
        Self(Arc::new(AtomicU64::new(requests.unwrap_or(u64::MAX))))
    }

    /// Takes one; false if none is left.
    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// State of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleState {
    /// A request that was due at this time.
    Due(u64),
    /// No request is due yet.
    Later,
    /// There are no more requests.
    Over,
}

/// A thread's share of the requests.
pub(super) struct Pace {
    clock: Clock,
    quota: Quota,
    /// Time between two requests; `None`: each free connection sends the next one.
    period_us: Option<f64>,
    /// Requests due earlier belong to the warm-up and are not counted.
    counted_from_us: u64,
    end_us: u64,
    /// Due time of the first request at a fixed rate: when ticks begin, so that each request is
    /// seen as soon as it is due.
    first_due_us: Cell<u64>,
    /// Number of this thread's requests that have become due; `taken` is the number that
    /// connections have taken.
    made: Cell<u64>,
    taken: Cell<u64>,
    more: Notify,
    is_over: Cell<bool>,
}

impl Pace {
    /// Starts the schedule. `rate` is this thread's, and `duration` excludes the warm-up.
    pub(super) fn begin(
        clock: Clock,
        quota: Quota,
        rate: Option<f64>,
        warm_up: Duration,
        duration: Option<Duration>,
    ) -> Self {
        let start_us = clock.precise_us();
        let us = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let counted_from_us = start_us.saturating_add(us(warm_up));
        let end_us = duration.map(|length| counted_from_us.saturating_add(us(length)));
        Self {
            clock,
            quota,
            period_us: rate.map(|rate| 1e6 / rate),
            counted_from_us,
            end_us: end_us.unwrap_or(u64::MAX),
            first_due_us: Cell::new(start_us),
            made: Cell::new(0),
            taken: Cell::new(0),
            more: Notify::new(),
            is_over: Cell::new(false),
        }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Due time of the first counted request.
    pub(super) fn counted_from_us(&self) -> u64 {
        self.counted_from_us
    }

    /// True if a request with this due time may begin. The quota only applies to counted requests.
    fn may_begin(&self, due_us: u64) -> bool {
        due_us < self.counted_from_us || self.quota.take()
    }

    /// Waits for the next request and returns its due time; `None`: there are no more.
    pub(super) async fn next(&self) -> Option<u64> {
        loop {
            match self.try_next() {
                ScheduleState::Due(due_us) => return Some(due_us),
                ScheduleState::Over => return None,
                ScheduleState::Later => self.more.notified().await,
            }
        }
    }

    /// The next request, if it is due.
    pub(super) fn try_next(&self) -> ScheduleState {
        let now_us = self.clock.precise_us();
        let Some(period_us) = self.period_us else {
            let may = !self.is_over.get() && now_us < self.end_us && self.may_begin(now_us);
            return if may { ScheduleState::Due(now_us) } else { ScheduleState::Over };
        };
        match self.unsent() {
            _ if now_us >= self.end_us => ScheduleState::Over,
            0 if self.is_over.get() => ScheduleState::Over,
            0 => ScheduleState::Later,
            _ => {
                let number = self.taken.replace(self.taken.get() + 1);
                ScheduleState::Due(self.due_us(number, period_us))
            }
        }
    }

    /// The due time of request `number`.
    fn due_us(&self, number: u64, period_us: f64) -> u64 {
        self.first_due_us.get() + (number as f64 * period_us) as u64
    }

    /// Waits until another request is due, or there are no more.
    pub(super) fn more(&self) -> Notified<'_> {
        self.more.notified()
    }

    /// Prevents further requests.
    pub(super) fn stop(&self) {
        self.taken.set(self.made.get());
        self.finish();
    }

    /// Releases requests at their due times, at a fixed rate, until there are no more.
    pub(super) async fn run(&self) {
        let Some(period_us) = self.period_us else { return };
        let mut ticks = Ticks::every(tick(period_us));
        self.first_due_us.set(self.clock.precise_us());
        while !self.is_over.get() {
            self.release(period_us);
            ticks.next().await;
        }
    }

    fn release(&self, period_us: f64) {
        let now_us = self.clock.precise_us();
        loop {
            let due_us = self.due_us(self.made.get(), period_us);
            if due_us >= self.end_us {
                break self.finish();
            }
            if due_us > now_us {
                break;
            }
            if !self.may_begin(due_us) {
                break self.finish();
            }
            self.made.set(self.made.get() + 1);
            self.more.notify_one();
        }
    }

    fn finish(&self) {
        self.is_over.set(true);
        self.more.notify_waiters();
    }

    /// Due requests that no connection has been free for yet.
    pub(super) fn unsent(&self) -> u64 {
        self.made.get() - self.taken.get()
    }

    /// Due times of the counted ones among them.
    pub(super) fn unsent_due_us(&self) -> impl Iterator<Item = u64> {
        let period_us = self.period_us.unwrap_or_default();
        let numbers = self.taken.get()..self.made.get();
        let due_us = numbers.map(move |number| self.due_us(number, period_us));
        due_us.filter(|due_us| *due_us >= self.counted_from_us)
    }

    /// Time after which no further request begins, if there is a limit.
    pub(super) fn end_us(&self) -> u64 {
        self.end_us
    }
}

/// The time between two checks for due requests. It divides the period of requests, so that a check
/// comes right after each due time.
fn tick(period_us: f64) -> Duration {
    let parts = (period_us / TICK_US_MAX).ceil().max(1.0);
    // Rounded up: a check slightly too early would see the request a tick late.
    let nanos = (period_us * 1e3 / parts).ceil().max(TICK_US_MIN * 1e3);
    Duration::from_nanos(nanos as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(
        clock: Clock,
        requests: Option<u64>,
        rate: Option<f64>,
        duration: Option<Duration>,
    ) -> Pace {
        Pace::begin(clock, Quota::new(requests), rate, Duration::ZERO, duration)
    }

    #[test]
    fn warm_up_requests_do_not_count_toward_the_number() {
        const WARM_UP: Duration = Duration::from_secs(1);
        let count = |rate: Option<f64>| {
            let clock = Clock::manual(0);
            let pace = Pace::begin(clock.clone(), Quota::new(Some(3)), rate, WARM_UP, None);
            let (mut early, mut counted) = (0, 0);
            for _ in 0..20 {
                pace.period_us.into_iter().for_each(|period_us| pace.release(period_us));
                match pace.try_next() {
                    ScheduleState::Due(due_us) if due_us < pace.counted_from_us() => early += 1,
                    ScheduleState::Due(_) => counted += 1,
                    ScheduleState::Later | ScheduleState::Over => {}
                }
                clock.advance(Duration::from_millis(200));
            }
            (early, counted)
        };
        assert_eq!(count(None), (5, 3));
        assert_eq!(count(Some(5.0)), (5, 3));
    }

    #[tokio::test]
    async fn a_closed_loop_ends_by_number_or_time() {
        let pace = begin(Clock::start(), Some(3), None, None);
        for _ in 0..3 {
            assert!(pace.next().await.is_some());
        }
        assert_eq!(pace.next().await, None);
        let over = begin(Clock::start(), None, None, Some(Duration::ZERO));
        assert_eq!(over.next().await, None);
    }

    #[test]
    fn requests_are_due_at_their_times_however_late_one_looks() {
        let clock = Clock::manual(0);
        let second = Some(Duration::from_secs(1));
        let pace = begin(clock.clone(), Some(100), Some(10.0), second);
        pace.release(100_000.0);
        clock.advance(Duration::from_millis(350));
        pace.release(100_000.0);
        assert_eq!(pace.unsent(), 4);
        for wanted_us in [0, 100_000] {
            assert_eq!(pace.try_next(), ScheduleState::Due(pace.counted_from_us + wanted_us));
        }
        clock.advance(Duration::from_secs(5));
        pace.release(100_000.0);
        assert_eq!((pace.unsent(), pace.is_over.get()), (8, true));
        let unsent: Vec<u64> = pace.unsent_due_us().map(|us| us - pace.counted_from_us).collect();
        assert_eq!((unsent.len(), unsent[0], unsent[7]), (8, 200_000, 900_000));
        assert_eq!(pace.try_next(), ScheduleState::Over, "nothing begins after the end");
    }
    #[test]
    fn a_look_comes_when_a_request_is_due() {
        for (rate, wanted_us) in [(1.0, 1000.0), (300.0, 833.334), (2_000.0, 500.0), (1e6, 50.0)] {
            let tick_us = tick(1e6 / rate).as_secs_f64() * 1e6;
            assert!((tick_us - wanted_us).abs() < 0.01, "{rate}: {tick_us}");
        }
    }

    #[tokio::test]
    async fn a_stop_leaves_nothing_to_ask() {
        let pace = begin(Clock::manual(0), None, Some(10.0), None);
        pace.release(100_000.0);
        assert_ne!(pace.try_next(), ScheduleState::Later);
        assert_eq!(pace.try_next(), ScheduleState::Later);
        pace.stop();
        assert_eq!((pace.next().await, pace.unsent()), (None, 0));
    }
}
