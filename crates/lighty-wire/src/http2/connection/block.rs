//! Field blocks: HEADERS and CONTINUATION, and their effect on streams.

use alloc::boxed::Box;

use super::super::event::Event;
use super::super::fault::{ConnFault, StreamFault};
use super::super::frame::{self, ErrorCode, FrameHead, flag, kind};
use super::super::limits::{ALIVE_FACTOR, BURST_FACTOR, FREE_FIELD_BYTES};
use super::super::message::{BlockKind, Collected, Collector};
use super::super::priority::Priority;
use super::super::streams::{ClosedBy, Recv, Send, StreamKey};
use super::{Connection, Role};

use lighty_http::Known;

/// An incomplete field block.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    pub(super) id: u32,
    ends: bool,
    depends_on_itself: bool,
    continuations: u32,
    has_empty: bool,
    pub(super) since_ms: u64,
}

/// Stream of a field block.
enum Target {
    /// A new stream.
    New,
    Stream(u32),
    /// A stream that we have reset. The block is decoded for the table only.
    Dropped,
    /// A stream that the peer has reset.
    Closed,
}

/// Decoded contents of a block.
type Content = Result<Collected, StreamFault>;

impl Connection {
    #[inline]
    pub(super) fn handle_headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        if head.stream == 0 {
            return Err(ConnFault::StreamZero);
        }
        let mut fragment = frame::without_padding(head, payload).ok_or(ConnFault::Padding)?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (fields, rest) = fragment.split_first_chunk::<5>().ok_or(ConnFault::FrameLength)?;
            depends_on_itself = depends_on(fields) == head.stream;
            fragment = rest;
        }
        let block = OpenBlock {
            id: head.stream,
            ends: head.has(flag::END_STREAM),
            depends_on_itself,
            continuations: 0,
            has_empty: false,
            since_ms: self.now_ms,
        };
        if head.has(flag::END_HEADERS) {
            return self.handle_block(block, fragment);
        }
        debug_assert!(self.block.is_none(), "a block within another one");
        self.block_bytes.clear();
        self.block_bytes.extend_from_slice(fragment);
        self.block = Some(Box::new(block));
        Ok(None)
    }

    pub(super) fn handle_continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        let Some(block) = &mut self.block else { return Err(ConnFault::StrayContinuation) };
        debug_assert_eq!(block.id, head.stream, "the block of another stream");
        block.continuations += 1;
        let is_second_empty = payload.is_empty() && block.has_empty;
        block.has_empty |= payload.is_empty();
        if block.continuations > self.limits.continuations_max || is_second_empty {
            return Err(ConnFault::Continuations);
        }
        if self.block_bytes.len() + payload.len() > self.limits.block_bytes_max {
            return Err(ConnFault::BlockTooLarge);
        }
        self.block_bytes.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let block = *self.block.take().ok_or(ConnFault::StrayContinuation)?;
        let bytes = core::mem::take(&mut self.block_bytes);
        let result = self.handle_block(block, &bytes);
        self.block_bytes = bytes;
        result
    }

    #[inline]
    fn handle_block(&mut self, block: OpenBlock, bytes: &[u8]) -> Result<Option<Event>, ConnFault> {
        match self.target(block.id)? {
            Target::New => self.begin_request(block, bytes),
            Target::Stream(slot) => self.handle_more_fields(slot, block, bytes),
            Target::Dropped => {
                self.decode(bytes, BlockKind::Trailers)?.ok();
                self.charge_unproductive()?;
                Ok(None)
            }
            Target::Closed => {
                self.decode(bytes, BlockKind::Trailers)?.ok();
                self.fail_unopened(block.id, block.ends, StreamFault::Closed)?;
                Ok(None)
            }
        }
    }

    #[inline]
    fn target(&mut self, id: u32) -> Result<Target, ConnFault> {
        if self.role == Role::Server && id % 2 == 1 && id > self.last_peer_id {
            return Ok(Target::New);
        }
        if let Some(slot) = self.streams.find(id) {
            return Ok(Target::Stream(slot));
        }
        match self.streams.closed_by(id) {
            Some(ClosedBy::Us) => Ok(Target::Dropped),
            Some(ClosedBy::Peer) => Ok(Target::Closed),
            Some(ClosedBy::End) => Err(ConnFault::ClosedStream),
            // RFC 9113 section 5.1.1: an even identifier, or one lower than an opened stream's.
            None => Err(ConnFault::StreamId),
        }
    }

    /// Decodes a block into `self.head`. The outer error is the connection's.
    #[inline]
    fn decode(&mut self, bytes: &[u8], kind: BlockKind) -> Result<Content, ConnFault> {
        let mut collector =
            Collector::new(&mut self.head, kind, &self.limits, self.extended_connect);
        self.decoder.decode(bytes, |field| collector.field(field))?;
        let content = collector.finish();
        if self.head.bytes > 2 * self.limits.field_bytes_max {
            return Err(ConnFault::FieldsTooLarge);
        }
        Ok(content)
    }

    #[inline]
    fn begin_request(
        &mut self,
        block: OpenBlock,
        bytes: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        debug_assert!(block.id > self.last_peer_id, "{} {}", block.id, self.last_peer_id);
        self.last_peer_id = block.id;
        self.intake.early_reset_ms = None;
        let content = self.decode(bytes, BlockKind::Request)?;
        self.burst += 1;
        let streams_max = self.limits.streams_max;
        let is_full = self.streams.open_count() >= streams_max
            || self.burst > streams_max.saturating_mul(BURST_FACTOR);
        if is_full || self.is_shutting_down_above(block.id) {
            return self.refuse(block).map(|()| None);
        }
        // The client kept to the limit, but the driver has not released as many closed streams.
        if self.streams.alive() >= streams_max.saturating_mul(ALIVE_FACTOR) {
            self.charge_unproductive()?;
            self.push_refusal(block);
            return Ok(None);
        }
        let content = match content {
            _ if block.depends_on_itself => Err(StreamFault::DependsOnItself),
            Ok(_) if block.ends && self.head.content_length.is_some_and(|length| length > 0) => {
                Err(StreamFault::LengthMismatch)
            }
            content => content,
        };
        match content {
            Err(fault) => self.fail_unopened(block.id, block.ends, fault).map(|()| None),
            Ok(_) if !self.may_hold(self.head.bytes) => self.refuse(block).map(|()| None),
            Ok(collected) => Ok(Some(self.open_request(block, collected))),
        }
    }

    /// True if a stream with so many bytes of fields may be held in addition to the others.
    fn may_hold(&self, bytes: usize) -> bool {
        let excess = bytes.saturating_sub(FREE_FIELD_BYTES);
        excess == 0
            || self.intake.held_field_bytes + excess <= self.limits.held_field_bytes_max as usize
    }

    #[inline]
    fn open_request(&mut self, block: OpenBlock, collected: Collected) -> Event {
        let priority = self.take_priority(block.id);
        let left = self.head.content_length;
        let stream = self.open_stream(block.id, priority);
        let state = &mut self.streams.slots()[stream.slot()];
        state.recv = if block.ends { Recv::Ended } else { Recv::Body { left } };
        self.hold_fields(stream.slot, self.head.bytes);
        self.requests += 1;
        if self.limits.requests_max != 0 && self.requests >= self.limits.requests_max {
            self.shut_down(self.now_ms);
        }
        match collected {
            Collected::Whole => Event::Request { stream, ends: block.ends },
            Collected::Oversized => Event::Oversized { stream, ends: block.ends },
        }
    }

    /// The stream's priority. The PRIORITY_UPDATE frame takes precedence over the field, and may
    /// arrive before its stream: RFC 9218 section 7.
    fn take_priority(&mut self, id: u32) -> Priority {
        if !self.early_priorities.is_empty() {
            let early = self.early_priorities.iter().position(|&(early, _)| early == id);
            let found = early.map(|nth| self.early_priorities.swap_remove(nth).1);
            // Streams are opened in rising order: lower identifiers will never be used.
            self.early_priorities.retain(|&(early, _)| early > id);
            if let Some(priority) = found {
                return priority;
            }
        }
        self.head.fields.get(Known::Priority).map_or_else(Priority::default, Priority::parse)
    }

    pub(super) fn open_stream(&mut self, id: u32, priority: Priority) -> StreamKey {
        let key = self.streams.open(id);
        // Until the peer has read our settings, it uses the RFC's initial window.
        let is_settled = self.settings_sent_ms.is_none();
        let floor_bytes = if is_settled { 0 } else { frame::WINDOW_BYTES_INITIAL };
        let window_bytes = self.limits.stream_window_bytes;
        let send_window = i64::from(self.peer.window_bytes);
        let stream = &mut self.streams.slots()[key.slot()];
        stream.priority = priority;
        stream.recv_window = i64::from(window_bytes.max(floor_bytes));
        stream.recv_window_max = window_bytes;
        stream.send_window = send_window;
        stream.send = Send::Head;
        key
    }

    /// Refuses a stream beyond the limit: RFC 9113 section 5.1.2. The server has not processed it.
    fn refuse(&mut self, block: OpenBlock) -> Result<(), ConnFault> {
        self.refusals += 1;
        if self.refusals > self.limits.refusals_max {
            return Err(ConnFault::Refusals);
        }
        self.push_refusal(block);
        Ok(())
    }

    fn push_refusal(&mut self, block: OpenBlock) {
        frame::push_number(kind::RST_STREAM, block.id, ErrorCode::REFUSED_STREAM.0, &mut self.out);
        self.streams.refuse(block.id, if block.ends { ClosedBy::End } else { ClosedBy::Us });
    }

    /// Handles trailers, or the response to one of our requests.
    fn handle_more_fields(
        &mut self,
        slot: u32,
        block: OpenBlock,
        bytes: &[u8],
    ) -> Result<Option<Event>, ConnFault> {
        let recv = self.streams.slots()[slot as usize].recv;
        let kind = match recv {
            Recv::Head => BlockKind::Response,
            Recv::Body { .. } | Recv::Ended => BlockKind::Trailers,
        };
        let content = self.decode(bytes, kind)?;
        let content = match content {
            _ if block.depends_on_itself => Err(StreamFault::DependsOnItself),
            Ok(Collected::Oversized) => Err(StreamFault::TooManyFields),
            content => content,
        };
        let taken = match (recv, content) {
            (Recv::Ended, _) => Err(StreamFault::Closed),
            (_, Err(fault)) => Err(fault),
            (Recv::Head, Ok(_)) => self.take_response(slot, block),
            (Recv::Body { .. }, Ok(_)) if !block.ends => Err(StreamFault::Trailers),
            (Recv::Body { left: Some(1..) }, Ok(_)) => Err(StreamFault::LengthMismatch),
            (Recv::Body { .. }, Ok(_))
                if self.role == Role::Server && !self.hold_fields(slot, self.head.bytes) =>
            {
                Err(StreamFault::TooManyFields)
            }
            (Recv::Body { .. }, Ok(_)) => {
                let stream = self.end_recv(slot);
                Ok(Event::Trailers { stream })
            }
        };
        match taken {
            Ok(event) => Ok(Some(event)),
            Err(fault) => self.fail_stream(slot, fault),
        }
    }

    fn take_response(&mut self, slot: u32, block: OpenBlock) -> Result<Event, StreamFault> {
        let status = self.head.status.ok_or(StreamFault::PseudoMissing)?;
        let stream = StreamKey { slot, id: block.id };
        if status.is_interim() {
            return if block.ends {
                Err(StreamFault::InterimEnds)
            } else {
                Ok(Event::Interim { stream })
            };
        }
        let state = &mut self.streams.slots()[slot as usize];
        let has_content = !state.is_head_request && status.allows_content();
        let left = if has_content { self.head.content_length } else { Some(0) };
        if block.ends && left.is_some_and(|left| left > 0) {
            return Err(StreamFault::LengthMismatch);
        }
        debug_assert_eq!(state.recv, Recv::Head, "one response");
        state.recv = if block.ends { Recv::Ended } else { Recv::Body { left } };
        Ok(Event::Response { stream, ends: block.ends })
    }

    pub(super) fn end_recv(&mut self, slot: u32) -> StreamKey {
        let stream = &mut self.streams.slots()[slot as usize];
        debug_assert!(
            matches!(stream.recv, Recv::Body { left: None | Some(0) }),
            "{:?}",
            stream.recv
        );
        stream.recv = Recv::Ended;
        let id = stream.id;
        self.streams.note_end(slot);
        self.settle_growth(slot);
        StreamKey { slot, id }
    }
}

/// The parent stream in the five bytes of an RFC 7540 priority.
pub(super) fn depends_on(fields: &[u8; 5]) -> u32 {
    let [a, b, c, d, _weight] = *fields;
    u32::from_be_bytes([a, b, c, d]) & frame::STREAM_ID_MAX
}
