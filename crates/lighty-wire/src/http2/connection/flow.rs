//! Flow-control windows: RFC 9113 sections 5.2 and 6.9.

use super::super::event::Event;
use super::super::fault::{ConnFault, StreamFault};
use super::super::frame::{self, FrameHead, WINDOW_BYTES_INITIAL, WINDOW_BYTES_MAX, kind};
use super::super::limits::{DRIBBLE_BYTES, Limits};
use super::super::schedule::ScheduleList;
use super::super::streams::{Life, Recv, Send, StreamKey};
use super::{Connection, Role};

/// Credit is announced in fractions of a window, one of this many. On a long path the peer has the
/// rest of the window in transit; with halves, the rate would be one window per two round trips.
const PARTS: u32 = 8;

/// Distinguishes the reply to a PING that measures a round trip.
const WINDOW_PING: [u8; 8] = *b"window??";

/// Receive state of a connection. Boxed, because there may be many connections that receive little.
#[derive(Debug)]
pub(super) struct Intake {
    /// Maximum bytes by which the window of one stream may grow.
    pub(super) growth_max: u32,
    /// Sum of the growth of all streams' windows, and of the unread rest of ended streams.
    pub(super) growth: usize,
    /// Bytes that drivers have received but not credited, for all streams.
    pub(super) uncredited: usize,
    /// Bytes of fields that streams hold beyond
    /// [`FREE_FIELD_BYTES`](super::super::limits::FREE_FIELD_BYTES) each.
    pub(super) held_field_bytes: usize,
    /// Time at which the peer reset a stream that it had not opened, as long as it has opened none.
    pub(super) early_reset_ms: Option<u64>,
    /// Bytes of DATA received.
    received: u64,
    /// Value of `received`, and unconsumed bytes, when the pending PING was sent.
    sent_at: Option<(u64, usize)>,
    /// Value of `received` at which the next PING is sent.
    next_at: u64,
}

impl Intake {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            growth_max: limits.conn_window_bytes,
            growth: 0,
            uncredited: 0,
            held_field_bytes: 0,
            early_reset_ms: None,
            received: 0,
            sent_at: None,
            next_at: u64::from(limits.conn_window_bytes / 2),
        }
    }
}

const WINDOW_MAX: i64 = WINDOW_BYTES_MAX as i64;

/// True if a window of `room` bytes would cut the queued content into a short frame. A driver
/// queues at most as much as fits: content that fills the window may have more behind it, unless it
/// ends the stream.
#[inline]
pub(super) fn is_dribble(room: i64, queued: u64, is_last: bool) -> bool {
    debug_assert!(room > 0 && queued > 0, "{room} {queued}");
    let is_cut = if is_last { (room as u64) < queued } else { room as u64 <= queued };
    is_cut && room < DRIBBLE_BYTES as i64
}

impl Connection {
    pub(super) fn handle_window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        let number = frame::number(payload).filter(|_| payload.len() == 4);
        let increment = i64::from(number.ok_or(ConnFault::FrameLength)? & WINDOW_BYTES_MAX);
        if self.window_updates.charge(1, self.limits.window_updates_max, self.now_ms) {
            return Err(ConnFault::WindowUpdates);
        }
        if head.stream == 0 {
            if increment == 0 {
                return Err(ConnFault::WindowIncrement);
            }
            self.send_window += increment;
            self.waits_since_ms = None;
            let is_over = self.send_window > WINDOW_MAX;
            return if is_over { Err(ConnFault::WindowOverflow) } else { Ok(None) };
        }
        let Some(slot) = self.streams.find(head.stream) else {
            // Late updates of closed streams are legal (section 5.1).
            return if self.is_idle(head.stream) { Err(ConnFault::IdleStream) } else { Ok(None) };
        };
        if increment == 0 {
            return self.fail_stream(slot, StreamFault::WindowIncrement);
        }
        let stream = &mut self.streams.slots()[slot as usize];
        stream.send_window += increment;
        if stream.send_window > WINDOW_MAX {
            return self.fail_stream(slot, StreamFault::WindowOverflow);
        }
        self.reschedule(slot);
        Ok(None)
    }

    /// Section 6.9.2: a change of the initial window changes the windows of all streams.
    pub(super) fn change_windows(&mut self, delta: i64) -> Result<(), ConnFault> {
        for slot in 0..self.streams.slots().len() {
            let stream = &mut self.streams.slots()[slot];
            if stream.life != Life::Live {
                continue;
            }
            debug_assert!(stream.send_window >= -WINDOW_MAX, "{}", stream.send_window);
            stream.send_window += delta;
            if stream.send_window > WINDOW_MAX {
                return Err(ConnFault::WindowSetting);
            }
            self.reschedule(slot as u32);
        }
        Ok(())
    }

    /// Moves a stream to the list that matches its queue and window.
    #[inline]
    pub(super) fn reschedule(&mut self, slot: u32) {
        let now_ms = self.now_ms;
        let stream = &mut self.streams.slots()[slot as usize];
        debug_assert!(stream.send_window <= WINDOW_MAX, "{}", stream.send_window);
        debug_assert!(stream.life == Life::Live || stream.queued == 0, "{:?}", stream.life);
        let sends = matches!(stream.send, Send::Body | Send::Ending);
        let is_last = stream.send == Send::Ending;
        let list = if !sends || stream.queued == 0 || stream.send_window <= 0 {
            ScheduleList::None
        } else if is_dribble(stream.send_window, stream.queued, is_last) {
            // A stream that has waited long enough stays ready.
            match stream.list {
                ScheduleList::Ready(..) if stream.waits_since_ms != 0 => stream.list,
                _ => ScheduleList::Dribbling,
            }
        } else {
            stream.waits_since_ms = 0;
            ScheduleList::Ready(stream.priority.urgency, stream.priority.incremental)
        };
        if list == ScheduleList::Dribbling && stream.list != ScheduleList::Dribbling {
            stream.waits_since_ms = now_ms.max(1);
        }
        self.schedule.place(self.streams.slots(), slot, list);
    }

    /// Credits `bytes` of a stream's content that the driver has consumed: the peer may send as
    /// many more. Uncredited bytes of an ended stream are credited when it is released.
    pub fn credit(&mut self, key: StreamKey, bytes: usize) {
        let Some(stream) = self.streams.get(key) else { return };
        let bytes = bytes.min(stream.uncredited as usize);
        stream.uncredited -= bytes as u32;
        debug_assert!(bytes <= self.intake.uncredited, "{bytes} {}", self.intake.uncredited);
        self.intake.uncredited -= bytes;
        self.credit_stream(key.slot, bytes as u32);
    }

    /// Credits a stream if it still receives.
    pub(super) fn credit_stream(&mut self, slot: u32, bytes: u32) {
        self.announce_credit(slot, bytes);
        self.settle_growth(slot);
    }

    /// Announces credit for a stream once it is worth a frame. A window that is being used grows
    /// (towards the limit) with every update: it doubles, or becomes sixteen times the bytes
    /// consumed since the last one. Doubling alone takes four round trips from 64 KiB to 1 MiB if
    /// the consumer takes each flight at once. If other streams have grown meanwhile, it shrinks:
    /// credit is not announced.
    fn announce_credit(&mut self, slot: u32, bytes: u32) {
        let max = self.stream_window_max(slot);
        let stream = &mut self.streams.slots()[slot as usize];
        let receives = matches!(stream.recv, Recv::Head | Recv::Body { .. });
        if !receives || stream.life != Life::Live {
            return;
        }
        stream.unannounced += bytes;
        #[cfg(debug_assertions)]
        stream.check_window();
        let withheld = stream.recv_window_max.saturating_sub(max).min(stream.unannounced);
        stream.recv_window_max -= withheld;
        stream.unannounced -= withheld;
        if stream.unannounced < (stream.recv_window_max / PARTS).max(1) {
            return;
        }
        let wanted = stream.recv_window_max.max(stream.unannounced.saturating_mul(PARTS));
        let grown = wanted.saturating_mul(2).min(max).max(stream.recv_window_max);
        let increment = stream.unannounced + (grown - stream.recv_window_max);
        stream.recv_window_max = grown;
        stream.unannounced = 0;
        stream.recv_window += i64::from(increment);
        debug_assert!((1..=WINDOW_BYTES_MAX).contains(&increment), "{increment}");
        debug_assert!(stream.recv_window <= WINDOW_MAX, "{}", stream.recv_window);
        frame::push_number(kind::WINDOW_UPDATE, stream.id, increment, &mut self.out);
    }

    /// Maximum window of a stream. A client's end bounds each stream alone. A server's end also
    /// bounds their sum: a stream may take all but an eighth of the remainder, so that some is left
    /// for the next one.
    fn stream_window_max(&mut self, slot: u32) -> u32 {
        let (first, max) = (self.limits.stream_window_bytes, self.limits.stream_window_bytes_max);
        if self.role == Role::Client {
            return max;
        }
        let own = self.streams.slots()[slot as usize].growth as usize;
        let left =
            (self.limits.conn_window_bytes_max as usize).saturating_sub(self.intake.growth - own);
        let share = (left - left / PARTS as usize).min(self.intake.growth_max as usize);
        // Both limits have 32 bits.
        first.saturating_add(share as u32).min(max.max(first))
    }

    /// Updates the growth of a stream's window. For a stream that receives nothing more, the bytes
    /// that its driver has yet to consume count.
    pub(super) fn settle_growth(&mut self, slot: u32) {
        let first = self.limits.stream_window_bytes;
        let stream = &mut self.streams.slots()[slot as usize];
        let held = match stream.recv {
            Recv::Head | Recv::Body { .. } => stream.recv_window_max,
            Recv::Ended => stream.uncredited,
        };
        let growth = held.saturating_sub(first);
        debug_assert!(self.intake.growth >= stream.growth as usize, "{}", self.intake.growth);
        self.intake.growth = self.intake.growth - stream.growth as usize + growth as usize;
        stream.growth = growth;
    }

    /// Counts received DATA. The connection's window is credited at once: an unread stream must not
    /// stop the others, and the streams' own windows bound the buffered bytes. If the drivers fall
    /// behind by most of one stream's maximum window, windows shrink to their initial size again.
    pub(super) fn receive_data(&mut self, bytes: usize) {
        self.credit_conn(bytes);
        if self.role == Role::Client {
            return;
        }
        self.probe_window();
        self.intake.received += bytes as u64;
        let growth_max = self.intake.growth_max;
        if self.intake.uncredited > (growth_max / 4 * 3) as usize {
            self.intake.growth_max = self.limits.conn_window_bytes;
        }
    }

    /// Sends a PING, if windows could grow further, to measure the bytes received in a round trip.
    /// The PING is sent when content arrives, because a whole window often comes in one burst. Only
    /// a server's end does so: backends may end connections that send too many PINGs.
    fn probe_window(&mut self) {
        let is_due = self.intake.sent_at.is_none() && self.intake.received >= self.intake.next_at;
        if is_due
            && self.role == Role::Server
            && self.intake.growth_max < self.limits.conn_window_bytes_max
        {
            self.intake.sent_at = Some((self.intake.received, self.intake.uncredited));
            self.ping(WINDOW_PING);
        }
    }

    /// Handles the reply to that PING. Windows may grow fourfold if they limited the peer, that is
    /// if it sent most of a window in the round trip, and if the drivers consume the content.
    pub(super) fn take_window_reply(&mut self, payload: [u8; 8]) -> bool {
        let Some((before, unread)) = self.intake.sent_at.take_if(|_| payload == WINDOW_PING) else {
            return false;
        };
        let window = self.intake.growth_max;
        debug_assert!(before <= self.intake.received, "{before} {}", self.intake.received);
        let arrived = self.intake.received - before;
        let consumed = (arrived + unread as u64).saturating_sub(self.intake.uncredited as u64);
        let is_too_small = arrived >= u64::from(window / 3 * 2);
        self.intake.next_at = self.intake.received;
        if is_too_small && consumed >= u64::from(window / 2) {
            let grown = window.saturating_mul(4).min(self.limits.conn_window_bytes_max);
            self.intake.growth_max = grown.max(window);
        } else {
            self.intake.next_at += u64::from(window / 2);
        }
        let growth_max = self.limits.conn_window_bytes_max.max(self.limits.conn_window_bytes);
        debug_assert!(self.intake.growth_max <= growth_max, "{}", self.intake.growth_max);
        true
    }

    /// Bytes to which the connection's window is refilled.
    pub(super) fn conn_window(&self) -> u32 {
        let bytes = match self.role {
            Role::Server => self.limits.conn_window_bytes_max,
            Role::Client => self.limits.conn_window_bytes,
        };
        bytes.max(WINDOW_BYTES_INITIAL)
    }

    /// Announces credit for the connection once it is worth a frame.
    fn credit_conn(&mut self, bytes: usize) {
        self.unannounced += bytes as u32;
        if self.unannounced >= self.conn_window() / PARTS {
            frame::push_number(kind::WINDOW_UPDATE, 0, self.unannounced, &mut self.out);
            self.recv_window += i64::from(self.unannounced);
            debug_assert!(self.recv_window <= WINDOW_MAX, "{}", self.recv_window);
            self.unannounced = 0;
        }
        // Received bytes are credited at once, so the two always add up to the whole window.
        let window = self.recv_window + i64::from(self.unannounced);
        debug_assert_eq!(window, i64::from(self.conn_window()), "{}", self.unannounced);
    }
}
