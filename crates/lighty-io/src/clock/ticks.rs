//! A periodic tick that costs the event loop nothing between two ticks.
//!
//! While a timer of the runtime is armed, each turn of its loop computes how long it may sleep, and
//! sleeps with a timeout, for which the kernel arms and disarms a timer of its own: a worker with a
//! periodic timer would pay for it hundreds of thousands of times a second. A timerfd is armed
//! once, and is one more descriptor that becomes readable.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior};

use crate::simulated;

/// Ticks at a fixed period. Missed ticks count as one.
#[derive(Debug)]
pub struct Ticks(TickSource);

#[derive(Debug)]
enum TickSource {
    Timer(AsyncFd<OwnedFd>),
    /// A timer of the runtime, if no descriptor is free for a timerfd or time is simulated.
    Runtime(Interval),
}

impl Ticks {
    /// Starts to tick; the first tick comes after one period.
    pub fn every(period: Duration) -> Ticks {
        let timer = if simulated::is_on() { None } else { timer(period).ok() };
        Ticks(match timer {
            Some(timer) => TickSource::Timer(timer),
            None => {
                let first = tokio::time::Instant::now() + period;
                let mut interval = tokio::time::interval_at(first, period);
                interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
                TickSource::Runtime(interval)
            }
        })
    }

    /// Waits for the next tick.
    pub async fn next(&mut self) {
        match &mut self.0 {
            TickSource::Runtime(interval) => {
                interval.tick().await;
            }
            TickSource::Timer(timer) => {
                let mut expirations = [0u8; 8];
                let read = timer.async_io(Interest::READABLE, |timer| {
                    Ok(rustix::io::read(timer, &mut expirations)?)
                });
                if read.await.is_err() {
                    // The runtime is shutting down: there is no next tick.
                    pending::<()>().await;
                }
            }
        }
    }
}

fn timer(period: Duration) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let period =
        Timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
    let beat = Itimerspec { it_interval: period, it_value: period };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &beat)?;
    // SAFETY: an `OwnedFd` that is not replaced refers to the same open descriptor for as long as
    // it lives, and the registration owns it.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(20);

    /// Takes beats of ticks that were started after `begun`.
    async fn beats(begun: Instant, mut ticks: Ticks) {
        for beat in 1..=3 {
            ticks.next().await;
            assert!(begun.elapsed() >= PERIOD * beat - Duration::from_millis(1), "{beat}");
        }
    }

    #[tokio::test]
    async fn a_beat_comes_each_period_and_not_before() {
        let begun = Instant::now();
        let ticks = Ticks::every(PERIOD);
        assert!(matches!(ticks.0, TickSource::Timer(_)));
        beats(begun, ticks).await;
        let begun = Instant::now();
        let first = tokio::time::Instant::now() + PERIOD;
        beats(begun, Ticks(TickSource::Runtime(tokio::time::interval_at(first, PERIOD)))).await;
    }

    #[tokio::test]
    async fn missed_beats_are_one() {
        let begun = Instant::now();
        let mut ticks = Ticks::every(PERIOD);
        std::thread::sleep(PERIOD * 5);
        ticks.next().await;
        ticks.next().await;
        assert!(begun.elapsed() >= PERIOD * 6 - Duration::from_millis(1));
    }
}
