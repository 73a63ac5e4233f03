//! The end of a connection: RFC 9113 section 6.8, and timeouts.

use alloc::vec::Vec;

use super::super::fault::ConnFault;
use super::super::frame::{self, ErrorCode, STREAM_ID_MAX, kind};
use super::super::limits::{DRAIN_MS, DRIBBLE_MS, EARLY_RESET_MS};
use super::super::schedule::ScheduleList;
use super::{Connection, Expect};

/// Progress of a graceful end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    No,
    /// The first GOAWAY was sent. Streams in transit are served.
    Announced {
        since_ms: u64,
    },
    /// Streams above this one are refused.
    Final {
        last_id: u32,
    },
}

/// Distinguishes the reply to our PING from others.
const DRAIN_PING: [u8; 8] = *b"drained?";

/// Payload of the PING that a connection sends after its input has ended.
const END_PING: [u8; 8] = *b"no end??";

impl Connection {
    /// Begins a graceful end: two GOAWAYs, so that no request in transit is lost. Further calls do
    /// nothing.
    pub fn shut_down(&mut self, now_ms: u64) {
        if self.shutdown == Shutdown::No && self.expect != Expect::Nothing {
            self.shutdown = Shutdown::Announced { since_ms: now_ms };
            self.push_goaway(STREAM_ID_MAX, ErrorCode::NO_ERROR, &[]);
            frame::push(kind::PING, 0, 0, &DRAIN_PING, &mut self.out);
        }
    }

    /// Ends the connection at once for a reason of our own, such as a banned address.
    pub fn abort(&mut self, code: ErrorCode) {
        if self.expect != Expect::Nothing {
            self.push_goaway(self.last_served_id(), code, &[]);
            self.expect = Expect::Nothing;
        }
    }

    /// Ends the connection for a fault that the driver has found, such as a frame that does not
    /// arrive.
    pub fn abort_for(&mut self, fault: ConnFault) {
        if self.expect != Expect::Nothing {
            self.fail(fault);
        }
    }

    /// Records that the input has ended while responses are still being sent: deadlines for the
    /// peer no longer apply. Sends a PING; a peer that is gone rejects it.
    pub fn end_input(&mut self) {
        self.settings_sent_ms = None;
        self.block = None;
        self.intake.early_reset_ms = None;
        if self.expect != Expect::Nothing {
            frame::push(kind::PING, 0, 0, &END_PING, &mut self.out);
        }
    }

    /// True once a graceful end is announced.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::No
    }

    /// True if only output that has not been taken is left: the connection has failed, or it is
    /// shut down and all streams are released.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_final = matches!(self.shutdown, Shutdown::Final { .. });
        self.expect == Expect::Nothing || is_final && self.streams.alive() == 0
    }

    pub(super) fn is_shutting_down_above(&self, id: u32) -> bool {
        matches!(self.shutdown, Shutdown::Final { last_id } if id > last_id)
    }

    /// The highest stream that may have been processed. Streams above the one of the final GOAWAY
    /// are refused, and a later GOAWAY must not name them (RFC 9113 section 6.8).
    pub(super) fn last_served_id(&self) -> u32 {
        match self.shutdown {
            Shutdown::Final { last_id } => last_id,
            Shutdown::No | Shutdown::Announced { .. } => self.last_peer_id,
        }
    }

    pub(super) fn take_drain_reply(&mut self, payload: [u8; 8]) -> bool {
        let is_ours = payload == DRAIN_PING && matches!(self.shutdown, Shutdown::Announced { .. });
        if is_ours {
            self.end_announcement();
        }
        is_ours
    }

    fn end_announcement(&mut self) {
        let last_id = self.last_peer_id;
        self.shutdown = Shutdown::Final { last_id };
        self.push_goaway(last_id, ErrorCode::NO_ERROR, &[]);
    }

    pub(super) fn push_goaway(&mut self, last_id: u32, code: ErrorCode, message: &[u8]) {
        debug_assert!(!self.is_shutting_down_above(last_id), "{last_id} was refused");
        let mut payload = Vec::with_capacity(8 + message.len());
        payload.extend_from_slice(&last_id.to_be_bytes());
        payload.extend_from_slice(&code.0.to_be_bytes());
        payload.extend_from_slice(message);
        frame::push(kind::GOAWAY, 0, 0, &payload, &mut self.out);
    }

    /// The time for [`Connection::handle_timeout`], if nothing happens before.
    #[must_use]
    pub fn deadline_ms(&mut self) -> Option<u64> {
        if self.expect == Expect::Nothing {
            return None;
        }
        let settings = self.settings_sent_ms.map(|sent| sent + self.limits.settings_ms);
        let block = self.block.as_ref().map(|block| block.since_ms + self.limits.block_ms);
        let early_reset = self.intake.early_reset_ms.map(|since| since + EARLY_RESET_MS);
        let drain = match self.shutdown {
            Shutdown::Announced { since_ms } => Some(since_ms + DRAIN_MS),
            Shutdown::No | Shutdown::Final { .. } => None,
        };
        let first = self.schedule.first_dribbling();
        let stream = first.map(|slot| self.streams.slots()[slot as usize].waits_since_ms);
        let conn = self.waits_since_ms.filter(|&since| since != 0);
        let dribble = stream.into_iter().chain(conn).min();
        let dribble = dribble.map(|since| since + DRIBBLE_MS);
        [settings, block, early_reset, drain, dribble].into_iter().flatten().min()
    }

    /// Handles the timers that have expired.
    ///
    /// # Errors
    /// [`ConnFault`], as from [`Connection::handle_input`].
    pub fn handle_timeout(&mut self, now_ms: u64) -> Result<(), ConnFault> {
        debug_assert!(now_ms >= self.now_ms, "{now_ms} after {}", self.now_ms);
        self.now_ms = now_ms;
        if self.expect == Expect::Nothing {
            return Ok(());
        }
        let is_over = |since: u64, allowed: u64| now_ms >= since + allowed;
        if self.settings_sent_ms.is_some_and(|sent| is_over(sent, self.limits.settings_ms)) {
            self.fail(ConnFault::SettingsTimeout);
            return Err(ConnFault::SettingsTimeout);
        }
        if self.block.as_ref().is_some_and(|block| is_over(block.since_ms, self.limits.block_ms)) {
            self.fail(ConnFault::BlockTimeout);
            return Err(ConnFault::BlockTimeout);
        }
        if self.intake.early_reset_ms.is_some_and(|since| is_over(since, EARLY_RESET_MS)) {
            self.fail(ConnFault::IdleStream);
            return Err(ConnFault::IdleStream);
        }
        if let Shutdown::Announced { since_ms } = self.shutdown
            && is_over(since_ms, DRAIN_MS)
        {
            self.end_announcement();
        }
        // A driver with a blocked socket does not ask for DATA; the wait is over all the same.
        if self.waits_since_ms.is_some_and(|since| is_over(since, DRIBBLE_MS)) {
            self.waits_since_ms = Some(0);
        }
        self.wake_dribbling(now_ms);
        Ok(())
    }

    /// Makes streams ready whose short frames have waited long enough.
    pub(super) fn wake_dribbling(&mut self, now_ms: u64) {
        while let Some(slot) = self.schedule.first_dribbling() {
            let stream = &self.streams.slots()[slot as usize];
            debug_assert_ne!(stream.waits_since_ms, 0, "stream {} does not wait", stream.id);
            if now_ms < stream.waits_since_ms + DRIBBLE_MS {
                return;
            }
            let list = ScheduleList::Ready(stream.priority.urgency, stream.priority.incremental);
            self.schedule.place(self.streams.slots(), slot, list);
        }
    }
}
