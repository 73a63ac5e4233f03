//! The order in which streams send DATA: RFC 9218 section 10.
//!
//! Eight levels of urgency with two lists each: non-incremental responses, one after the other in
//! the order of their identifiers, and incremental ones in turn. A bit per non-empty list makes the
//! choice one instruction. The lists are linked through the streams.

use super::streams::{Life, Stream};

/// No stream.
pub(super) const NONE: u32 = u32::MAX;

/// ScheduleList that a stream is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleList {
    None,
    /// The stream may send: urgency, and true if it is incremental.
    Ready(u8, bool),
    /// The stream's window only has room for a short frame.
    Dribbling,
}

const READY_LISTS: usize = 16;
const DRIBBLING: usize = READY_LISTS;

impl ScheduleList {
    const fn index(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Ready(urgency, incremental) => {
                Some((urgency as usize & 7) * 2 + incremental as usize)
            }
            Self::Dribbling => Some(DRIBBLING),
        }
    }
}

#[derive(Debug)]
pub(super) struct Schedule {
    heads: [u32; READY_LISTS + 1],
    tails: [u32; READY_LISTS + 1],
    /// A bit for each non-empty list.
    filled: u32,
    /// True if the last turn, at any level, went to an incremental response.
    was_incremental: bool,
}

impl Schedule {
    pub(super) const fn new() -> Self {
        Self {
            heads: [NONE; READY_LISTS + 1],
            tails: [NONE; READY_LISTS + 1],
            filled: 0,
            was_incremental: false,
        }
    }

    /// The stream that sends next.
    #[inline]
    pub(super) fn next(&self) -> Option<u32> {
        let ready = self.filled & ((1 << READY_LISTS) - 1);
        if ready == 0 {
            return None;
        }
        let first = ready.trailing_zeros() as usize;
        let level = first & !1;
        let has_both = ready >> level & 3 == 3;
        let list = if has_both { level + usize::from(!self.was_incremental) } else { first };
        debug_assert_ne!(self.heads[list], NONE, "list {list} is empty");
        Some(self.heads[list])
    }

    /// The stream with a short frame that has waited longest.
    pub(super) fn first_dribbling(&self) -> Option<u32> {
        let is_filled = self.filled >> DRIBBLING & 1 == 1;
        debug_assert_eq!(is_filled, self.heads[DRIBBLING] != NONE, "{:b}", self.filled);
        (self.heads[DRIBBLING] != NONE).then_some(self.heads[DRIBBLING])
    }

    /// Ends a stream's turn: an incremental one moves to the end of its list.
    #[inline]
    pub(super) fn end_turn(&mut self, streams: &mut [Stream], slot: u32) {
        let list = streams[slot as usize].list;
        if let ScheduleList::Ready(_, incremental) = list {
            let first = list.index().map(|index| self.heads[index]);
            debug_assert_eq!(first, Some(slot), "a turn of a stream that is not first");
            self.was_incremental = incremental;
            if incremental && streams[slot as usize].next != NONE {
                self.remove(streams, slot);
                self.push(streams, slot, list);
            }
        }
    }

    /// Moves a stream to another list, or leaves it in its position.
    #[inline]
    pub(super) fn place(&mut self, streams: &mut [Stream], slot: u32, list: ScheduleList) {
        if streams[slot as usize].list != list {
            self.remove(streams, slot);
            self.push(streams, slot, list);
        }
    }

    fn push(&mut self, streams: &mut [Stream], slot: u32, list: ScheduleList) {
        debug_assert_eq!(
            streams[slot as usize].list,
            ScheduleList::None,
            "slot {slot} is in a list"
        );
        streams[slot as usize].list = list;
        let Some(index) = list.index() else { return };
        let id = streams[slot as usize].id;
        debug_assert_eq!(streams[slot as usize].life, Life::Live, "stream {id} is over");
        let mut before = self.tails[index];
        if let ScheduleList::Ready(_, false) = list {
            // Nearly always the identifier is the highest.
            while before != NONE && streams[before as usize].id > id {
                before = streams[before as usize].prev;
            }
        }
        let after = if before == NONE { self.heads[index] } else { streams[before as usize].next };
        debug_assert!(
            !matches!(list, ScheduleList::Ready(_, false))
                || after == NONE
                || streams[after as usize].id > id,
            "the list is not in the order of identifiers"
        );
        (streams[slot as usize].prev, streams[slot as usize].next) = (before, after);
        match before {
            NONE => self.heads[index] = slot,
            before => streams[before as usize].next = slot,
        }
        match after {
            NONE => self.tails[index] = slot,
            after => streams[after as usize].prev = slot,
        }
        self.filled |= 1 << index;
    }

    fn remove(&mut self, streams: &mut [Stream], slot: u32) {
        let stream = &mut streams[slot as usize];
        let (list, prev, next) = (stream.list, stream.prev, stream.next);
        (stream.list, stream.prev, stream.next) = (ScheduleList::None, NONE, NONE);
        let Some(index) = list.index() else { return };
        debug_assert_eq!(prev == NONE, self.heads[index] == slot, "head of list {index}");
        debug_assert_eq!(next == NONE, self.tails[index] == slot, "tail of list {index}");
        match prev {
            NONE => self.heads[index] = next,
            prev => streams[prev as usize].next = next,
        }
        match next {
            NONE => self.tails[index] = prev,
            next => streams[next as usize].prev = prev,
        }
        debug_assert_eq!(self.heads[index] == NONE, self.tails[index] == NONE, "list {index}");
        if self.heads[index] == NONE {
            self.filled &= !(1 << index);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::streams::Streams;
    use super::*;

    fn streams(count: u32) -> Streams {
        let mut streams = Streams::new();
        for nth in 0..count {
            streams.open(nth * 2 + 1);
        }
        streams
    }

    fn turns(schedule: &mut Schedule, streams: &mut Streams, count: usize) -> Vec<u32> {
        (0..count)
            .map_while(|_| {
                let slot = schedule.next()?;
                schedule.end_turn(streams.slots(), slot);
                Some(slot)
            })
            .collect()
    }

    #[test]
    fn urgent_ones_first_then_in_the_order_of_identifiers() {
        let (mut streams, mut schedule) = (streams(4), Schedule::new());
        schedule.place(streams.slots(), 2, ScheduleList::Ready(3, false));
        schedule.place(streams.slots(), 0, ScheduleList::Ready(3, false));
        schedule.place(streams.slots(), 3, ScheduleList::Ready(5, false));
        schedule.place(streams.slots(), 1, ScheduleList::Ready(3, false));
        let mut order = Vec::new();
        while let Some(slot) = schedule.next() {
            order.push(slot);
            schedule.place(streams.slots(), slot, ScheduleList::None);
        }
        assert_eq!(order, [0, 1, 2, 3]);
        schedule.place(streams.slots(), 3, ScheduleList::Ready(5, false));
        schedule.place(streams.slots(), 2, ScheduleList::Ready(0, false));
        assert_eq!(turns(&mut schedule, &mut streams, 3), [2, 2, 2], "until it has ended");
    }

    #[test]
    fn incremental_ones_take_turns_and_share_with_the_others() {
        let (mut streams, mut schedule) = (streams(4), Schedule::new());
        for slot in 0..3 {
            schedule.place(streams.slots(), slot, ScheduleList::Ready(3, true));
        }
        assert_eq!(turns(&mut schedule, &mut streams, 5), [0, 1, 2, 0, 1]);
        schedule.place(streams.slots(), 3, ScheduleList::Ready(3, false));
        assert_eq!(turns(&mut schedule, &mut streams, 6), [3, 2, 3, 0, 3, 1]);
    }

    #[test]
    fn short_frames_wait_in_the_order_in_which_they_came() {
        let (mut streams, mut schedule) = (streams(2), Schedule::new());
        schedule.place(streams.slots(), 1, ScheduleList::Dribbling);
        schedule.place(streams.slots(), 0, ScheduleList::Dribbling);
        assert_eq!((schedule.next(), schedule.first_dribbling()), (None, Some(1)));
        schedule.place(streams.slots(), 1, ScheduleList::None);
        assert_eq!(schedule.first_dribbling(), Some(0));
    }
}
