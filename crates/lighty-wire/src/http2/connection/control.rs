//! Frames that carry no message: RFC 9113 sections 6.3 to 6.8, RFC 9218 section 7.1.

use super::super::event::Event;
use super::super::fault::{ConnFault, StreamFault};
use super::super::frame::{
    self, ErrorCode, FrameHead, STREAM_ID_MAX, WINDOW_BYTES_INITIAL, flag, kind,
};
use super::super::priority::Priority;
use super::super::schedule::ScheduleList;
use super::super::settings::{self, id};
use super::super::streams::{ClosedBy, Send, StreamKey};
use super::{Connection, Expect, Role};

impl Connection {
    /// Sends the preface, our settings, and the window of the connection.
    pub(super) fn push_first_frames(&mut self) {
        let limits = &self.limits;
        let is_server = self.role == Role::Server;
        let mut payload = alloc::vec::Vec::with_capacity(48);
        let mut push = |id, value| settings::push(id, value, &mut payload);
        if limits.decoder_table_bytes != super::super::hpack::TABLE_BYTES_INITIAL as u32 {
            push(id::HEADER_TABLE_SIZE, limits.decoder_table_bytes);
        }
        if is_server {
            push(id::MAX_CONCURRENT_STREAMS, limits.streams_max);
        } else {
            push(id::ENABLE_PUSH, 0);
        }
        if limits.stream_window_bytes != WINDOW_BYTES_INITIAL {
            push(id::INITIAL_WINDOW_SIZE, limits.stream_window_bytes);
        }
        push(id::MAX_HEADER_LIST_SIZE, limits.field_bytes_max as u32);
        if self.extended_connect {
            push(id::ENABLE_CONNECT_PROTOCOL, 1);
        }
        push(id::NO_RFC7540_PRIORITIES, 1);
        if !is_server {
            self.out.extend_from_slice(frame::PREFACE);
        }
        frame::push(kind::SETTINGS, 0, 0, &payload, &mut self.out);
        let more = self.conn_window() - WINDOW_BYTES_INITIAL;
        if more > 0 {
            frame::push_number(kind::WINDOW_UPDATE, 0, more, &mut self.out);
            self.recv_window += i64::from(more);
        }
    }

    pub(super) fn handle_settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        self.expect = Expect::Frame;
        if head.stream != 0 {
            return Err(ConnFault::StreamNotZero);
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnFault::FrameLength);
            }
            match self.settings_sent_ms.take() {
                Some(_) => self.decoder.set_size_max(self.limits.decoder_table_bytes as usize),
                None => self.charge_unproductive()?,
            }
            return Ok(None);
        }
        if !payload.len().is_multiple_of(6) {
            return Err(ConnFault::FrameLength);
        }
        self.charge_unproductive()?;
        let window_before = i64::from(self.peer.window_bytes);
        for (setting, value) in settings::entries(payload) {
            self.peer.apply(setting, value)?;
            if setting == id::HEADER_TABLE_SIZE {
                self.encoder.set_peer_size_max(value as usize);
            }
        }
        // Applied once for all entries: a frame may hold thousands, and each concerns every stream.
        let delta = i64::from(self.peer.window_bytes) - window_before;
        if delta != 0 {
            self.change_windows(delta)?;
        }
        self.push_reply(kind::SETTINGS, &[])?;
        Ok(None)
    }

    pub(super) fn handle_ping(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream != 0 {
            return Err(ConnFault::StreamNotZero);
        }
        let payload = *payload.first_chunk::<8>().ok_or(ConnFault::FrameLength)?;
        if head.len != payload.len() {
            return Err(ConnFault::FrameLength);
        }
        self.charge_unproductive()?;
        if !head.has(flag::ACK) {
            self.push_reply(kind::PING, &payload)?;
            return Ok(None);
        }
        if self.take_drain_reply(payload) || self.take_window_reply(payload) {
            return Ok(None);
        }
        Ok(Some(Event::Pong { payload }))
    }

    fn push_reply(&mut self, kind: u8, payload: &[u8]) -> Result<(), ConnFault> {
        self.replies += 1;
        if self.replies > self.limits.queued_replies_max {
            return Err(ConnFault::QueuedReplies);
        }
        frame::push(kind, flag::ACK, 0, payload, &mut self.out);
        Ok(())
    }

    /// Sends a PING. The reply is [`Event::Pong`].
    pub fn ping(&mut self, payload: [u8; 8]) {
        frame::push(kind::PING, 0, 0, &payload, &mut self.out);
    }

    pub(super) fn handle_rst_stream(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream == 0 {
            return Err(ConnFault::StreamZero);
        }
        let number = frame::number(payload).filter(|_| payload.len() == 4);
        let code = ErrorCode(number.ok_or(ConnFault::FrameLength)?);
        let Some(slot) = self.streams.find(head.stream) else {
            if self.is_idle(head.stream) {
                return self.forgive_early_reset(head.stream).map(|()| None);
            }
            return self.charge_unproductive().map(|()| None);
        };
        let is_premature = self.streams.slots()[slot as usize].send != Send::Ended;
        if self.role == Role::Server && is_premature {
            self.charge_reset(1)?;
        }
        self.forget(slot, ClosedBy::Peer);
        let stream = StreamKey { slot, id: head.stream };
        Ok(Some(Event::Reset { stream, code, fault: None }))
    }

    /// Charges a reset of a stream that was never opened. RFC 9113 section 6.4 would end the
    /// connection, with all other requests. gRPC's C core (1.51; grpc/grpc#19655), Envoy (#11369)
    /// and Rust's h2 (hyperium/h2#875) send such a reset when a request is cancelled before it is
    /// written. If the peer opens no stream at all, the rule is enforced after
    /// [`EARLY_RESET_MS`](super::super::limits::EARLY_RESET_MS).
    fn forgive_early_reset(&mut self, id: u32) -> Result<(), ConnFault> {
        if self.role == Role::Client || id.is_multiple_of(2) {
            return Err(ConnFault::IdleStream);
        }
        if self.last_peer_id == 0 {
            self.intake.early_reset_ms.get_or_insert(self.now_ms);
        }
        self.charge_reset(1)
    }

    /// Checks the priorities of RFC 7540, which are otherwise ignored.
    pub(super) fn handle_priority(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream == 0 {
            return Err(ConnFault::StreamZero);
        }
        self.charge_unproductive()?;
        let fields = payload.first_chunk::<5>().filter(|_| head.len == 5);
        let fault = match fields {
            None => StreamFault::PriorityLength,
            Some(fields) if super::block::depends_on(fields) == head.stream => {
                StreamFault::DependsOnItself
            }
            Some(_) => return Ok(None),
        };
        match self.streams.find(head.stream) {
            Some(slot) => self.fail_stream(slot, fault),
            None if fault == StreamFault::PriorityLength => Err(ConnFault::FrameLength),
            None => Err(ConnFault::SelfDependency),
        }
    }

    pub(super) fn handle_priority_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream != 0 {
            return Err(ConnFault::StreamNotZero);
        }
        let id = frame::number(payload).ok_or(ConnFault::FrameLength)? & STREAM_ID_MAX;
        if id.is_multiple_of(2) || self.role == Role::Client {
            return Err(ConnFault::PrioritisedStream);
        }
        self.charge_unproductive()?;
        let priority = Priority::parse(&payload[4..]);
        if let Some(slot) = self.streams.find(id) {
            self.set_priority(slot, priority);
        } else if self.is_idle(id) {
            let known = self.early_priorities.iter_mut().find(|(early, _)| *early == id);
            if let Some(known) = known {
                known.1 = priority;
            } else if self.early_priorities.len() < self.limits.streams_max as usize {
                self.early_priorities.push((id, priority));
            }
        }
        Ok(None)
    }

    /// Changes a stream's priority by a backend's `Priority` field: RFC 9218 section 8.
    pub fn merge_priority(&mut self, key: StreamKey, value: &[u8]) {
        let Some(stream) = self.streams.live(key) else { return };
        let mut priority = stream.priority;
        priority.merge(value);
        self.set_priority(key.slot, priority);
    }

    fn set_priority(&mut self, slot: u32, priority: Priority) {
        debug_assert!(priority.urgency < 8, "{priority:?}");
        let stream = &mut self.streams.slots()[slot as usize];
        stream.priority = priority;
        if let ScheduleList::Ready(..) = stream.list {
            let list = ScheduleList::Ready(priority.urgency, priority.incremental);
            self.schedule.place(self.streams.slots(), slot, list);
        }
    }

    pub(super) fn handle_goaway(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream != 0 {
            return Err(ConnFault::StreamNotZero);
        }
        let Some(&[a, b, c, d, e, f, g, h]) = payload.first_chunk::<8>() else {
            return Err(ConnFault::FrameLength);
        };
        let last_stream = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
        let code = ErrorCode(u32::from_be_bytes([e, f, g, h]));
        self.charge_unproductive()?;
        if self.peer_goaway.is_some_and(|before| last_stream > before) {
            return Err(ConnFault::GoAwayGrew);
        }
        self.peer_goaway = Some(last_stream);
        Ok(Some(Event::GoAway { last_stream, code }))
    }
}
