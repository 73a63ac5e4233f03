//! One HTTP/2 connection, server or client: RFC 9113.
//!
//! [`Connection`] has methods of four kinds. Input: [`Connection::handle_input`] takes bytes and
//! returns one event at a time; [`Connection::handle_timeout`] takes the time. Commands:
//! `send_head`, `queue_data`, `send_trailers`, `credit`, `reset`, `release`, `open`, `shut_down`.
//! Output: [`Connection::poll_output`] appends heads and control frames, [`Connection::poll_data`]
//! the head of the next DATA frame, whose content stays in the driver's buffer until it is written.
//! Timers: [`Connection::deadline_ms`] returns the time of the next `handle_timeout`.
//!
//! A fault of the peer ends the connection: the error is returned once, GOAWAY is in the output,
//! and all further input is dropped.

mod block;
mod control;
mod data;
mod flow;
mod output;
mod shutdown;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::event::{Event, Handled};
use super::fault::{ConnFault, StreamFault};
use super::frame::{
    self, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead, PREFACE, WINDOW_BYTES_INITIAL, kind,
};
use super::hpack::{Decoder, Encoder};
use super::limits::{Budget, FREE_FIELD_BYTES, Limits, OWN_RESET_WEIGHT};
use super::message::MessageHead;
use super::priority::Priority;
use super::schedule::{Schedule, ScheduleList};
use super::settings::PeerSettings;
use super::streams::{ClosedBy, StreamKey, Streams};
use block::OpenBlock;
use flow::Intake;
pub use output::RequestParts;
use shutdown::Shutdown;

/// This side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives requests.
    Server,
    /// Sends requests.
    Client,
}

/// Next part of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The client's preface.
    Preface,
    /// The peer's first frame.
    FirstFrame,
    /// The head of a frame.
    Frame,
    /// The rest of a DATA frame: content, then padding.
    Data { stream: StreamKey, left: usize, padding: usize, ends: bool },
    /// The rest of an ignored frame.
    Skip { left: usize },
    /// Nothing: the connection has failed.
    Nothing,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: Limits,
    extended_connect: bool,
    now_ms: u64,
    expect: Expect,
    /// The incomplete field block.
    block: Option<Box<OpenBlock>>,
    block_bytes: Vec<u8>,
    decoder: Decoder,
    encoder: Encoder,
    head: MessageHead,
    streams: Streams,
    schedule: Schedule,
    /// The highest stream that the peer has opened.
    last_peer_id: u32,
    /// The next stream that we open.
    next_own_id: u32,
    /// Bytes that the peer may still send on the connection.
    recv_window: i64,
    intake: Box<Intake>,
    /// Bytes credited but not yet announced.
    unannounced: u32,
    send_window: i64,
    /// Start of a short frame's wait for a larger connection window; 0: the wait is over.
    waits_since_ms: Option<u64>,
    peer: PeerSettings,
    /// Time at which our settings were sent, until they are acknowledged.
    settings_sent_ms: Option<u64>,
    /// Priorities of streams that are not open yet.
    early_priorities: Vec<(u32, Priority)>,
    shutdown: Shutdown,
    /// The highest stream that the peer accepts, from its GOAWAY.
    peer_goaway: Option<u32>,
    /// Whole frames, in sending order.
    out: Vec<u8>,
    /// Number of replies in `out`.
    replies: u32,
    /// Streams opened by the peer; `burst` counts the ones since output was last taken.
    requests: u32,
    burst: u32,
    refusals: u32,
    resets: Budget,
    unproductive: Budget,
    window_updates: Budget,
    /// Bytes received that have not offset an unproductive frame yet.
    received: usize,
}

/// Result of parsing a part of the input: bytes consumed, and the event they complete.
type Step = (usize, Option<Event>);

/// More bytes are needed.
const WAIT: Step = (0, None);

impl Connection {
    /// Creates a server's end. Its settings are in the output at once (RFC 9113 section 3.4).
    #[must_use]
    pub fn server(limits: Limits, now_ms: u64) -> Self {
        Self::new(Role::Server, limits, false, now_ms)
    }

    /// Creates a server's end that accepts extended CONNECT: RFC 8441.
    #[must_use]
    pub fn server_with_extended_connect(limits: Limits, now_ms: u64) -> Self {
        Self::new(Role::Server, limits, true, now_ms)
    }

    /// Creates a client's end. The preface is in the output at once.
    #[must_use]
    pub fn client(limits: Limits, now_ms: u64) -> Self {
        Self::new(Role::Client, limits, false, now_ms)
    }

    fn new(role: Role, limits: Limits, extended_connect: bool, now_ms: u64) -> Self {
        let mut conn = Self {
            role,
            limits,
            extended_connect,
            now_ms,
            expect: if role == Role::Server { Expect::Preface } else { Expect::FirstFrame },
            block: None,
            block_bytes: Vec::new(),
            decoder: Decoder::new(),
            encoder: Encoder::new(limits.encoder_table_bytes_max),
            head: MessageHead::default(),
            streams: Streams::new(),
            schedule: Schedule::new(),
            last_peer_id: 0,
            next_own_id: 1,
            recv_window: i64::from(WINDOW_BYTES_INITIAL),
            intake: Box::new(Intake::new(&limits)),
            unannounced: 0,
            send_window: i64::from(WINDOW_BYTES_INITIAL),
            waits_since_ms: None,
            peer: PeerSettings::default(),
            settings_sent_ms: Some(now_ms),
            early_priorities: Vec::new(),
            shutdown: Shutdown::No,
            peer_goaway: None,
            out: Vec::new(),
            replies: 0,
            requests: 0,
            burst: 0,
            refusals: 0,
            resets: Budget::default(),
            unproductive: Budget::default(),
            window_updates: Budget::default(),
            received: 0,
        };
        conn.push_first_frames();
        conn
    }

    /// This side of the connection.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The head or trailers of the last event that had some. The driver may swap the fields with
    /// empty ones.
    pub fn head(&mut self) -> &mut MessageHead {
        &mut self.head
    }

    /// The peer's settings.
    #[must_use]
    pub const fn peer_settings(&self) -> &PeerSettings {
        &self.peer
    }

    /// Streams that the driver has not released.
    #[must_use]
    pub const fn streams_alive(&self) -> u32 {
        self.streams.alive()
    }

    /// Bytes of heap memory held by the connection.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block_bytes.capacity()
            + self.decoder.capacity()
            + self.encoder.capacity()
            + self.head.capacity()
            + self.streams.capacity()
            + self.out.capacity()
            + self.early_priorities.capacity() * size_of::<(u32, Priority)>()
    }

    /// Frees memory that an idle connection does not need: all buffers except the compression
    /// tables.
    pub fn release_buffers(&mut self) {
        self.streams.release_buffers();
        self.decoder.release_buffers();
        self.encoder.release_buffers();
        self.head = MessageHead::default();
        if self.block.is_none() {
            self.block_bytes = Vec::new();
        }
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        if self.early_priorities.is_empty() {
            self.early_priorities = Vec::new();
        }
    }

    /// Handles input up to the next event. Call it until there is no event, each time with the
    /// bytes that were not consumed. The caller keeps incomplete frames and needs a buffer for one
    /// of [`FRAME_BYTES_MAX`].
    ///
    /// # Errors
    /// [`ConnFault`], once. The output then ends with GOAWAY; write it before closing.
    #[inline]
    pub fn handle_input(&mut self, input: &[u8], now_ms: u64) -> Result<Handled, ConnFault> {
        debug_assert!(now_ms >= self.now_ms, "{now_ms} after {}", self.now_ms);
        self.now_ms = now_ms;
        let mut consumed = 0;
        loop {
            let step = match self.expect {
                Expect::Frame => self.handle_frame(&input[consumed..]),
                _ => self.handle_other(&input[consumed..]),
            };
            let (taken, event) = step.inspect_err(|&fault| self.fail(fault))?;
            let event = event.map(|event| at_offset(event, consumed));
            consumed += taken;
            debug_assert!(consumed <= input.len(), "{consumed} of {}", input.len());
            if taken == 0 || event.is_some() {
                return Ok(Handled { consumed, event });
            }
        }
    }

    fn handle_other(&mut self, input: &[u8]) -> Result<Step, ConnFault> {
        match self.expect {
            Expect::Preface => self.handle_preface(input),
            Expect::FirstFrame | Expect::Frame => self.handle_frame(input),
            Expect::Data { .. } => Ok(self.handle_data(input)),
            Expect::Skip { left } => {
                let taken = left.min(input.len());
                self.skip(left - taken);
                Ok((taken, None))
            }
            Expect::Nothing => Ok((input.len(), None)),
        }
    }

    fn handle_preface(&mut self, input: &[u8]) -> Result<Step, ConnFault> {
        let len = PREFACE.len().min(input.len());
        if input[..len] != PREFACE[..len] {
            return Err(ConnFault::Preface);
        }
        if len < PREFACE.len() {
            return Ok(WAIT);
        }
        self.expect = Expect::FirstFrame;
        Ok((len, None))
    }

    #[inline]
    fn handle_frame(&mut self, input: &[u8]) -> Result<Step, ConnFault> {
        let Some(bytes) = input.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(WAIT) };
        let head = FrameHead::parse(bytes);
        self.check_frame(head)?;
        let rest = &input[FRAME_HEAD_BYTES..];
        if head.kind == kind::DATA {
            return self.handle_data_head(head, rest);
        }
        if !is_known(head.kind) {
            self.skip(head.len);
            self.charge_unproductive()?;
            return Ok((FRAME_HEAD_BYTES, None));
        }
        let Some(payload) = rest.get(..head.len) else { return Ok(WAIT) };
        self.expect = Expect::Frame;
        let event = match head.kind {
            kind::HEADERS => self.handle_headers(head, payload)?,
            kind::CONTINUATION => self.handle_continuation(head, payload)?,
            kind::WINDOW_UPDATE => self.handle_window_update(head, payload)?,
            kind::RST_STREAM => self.handle_rst_stream(head, payload)?,
            kind::SETTINGS => self.handle_settings(head, payload)?,
            kind::PING => self.handle_ping(head, payload)?,
            kind::PRIORITY => self.handle_priority(head, payload)?,
            kind::PRIORITY_UPDATE => self.handle_priority_update(head, payload)?,
            kind::GOAWAY => self.handle_goaway(head, payload)?,
            // PUSH_PROMISE, the only other type. Push was not allowed (section 8.4).
            _ => return Err(ConnFault::PushPromise),
        };
        Ok((FRAME_HEAD_BYTES + head.len, event))
    }

    /// Checks a frame by its head, before the payload has arrived.
    #[inline]
    fn check_frame(&self, head: FrameHead) -> Result<(), ConnFault> {
        if self.expect == Expect::FirstFrame
            && (head.kind != kind::SETTINGS || head.has(frame::flag::ACK))
        {
            return Err(ConnFault::FirstFrame);
        }
        if head.len > FRAME_BYTES_MAX {
            return Err(ConnFault::FrameTooLarge);
        }
        match &self.block {
            // RFC 9113 section 6.10: no other frame may come in between, not even an unknown one.
            Some(block) if head.kind != kind::CONTINUATION || head.stream != block.id => {
                Err(ConnFault::NoContinuation)
            }
            None if head.kind == kind::CONTINUATION => Err(ConnFault::StrayContinuation),
            _ => Ok(()),
        }
    }

    /// Skips `left` bytes that are ignored.
    fn skip(&mut self, left: usize) {
        debug_assert!(left <= FRAME_BYTES_MAX, "{left}");
        self.expect = if left == 0 { Expect::Frame } else { Expect::Skip { left } };
    }

    /// True if the stream has never been opened: RFC 9113 section 5.1.1.
    fn is_idle(&self, id: u32) -> bool {
        let is_own = id % 2 == u32::from(self.role == Role::Client);
        if is_own { id >= self.next_own_id } else { id > self.last_peer_id }
    }

    /// Counts an unproductive frame.
    fn charge_unproductive(&mut self) -> Result<(), ConnFault> {
        let is_over = self.unproductive.charge(1, self.limits.unproductive_max, self.now_ms);
        if is_over { Err(ConnFault::Unproductive) } else { Ok(()) }
    }

    /// Counts resets that the peer sends or causes.
    fn charge_reset(&mut self, weight: u32) -> Result<(), ConnFault> {
        let is_over = self.resets.charge(weight, self.limits.resets_max, self.now_ms);
        if is_over { Err(ConnFault::Resets) } else { Ok(()) }
    }

    /// Resets a stream because of the peer's mistake.
    fn fail_stream(&mut self, slot: u32, fault: StreamFault) -> Result<Option<Event>, ConnFault> {
        self.charge_reset(OWN_RESET_WEIGHT)?;
        let id = self.streams.slots()[slot as usize].id;
        frame::push_number(kind::RST_STREAM, id, fault.code().0, &mut self.out);
        self.forget(slot, ClosedBy::Us);
        let stream = StreamKey { slot, id };
        Ok(Some(Event::Reset { stream, code: fault.code(), fault: Some(fault) }))
    }

    /// Like [`Self::fail_stream`], for a stream without a slot.
    fn fail_unopened(&mut self, id: u32, ends: bool, fault: StreamFault) -> Result<(), ConnFault> {
        self.charge_reset(OWN_RESET_WEIGHT)?;
        frame::push_number(kind::RST_STREAM, id, fault.code().0, &mut self.out);
        self.streams.refuse(id, if ends { ClosedBy::End } else { ClosedBy::Us });
        Ok(())
    }

    /// Counts fields that a stream's driver holds. False if all streams together exceed their
    /// limit.
    fn hold_fields(&mut self, slot: u32, bytes: usize) -> bool {
        let stream = &mut self.streams.slots()[slot as usize];
        let held = stream.field_bytes as usize;
        debug_assert!(u32::try_from(held + bytes).is_ok(), "{held} {bytes}");
        // The limits of field blocks bound both numbers.
        stream.field_bytes = (held + bytes) as u32;
        let excess = |bytes: usize| bytes.saturating_sub(FREE_FIELD_BYTES);
        self.intake.held_field_bytes += excess(held + bytes) - excess(held);
        self.intake.held_field_bytes <= self.limits.held_field_bytes_max as usize
    }

    /// Compares the sums over all streams with the streams.
    #[cfg(debug_assertions)]
    fn check_sums(&mut self) {
        let (mut growth, mut uncredited, mut fields) = (0, 0, 0);
        for stream in self.streams.slots() {
            growth += stream.growth as usize;
            uncredited += stream.uncredited as usize;
            fields += (stream.field_bytes as usize).saturating_sub(FREE_FIELD_BYTES);
        }
        debug_assert_eq!(self.intake.growth, growth, "growth of the windows");
        debug_assert_eq!(self.intake.uncredited, uncredited, "bytes that drivers hold");
        debug_assert_eq!(self.intake.held_field_bytes, fields, "fields that drivers hold");
    }

    /// Removes a stream from sending and receiving.
    fn forget(&mut self, slot: u32, by: ClosedBy) {
        self.schedule.place(self.streams.slots(), slot, ScheduleList::None);
        self.streams.reset(slot, by);
        self.settle_growth(slot);
    }

    #[cold]
    fn fail(&mut self, fault: ConnFault) {
        debug_assert_ne!(self.expect, Expect::Nothing, "{fault:?} of a connection that has failed");
        self.push_goaway(self.last_served_id(), fault.code(), fault.message().as_bytes());
        self.expect = Expect::Nothing;
        self.block = None;
    }
}

/// Converts an event's offset from a part of the input to the whole.
#[inline]
fn at_offset(event: Event, offset: usize) -> Event {
    match event {
        Event::Data { stream, start, len, ends } => {
            Event::Data { stream, start: start + offset, len, ends }
        }
        event => event,
    }
}

const fn is_known(kind: u8) -> bool {
    kind <= kind::CONTINUATION || kind == kind::PRIORITY_UPDATE
}

#[cfg(test)]
mod tests;
