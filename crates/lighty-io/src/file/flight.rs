//! Operations in flight, and the resources they need until they end.
//!
//! A slot owns everything that the kernel or a pool thread may touch while an operation runs: the
//! buffer, the file, the directory, the path. The future that waits for it owns only the slot's
//! number. If the future is dropped early, the slot stays until the operation ends.

use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::types::OpenHow;

use super::buf::OwnedBuf;
use super::meta::Meta;
use super::open_file::OpenFile;
use super::resolve::{How, OpenedPath};
use super::root::RootDir;
use super::turns::DiskTurn;
use crate::threads::pool::{Lane, Ticket};

/// The operation to perform.
pub(super) enum FileJob {
    /// Open a path beneath a directory (or, if `stat_only`, only inspect it).
    Open { dir: Rc<RootDir>, path: CString, how: How, stat_only: bool, ring: Box<RingOpen> },
    /// Read into a buffer.
    Read { file: Rc<OpenFile>, offset: u64, buf: OwnedBuf },
    /// Read into scratch memory, only to load the page cache.
    Warm { file: Rc<OpenFile>, offset: u64, length: u64, done: u64 },
}

impl FileJob {
    /// Length in bytes of the range that is read.
    pub(super) fn read_bytes(&self) -> u64 {
        match self {
            FileJob::Open { .. } => 0,
            FileJob::Read { buf, .. } => buf.len() as u64,
            FileJob::Warm { length, .. } => *length,
        }
    }
}

/// The ring's data for an open.
#[derive(Default)]
pub(super) struct RingOpen {
    /// Read by the kernel when the open is submitted.
    pub(super) how: OpenHow,
    /// The path was inspected and is a regular file: this open is for reading.
    pub(super) for_reading: bool,
}

/// Identifies an operation: its index in the table, and the index's reuse count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    at: u32,
    generation: u32,
}

impl Id {
    pub(super) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.at)
    }

    pub(super) fn from_u64(number: u64) -> Id {
        Id { at: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Result of an operation.
#[derive(Debug)]
pub(super) enum FileJobOutput {
    Opened(OpenedPath),
    Stat(Meta),
    Read(u64),
}

enum FlightState {
    /// Not started yet.
    Waiting,
    /// The kernel or a thread runs it; with a ticket it may still be queued for a thread.
    Started(Option<Ticket>),
    Done(io::Result<FileJobOutput>),
}

/// The beginning of an operation.
#[derive(Clone, Copy)]
pub(super) struct Departure {
    pub(super) lane: Lane,
    /// Time by which a fault delays it, after its turn has come; without a limit if it never
    /// begins.
    pub(super) delay: Option<Duration>,
}

struct FlightSlot {
    job: FileJob,
    departure: Departure,
    state: FlightState,
    waker: Option<Waker>,
    abandoned: bool,
    /// Held until the operation ends.
    turn: Option<DiskTurn>,
    /// It no longer waits for a bulk turn.
    has_turn: bool,
}

/// The slots of one engine.
#[derive(Default)]
pub(super) struct Flight {
    slots: RefCell<Vec<ReusableSlot>>,
    free: RefCell<Vec<u32>>,
    count: Cell<u64>,
}

#[derive(Default)]
struct ReusableSlot {
    generation: u32,
    slot: Option<FlightSlot>,
}

impl Flight {
    /// Slots in use.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    pub(super) fn insert(&self, job: FileJob, departure: Departure) -> Id {
        let (state, waker) = (FlightState::Waiting, None);
        let (abandoned, turn, has_turn) = (false, None, false);
        let slot = FlightSlot { job, departure, state, waker, abandoned, turn, has_turn };
        self.count.set(self.count.get() + 1);
        let mut slots = self.slots.borrow_mut();
        let at = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(ReusableSlot::default());
            (slots.len() - 1) as u32
        });
        let place = &mut slots[at as usize];
        debug_assert!(place.slot.is_none(), "slot {at} is in use");
        place.slot = Some(slot);
        Id { at, generation: place.generation }
    }

    /// Keeps a turn until the operation ends.
    pub(super) fn hold(&self, id: Id, turn: DiskTurn) {
        if let Some(slot) = slot_of(&mut self.slots.borrow_mut(), id) {
            slot.turn = Some(turn);
        }
    }

    /// The way in which an operation begins; `None` if it is no longer needed and was removed.
    pub(super) fn departure(&self, id: Id) -> Option<Departure> {
        slot_of(&mut self.slots.borrow_mut(), id).map(|slot| slot.departure)
    }

    /// An operation has its turn. Returns the time since it requested that, in microseconds.
    pub(super) fn begin_turn(&self, id: Id) -> Option<u64> {
        let mut slots = self.slots.borrow_mut();
        let slot = slot_of(&mut slots, id)?;
        slot.has_turn = true;
        slot.turn.as_ref().map(DiskTurn::age_us)
    }

    /// Bulk reads that have not begun.
    pub(super) fn bulk_waiting(&self) -> u64 {
        let slots = self.slots.borrow();
        let waits = |slot: &&FlightSlot| {
            let is_bulk = slot.turn.as_ref().is_some_and(DiskTurn::is_bulk);
            is_bulk && matches!(slot.state, FlightState::Waiting)
        };
        slots.iter().filter_map(|place| place.slot.as_ref()).filter(waits).count() as u64
    }

    /// Marks an operation as started and passes its job to `with`. `None` if it is no longer needed
    /// and was removed.
    pub(super) fn start<T>(&self, id: Id, with: impl FnOnce(&mut FileJob) -> T) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        let slot = slot_of(&mut slots, id)?;
        debug_assert!(!matches!(slot.state, FlightState::Done(_)), "{id:?} has ended");
        slot.state = FlightState::Started(None);
        Some(with(&mut slot.job))
    }

    /// Records that an operation is queued for a pool thread; the ticket revokes it.
    pub(super) fn queued(&self, id: Id, ticket: Ticket) {
        if let Some(slot) = slot_of(&mut self.slots.borrow_mut(), id)
            && let FlightState::Started(known) = &mut slot.state
        {
            *known = Some(ticket);
        }
    }

    /// Accesses the job of a running operation.
    pub(super) fn with_job<T>(&self, id: Id, with: impl FnOnce(&mut FileJob) -> T) -> Option<T> {
        slot_of(&mut self.slots.borrow_mut(), id).map(|slot| with(&mut slot.job))
    }

    /// Stores a result in a slot and wakes its waiter.
    pub(super) fn complete(&self, id: Id, result: io::Result<FileJobOutput>) {
        let (waker, turn) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slot_of(&mut slots, id) else { return };
            if slot.abandoned {
                drop(slots);
                self.remove(id);
                return;
            }
            debug_assert!(!matches!(slot.state, FlightState::Done(_)), "{id:?} ends once");
            slot.state = FlightState::Done(result);
            (slot.waker.take(), slot.turn.take())
        };
        drop(turn);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Leaks operations still running: a buffer that the kernel may write to must stay valid. Their
    /// turns end, because nothing learns of the ends of the operations.
    pub(super) fn leak_started(&self) {
        let slots = self.slots.take();
        for mut slot in slots.into_iter().filter_map(|place| place.slot) {
            drop(slot.turn.take());
            if matches!(slot.state, FlightState::Started(_)) {
                mem::forget(slot);
            }
        }
    }

    fn remove(&self, id: Id) -> Option<FlightSlot> {
        let slot = {
            let mut slots = self.slots.borrow_mut();
            let place = slots.get_mut(id.at as usize)?;
            if place.generation != id.generation {
                return None;
            }
            place.generation = place.generation.wrapping_add(1);
            place.slot.take()?
        };
        self.free.borrow_mut().push(id.at);
        self.count.set(self.count.get() - 1);
        let in_use = self.slots.borrow().len() - self.free.borrow().len();
        debug_assert_eq!(self.count.get(), in_use as u64, "slots in use");
        Some(slot)
    }

    fn poll(&self, id: Id, waker: &Waker) -> Poll<Landed> {
        {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slot_of(&mut slots, id) else {
                return Poll::Ready(Landed::lost());
            };
            if !matches!(slot.state, FlightState::Done(_)) {
                match &mut slot.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                return Poll::Pending;
            }
        }
        match self.remove(id) {
            Some(FlightSlot { job, state: FlightState::Done(result), .. }) => {
                Poll::Ready(Landed { job: Some(job), result })
            }
            _ => Poll::Ready(Landed::lost()),
        }
    }

    /// Abandons an operation. `None` if its end concerns nothing else.
    fn abandon(&self, id: Id) -> Option<AbandonedWait> {
        {
            let mut slots = self.slots.borrow_mut();
            let slot = slot_of(&mut slots, id)?;
            slot.abandoned = true;
            slot.waker = None;
            let runs = match &slot.state {
                FlightState::Started(Some(ticket)) => !ticket.revoke(),
                FlightState::Started(None) => true,
                // Still in the ring's queue, which skips missing operations.
                FlightState::Waiting | FlightState::Done(_) => false,
            };
            if runs {
                return Some(AbandonedWait::Runs);
            }
            let turn = slot.turn.as_ref().filter(|turn| turn.is_bulk());
            let waits = matches!(slot.state, FlightState::Waiting) && !slot.has_turn;
            let waited_us = turn.filter(|_| waits).map(DiskTurn::age_us);
            drop(slots);
            // Also drops the buffer and the file.
            self.remove(id);
            waited_us.map(|waited_us| AbandonedWait::Queued { waited_us })
        }
    }
}

fn slot_of(slots: &mut [ReusableSlot], id: Id) -> Option<&mut FlightSlot> {
    let place = slots.get_mut(id.at as usize)?;
    if place.generation == id.generation { place.slot.as_mut() } else { None }
}

/// A finished operation: its job, with the result.
pub(super) struct Landed {
    pub(super) job: Option<FileJob>,
    pub(super) result: io::Result<FileJobOutput>,
}

impl Landed {
    fn lost() -> Landed {
        Landed { job: None, result: Err(io::Error::other("file engine: operation lost")) }
    }
}

/// An operation that is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbandonedWait {
    /// It runs, and may be cancelled.
    Runs,
    /// It has waited for its turn at a disk.
    Queued { waited_us: u64 },
}

/// Waits for a slot.
pub(super) struct FlightWait<A: FnMut(Id, AbandonedWait)> {
    flight: Rc<Flight>,
    id: Option<Id>,
    on_abandon: A,
}

impl<A: FnMut(Id, AbandonedWait)> FlightWait<A> {
    /// Calls `on_abandon` with the slot if the wait is dropped while the operation runs or waits
    /// for a turn.
    pub(super) fn new(flight: Rc<Flight>, id: Id, on_abandon: A) -> FlightWait<A> {
        FlightWait { flight, id: Some(id), on_abandon }
    }
}

impl<A: FnMut(Id, AbandonedWait) + Unpin> Future for FlightWait<A> {
    type Output = Landed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landed> {
        let Some(id) = self.id else { return Poll::Ready(Landed::lost()) };
        let polled = self.flight.poll(id, cx.waker());
        if polled.is_ready() {
            self.id = None;
        }
        polled
    }
}

impl<A: FnMut(Id, AbandonedWait)> Drop for FlightWait<A> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take()
            && let Some(abandoned) = self.flight.abandon(id)
        {
            (self.on_abandon)(id, abandoned);
        }
    }
}
