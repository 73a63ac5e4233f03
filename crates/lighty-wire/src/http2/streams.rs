//! The streams of a connection: a slab, a map from identifiers to slots, and a memory of closed
//! streams.

use alloc::vec::Vec;

use hashbrown::HashTable;

use super::frame::STREAM_ID_MAX;
#[cfg(debug_assertions)]
use super::frame::WINDOW_BYTES_INITIAL;
use super::priority::Priority;
use super::schedule::{NONE, ScheduleList};

/// A stream's handle for the driver: a slot in the slab, and the identifier, which proves that the
/// slot still belongs to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    pub(super) slot: u32,
    pub(super) id: u32,
}

impl StreamKey {
    /// The slot's index: small, and reused after the stream is released. The driver may index its
    /// own table by it.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }

    /// The stream's identifier on the wire.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.id
    }
}

/// Next part of the message from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recv {
    /// The head of a response.
    Head,
    /// Content, or trailers. `left` is the remainder of an announced length.
    Body { left: Option<u64> },
    /// Nothing: the peer's side is closed.
    Ended,
}

/// Next part of our message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Send {
    /// A head.
    Head,
    /// Content, or trailers.
    Body,
    /// The queued content, then the end.
    Ending,
    /// Nothing: our side is closed.
    Ended,
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The slot is free.
    Free,
    Live,
    /// Either side has reset the stream; the driver has not released it yet.
    Reset,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) life: Life,
    pub(super) recv: Recv,
    pub(super) send: Send,
    pub(super) priority: Priority,
    /// Bytes that the peer may still send.
    pub(super) recv_window: i64,
    /// Size to which the window is refilled.
    pub(super) recv_window_max: u32,
    /// Bytes of its window, beyond the initial ones, that count in the sum of all streams.
    pub(super) growth: u32,
    /// Bytes that the driver has received and not credited.
    pub(super) uncredited: u32,
    /// Bytes credited and not yet announced to the peer.
    pub(super) unannounced: u32,
    /// Bytes that we may still send; a change of settings can make it negative.
    pub(super) send_window: i64,
    /// Bytes of content that the driver has announced for sending.
    pub(super) queued: u64,
    /// Start of a short frame's wait for a larger window.
    pub(super) waits_since_ms: u64,
    pub(super) list: ScheduleList,
    pub(super) prev: u32,
    pub(super) next: u32,
    /// True if the response to our request has no content, whatever its head announces.
    pub(super) is_head_request: bool,
    /// Closed from the peer's view, so that it may open another stream: reset, or ended by both
    /// sides.
    pub(super) is_closed: bool,
    /// Bytes of fields that the driver holds.
    pub(super) field_bytes: u32,
}

impl Stream {
    const fn free() -> Self {
        Self {
            id: 0,
            life: Life::Free,
            recv: Recv::Ended,
            send: Send::Ended,
            priority: Priority { urgency: 3, incremental: false },
            recv_window: 0,
            recv_window_max: 0,
            growth: 0,
            uncredited: 0,
            unannounced: 0,
            send_window: 0,
            queued: 0,
            waits_since_ms: 0,
            list: ScheduleList::None,
            prev: NONE,
            next: NONE,
            is_head_request: false,
            is_closed: false,
            field_bytes: 0,
        }
    }
}

impl Stream {
    /// Checks that no more is received and granted than the window allows. Before the peer has
    /// read our settings, it may use the RFC's initial window in addition to a smaller one.
    #[cfg(debug_assertions)]
    pub(super) fn check_window(&self) {
        let held = i64::from(self.uncredited) + i64::from(self.unannounced);
        let window = i64::from(self.recv_window_max) + i64::from(WINDOW_BYTES_INITIAL);
        debug_assert!(self.recv_window + held <= window, "{} {held} {window}", self.recv_window);
    }
}

/// Cause of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosedBy {
    /// Both sides have ended.
    End = 0,
    /// The peer has reset it.
    Peer = 1,
    /// We have reset it: frames for it may still be in transit.
    Us = 2,
}

/// Number of closed streams that are remembered.
const CLOSED_MAX: usize = 128;

/// The most recently closed streams: 30 bits of the identifier, 2 of the reason.
#[derive(Debug, Default)]
struct Closed {
    ring: Vec<u32>,
    next: usize,
}

impl Closed {
    fn push(&mut self, id: u32, by: ClosedBy) {
        debug_assert!(id <= STREAM_ID_MAX, "{id}");
        let entry = (id >> 1) << 2 | by as u32;
        if self.ring.len() < CLOSED_MAX {
            self.ring.push(entry);
            debug_assert!(self.ring.len() <= CLOSED_MAX);
        } else {
            self.ring[self.next] = entry;
            self.next = (self.next + 1) % CLOSED_MAX;
        }
    }

    fn find(&self, id: u32) -> Option<ClosedBy> {
        let entry = self.ring.iter().find(|&&entry| entry >> 2 == id >> 1)?;
        Some(match entry & 3 {
            0 => ClosedBy::End,
            1 => ClosedBy::Peer,
            _ => ClosedBy::Us,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    /// The first free slot. Free slots are linked by `next`.
    free: u32,
    alive: u32,
    /// Number of closed streams that the driver has not released.
    closing: u32,
    /// Slots by identifier.
    map: HashTable<u32>,
    closed: Closed,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { free: NONE, ..Self::default() }
    }

    /// Streams that the driver has not released.
    pub(super) const fn alive(&self) -> u32 {
        self.alive
    }

    /// Streams that count towards the peer's limit: open and half-closed ones (RFC 9113 section
    /// 5.1.2).
    pub(super) const fn open_count(&self) -> u32 {
        self.alive - self.closing
    }

    /// Records the end of one side. After both, the stream does not count towards the peer's limit.
    #[inline]
    pub(super) fn note_end(&mut self, slot: u32) {
        let stream = &mut self.slots[slot as usize];
        let is_over = stream.recv == Recv::Ended && stream.send == Send::Ended;
        if is_over && stream.life != Life::Free && !stream.is_closed {
            stream.is_closed = true;
            self.closing += 1;
            debug_assert!(self.closing <= self.alive, "{} of {}", self.closing, self.alive);
        }
    }

    pub(super) fn slots(&mut self) -> &mut [Stream] {
        &mut self.slots
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + self.map.allocation_size()
            + self.closed.ring.capacity() * size_of::<u32>()
    }

    /// Frees the memory, if there is no stream.
    pub(super) fn release_buffers(&mut self) {
        #[cfg(debug_assertions)]
        self.check_table();
        if self.alive == 0 {
            (self.slots, self.map, self.free) = (Vec::new(), HashTable::new(), NONE);
        }
    }

    /// Opens a stream in a free slot.
    pub(super) fn open(&mut self, id: u32) -> StreamKey {
        debug_assert!(id % 2 == 1 && id <= STREAM_ID_MAX, "{id}: nothing is pushed");
        let slot = if self.free == NONE {
            self.slots.push(Stream::free());
            self.slots.len() as u32 - 1
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            slot
        };
        self.alive += 1;
        debug_assert_eq!(self.slots[slot as usize].life, Life::Free, "slot {slot}");
        debug_assert!(self.alive as usize <= self.slots.len(), "{} streams", self.alive);
        debug_assert_eq!(self.find(id), None, "stream {id} is open");
        self.slots[slot as usize] = Stream { id, life: Life::Live, ..Stream::free() };
        self.map_insert(id, slot);
        StreamKey { slot, id }
    }

    /// The slot of a stream that may receive frames.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        self.map.find(hash(id), |slot| self.slots[*slot as usize].id == id).copied()
    }

    /// The stream, unless it was released.
    #[inline]
    pub(super) fn get(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let stream = self.slots.get_mut(key.slot as usize)?;
        (stream.id == key.id && stream.life != Life::Free).then_some(stream)
    }

    /// Like [`Streams::get`], but `None` if the stream was reset.
    #[inline]
    pub(super) fn live(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.get(key).filter(|stream| stream.life == Life::Live)
    }

    /// Records a reset: no more frames are expected for the stream. Its slot stays until it is
    /// released.
    pub(super) fn reset(&mut self, slot: u32, by: ClosedBy) {
        let stream = &mut self.slots[slot as usize];
        debug_assert_eq!(stream.life, Life::Live);
        debug_assert_eq!(stream.list, ScheduleList::None, "stream {} would be sent", stream.id);
        stream.life = Life::Reset;
        let was_ended = stream.recv == Recv::Ended;
        (stream.recv, stream.send, stream.queued) = (Recv::Ended, Send::Ended, 0);
        let id = stream.id;
        self.note_end(slot);
        self.map_remove(id);
        let by = if was_ended && by == ClosedBy::Us { ClosedBy::End } else { by };
        self.closed.push(id, by);
    }

    /// Frees the slot.
    pub(super) fn release(&mut self, slot: u32) {
        let stream = &mut self.slots[slot as usize];
        let (id, life) = (stream.id, stream.life);
        debug_assert_ne!(life, Life::Free);
        debug_assert!(
            stream.recv == Recv::Ended && stream.send == Send::Ended,
            "{:?}",
            stream.send
        );
        let held = (stream.uncredited, stream.growth, stream.field_bytes);
        debug_assert_eq!(held, (0, 0, 0), "stream {id} counts after its end");
        debug_assert_eq!(stream.queued, 0, "content of stream {id} is left");
        stream.life = Life::Free;
        self.closing -= u32::from(core::mem::take(&mut stream.is_closed));
        if life == Life::Live {
            self.map_remove(id);
            self.closed.push(id, ClosedBy::End);
        }
        debug_assert_eq!(
            self.slots[slot as usize].list,
            ScheduleList::None,
            "slot {slot} would be sent"
        );
        debug_assert!(self.alive > 0 && self.closing < self.alive, "{}", self.closing);
        self.slots[slot as usize].next = self.free;
        self.free = slot;
        self.alive -= 1;
        debug_assert!(self.alive > 0 || self.map.is_empty(), "{} in the table", self.map.len());
    }

    /// Records a stream as closed that was never opened.
    pub(super) fn refuse(&mut self, id: u32, by: ClosedBy) {
        self.closed.push(id, by);
    }

    /// The recorded cause of a closed stream's end, if it is still remembered.
    pub(super) fn closed_by(&self, id: u32) -> Option<ClosedBy> {
        self.closed.find(id)
    }

    /// Compares the counts with the slots.
    #[cfg(debug_assertions)]
    fn check_table(&self) {
        let count = |is: fn(&Stream) -> bool| self.slots.iter().filter(|s| is(s)).count();
        let alive = count(|stream| stream.life != Life::Free);
        debug_assert_eq!(self.alive as usize, alive, "streams alive");
        let closing = count(|stream| stream.is_closed);
        debug_assert_eq!(self.closing as usize, closing, "streams closed and not released");
        let live = count(|stream| stream.life == Life::Live);
        debug_assert_eq!(self.map.len(), live, "streams in the table");
    }

    fn map_insert(&mut self, id: u32, slot: u32) {
        let slots = &self.slots;
        self.map.insert_unique(hash(id), slot, |slot| hash(slots[*slot as usize].id));
        debug_assert!(self.map.len() <= self.alive as usize, "{} in the table", self.map.len());
    }

    fn map_remove(&mut self, id: u32) {
        debug_assert!(self.find(id).is_some(), "stream {id} is not in the table");
        let slots = &self.slots;
        if let Ok(entry) = self.map.find_entry(hash(id), |slot| slots[*slot as usize].id == id) {
            entry.remove();
        }
    }
}

/// Spreads an identifier over the bits of a hash: the table uses the lowest and the highest.
#[inline]
const fn hash(id: u32) -> u64 {
    ((id >> 1) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn closed_streams_are_remembered_for_a_while() {
        let mut streams = Streams::new();
        for nth in 0..CLOSED_MAX as u32 + 1 {
            let key = streams.open(nth * 2 + 1);
            match nth % 3 {
                0 => {
                    streams.slots()[key.slot()].recv = Recv::Body { left: None };
                    streams.reset(key.slot, ClosedBy::Us);
                }
                1 => streams.reset(key.slot, ClosedBy::Peer),
                _ => {}
            }
            streams.release(key.slot);
        }
        assert_eq!(streams.closed_by(1), None, "the oldest is forgotten");
        assert_eq!(streams.closed_by(3), Some(ClosedBy::Peer));
        assert_eq!(streams.closed_by(5), Some(ClosedBy::End));
        assert_eq!(streams.closed_by(7), Some(ClosedBy::Us));
        assert_eq!((streams.alive(), streams.slots().len()), (0, 1), "one slot was enough");
    }

    proptest! {
        /// Every open stream is found, and no other, for any order of opening and closing.
        #[test]
        fn identifiers_lead_to_their_slots(steps in prop::collection::vec((any::<bool>(), 0u32..64), 1..300)) {
            let mut streams = Streams::new();
            let mut open: Vec<StreamKey> = Vec::new();
            let mut id = 1;
            for (opens, at) in steps {
                if opens || open.is_empty() {
                    id += 2 * (at % 5 + 1);
                    open.push(streams.open(id));
                } else {
                    let key = open.swap_remove(at as usize % open.len());
                    if at % 2 == 0 {
                        streams.reset(key.slot, ClosedBy::Us);
                    }
                    streams.release(key.slot);
                    prop_assert_eq!(streams.find(key.id), None);
                    prop_assert!(streams.get(key).is_none());
                }
                for key in &open {
                    prop_assert_eq!(streams.find(key.id), Some(key.slot));
                }
                prop_assert_eq!(streams.alive() as usize, open.len());
            }
        }
    }
}
