//! Output: heads, DATA, trailers, resets.

use alloc::vec::Vec;

use lighty_http::fields::is_token_byte;
use lighty_http::{Fields, Known, Status};

use super::super::event::{DataFrame, SendFault};
use super::super::frame::{
    self, ErrorCode, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead, STREAM_ID_MAX, flag, kind,
};
use super::super::limits::{DRIBBLE_MS, FREE_FIELD_BYTES, TURN_BYTES};
use super::super::priority::Priority;
use super::super::schedule::ScheduleList;
use super::super::streams::{ClosedBy, Life, Recv, Send, StreamKey};
use super::flow::is_dribble;
use super::{Connection, Expect, Role};

/// The pseudo-header fields of a request to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestParts<'a> {
    /// `:method`.
    pub method: &'a [u8],
    /// `:scheme`; empty for a plain CONNECT.
    pub scheme: &'a [u8],
    /// `:authority`; empty if there is none.
    pub authority: &'a [u8],
    /// `:path`; empty for a plain CONNECT.
    pub path: &'a [u8],
    /// `:protocol` of an extended CONNECT.
    pub protocol: Option<&'a [u8]>,
}

/// Fields of HTTP/1 connections: RFC 9113 section 8.2.2. They are left out.
const CONNECTION_FIELDS: &[Known] = &[
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::TransferEncoding,
    Known::Upgrade,
];

impl Connection {
    /// Appends pending output in whole frames: heads, and frames of the connection itself. A driver
    /// that cannot write must not take output, so that pending replies to the peer are counted.
    #[inline]
    pub fn poll_output(&mut self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.out);
        self.out.clear();
        (self.replies, self.burst) = (0, 0);
    }

    /// True if [`Connection::poll_output`] or [`Connection::poll_data`] has output.
    #[must_use]
    pub fn has_output(&self) -> bool {
        let is_waiting = |since| since != 0 && self.now_ms < since + DRIBBLE_MS;
        let waits = self.waits_since_ms.is_some_and(is_waiting);
        !self.out.is_empty() || self.send_window > 0 && !waits && self.schedule.next().is_some()
    }

    /// Bytes of output for [`Connection::poll_output`], without content.
    #[must_use]
    pub const fn output_bytes(&self) -> usize {
        self.out.len()
    }

    /// Sends the head of a response, final or interim. `ends` is true if there are neither content
    /// nor trailers. Fields of HTTP/1 connections are left out, and names are written in lower
    /// case.
    ///
    /// # Errors
    /// [`SendFault`]; nothing is sent then.
    #[inline]
    pub fn send_head(
        &mut self,
        key: StreamKey,
        status: Status,
        fields: &Fields,
        ends: bool,
    ) -> Result<(), SendFault> {
        check_fields(fields)?;
        let stream = self.streams.live(key).ok_or(SendFault::Gone)?;
        if stream.send != Send::Head || ends && status.is_interim() {
            return Err(SendFault::Misplaced);
        }
        debug_assert_eq!(stream.queued, 0, "content before the head");
        if !status.is_interim() {
            stream.send = if ends { Send::Ended } else { Send::Body };
        }
        let start = self.begin_block();
        self.encoder.status(status, &mut self.out);
        self.push_fields(fields);
        self.end_block(start, key.id, ends);
        if ends {
            self.on_end_sent(key.slot);
        }
        Ok(())
    }

    /// Sends trailers, which end the message. All content must have been taken by
    /// [`Connection::poll_data`].
    ///
    /// # Errors
    /// [`SendFault`]; nothing is sent then.
    pub fn send_trailers(&mut self, key: StreamKey, fields: &Fields) -> Result<(), SendFault> {
        check_fields(fields)?;
        let stream = self.streams.live(key).ok_or(SendFault::Gone)?;
        if stream.send != Send::Body || stream.queued > 0 {
            return Err(SendFault::Misplaced);
        }
        stream.send = Send::Ended;
        let start = self.begin_block();
        self.push_fields(fields);
        self.end_block(start, key.id, true);
        self.on_end_sent(key.slot);
        Ok(())
    }

    /// Opens a stream with a request. `ends` is true if there are neither content nor trailers.
    ///
    /// # Errors
    /// [`SendFault`]; nothing is sent then.
    pub fn open(
        &mut self,
        parts: &RequestParts<'_>,
        fields: &Fields,
        ends: bool,
    ) -> Result<StreamKey, SendFault> {
        check_fields(fields)?;
        let is_clean = |text: &[u8]| !text.iter().any(|&byte| byte <= b' ' || byte == 0x7F);
        if ![parts.method, parts.scheme, parts.authority, parts.path].into_iter().all(is_clean) {
            return Err(SendFault::Value);
        }
        let is_ending = self.peer_goaway.is_some() || self.is_shutting_down();
        if self.role == Role::Server
            || self.next_own_id > STREAM_ID_MAX
            || is_ending
            || self.expect == Expect::Nothing
        {
            return Err(SendFault::Exhausted);
        }
        if !self.can_open() {
            return Err(SendFault::TooManyStreams);
        }
        let id = self.next_own_id;
        self.next_own_id += 2;
        let key = self.open_stream(id, Priority::default());
        let stream = &mut self.streams.slots()[key.slot()];
        stream.recv = Recv::Head;
        stream.send = if ends { Send::Ended } else { Send::Body };
        stream.is_head_request = parts.method == b"HEAD";
        let start = self.begin_block();
        self.push_pseudo(parts);
        self.push_fields(fields);
        self.end_block(start, id, ends);
        Ok(key)
    }

    /// True if the peer allows another stream.
    #[must_use]
    pub const fn can_open(&self) -> bool {
        let (alive, allowed) = (self.streams.alive(), self.peer.streams_max);
        alive < allowed && alive < self.limits.streams_max
    }

    fn push_pseudo(&mut self, parts: &RequestParts<'_>) {
        let out = &mut self.out;
        self.encoder.pseudo(b":method", parts.method, 2, out);
        if let Some(protocol) = parts.protocol {
            self.encoder.pseudo(b":protocol", protocol, 0, out);
        }
        for (name, value, index) in [
            (&b":scheme"[..], parts.scheme, 6),
            (b":authority", parts.authority, 1),
            (b":path", parts.path, 4),
        ] {
            if !value.is_empty() {
                self.encoder.pseudo(name, value, index, out);
            }
        }
    }

    /// Reserves space for a frame's head, because the length is not known yet.
    #[inline]
    fn begin_block(&mut self) -> usize {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
        self.encoder.begin(&mut self.out);
        start
    }

    #[inline]
    fn push_fields(&mut self, fields: &Fields) {
        for (known, name, value) in fields.iter_known() {
            if known.is_none_or(|known| !CONNECTION_FIELDS.contains(&known)) {
                self.encoder.field(known, name, value, &mut self.out);
            }
        }
    }

    #[inline]
    fn end_block(&mut self, start: usize, id: u32, ends: bool) {
        let len = self.out.len() - start - FRAME_HEAD_BYTES;
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        if len > FRAME_BYTES_MAX {
            return self.split_block(start, id, end_stream);
        }
        let flags = flag::END_HEADERS | end_stream;
        let head = FrameHead { len, kind: kind::HEADERS, flags, stream: id };
        debug_assert_eq!(
            self.out[start..start + FRAME_HEAD_BYTES],
            [0; FRAME_HEAD_BYTES],
            "reserved"
        );
        self.out[start..start + FRAME_HEAD_BYTES].copy_from_slice(&head.bytes());
    }

    /// Splits a block that exceeds a frame.
    #[cold]
    fn split_block(&mut self, start: usize, id: u32, end_stream: u8) {
        let block = self.out.split_off(start + FRAME_HEAD_BYTES);
        self.out.truncate(start);
        let mut pieces = block.chunks(FRAME_BYTES_MAX).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, end_stream);
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            frame::push(kind, flags, id, piece, &mut self.out);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Announces `bytes` more of a stream's content. `ends` is true if they are the last.
    ///
    /// # Errors
    /// [`SendFault`]; nothing is queued then.
    #[inline]
    pub fn queue_data(&mut self, key: StreamKey, bytes: u64, ends: bool) -> Result<(), SendFault> {
        let stream = self.streams.live(key).ok_or(SendFault::Gone)?;
        if stream.send != Send::Body {
            return Err(SendFault::Misplaced);
        }
        stream.queued += bytes;
        if ends && stream.queued == 0 {
            // An empty frame needs no window and no turn.
            stream.send = Send::Ended;
            frame::push(kind::DATA, flag::END_STREAM, key.id, &[], &mut self.out);
            self.on_end_sent(key.slot);
            return Ok(());
        }
        if ends {
            stream.send = Send::Ending;
        }
        self.reschedule(key.slot);
        Ok(())
    }

    /// Bytes of content that fit into the windows of the stream and the connection, beyond the
    /// queued ones. A driver polls a body only if this is positive.
    #[must_use]
    pub fn room(&mut self, key: StreamKey) -> usize {
        let conn = self.send_window;
        let Some(stream) = self.streams.live(key) else { return 0 };
        let room = conn.min(stream.send_window) - i64::try_from(stream.queued).unwrap_or(i64::MAX);
        usize::try_from(room).unwrap_or(0)
    }

    /// True if the stream's own window has room, whatever the connection's has.
    #[must_use]
    pub fn has_own_window(&mut self, key: StreamKey) -> bool {
        self.streams.live(key).is_some_and(|stream| stream.send_window > 0)
    }

    /// True if both windows of the stream, its own and the connection's, have room.
    #[must_use]
    pub fn has_window(&mut self, key: StreamKey) -> bool {
        self.send_window > 0 && self.has_own_window(key)
    }

    /// Chooses the next stream to send, and appends the frames that precede its content: all other
    /// output, and the head of a DATA frame with at most `room` bytes of content.
    #[inline]
    pub fn poll_data(&mut self, room: usize, now_ms: u64, into: &mut Vec<u8>) -> Option<DataFrame> {
        self.poll_output(into);
        debug_assert!(now_ms >= self.now_ms, "{now_ms} after {}", self.now_ms);
        self.now_ms = now_ms;
        if self.expect == Expect::Nothing {
            return None;
        }
        let slot = self.schedule.next()?;
        let conn_room = usize::try_from(self.send_window).unwrap_or(0);
        let stream = &mut self.streams.slots()[slot as usize];
        debug_assert!(stream.queued > 0 && stream.send_window > 0, "{}", stream.send_window);
        let wanted = usize::try_from(stream.queued).unwrap_or(usize::MAX);
        let wanted = wanted.min(usize::try_from(stream.send_window).unwrap_or(0)).min(TURN_BYTES);
        let len = wanted.min(conn_room).min(room);
        if len == 0 {
            return None;
        }
        let is_last = stream.send == Send::Ending && stream.queued == wanted as u64;
        if is_dribble(self.send_window, wanted as u64, is_last) && !self.has_waited(now_ms) {
            return None;
        }
        let stream = &mut self.streams.slots()[slot as usize];
        debug_assert!(matches!(stream.send, Send::Body | Send::Ending), "{:?}", stream.send);
        debug_assert_eq!(stream.life, Life::Live, "content of a stream that was reset");
        stream.queued -= len as u64;
        stream.send_window -= len as i64;
        self.send_window -= len as i64;
        debug_assert!(stream.send_window >= 0 && self.send_window >= 0, "{}", self.send_window);
        let id = stream.id;
        let ends = stream.send == Send::Ending && stream.queued == 0;
        let flags = if ends { flag::END_STREAM } else { 0 };
        let head = FrameHead { len, kind: kind::DATA, flags, stream: id };
        into.extend_from_slice(&head.bytes());
        self.window_updates.repay(16);
        self.unproductive.repay(1);
        if ends {
            stream.send = Send::Ended;
            self.on_end_sent(slot);
        }
        self.schedule.end_turn(self.streams.slots(), slot);
        self.reschedule(slot);
        Some(DataFrame { stream: StreamKey { slot, id }, len, ends })
    }

    /// True if the connection's window has been too small for so long that a short frame is sent.
    fn has_waited(&mut self, now_ms: u64) -> bool {
        let since = *self.waits_since_ms.get_or_insert(now_ms.max(1));
        let has_waited = since == 0 || now_ms >= since + DRIBBLE_MS;
        if has_waited {
            self.waits_since_ms = None;
        }
        has_waited
    }

    /// Records that our side of a stream has ended. A completed response offsets resets and
    /// unproductive frames.
    #[inline]
    fn on_end_sent(&mut self, slot: u32) {
        let stream = &self.streams.slots()[slot as usize];
        debug_assert_eq!((stream.send, stream.queued), (Send::Ended, 0), "stream {}", stream.id);
        self.streams.note_end(slot);
        self.schedule.place(self.streams.slots(), slot, ScheduleList::None);
        self.resets.repay(1);
        self.unproductive.repay(1);
        self.refusals = self.refusals.saturating_sub(1);
    }

    /// Resets a stream. The driver still has to release it.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode) {
        if self.streams.live(key).is_some() {
            // After a GOAWAY for a fault nothing more is sent.
            if self.expect != Expect::Nothing {
                frame::push_number(kind::RST_STREAM, key.id, code.0, &mut self.out);
            }
            self.forget(key.slot, ClosedBy::Us);
        }
    }

    /// Releases a stream after its exchange. An incomplete stream is reset: with NO_ERROR if its
    /// response was complete (RFC 9113 section 8.1), otherwise with CANCEL.
    #[inline]
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        let uncredited = core::mem::take(&mut stream.uncredited) as usize;
        let held = core::mem::take(&mut stream.field_bytes) as usize;
        let growth = core::mem::take(&mut stream.growth) as usize;
        debug_assert!(growth <= self.intake.growth, "{growth} of {}", self.intake.growth);
        debug_assert!(uncredited <= self.intake.uncredited, "{uncredited}");
        self.intake.held_field_bytes -= held.saturating_sub(FREE_FIELD_BYTES);
        self.intake.growth -= growth;
        self.intake.uncredited -= uncredited;
        let Some(stream) = self.streams.get(key) else { return };
        let (life, recv, send) = (stream.life, stream.recv, stream.send);
        if life == Life::Live {
            match (recv, send) {
                (Recv::Ended, Send::Ended) => {}
                (_, Send::Ended) if self.role == Role::Server => {
                    self.reset(key, ErrorCode::NO_ERROR);
                }
                _ => self.reset(key, ErrorCode::CANCEL),
            }
        }
        self.schedule.place(self.streams.slots(), key.slot, ScheduleList::None);
        self.streams.release(key.slot);
        #[cfg(debug_assertions)]
        self.check_sums();
    }
}

/// Rejects invalid fields before the first one is encoded: the tables of both ends must stay equal.
#[inline]
fn check_fields(fields: &Fields) -> Result<(), SendFault> {
    if fields.names_are_tokens() && fields.values_are_clean() {
        return Ok(());
    }
    for (known, name, value) in fields.iter_known() {
        let is_token =
            known.is_some() || !name.is_empty() && name.iter().all(|&b| is_token_byte(b));
        if !is_token {
            return Err(SendFault::Name);
        }
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(SendFault::Value);
        }
    }
    Ok(())
}
