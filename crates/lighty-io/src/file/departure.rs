//! From a request to an engine: an operation waits for its turn at the disk, then the ring or the
//! pool starts it. The driver of an engine takes turns and results.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Sleep;

use super::counters::add;
use super::flight::{AbandonedWait, Departure, FileJob, FlightWait, Id, Landed};
use super::open_file::OpenFile;
use super::root::{Root, RootDir};
use super::turns::{DiskTurn, SMALL_FILE_BYTES, TurnReminder};
use super::{FileEngine, FileEngineInner, read_lane, threads};
use crate::clock::{Stopwatch, shared_mono_us};
use crate::threads::pool::Lane;
use crate::threads::{keep, panics};

/// Files beyond this size are sent in chunks with the engine's own read-ahead.
const LARGE_FILE_BYTES: u64 = 1024 * 1024;

/// Longest time for which the steps of one operation keep a turn between them.
const STEPS_TIME_MAX: Duration = Duration::from_millis(200);

/// Wakes the driver when a read has waited long enough for urgent operations.
#[derive(Default)]
pub(super) struct TurnAlarm {
    reminders: Vec<TurnReminder>,
    sleep: Option<(u64, Pin<Box<Sleep>>)>,
}

impl TurnAlarm {
    /// Adds a reminder. The earlier ones of its queue are void.
    fn add(&mut self, reminder: TurnReminder) {
        self.reminders.retain(|known| !known.is_of_same_queue(&reminder));
        self.reminders.push(reminder);
    }

    /// Takes the due reminders, and waits for the next one.
    fn poll(&mut self, cx: &mut Context<'_>) -> Vec<TurnReminder> {
        let mut due = Vec::new();
        loop {
            let Some(next_us) = self.reminders.iter().map(|reminder| reminder.due_us).min() else {
                self.sleep = None;
                return due;
            };
            let now_us = shared_mono_us();
            if next_us <= now_us {
                due.extend(self.reminders.extract_if(.., |reminder| reminder.due_us <= now_us));
                continue;
            }
            if self.sleep.as_ref().is_none_or(|(until_us, _)| *until_us != next_us) {
                let left = Duration::from_micros(next_us - now_us);
                self.sleep = Some((next_us, Box::pin(tokio::time::sleep(left))));
            }
            let Some((_, sleep)) = &mut self.sleep else { return due };
            if sleep.as_mut().poll(cx).is_pending() {
                return due;
            }
            // It ended early, by less than the timer can tell.
            self.sleep = None;
        }
    }
}

impl FileEngine {
    /// A turn for a look-up beneath a root. The device of the path is not known yet; most are on
    /// the root's.
    pub(super) fn look_up_turn(&self, root: &Root) -> Option<DiskTurn> {
        self.0.turns.urgent(root.dir().device())
    }

    /// Keeps an urgent turn at a root's device for all steps of an operation: between two of them,
    /// a bulk read would start. Not for long, because a path may lead to a file system that does
    /// not respond.
    pub(crate) async fn urgently<T>(&self, root: &Root, steps: impl Future<Output = T>) -> T {
        let Some(turn) = self.look_up_turn(root) else { return steps.await };
        let mut steps = pin!(steps);
        tokio::select! {
            biased;
            done = &mut steps => return done,
            () = tokio::time::sleep(STEPS_TIME_MAX) => drop(turn),
        }
        steps.await
    }

    /// Looks a path up in an urgent turn, unless it is to cross mounts.
    pub(super) async fn fly_look_up(&self, dir: &RootDir, lane: Lane, job: FileJob) -> Landed {
        let id = self.0.flight.insert(job, Departure { lane, delay: None });
        match lane {
            Lane::Stat => self.urgent(id, dir.device()).await,
            _ => {
                self.0.depart(id);
                self.landing(id).await
            }
        }
    }

    /// Reads after the first one of a file beyond [`SMALL_FILE_BYTES`] are bulk reads.
    pub(super) async fn fly_read(
        &self,
        file: &OpenFile,
        offset: u64,
        job: FileJob,
        delay: Option<Duration>,
    ) -> Landed {
        let meta = file.meta();
        // A part of a file of many responses is as large as its response, as far as is known.
        let is_small = match file.is_shared() {
            true => job.read_bytes() <= SMALL_FILE_BYTES,
            false => offset == 0 || meta.size <= SMALL_FILE_BYTES,
        };
        let id = self.0.flight.insert(job, Departure { lane: read_lane(file), delay });
        if is_small {
            return self.urgent(id, meta.dev).await;
        }
        match self.0.turns.queue_of(meta.dev) {
            None => self.0.depart(id),
            Some(queue) => {
                add(&self.0.counters.bulk, 1);
                // Readers of one file share its turns, so that many connections gain nothing.
                self.0.flight.hold(id, queue.bulk(meta.ino, id.to_u64(), &self.0.turns.mailbox));
                self.0.wake_driver();
            }
        }
        self.landing(id).await
    }

    async fn urgent(&self, id: Id, device: u64) -> Landed {
        let Some(turn) = self.0.turns.urgent(device) else {
            self.0.depart(id);
            return self.landing(id).await;
        };
        add(&self.0.counters.urgent, 1);
        let since = Stopwatch::start();
        self.0.flight.hold(id, turn);
        self.0.depart(id);
        let landed = self.landing(id).await;
        add(&self.0.counters.urgent_us, since.us());
        landed
    }

    fn landing(&self, id: Id) -> impl Future<Output = Landed> {
        let inner = &self.0;
        FlightWait::new(inner.flight.clone(), id, |id, abandoned| match abandoned {
            AbandonedWait::Runs => inner.cancel(id),
            AbandonedWait::Queued { waited_us } => {
                add(&inner.counters.bulk_abandoned, 1);
                add(&inner.counters.bulk_wait_us, waited_us);
            }
        })
    }

    /// Turns the kernel's read-ahead off for a large file on a disk with an order: it would pass
    /// the queue, and keep a dozen requests of each download at the disk. Once for a file, when it
    /// is first found cold.
    pub(crate) fn take_over_read_ahead(&self, file: &OpenFile) {
        let is_large = file.meta().size > LARGE_FILE_BYTES;
        // Other readers have the descriptor of a shared file, too.
        if is_large && !file.is_shared() && self.takes_turns(file) {
            file.turn_read_ahead_off();
        }
    }

    /// True if bulk reads of the file wait for turns.
    pub(crate) fn takes_turns(&self, file: &OpenFile) -> bool {
        self.0.turns.queue_of(file.meta().dev).is_some()
    }
}

/// Receives results from the pool for as long as the engine lives.
pub(super) fn spawn_driver(
    inner: &Rc<FileEngineInner>,
    landed: UnboundedReceiver<threads::JobReport>,
) {
    let (weak, landed) = (Rc::downgrade(inner), Rc::new(RefCell::new(landed)));
    keep::keep("file engine", move || drive(weak.clone(), Rc::clone(&landed)));
}

fn drive(
    engine: Weak<FileEngineInner>,
    landed: Rc<RefCell<UnboundedReceiver<threads::JobReport>>>,
) -> impl Future<Output = ()> {
    poll_fn(move |cx| {
        let Some(inner) = engine.upgrade() else { return Poll::Ready(()) };
        let mut landed = landed.borrow_mut();
        while let Poll::Ready(Some((id, result))) = landed.poll_recv(cx) {
            inner.flight.complete(id, result);
        }
        panics::point("file engine");
        inner.take_turns(cx);
        if let Some(ring) = &inner.ring {
            ring.poll(cx, &inner.flight);
            while let Some((lane, id)) = ring.take_refused() {
                inner.start_in_pool(lane, id);
            }
        }
        *inner.driver.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
}

impl FileEngineInner {
    /// Starts an operation that has its turn.
    fn depart(self: &Rc<Self>, id: Id) {
        match self.flight.departure(id) {
            None | Some(Departure { delay: Some(Duration::MAX), .. }) => {}
            Some(Departure { lane, delay: None }) => self.start(lane, id),
            Some(Departure { lane, delay: Some(time) }) => {
                let engine = Rc::downgrade(self);
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(time).await;
                    if let Some(engine) = engine.upgrade() {
                        engine.start(lane, id);
                    }
                });
            }
        }
    }

    fn start(&self, lane: Lane, id: Id) {
        // The ring is for local file systems; anything else that may stall runs in the pool.
        let is_local = self.flight.with_job(id, |job| match job {
            FileJob::Open { dir, .. } => lane == Lane::Stat && dir.fs.answers_from_cache(),
            _ => lane == Lane::Read,
        });
        match &self.ring {
            Some(ring) if is_local == Some(true) => {
                ring.enqueue(lane, id, &self.flight);
                self.wake_driver();
            }
            _ => self.start_in_pool(lane, id),
        }
    }

    /// Starts the reads that have been granted turns.
    fn take_turns(self: &Rc<Self>, cx: &mut Context<'_>) {
        let letters = self.turns.mailbox.take(cx.waker());
        add(&self.counters.turns_expired, letters.expired);
        for turn in letters.granted {
            let id = Id::from_u64(turn.id);
            // `None`: the read was abandoned, and its turn has ended.
            if let Some(waited_us) = self.flight.begin_turn(id) {
                add(&self.counters.bulk_wait_us, waited_us);
                add(&self.counters.bulk_overdue, u64::from(turn.is_overdue));
                self.depart(id);
            }
        }
        let due = {
            let mut alarm = self.alarm.borrow_mut();
            letters.reminders.into_iter().for_each(|reminder| alarm.add(reminder));
            alarm.poll(cx)
        };
        due.iter().for_each(TurnReminder::call);
    }

    fn start_in_pool(&self, lane: Lane, id: Id) {
        let started = self
            .flight
            .start(id, |job| threads::start(&self.pool, lane, id, job, self.done.clone()));
        match started {
            Some(Ok(ticket)) => self.flight.queued(id, ticket),
            Some(Err(error)) => self.go_without_thread(lane, id, error),
            None => {}
        }
    }

    /// Handles a lane without threads when none can be created (RLIMIT_NPROC, pids.max) or too much
    /// waits. Local jobs finish quickly; remote ones may never.
    #[cold]
    fn go_without_thread(&self, lane: Lane, id: Id, error: io::Error) {
        let has_threads = self.pool.load(lane).threads > 0;
        let is_local = matches!(lane, Lane::Stat | Lane::Read);
        if has_threads || !is_local {
            return self.flight.complete(id, Err(error));
        }
        if let Some(result) = self.flight.with_job(id, threads::run_here) {
            self.flight.complete(id, result);
        }
    }

    pub(super) fn wake_driver(&self) {
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Abandons an operation: the kernel may cancel it, a pool thread cannot.
    pub(super) fn cancel(&self, id: Id) {
        if let Some(ring) = &self.ring {
            ring.cancel(id);
            self.wake_driver();
        }
    }
}
