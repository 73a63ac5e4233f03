//! One request and its response between a session's records and a stream's frames.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lighty_http::Fields;
use lighty_io::transport::Stream;
use lighty_wire::http2::{Connection, MessageHead, RequestParts, SendFault, StreamKey};

use super::Fate;
use super::record::{self, HEAD_BYTES, Kind, Payload, Record};

/// Bytes of a request's content that wait to be written.
const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a response that wait, above which further interim responses are dropped: no window
/// bounds them.
const INTERIM_BYTES_MAX: usize = 64 * 1024;

/// Bytes read from a session at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// What the session sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Head,
    Body,
    Done,
}

/// How far records of a request were carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Moved,
    NeedsInput,
    NoRoom,
}

/// One request.
pub(super) struct Exchange {
    near: Stream,
    pub(super) fate: Rc<Fate>,
    pub(super) key: Option<StreamKey>,
    request: Request,
    /// Records that are not carried over yet.
    inbox: Vec<u8>,
    /// Bytes of the current piece of content that are not.
    piece_left: usize,
    /// Content that the machine counts on.
    content: VecDeque<Bytes>,
    content_bytes: usize,
    /// Sent behind the content.
    trailers: Option<Fields>,
    /// Records of the response.
    outbox: Vec<u8>,
    sent: usize,
    /// Content in the outbox, for which the backend gets credit once it is out.
    owed: usize,
    pub(super) has_answered: bool,
    /// Nothing more will come of the backend.
    is_cut: bool,
    /// The session is gone, or has everything that it will get.
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
            trailers: None,
            outbox: Vec::new(),
            sent: 0,
            owed: 0,
            has_answered: false,
            is_cut: false,
            is_over: false,
        }
    }

    /// True if the session's side of it is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.fate) == 1
    }

    /// Carries the request over, as far as there is something and room for it.
    pub(super) fn pump_request(
        &mut self,
        machine: &mut Connection,
        scheme: &[u8],
        cx: &mut Context<'_>,
    ) -> bool {
        let mut moved = false;
        self.is_over |= self.is_abandoned();
        while !self.is_over && !self.is_cut {
            match self.carry(machine, scheme) {
                Progress::Moved => {}
                Progress::NoRoom => return moved,
                Progress::NeedsInput => match self.fill(cx) {
                    Poll::Pending => return moved,
                    Poll::Ready(is_there) => self.is_over = !is_there,
                },
            }
            moved = true;
        }
        moved
    }

    /// Reads more records; `false` if none will come.
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
            Request::Done => {
                if self.content.is_empty()
                    && let (Some(trailers), Some(key)) = (self.trailers.take(), self.key)
                    // Fields that cannot be sent are not missed, but the end is.
                    && machine.send_trailers(key, &trailers).is_err()
                {
                    let _ = machine.queue_data(key, 0, true);
                }
                Progress::NeedsInput
            }
        }
    }

    /// The record at the front of the inbox, once it is whole.
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
        let parts = RequestParts { method, scheme, authority, path, protocol: None };
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
        self.request = if ends { Request::Done } else { Request::Body };
        Progress::Moved
    }

    fn carry_piece(&mut self, machine: &mut Connection) -> Progress {
        let Some(key) = self.key else { return Progress::NoRoom };
        if self.inbox.is_empty() {
            return Progress::NeedsInput;
        }
        let room = machine.room(key).min(CONTENT_BYTES_MAX.saturating_sub(self.content_bytes));
        let count = self.piece_left.min(self.inbox.len()).min(room);
        if count == 0 || machine.queue_data(key, count as u64, false).is_err() {
            return Progress::NoRoom;
        }
        self.content.push_back(Bytes::copy_from_slice(&self.inbox[..count]));
        self.content_bytes += count;
        self.inbox.drain(..count);
        self.piece_left -= count;
        Progress::Moved
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
            // A stream that was reset takes nothing.
            let _ = machine.queue_data(key, 0, true);
        } else {
            self.trailers = Some(trailers);
        }
        self.inbox.drain(..end);
        self.request = Request::Done;
        Progress::Moved
    }

    /// Appends content that the machine has taken.
    pub(super) fn take_content(&mut self, mut len: usize, out: &mut Vec<u8>) {
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

    /// A head has come.
    pub(super) fn take_head(&mut self, kind: Kind, head: &MessageHead, ends: bool) {
        if kind == Kind::Interim && self.outbox.len() - self.sent > INTERIM_BYTES_MAX {
            return;
        }
        self.has_answered |= kind == Kind::Head;
        record::push(kind, &mut self.outbox, |out| {
            out.extend_from_slice(&head.status.map_or(200, |s| s.code()).to_be_bytes());
            out.push(u8::from(ends));
            for (_, name, value) in head.fields.iter_known() {
                record::push_field(name, value, out);
            }
        });
    }

    /// Content has come.
    pub(super) fn take_data(&mut self, piece: &[u8], ends: bool) {
        if !piece.is_empty() {
            record::push_data(piece, &mut self.outbox);
            self.owed += piece.len();
        }
        if ends {
            record::push_end(None, &mut self.outbox);
        }
    }

    /// Trailers have come.
    pub(super) fn take_trailers(&mut self, trailers: &Fields) {
        record::push_end(Some(trailers), &mut self.outbox);
    }

    /// Nothing more will come of the backend; `is_refused` if it has not looked at the request.
    pub(super) fn cut(&mut self, is_refused: bool) {
        self.is_cut = true;
        self.fate.is_refused.set(is_refused && !self.has_answered);
    }

    /// Hands the response over, as far as the session takes it.
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
        moved
    }

    /// The end: what the session has sent is dropped, so that it can read what it was sent.
    pub(super) fn end(mut self, cx: &mut Context<'_>) {
        let mut dropped = [0; 1024];
        while let Poll::Ready(Ok(1..)) = self.near.poll_read(cx, &mut dropped) {}
        self.inbox.clear();
    }
}
