//! Time limits of waiting requests.
//!
//! No timer is armed per request: a waiting request enters its deadline in a list, and a periodic
//! tick scans the list. A timeout is accurate to one tick.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Clock;
use super::ticks::Ticks;
use crate::threads::{keep, panics};

/// Maximum delay of a timeout, in milliseconds.
const TICK_MS: u64 = 100;

/// The time limits of a worker's requests.
pub struct Alarms {
    clock: Clock,
    list: RefCell<AlarmList>,
    runs: Cell<bool>,
}

#[derive(Default)]
struct AlarmList {
    entries: Vec<Option<AlarmEntry>>,
    free: Vec<usize>,
}

struct AlarmEntry {
    at_ms: u64,
    waker: Waker,
}

impl Alarms {
    /// Creates an empty list.
    pub fn new(clock: Clock) -> Rc<Self> {
        Rc::new(Self { clock, list: RefCell::default(), runs: Cell::new(false) })
    }

    /// Starts to look for expired ones on this worker, unless it does.
    pub fn run(self: &Rc<Self>) {
        if !self.runs.replace(true) {
            let own = Rc::clone(self);
            keep::keep("alarms", move || Rc::clone(&own).tick());
        }
    }

    async fn tick(self: Rc<Self>) {
        let mut ticks = Ticks::every(Duration::from_millis(TICK_MS));
        loop {
            ticks.next().await;
            panics::point("alarms");
            self.clock.refresh();
            self.wake_overdue();
        }
    }

    fn wake_overdue(&self) {
        let now_ms = self.clock.mono_ms();
        let list = self.list.borrow();
        let overdue: Vec<Waker> = list
            .entries
            .iter()
            .flatten()
            .filter(|entry| entry.at_ms <= now_ms)
            .map(|entry| entry.waker.clone())
            .collect();
        drop(list);
        overdue.into_iter().for_each(Waker::wake);
    }
}

/// A timeout. Costs nothing until it is polled.
pub struct Alarm {
    alarms: Rc<Alarms>,
    at_ms: u64,
    key: Option<usize>,
}

impl Alarm {
    /// Creates a timeout that is not set.
    pub fn new(alarms: &Rc<Alarms>) -> Self {
        Self { alarms: Rc::clone(alarms), at_ms: u64::MAX, key: None }
    }

    /// Expires `after_ms` milliseconds from now; 0: never.
    pub fn set(&mut self, after_ms: u64) {
        self.at_ms = match after_ms {
            0 => u64::MAX,
            _ => self.alarms.clock.mono_ms().saturating_add(after_ms),
        };
        if let Some(key) = self.key
            && let Some(Some(entry)) = self.alarms.list.borrow_mut().entries.get_mut(key)
        {
            entry.at_ms = self.at_ms;
        }
    }

    /// Returns the time of the timeout's clock, in monotonic milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.alarms.clock.mono_ms()
    }

    /// Cancels the timeout.
    pub fn cancel(&mut self) {
        self.at_ms = u64::MAX;
        if let Some(key) = self.key.take() {
            let mut list = self.alarms.list.borrow_mut();
            debug_assert!(list.entries[key].is_some(), "entry {key} is free");
            list.entries[key] = None;
            list.free.push(key);
        }
    }

    /// The output of a future, or `None` if it takes longer than so many milliseconds.
    pub async fn limit<T>(
        alarms: &Rc<Alarms>,
        limit_ms: u64,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        alarms.run();
        let mut alarm = Self::new(alarms);
        alarm.set(limit_ms);
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => alarm.poll(cx).map(|()| None),
        })
        .await
    }

    /// Ready once the timeout has expired.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.alarms.clock.mono_ms() >= self.at_ms {
            return Poll::Ready(());
        }
        let mut list = self.alarms.list.borrow_mut();
        match self.key.and_then(|key| list.entries.get_mut(key)) {
            Some(Some(entry)) if entry.waker.will_wake(cx.waker()) => {}
            Some(slot) => *slot = Some(AlarmEntry { at_ms: self.at_ms, waker: cx.waker().clone() }),
            None => {
                let entry = Some(AlarmEntry { at_ms: self.at_ms, waker: cx.waker().clone() });
                let key = match list.free.pop() {
                    Some(key) => key,
                    None => {
                        list.entries.push(None);
                        list.entries.len() - 1
                    }
                };
                debug_assert!(list.entries[key].is_none(), "entry {key} is in use");
                list.entries[key] = entry;
                self.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn goes_off_at_its_time_and_not_before() {
        let clock = Clock::manual(0);
        let alarms = Alarms::new(clock.clone());
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let mut alarm = Alarm::new(&alarms);
        alarm.set(1_000);
        assert!(alarm.poll(&mut cx).is_pending());
        clock.advance(Duration::from_millis(999));
        alarms.wake_overdue();
        assert!(alarm.poll(&mut cx).is_pending());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        clock.advance(Duration::from_millis(1));
        alarms.wake_overdue();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(alarm.poll(&mut cx).is_ready());
    }

    #[test]
    fn may_be_moved_and_switched_off() {
        let clock = Clock::manual(0);
        let alarms = Alarms::new(clock.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let mut alarm = Alarm::new(&alarms);
        alarm.set(10);
        assert!(alarm.poll(&mut cx).is_pending());
        clock.advance(Duration::from_millis(9));
        alarm.set(10);
        clock.advance(Duration::from_millis(9));
        assert!(alarm.poll(&mut cx).is_pending());
        alarm.set(0);
        clock.advance(Duration::from_secs(1_000_000));
        assert!(alarm.poll(&mut cx).is_pending());
    }

    #[test]
    fn a_dropped_alarm_gives_its_place_back() {
        let alarms = Alarms::new(Clock::manual(0));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let mut alarm = Alarm::new(&alarms);
            alarm.set(10);
            assert!(alarm.poll(&mut cx).is_pending());
        }
        assert_eq!(alarms.list.borrow().entries.len(), 1);
    }
}
