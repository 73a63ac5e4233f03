//! Moves a request and its response between a session's records and a stream's frames.
//!
//! [`BackendStream`] has methods of three kinds, all called by the connection's task. Input from
//! the backend: `take_head`, `take_data`, `take_trailers` and `cut`. Work in both directions:
//! `pump_request` moves the session's records to the codec, `pump_response` moves the response to
//! the session; both return whether anything has moved, and wake the task when more can. Output:
//! `take_content` appends the content behind the head of a DATA frame. Timers: `end_abandoned`
//! takes the time. Once `is_over` returns true, the task releases the stream in the codec, and
//! calls `end`.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lighty_http::{Fields, Status};
use lighty_io::transport::Stream;
use lighty_wire::http2::{Connection, MessageHead, RequestParts, SendFault, StreamKey};

use super::Fate;
use super::record::{self, HEAD_BYTES, Kind, Payload, Record};
use super::transfer::{
    LifeEvent, RequestPart, ResponsePart, StreamLife, Transfer, TransferAction, TransferEvent,
};

/// Limit on a request's unwritten content, in bytes.
const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a waiting response above which further interim responses are dropped, since no window
/// limits them.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// Bytes read from a session at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Time limit for the backend to take the last bytes of a tunnel, in milliseconds.
const LINGER_MS: u64 = 10_000;

/// Result of moving records of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CarryProgress {
    Moved,
    NeedsInput,
    NoRoom,
}

/// A request on a stream.
pub(super) struct BackendStream {
    near: Stream,
    pub(super) fate: Rc<Fate>,
    pub(super) key: Option<StreamKey>,
    transfer: Transfer,
    life: StreamLife,
    /// Records that were not processed yet.
    inbox: Vec<u8>,
    /// Unprocessed bytes of the current piece of content.
    piece_left: usize,
    /// Content that was announced to the machine.
    content: VecDeque<Bytes>,
    content_bytes: usize,
    /// Bytes of content that were written.
    written: u64,
    /// Trailers to send after the content.
    trailers: Option<Fields>,
    /// Records of the response.
    outbox: Vec<u8>,
    sent: usize,
    /// Bytes of content in the outbox. The backend gets window for them once they are sent.
    owed: usize,
    /// Time since which a tunnel's session is gone, in monotonic milliseconds.
    abandoned_ms: Option<u64>,
}

impl BackendStream {
    pub(super) fn new(near: Stream, fate: Rc<Fate>) -> Self {
        Self {
            near,
            fate,
            key: None,
            transfer: Transfer::new(),
            life: StreamLife::Open,
            inbox: Vec::new(),
            piece_left: 0,
            content: VecDeque::new(),
            content_bytes: 0,
            written: 0,
            trailers: None,
            outbox: Vec::new(),
            sent: 0,
            owed: 0,
            abandoned_ms: None,
        }
    }

    /// Returns true if the session's side is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.fate) == 1
    }

    /// Returns true if the session is gone, or has received everything.
    pub(super) fn is_over(&self) -> bool {
        self.life == StreamLife::Over
    }

    /// Handles an event of the transfer.
    fn note(&mut self, event: TransferEvent) -> TransferAction {
        let action = self.transfer.handle(event);
        if action == TransferAction::Finish {
            self.life.handle(LifeEvent::Finish);
        }
        action
    }

    /// Moves as much of the request as is available and has room.
    pub(super) fn pump_request(
        &mut self,
        machine: &mut Connection,
        scheme: &[u8],
        cx: &mut Context<'_>,
    ) -> bool {
        let mut moved = false;
        if self.is_abandoned() {
            self.note(TransferEvent::Abandoned);
        }
        while self.life == StreamLife::Open {
            match self.carry(machine, scheme) {
                CarryProgress::Moved => {}
                CarryProgress::NoRoom => return moved,
                CarryProgress::NeedsInput => match self.fill(cx) {
                    Poll::Pending => return moved,
                    Poll::Ready(Ok(1..)) => {}
                    // The client's bytes are incomplete: the release of the stream resets it.
                    Poll::Ready(Err(_)) if self.transfer.is_tunnel() => {
                        self.life.handle(LifeEvent::Finish);
                    }
                    Poll::Ready(Ok(0) | Err(_)) => {
                        if self.note(TransferEvent::SessionEnd) == TransferAction::EndRequest {
                            self.end_request(machine);
                        }
                    }
                },
            }
            moved = true;
        }
        moved
    }

    /// Reads more records. Returns the number of bytes; 0 if none will come.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let start = self.inbox.len();
        self.inbox.resize(start + PIECE_BYTES, 0);
        let read = self.near.poll_read(cx, &mut self.inbox[start..]);
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        self.inbox.truncate(start + count);
        read
    }

    fn carry(&mut self, machine: &mut Connection, scheme: &[u8]) -> CarryProgress {
        match self.transfer.request {
            RequestPart::Head => self.carry_head(machine, scheme),
            RequestPart::Body if self.piece_left > 0 => self.carry_piece(machine),
            RequestPart::Body => self.carry_record(machine),
            RequestPart::Connect => CarryProgress::NeedsInput,
            RequestPart::Refused => {
                self.end_request(machine);
                self.note(TransferEvent::EndSent);
                CarryProgress::Moved
            }
            RequestPart::Tunnel => self.carry_bytes(machine, usize::MAX).0,
            RequestPart::TunnelEnding | RequestPart::TunnelEnded => CarryProgress::NoRoom,
            RequestPart::Done => {
                if self.content.is_empty()
                    && let (Some(trailers), Some(key)) = (self.trailers.take(), self.key)
                    // Trailers that cannot be sent are dropped, but the end must be sent.
                    && machine.send_trailers(key, &trailers).is_err()
                {
                    let _ = machine.queue_data(key, 0, true);
                }
                CarryProgress::NeedsInput
            }
        }
    }

    /// Returns the record at the front of the inbox, once it is complete.
    fn whole(&self) -> Option<Record> {
        let record = Record::parse(&self.inbox)?;
        (self.inbox.len() >= HEAD_BYTES + record.len).then_some(record)
    }

    fn carry_head(&mut self, machine: &mut Connection, scheme: &[u8]) -> CarryProgress {
        let Some(record) = self.whole() else { return CarryProgress::NeedsInput };
        let end = HEAD_BYTES + record.len;
        debug_assert!(record.kind == Kind::Head && self.key.is_none(), "{:?}", record.kind);
        let mut payload = Payload(&self.inbox[HEAD_BYTES..end]);
        let ends = payload.byte() != 0;
        let (method, path, authority) = (payload.text(), payload.text(), payload.text());
        let protocol = Some(payload.text()).filter(|protocol| !protocol.is_empty());
        let parts = RequestParts { method, scheme, authority, path, protocol };
        let event = match (protocol, ends) {
            (Some(_), _) => TransferEvent::SendConnect,
            (None, true) => TransferEvent::SendHeadEnded,
            (None, false) => TransferEvent::SendHead,
        };
        let mut fields = Fields::new();
        payload.fields(&mut fields);
        match machine.open(&parts, &fields, ends) {
            Ok(key) => self.key = Some(key),
            Err(fault) => {
                let may_go_elsewhere =
                    matches!(fault, SendFault::TooManyStreams | SendFault::Exhausted);
                self.cut(may_go_elsewhere);
            }
        }
        self.inbox.drain(..end);
        self.note(event);
        CarryProgress::Moved
    }

    fn carry_piece(&mut self, machine: &mut Connection) -> CarryProgress {
        let (progress, count) = self.carry_bytes(machine, self.piece_left);
        self.piece_left -= count;
        progress
    }

    /// Moves up to `most` bytes of content. Returns the number of bytes moved.
    fn carry_bytes(&mut self, machine: &mut Connection, most: usize) -> (CarryProgress, usize) {
        let Some(key) = self.key else { return (CarryProgress::NoRoom, 0) };
        if self.inbox.is_empty() {
            return (CarryProgress::NeedsInput, 0);
        }
        let room = machine.room(key).min(CONTENT_BYTES_MAX.saturating_sub(self.content_bytes));
        let count = most.min(self.inbox.len()).min(room);
        if count == 0 || machine.queue_data(key, count as u64, false).is_err() {
            return (CarryProgress::NoRoom, 0);
        }
        self.content.push_back(Bytes::copy_from_slice(&self.inbox[..count]));
        self.content_bytes += count;
        debug_assert!(self.content_bytes <= CONTENT_BYTES_MAX, "{}", self.content_bytes);
        self.inbox.drain(..count);
        (CarryProgress::Moved, count)
    }

    /// Ends the request after its queued content.
    fn end_request(&mut self, machine: &mut Connection) {
        if let Some(key) = self.key {
            // A stream that was reset accepts nothing.
            let _ = machine.queue_data(key, 0, true);
        }
    }

    fn carry_record(&mut self, machine: &mut Connection) -> CarryProgress {
        let Some(record) = Record::parse(&self.inbox) else { return CarryProgress::NeedsInput };
        if record.kind == Kind::Data {
            self.inbox.drain(..HEAD_BYTES);
            self.piece_left = record.len;
            return CarryProgress::Moved;
        }
        let Some(record) = self.whole() else { return CarryProgress::NeedsInput };
        let end = HEAD_BYTES + record.len;
        debug_assert!(record.kind == Kind::End && self.trailers.is_none(), "{:?}", record.kind);
        let mut trailers = Fields::new();
        Payload(&self.inbox[HEAD_BYTES..end]).fields(&mut trailers);
        self.inbox.drain(..end);
        if trailers.is_empty() {
            self.end_request(machine);
        } else {
            self.trailers = Some(trailers);
        }
        self.note(TransferEvent::SendEnd);
        CarryProgress::Moved
    }

    /// Appends content that the machine has taken.
    pub(super) fn take_content(&mut self, mut len: usize, ends: bool, out: &mut Vec<u8>) {
        debug_assert!(len <= self.content_bytes, "{len} of {} bytes", self.content_bytes);
        self.written += len as u64;
        self.content_bytes = self.content_bytes.saturating_sub(len);
        while len > 0 {
            let Some(first) = self.content.front_mut() else { break };
            let count = first.len().min(len);
            out.extend_from_slice(&first[..count]);
            first.advance(count);
            len -= count;
            if first.is_empty() {
                self.content.pop_front();
            }
        }
        debug_assert_eq!(self.content.is_empty(), self.content_bytes == 0);
        if ends {
            debug_assert!(self.content.is_empty(), "content after the end of the request");
            self.note(TransferEvent::EndWritten);
        }
    }

    /// Reports to the session's side how much of the request was written.
    pub(super) fn tell_written(&self) {
        let is_left = self.content_bytes > 0 || !self.inbox.is_empty();
        let is_withheld = is_left && self.key.is_some() && self.life == StreamLife::Open;
        self.fate.tell_written(is_withheld, self.written);
    }

    /// Handles a received head.
    pub(super) fn take_head(&mut self, kind: Kind, head: &MessageHead, ends: bool) {
        if kind == Kind::Interim && self.outbox.len() - self.sent > INTERIM_BYTES_MAX {
            return;
        }
        if kind == Kind::Head {
            let is_success = head.status.is_some_and(Status::is_success);
            self.note(match (is_success, ends) {
                (true, false) => TransferEvent::RecvHead,
                (true, true) => TransferEvent::RecvHeadEnded,
                (false, false) => TransferEvent::RecvError,
                (false, true) => TransferEvent::RecvErrorEnded,
            });
        }
        record::push(kind, &mut self.outbox, |out| {
            out.extend_from_slice(&head.status.map_or(200, |s| s.code()).to_be_bytes());
            out.push(u8::from(ends));
            for (_, name, value) in head.fields.iter_known() {
                record::push_field(name, value, out);
            }
        });
    }

    /// Handles received content.
    pub(super) fn take_data(&mut self, piece: &[u8], ends: bool) {
        debug_assert_eq!(self.transfer.response, ResponsePart::Body, "content outside a body");
        self.owed += piece.len();
        match self.transfer.is_tunnel() {
            true => self.outbox.extend_from_slice(piece),
            false if piece.is_empty() => {}
            false => record::push_data(piece, &mut self.outbox),
        }
        if ends {
            self.end_response(None);
        }
    }

    /// Handles received trailers.
    pub(super) fn take_trailers(&mut self, trailers: &Fields) {
        self.end_response(Some(trailers));
    }

    fn end_response(&mut self, trailers: Option<&Fields>) {
        self.note(TransferEvent::RecvEnd);
        if !self.transfer.is_tunnel() {
            record::push_end(trailers, &mut self.outbox);
        }
    }

    /// Ends the response: the backend sends nothing more. `is_refused` if it has not processed the
    /// request.
    pub(super) fn cut(&mut self, is_refused: bool) {
        self.life.handle(LifeEvent::Cut);
        // A refusal is final: the connection may end before the session hears of it.
        if is_refused && !self.transfer.has_response() {
            self.fate.is_refused.set(true);
        }
    }

    /// Moves as much of the response as the session accepts.
    pub(super) fn pump_response(&mut self, machine: &mut Connection, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.sent < self.outbox.len() && !self.is_over() {
            match self.near.try_write(&self.outbox[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.near.poll_writable(cx).is_pending() {
                        return moved;
                    }
                }
                Err(_) => self.life.handle(LifeEvent::Finish),
            }
        }
        if self.sent > 0 && self.sent == self.outbox.len() {
            (self.outbox, self.sent) = (Vec::new(), 0);
            if let Some(key) = self.key {
                machine.credit(key, std::mem::take(&mut self.owed));
            }
        }
        debug_assert!(self.sent <= self.outbox.len(), "{} {}", self.sent, self.outbox.len());
        if self.outbox.is_empty() {
            self.life.handle(LifeEvent::Delivered);
            if self.note(TransferEvent::Delivered) == TransferAction::TellEnd {
                // A session that is gone needs no end.
                let _ = self.near.shutdown_write();
            }
        }
        moved
    }

    /// Ends an abandoned tunnel once all bytes written to it are sent, or have waited for too long.
    pub(super) fn end_abandoned(&mut self, now_ms: u64) {
        if self.transfer.is_tunnel() && self.is_abandoned() {
            self.note(TransferEvent::Abandoned);
            let since_ms = *self.abandoned_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since_ms) >= LINGER_MS {
                self.life.handle(LifeEvent::Finish);
            }
        }
    }

    /// Ends the stream. Drains the session's unread bytes, so that it can still read the
    /// response.
    pub(super) fn end(mut self, cx: &mut Context<'_>) {
        self.tell_written();
        if self.transfer.is_tunnel() && self.transfer.response == ResponsePart::Body {
            // The backend has reset the stream, or its connection is lost: no end of a tunnel.
            self.near.reset_behind_bytes();
        }
        let mut dropped = [0; 1024];
        while let Poll::Ready(Ok(1..)) = self.near.poll_read(cx, &mut dropped) {}
        self.inbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use lighty_io::transport::memory;

    use super::*;

    /// Returns a stream in this state after its session has gone.
    fn abandoned(request: RequestPart) -> BackendStream {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (_, far) = memory::pair(nowhere, nowhere, 1024);
        let mut stream = BackendStream::new(Stream::from_memory(far), Rc::default());
        stream.transfer = Transfer { request, response: ResponsePart::Body };
        stream
    }

    #[test]
    fn last_bytes_of_an_abandoned_tunnel_have_a_time_limit() {
        let mut stream = abandoned(RequestPart::Tunnel);
        for (now_ms, is_over) in [(500, false), (499 + LINGER_MS, false), (500 + LINGER_MS, true)] {
            stream.end_abandoned(now_ms);
            assert_eq!(stream.is_over(), is_over, "{now_ms}");
        }
        let mut stream = abandoned(RequestPart::TunnelEnding);
        stream.end_abandoned(0);
        assert!(!stream.is_over());
        stream.take_content(0, true, &mut Vec::new());
        stream.end_abandoned(0);
        assert!(stream.is_over(), "all of it is sent");
    }

    #[test]
    fn tunnel_with_a_session_does_not_end_by_time() {
        let mut stream = abandoned(RequestPart::Tunnel);
        let _session = Rc::clone(&stream.fate);
        stream.end_abandoned(0);
        stream.end_abandoned(u64::MAX);
        assert!(!stream.is_over());
    }

    #[test]
    fn refused_request_stays_refused_when_its_connection_ends() {
        let mut stream = abandoned(RequestPart::Done);
        stream.transfer.response = ResponsePart::Head;
        stream.cut(true);
        stream.cut(false);
        assert!(stream.fate.is_refused.get());
        let mut stream = abandoned(RequestPart::Done);
        stream.cut(true);
        assert!(!stream.fate.is_refused.get(), "a response has begun");
    }
}
