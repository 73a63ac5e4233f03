//! A request to a backend that fills the store, and the requests that wait for it.
//!
//! The fetch belongs to no client: its [`Pilot`] is a task of its own, and each request has a
//! [`Passenger`]. Pieces of the body are shared and never change. A slow client holds nothing up.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::disk::BodyFile;
use crate::object::{Content, Object, StoredHead};
use crate::store::Beside;

/// Requests that may wait for one flight.
pub const PASSENGERS_MAX: usize = 10_000;

/// Bytes of a body that is too large to be stored which may wait for its slowest reader.
pub const WINDOW_BYTES: u64 = 1 << 20;

/// The same for stores with little memory or many flights. Of a large body, twice as much may wait
/// for the disk.
const WINDOW_BYTES_MIN: u64 = 64 << 10;

/// Bytes that a passenger has to read between two calls of [`Pilot::drop_stalled`] if it holds
/// others up.
///
/// [`Pilot::drop_stalled`]: crate::store::Pilot::drop_stalled
const STALLED_BYTES: u64 = 64 << 10;

/// Bytes of a file that are sent as one piece.
const FILE_PIECE_BYTES: u64 = 1 << 20;

/// Bytes that a flight takes beside its body: itself, its places in the index, and its pilot. A
/// test compares them with what is allocated.
pub(crate) const FLIGHT_BYTES: u64 = 800;

/// Bytes that a passenger takes in its flight.
const SEAT_BYTES: u64 = 2 * (size_of::<(u64, Seat)>() as u64 + 1);

/// Bytes that a piece of a body takes beside its contents.
const PIECE_BYTES: u64 = 96;

/// Pieces with fewer bytes are copied: each of them would keep a buffer.
const SMALL_PIECE_BYTES: usize = 4_096;

/// A flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    state: Mutex<FlightState>,
    /// The memory of flights counts there.
    beside: Arc<Beside>,
    /// It began while another one of the same response had brought nothing for too long.
    is_second: bool,
}

#[derive(Debug, Default)]
struct FlightState {
    stage: FlightStage,
    /// Present from the head on, if the response is shared.
    head: Option<Arc<FlightHead>>,
    /// Pieces of the body so far, each with its offset. If the body is too large to be stored, the
    /// pieces that every passenger has read are gone.
    pieces: VecDeque<(u64, Bytes)>,
    /// Bytes of the body so far.
    length: u64,
    /// Bytes of the pieces that are here.
    bytes: u64,
    /// The file with the first part of the body, and its length.
    filed: Option<(Arc<BodyFile>, u64)>,
    /// The body is being written to a file.
    is_spilled: bool,
    /// The body is too large to be stored.
    is_windowed: bool,
    /// Bytes that may wait for the slowest reader of such a body.
    window: u64,
    /// Passengers by number.
    passengers: HashMap<u64, Seat, foldhash::fast::RandomState>,
    next_number: u64,
    /// Woken when the last passenger has left.
    pilot: Option<Waker>,
    /// A passenger that has waited too long was let go at this time.
    promoted_ms: Option<u64>,
    /// Bytes of memory beside body and passengers, and the ones that count now.
    own_bytes: u64,
    counted_bytes: u64,
}

/// A passenger, as its flight knows it.
#[derive(Debug, Default)]
struct Seat {
    waker: Option<Waker>,
    /// Bytes of the body that were read.
    read: u64,
    /// The same, at the last check for stalled passengers; `None` before the first one.
    checked: Option<u64>,
}

/// The head of a response that passengers share.
#[derive(Debug)]
pub struct FlightHead {
    /// Status, fields and times.
    pub head: StoredHead,
    /// Values of the selecting fields in the request to the backend.
    pub selecting: Box<[u8]>,
    /// Length of the body, if announced.
    pub length: Option<u64>,
}

#[derive(Debug, Default)]
enum FlightStage {
    #[default]
    Waiting,
    Streaming,
    /// The body is complete.
    Landed(Arc<Object>),
    /// The body is complete, and in the store for as long as that has room: the passengers look it
    /// up again once it has left.
    Stored(Weak<Object>),
    /// The response is not shared: each request asks the backend itself.
    Unshared,
    /// There is no response, or no more of it.
    Failed(FetchFailure),
    /// Waiting requests look the response up again.
    Retry,
}

/// News of a flight for a request that waits for its head.
#[derive(Clone, Debug)]
pub enum Boarding {
    /// The response is stored.
    Landed(Arc<Object>),
    /// The head is here, and the body follows.
    Streaming(Arc<FlightHead>),
    /// The response is not shared.
    Unshared,
    /// There is no response.
    Failed(FetchFailure),
    /// The response is to be looked up again.
    Retry,
}

/// The failure of a fetch, for the requests that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFailure {
    /// The status to respond with; 0 if the fetch was given up.
    pub status: u16,
    /// The server's number of the fault, if there is one.
    pub fault: Option<u16>,
}

/// Bits of a [`FetchFailure`] in a number: 10 for the status, the others for the fault.
pub(crate) const FAILURE_BITS: u32 = 23;

impl FetchFailure {
    /// The fetch was given up.
    pub const GIVEN_UP: Self = Self { status: 0, fault: None };

    /// The failure as a number of [`FAILURE_BITS`]. Larger faults are left out.
    pub(crate) fn pack(self) -> u64 {
        let fault = self.fault.map_or(0, |fault| u64::from(fault) + 1);
        let fits = fault >> (FAILURE_BITS - 10) == 0;
        u64::from(self.status & 0x3FF) | if fits { fault << 10 } else { 0 }
    }

    /// The failure in the low bits of a number.
    pub(crate) fn unpack(number: u64) -> Self {
        let number = (number & ((1 << FAILURE_BITS) - 1)) as u32;
        let fault = (number >> 10).checked_sub(1).map(|fault| fault as u16);
        Self { status: (number & 0x3FF) as u16, fault }
    }
}

/// A request that waits for a flight or reads its body.
#[derive(Debug)]
pub struct Passenger {
    flight: Arc<Flight>,
    number: u64,
}

/// A part of a body.
#[derive(Clone, Debug)]
pub enum FlightPiece {
    /// Bytes in memory.
    Memory(Bytes),
    /// A part of a file.
    File {
        /// The file.
        file: Arc<BodyFile>,
        /// Offset in the file, and in the body.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// The end of a body before it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightBroken {
    /// The fetch has failed.
    #[error("the response that others fetch has broken off")]
    Failed,
    /// The passenger has held others up.
    #[error("the client has read too slowly for others that read the same response")]
    Stalled,
    /// The body was complete, and has left the store before the passenger has read all of it.
    #[error("the response has left the store")]
    Evicted,
}

impl Flight {
    /// A flight with a key of so many bytes. No further one begins beside the second one, however
    /// long that takes.
    pub(crate) fn new(beside: &Arc<Beside>, key_bytes: usize, is_second: bool) -> Self {
        let flight = Self { state: Mutex::default(), beside: Arc::clone(beside), is_second };
        {
            let mut state = flight.state();
            state.own_bytes = FLIGHT_BYTES + key_bytes as u64;
            flight.count(&mut state);
        }
        flight
    }

    /// Has the memory count that the flight takes now.
    fn count(&self, state: &mut FlightState) {
        let seats = state.passengers.len() as u64 * SEAT_BYTES;
        let pieces = state.pieces.len() as u64 * PIECE_BYTES;
        let bytes = state.own_bytes + state.bytes + seats + pieces;
        self.beside.change(std::mem::replace(&mut state.counted_bytes, bytes), bytes);
    }

    fn state(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if it began beside another one.
    pub(crate) fn is_second(&self) -> bool {
        self.is_second
    }

    /// Lets a request board. `None` if there are too many.
    pub(crate) fn board(self: &Arc<Self>) -> Option<Passenger> {
        let mut state = self.state();
        if state.passengers.len() >= PASSENGERS_MAX {
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        state.passengers.insert(number, Seat::default());
        self.count(&mut state);
        Some(Passenger { flight: Arc::clone(self), number })
    }

    /// The selecting values of the response, once its head is known.
    pub(crate) fn head(&self) -> Option<Arc<FlightHead>> {
        self.state().head.clone()
    }

    pub(crate) fn depart(&self, head: Arc<FlightHead>) {
        self.change(|state| {
            state.own_bytes += head.head.bytes() + head.selecting.len() as u64;
            state.head = Some(head);
            state.stage = FlightStage::Streaming;
        });
    }

    pub(crate) fn push(&self, piece: Bytes) {
        let is_small = piece.len() < SMALL_PIECE_BYTES;
        let piece = if is_small { Bytes::copy_from_slice(&piece) } else { piece };
        self.change(|state| {
            let (at, bytes) = (state.length, piece.len() as u64);
            state.length += bytes;
            state.bytes += bytes;
            state.pieces.push_back((at, piece));
        });
    }

    /// The body so far, to be stored. `None` if it is too large.
    pub(crate) fn content(&self) -> Option<Content> {
        let state = self.state();
        if state.is_windowed || state.filed.is_some() {
            return None;
        }
        // Pieces may be parts of larger buffers, which must not stay with the object.
        let mut body = Vec::with_capacity(usize::try_from(state.bytes).ok()?);
        state.pieces.iter().for_each(|(_, piece)| body.extend_from_slice(piece));
        let mut content = Content::default();
        content.push(body.into());
        Some(content)
    }

    /// Takes the pieces of the stored body in place of its own. They count there.
    pub(crate) fn share(&self, content: &Content) {
        let mut state = self.state();
        state.bytes = 0;
        let mut at = 0;
        state.pieces = VecDeque::with_capacity(content.pieces().len());
        for piece in content.pieces() {
            state.pieces.push_back((at, piece.clone()));
            at += piece.len() as u64;
        }
        self.count(&mut state);
    }

    /// The store does not have the shared pieces: they count here.
    pub(crate) fn unshare(&self) {
        let mut state = self.state();
        state.bytes = state.pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
        self.count(&mut state);
    }

    /// Keeps only the pieces that a passenger has not read, from now on.
    pub(crate) fn narrow(&self) {
        let mut state = self.state();
        state.is_windowed = true;
        state.drop_read();
        self.count(&mut state);
        let pilot = state.pilot.take();
        drop(state);
        if let Some(pilot) = pilot {
            pilot.wake();
        }
    }

    /// The body is not written to a file any more. Its pilot decides how it goes on.
    pub(crate) fn stop_spilling(&self) {
        let mut state = self.state();
        state.is_spilled = false;
        let pilot = state.pilot.take();
        drop(state);
        if let Some(pilot) = pilot {
            pilot.wake();
        }
    }

    /// The body is to be written to a file.
    pub(crate) fn spill(&self) {
        self.state().is_spilled = true;
    }

    /// Pieces behind the first `written` bytes, up to about `bytes_max`; none once pieces may be
    /// missing.
    pub(crate) fn unfiled(&self, written: u64, bytes_max: u64) -> Vec<Bytes> {
        let state = self.state();
        let is_next = state.pieces.front().is_some_and(|(start, _)| *start == written);
        if state.is_windowed || !is_next {
            return Vec::new();
        }
        let mut bytes = 0;
        let pieces = state.pieces.iter().map(|(_, piece)| piece);
        let is_due = |piece: &&Bytes| {
            let is_due = bytes < bytes_max;
            bytes += piece.len() as u64;
            is_due
        };
        pieces.take_while(is_due).cloned().collect()
    }

    /// The first bytes of the body are in a file.
    pub(crate) fn file(&self, file: &Arc<BodyFile>, length: u64) {
        let mut state = self.state();
        if state.is_windowed {
            return;
        }
        state.filed = Some((Arc::clone(file), length));
        while let Some((at, piece)) = state.pieces.front()
            && at + piece.len() as u64 <= length
        {
            let bytes = piece.len() as u64;
            state.bytes = state.bytes.saturating_sub(bytes);
            state.pieces.pop_front();
        }
        self.count(&mut state);
        let pilot = state.pilot.take();
        drop(state);
        if let Some(pilot) = pilot {
            pilot.wake();
        }
    }

    /// Ready unless too much of the body waits for a slow passenger or for the disk: `share` bytes,
    /// within limits.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, share: u64) -> Poll<()> {
        let mut state = self.state();
        let window = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES);
        state.window = window;
        let has_room = match (state.is_windowed, state.is_spilled) {
            (true, _) => state.bytes <= window || state.passengers.is_empty(),
            (false, is_spilled) => !is_spilled || state.bytes <= 2 * window,
        };
        if has_room {
            return Poll::Ready(());
        }
        state.pilot = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn land(&self, object: &Arc<Object>) {
        self.change(|state| state.stage = FlightStage::Landed(Arc::clone(object)));
    }

    /// The body is complete and stored. The flight keeps no memory of it.
    pub(crate) fn land_stored(&self, object: &Arc<Object>) {
        self.change(|state| {
            state.stage = FlightStage::Stored(Arc::downgrade(object));
            state.pieces.clear();
            state.bytes = 0;
        });
    }

    /// Removes the passengers that hold others up and have read almost nothing since the last call.
    /// Returns their number.
    pub(crate) fn drop_stalled(&self) -> usize {
        let mut state = self.state();
        let (length, window) = (state.length, state.window);
        let is_full = state.bytes > window;
        let holds_up = state.is_windowed
            && is_full
            && state.passengers.values().any(|seat| seat.read == length);
        let before = state.passengers.len();
        if holds_up {
            state.passengers.retain(|_, seat| {
                let is_late = length - seat.read > window / 2;
                let is_stalled = |checked| seat.read - checked < STALLED_BYTES;
                !(is_late && seat.checked.is_some_and(is_stalled))
            });
            state.drop_read();
            self.count(&mut state);
        }
        state.passengers.values_mut().for_each(|seat| seat.checked = Some(seat.read));
        before - state.passengers.len()
    }

    pub(crate) fn part(&self) {
        self.change(|state| state.stage = FlightStage::Unshared);
    }

    /// Ends the flight unless it has ended.
    pub(crate) fn fail(&self, failure: FetchFailure) {
        self.change(|state| {
            if matches!(state.stage, FlightStage::Waiting | FlightStage::Streaming) {
                state.stage = FlightStage::Failed(failure);
            }
        });
    }

    pub(crate) fn retry(&self) {
        self.change(|state| state.stage = FlightStage::Retry);
    }

    /// Number of passengers.
    pub(crate) fn passengers(&self) -> usize {
        self.state().passengers.len()
    }

    /// Ready once there is no passenger.
    pub(crate) fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.passengers.is_empty() {
            return Poll::Ready(());
        }
        state.pilot = Some(cx.waker().clone());
        Poll::Pending
    }

    fn change(&self, change: impl FnOnce(&mut FlightState)) {
        let mut state = self.state();
        change(&mut state);
        self.count(&mut state);
        let seats = state.passengers.values_mut();
        let wakers: Vec<_> = seats.filter_map(|seat| seat.waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.beside.change(state.counted_bytes, 0);
    }
}

impl FlightState {
    /// Keeps the waker of a passenger.
    fn wait(&mut self, number: u64, cx: &Context<'_>) {
        if let Some(seat) = self.passengers.get_mut(&number) {
            seat.waker = Some(cx.waker().clone());
        }
    }

    /// The next piece for a passenger.
    fn take_piece(&mut self, number: u64) -> Option<FlightPiece> {
        let seat = self.passengers.get_mut(&number)?;
        let at = seat.read;
        if let Some((file, filed)) = &self.filed
            && at < *filed
        {
            let length = (filed - at).min(FILE_PIECE_BYTES);
            seat.read += length;
            return Some(FlightPiece::File { file: Arc::clone(file), offset: at, length });
        }
        if let FlightStage::Stored(object) = &self.stage {
            let piece = object.upgrade()?.content.slice(at, self.length).into_iter().next()?;
            seat.read += piece.len() as u64;
            return Some(FlightPiece::Memory(piece));
        }
        let index = self.pieces.partition_point(|(start, piece)| start + piece.len() as u64 <= at);
        let (start, piece) = self.pieces.get(index)?;
        // A passenger that has read a part of it from the file.
        let piece = piece.slice(usize::try_from(at.checked_sub(*start)?).ok()?..);
        seat.read += piece.len() as u64;
        if self.is_windowed {
            self.drop_read();
        }
        Some(FlightPiece::Memory(piece))
    }

    /// Drops the pieces that every passenger has read.
    fn drop_read(&mut self) {
        let read = self.passengers.values().map(|seat| seat.read).min().unwrap_or(0);
        while let Some((at, piece)) = self.pieces.front()
            && at + piece.len() as u64 <= read
        {
            self.bytes = self.bytes.saturating_sub(piece.len() as u64);
            self.pieces.pop_front();
        }
    }
}

impl Passenger {
    /// Waits for the head.
    pub async fn head(&mut self) -> Boarding {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Boarding> {
        let mut state = self.flight.state();
        let news = match (&state.stage, &state.head) {
            // The store does not have the body.
            (FlightStage::Landed(_), Some(head)) if state.is_windowed => {
                Boarding::Streaming(Arc::clone(head))
            }
            (FlightStage::Landed(object), _) => Boarding::Landed(Arc::clone(object)),
            (FlightStage::Stored(object), _) => {
                object.upgrade().map_or(Boarding::Failed(FetchFailure::GIVEN_UP), Boarding::Landed)
            }
            (FlightStage::Streaming, Some(head)) => Boarding::Streaming(Arc::clone(head)),
            (FlightStage::Unshared, _) => Boarding::Unshared,
            // Late passengers get the received part of the body, as the others have.
            (FlightStage::Failed(_), Some(head)) => Boarding::Streaming(Arc::clone(head)),
            (FlightStage::Failed(failure), None) => Boarding::Failed(*failure),
            (FlightStage::Retry, _) => Boarding::Retry,
            (FlightStage::Waiting | FlightStage::Streaming, _) => {
                state.wait(self.number, cx);
                return Poll::Pending;
            }
        };
        Poll::Ready(news)
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The body has broken off.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<FlightPiece, FlightBroken>>> {
        let mut state = self.flight.state();
        if let Some(piece) = state.take_piece(self.number) {
            let pilot = if state.is_windowed { state.pilot.take() } else { None };
            self.flight.count(&mut state);
            drop(state);
            if let Some(pilot) = pilot {
                pilot.wake();
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        let Some(seat) = state.passengers.get(&self.number) else {
            return Poll::Ready(Some(Err(FlightBroken::Stalled)));
        };
        let has_all = seat.read == state.length;
        match state.stage {
            FlightStage::Landed(_) | FlightStage::Stored(_) if has_all => Poll::Ready(None),
            FlightStage::Stored(_) => Poll::Ready(Some(Err(FlightBroken::Evicted))),
            FlightStage::Landed(_)
            | FlightStage::Unshared
            | FlightStage::Retry
            | FlightStage::Failed(_) => Poll::Ready(Some(Err(FlightBroken::Failed))),
            FlightStage::Waiting | FlightStage::Streaming => {
                state.wait(self.number, cx);
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_on(&self, flight: &Arc<Flight>) -> bool {
        Arc::ptr_eq(&self.flight, flight)
    }

    /// True for one passenger in each interval: it has waited so long that it asks the backend
    /// itself. Never on the second flight of a response: a silent backend gets two requests.
    pub fn is_promoted(&self, now_ms: u64, interval_ms: u64) -> bool {
        if self.flight.is_second {
            return false;
        }
        let mut state = self.flight.state();
        let is_due = |since: u64| now_ms.saturating_sub(since) >= interval_ms;
        let is_promoted = state.promoted_ms.is_none_or(is_due);
        if is_promoted {
            state.promoted_ms = Some(now_ms);
        }
        is_promoted
    }
}

impl Drop for Passenger {
    fn drop(&mut self) {
        let mut state = self.flight.state();
        state.passengers.remove(&self.number);
        if state.is_windowed {
            state.drop_read();
        }
        self.flight.count(&mut state);
        let is_awaited = state.is_windowed || state.passengers.is_empty();
        let pilot = if is_awaited { state.pilot.take() } else { None };
        drop(state);
        if let Some(pilot) = pilot {
            pilot.wake();
        }
    }
}
