//! Moves a request and its response between a session's records and a stream's frames.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lighty_http::{Fields, Status};
use lighty_io::transport::Stream;
use lighty_wire::http2::{Connection, MessageHead, RequestParts, SendFault, StreamKey};

use super::Fate;
use super::record::{self, HEAD_BYTES, Kind, Payload, Record};

/// Limit on a request's unwritten content, in bytes.
const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a waiting response above which further interim responses are dropped, since no window
/// limits them.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// Bytes read from a session at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Time limit for the backend to take the last bytes of a tunnel, in milliseconds.
const LINGER_MS: u64 = 10_000;

/// Expected next record of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Head,
    Body,
    Done,
    /// Nothing: an extended CONNECT was sent (RFC 8441), and the response decides.
    Connect,
    /// Nothing, since the CONNECT was refused. The end of the stream must still be sent.
    Refused,
    /// Bytes without records, in both directions from now on.
    Tunnel,
    /// Nothing: the session has ended its direction of the tunnel.
    TunnelEnded,
}

/// Result of moving records of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Moved,
    NeedsInput,
    NoRoom,
}

/// A request on a stream.
pub(super) struct Exchange {
    near: Stream,
    pub(super) fate: Rc<Fate>,
    pub(super) key: Option<StreamKey>,
    request: Request,
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
    pub(super) has_answered: bool,
    /// The end of the request is written.
    has_sent_end: bool,
    /// The backend has ended its direction of a tunnel.
    far_has_ended: bool,
    has_told_end: bool,
    /// Time since which a tunnel's session is gone, in monotonic milliseconds.
    abandoned_ms: Option<u64>,
    /// The backend will send nothing more.
    is_cut: bool,
    /// The session is gone, or has received everything.
    pub(super) is_over: bool,
}

impl Exchange {
    pub(super) fn new(near: Stream, fate: Rc<Fate>) -> Self {
        Self {
            near,
            fate,
            key: None,
            request: Request::Head,
            inbox: Vec::new(),
            piece_left: 0,
            content: VecDeque::new(),
            content_bytes: 0,
            written: 0,
            trailers: None,
            outbox: Vec::new(),
            sent: 0,
            owed: 0,
            has_answered: false,
            has_sent_end: false,
            far_has_ended: false,
            has_told_end: false,
            abandoned_ms: None,
            is_cut: false,
            is_over: false,
        }
    }

    /// Returns true if the session's side is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.fate) == 1
    }

    /// Moves as much of the request as is available and has room.
    pub(super) fn pump_request(
        &mut self,
        machine: &mut Connection,
        scheme: &[u8],
        cx: &mut Context<'_>,
    ) -> bool {
        let mut moved = false;
        // Bytes written to a tunnel are still sent.
        self.is_over |= self.is_abandoned() && !self.is_tunnel();
        while !self.is_over && !self.is_cut {
            match self.carry(machine, scheme) {
                Progress::Moved => {}
                Progress::NoRoom => return moved,
                Progress::NeedsInput => match self.fill(cx) {
                    Poll::Pending => return moved,
                    Poll::Ready(true) => {}
                    Poll::Ready(false) if self.request == Request::Tunnel => {
                        self.end_stream(machine, Request::TunnelEnded);
                    }
                    Poll::Ready(false) => self.is_over = true,
                },
            }
            moved = true;
        }
        moved
    }

    /// Reads more records. Returns false if none will come.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let start = self.inbox.len();
        self.inbox.resize(start + PIECE_BYTES, 0);
        let read = self.near.poll_read(cx, &mut self.inbox[start..]);
        let count = match &read {
            Poll::Ready(Ok(count)) => *count,
            _ => 0,
        };
        self.inbox.truncate(start + count);
        read.map(|_| count > 0)
    }

    fn carry(&mut self, machine: &mut Connection, scheme: &[u8]) -> Progress {
        match self.request {
            Request::Head => self.carry_head(machine, scheme),
            Request::Body if self.piece_left > 0 => self.carry_piece(machine),
            Request::Body => self.carry_record(machine),
            Request::Connect => Progress::NeedsInput,
            Request::Refused => {
                self.end_stream(machine, Request::Done);
                Progress::Moved
            }
            Request::Tunnel => self.carry_bytes(machine, usize::MAX).0,
            Request::TunnelEnded => Progress::NoRoom,
            Request::Done => {
                if self.content.is_empty()
                    && let (Some(trailers), Some(key)) = (self.trailers.take(), self.key)
                    // Trailers that cannot be sent are dropped, but the end must be sent.
                    && machine.send_trailers(key, &trailers).is_err()
                {
                    let _ = machine.queue_data(key, 0, true);
                }
                Progress::NeedsInput
            }
        }
    }

    /// Returns the record at the front of the inbox, once it is complete.
    fn whole(&self) -> Option<Record> {
        let record = Record::parse(&self.inbox)?;
        (self.inbox.len() >= HEAD_BYTES + record.len).then_some(record)
    }

    fn carry_head(&mut self, machine: &mut Connection, scheme: &[u8]) -> Progress {
        let Some(record) = self.whole() else { return Progress::NeedsInput };
        let end = HEAD_BYTES + record.len;
        let mut payload = Payload(&self.inbox[HEAD_BYTES..end]);
        let ends = payload.byte() != 0;
        let (method, path, authority) = (payload.text(), payload.text(), payload.text());
        let protocol = Some(payload.text()).filter(|protocol| !protocol.is_empty());
        let parts = RequestParts { method, scheme, authority, path, protocol };
        let next = match (protocol, ends) {
            (Some(_), _) => Request::Connect,
            (None, true) => Request::Done,
            (None, false) => Request::Body,
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
        self.request = next;
        Progress::Moved
    }

    fn carry_piece(&mut self, machine: &mut Connection) -> Progress {
        let (progress, count) = self.carry_bytes(machine, self.piece_left);
        self.piece_left -= count;
        progress
    }

    /// Moves up to `most` bytes of content. Returns the number of bytes moved.
    fn carry_bytes(&mut self, machine: &mut Connection, most: usize) -> (Progress, usize) {
        let Some(key) = self.key else { return (Progress::NoRoom, 0) };
        if self.inbox.is_empty() {
            return (Progress::NeedsInput, 0);
        }
        let room = machine.room(key).min(CONTENT_BYTES_MAX.saturating_sub(self.content_bytes));
        let count = most.min(self.inbox.len()).min(room);
        if count == 0 || machine.queue_data(key, count as u64, false).is_err() {
            return (Progress::NoRoom, 0);
        }
        self.content.push_back(Bytes::copy_from_slice(&self.inbox[..count]));
        self.content_bytes += count;
        self.inbox.drain(..count);
        (Progress::Moved, count)
    }

    /// Ends the request after its queued content.
    fn end_stream(&mut self, machine: &mut Connection, then: Request) {
        if let Some(key) = self.key {
            // A stream that was reset accepts nothing.
            let _ = machine.queue_data(key, 0, true);
        }
        self.request = then;
    }

    fn is_tunnel(&self) -> bool {
        matches!(self.request, Request::Tunnel | Request::TunnelEnded)
    }

    fn carry_record(&mut self, machine: &mut Connection) -> Progress {
        let Some(record) = Record::parse(&self.inbox) else { return Progress::NeedsInput };
        if record.kind == Kind::Data {
            self.inbox.drain(..HEAD_BYTES);
            self.piece_left = record.len;
            return Progress::Moved;
        }
        let (Some(record), Some(key)) = (self.whole(), self.key) else {
            return Progress::NeedsInput;
        };
        let end = HEAD_BYTES + record.len;
        let mut trailers = Fields::new();
        Payload(&self.inbox[HEAD_BYTES..end]).fields(&mut trailers);
        if trailers.is_empty() {
            // A stream that was reset accepts nothing.
            let _ = machine.queue_data(key, 0, true);
        } else {
            self.trailers = Some(trailers);
        }
        self.inbox.drain(..end);
        self.request = Request::Done;
        Progress::Moved
    }

    /// Appends content that the machine has taken.
    pub(super) fn take_content(&mut self, mut len: usize, ends: bool, out: &mut Vec<u8>) {
        self.has_sent_end |= ends;
        self.written += len as u64;
        self.content_bytes = self.content_bytes.saturating_sub(len);
        while len > 0 {
            let Some(first) = self.content.front_mut() else { return };
            let count = first.len().min(len);
            out.extend_from_slice(&first[..count]);
            first.advance(count);
            len -= count;
            if first.is_empty() {
                self.content.pop_front();
            }
        }
    }

    /// Reports to the session's side how much of the request was written.
    pub(super) fn tell_written(&self) {
        let is_left = self.content_bytes > 0 || !self.inbox.is_empty();
        let is_withheld = is_left && self.key.is_some() && !self.is_cut && !self.is_over;
        self.fate.tell_written(is_withheld, self.written);
    }

    /// Handles a received head.
    pub(super) fn take_head(&mut self, kind: Kind, head: &MessageHead, ends: bool) {
        if kind == Kind::Interim && self.outbox.len() - self.sent > INTERIM_BYTES_MAX {
            return;
        }
        self.has_answered |= kind == Kind::Head;
        if kind == Kind::Head && self.request == Request::Connect {
            let is_accepted = head.status.is_some_and(Status::is_success);
            self.request = if is_accepted { Request::Tunnel } else { Request::Refused };
            self.far_has_ended = is_accepted && ends;
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
        if self.is_tunnel() {
            self.outbox.extend_from_slice(piece);
            self.owed += piece.len();
            self.far_has_ended |= ends;
            return;
        }
        if !piece.is_empty() {
            record::push_data(piece, &mut self.outbox);
            self.owed += piece.len();
        }
        if ends {
            record::push_end(None, &mut self.outbox);
        }
    }

    /// Handles received trailers.
    pub(super) fn take_trailers(&mut self, trailers: &Fields) {
        if self.is_tunnel() {
            self.far_has_ended = true;
        } else {
            record::push_end(Some(trailers), &mut self.outbox);
        }
    }

    /// Ends the response: the backend sends nothing more. `is_refused` if it has not processed the
    /// request.
    pub(super) fn cut(&mut self, is_refused: bool) {
        self.is_cut = true;
        self.fate.is_refused.set(is_refused && !self.has_answered);
    }

    /// Moves as much of the response as the session accepts.
    pub(super) fn pump_response(&mut self, machine: &mut Connection, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.sent < self.outbox.len() && !self.is_over {
            match self.near.try_write(&self.outbox[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    moved = true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if self.near.poll_writable(cx).is_pending() {
                        return moved;
                    }
                }
                Err(_) => self.is_over = true,
            }
        }
        if self.sent > 0 && self.sent == self.outbox.len() {
            (self.outbox, self.sent) = (Vec::new(), 0);
            if let Some(key) = self.key {
                machine.credit(key, std::mem::take(&mut self.owed));
            }
        }
        self.is_over |= self.is_cut && self.outbox.is_empty();
        if self.far_has_ended && self.outbox.is_empty() && !self.has_told_end {
            self.has_told_end = true;
            // A session that is gone needs no end.
            let _ = self.near.shutdown_write();
        }
        moved
    }

    /// Ends an abandoned tunnel once all bytes written to it are sent, or have waited for too long.
    pub(super) fn leave(&mut self, now_ms: u64) {
        if self.is_tunnel() && self.is_abandoned() {
            let since_ms = *self.abandoned_ms.get_or_insert(now_ms);
            self.is_over |= self.has_sent_end || now_ms.saturating_sub(since_ms) >= LINGER_MS;
        }
    }

    /// Ends the exchange. Drains the session's unread bytes, so that it can still read the
    /// response.
    pub(super) fn end(mut self, cx: &mut Context<'_>) {
        self.tell_written();
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

    /// Returns an exchange in this state after its session has gone.
    fn abandoned(request: Request) -> Exchange {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (_, far) = memory::pair(nowhere, nowhere, 1024);
        Exchange { request, ..Exchange::new(Stream::from_memory(far), Rc::default()) }
    }

    #[test]
    fn the_last_bytes_of_a_tunnel_wait_only_so_long() {
        let mut exchange = abandoned(Request::Tunnel);
        for (now_ms, is_over) in [(500, false), (499 + LINGER_MS, false), (500 + LINGER_MS, true)] {
            exchange.leave(now_ms);
            assert_eq!(exchange.is_over, is_over, "{now_ms}");
        }
        let mut exchange = abandoned(Request::TunnelEnded);
        exchange.leave(0);
        assert!(!exchange.is_over);
        exchange.take_content(0, true, &mut Vec::new());
        exchange.leave(0);
        assert!(exchange.is_over, "all of it is sent");
    }

    #[test]
    fn a_tunnel_that_somebody_is_at_does_not_end_by_time() {
        let mut exchange = abandoned(Request::Tunnel);
        let _session = Rc::clone(&exchange.fate);
        exchange.leave(0);
        exchange.leave(u64::MAX);
        assert!(!exchange.is_over);
    }
}
