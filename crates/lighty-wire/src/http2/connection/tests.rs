//! Tests of one end of a connection against hand-made frames.

mod client;
mod content;
mod floods;
mod limits;
mod output;
mod rules;
mod shred;
mod stream_states;
mod time;

use std::vec;
use std::vec::Vec;

use lighty_http::{Fields, Known, Status};

use super::super::event::{DataFrame, SendFault};
use super::super::frame::{ErrorCode, flag};
use super::super::settings;
use super::*;

/// A sent frame.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Sent {
    fn number(&self) -> u32 {
        frame::number(&self.payload).expect("four bytes")
    }
}

/// A connection under test, and its events.
struct Bench {
    conn: Connection,
    events: Vec<Event>,
    content: Vec<u8>,
    now_ms: u64,
}

impl Bench {
    /// Creates a server that has exchanged settings with its client.
    fn server() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let mut bench = Self::fresh(limits);
        bench.feed(PREFACE).expect("a preface");
        bench.feed(&raw(kind::SETTINGS, 0, 0, &[])).expect("settings");
        bench.feed(&raw(kind::SETTINGS, flag::ACK, 0, &[])).expect("an acknowledgement");
        bench.sent();
        bench
    }

    fn fresh(limits: Limits) -> Self {
        let conn = Connection::server(limits, 0);
        Self { conn, events: Vec::new(), content: Vec::new(), now_ms: 0 }
    }

    fn client() -> Self {
        let conn = Connection::client(Limits::default(), 0);
        let mut bench = Self { conn, events: Vec::new(), content: Vec::new(), now_ms: 0 };
        bench.feed(&raw(kind::SETTINGS, 0, 0, &[])).expect("settings");
        bench.feed(&raw(kind::SETTINGS, flag::ACK, 0, &[])).expect("an acknowledgement");
        bench.sent();
        bench
    }

    /// Feeds all bytes and collects the events.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ConnFault> {
        loop {
            let handled = self.conn.handle_input(bytes, self.now_ms)?;
            if let Some(Event::Data { start, len, .. }) = handled.event {
                self.content.extend_from_slice(&bytes[start..start + len]);
            }
            self.events.extend(handled.event);
            bytes = &bytes[handled.consumed..];
            if handled.event.is_none() {
                return Ok(());
            }
        }
    }

    /// Opens a stream with a GET without content.
    fn get(&mut self, id: u32) -> StreamKey {
        self.feed(&get(id)).expect("a request");
        self.key()
    }

    /// Opens a stream with a POST; its content follows.
    fn post(&mut self, id: u32) -> StreamKey {
        self.feed(&post(id)).expect("a request");
        self.key()
    }

    /// The stream of the last event, which must be a request.
    fn key(&mut self) -> StreamKey {
        match self.events.pop() {
            Some(Event::Request { stream, .. } | Event::Oversized { stream, .. }) => stream,
            other => panic!("{other:?} is no request"),
        }
    }

    /// Responds with `bytes` of content, and releases the stream once all is sent.
    fn respond(&mut self, key: StreamKey, bytes: u64) {
        self.conn.send_head(key, Status::OK, &Fields::new(), bytes == 0).expect("a head");
        if bytes > 0 {
            self.conn.queue_data(key, bytes, true).expect("content");
        }
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut out = Vec::new();
        self.conn.poll_output(&mut out);
        frames(out.strip_prefix(&PREFACE[..]).unwrap_or(&out))
    }

    /// The DATA frames that can be sent.
    fn data(&mut self) -> Vec<(u32, usize, bool)> {
        let mut all = Vec::new();
        let mut out = Vec::new();
        while let Some(DataFrame { stream, len, ends }) =
            self.conn.poll_data(usize::MAX, self.now_ms, &mut out)
        {
            all.push((stream.id(), len, ends));
        }
        all
    }

    /// The code of the RST_STREAM for a stream. There must be at most one.
    fn reset_code(&mut self, id: u32) -> Option<ErrorCode> {
        let sent = self.sent();
        let mut resets = sent.iter().filter(|f| f.kind == kind::RST_STREAM && f.stream == id);
        let code = resets.next().map(|frame| ErrorCode(frame.number()));
        assert!(resets.next().is_none(), "one reset is enough: {sent:?}");
        code
    }
}

/// A whole frame.
fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::push(kind, flags, stream, payload, &mut out);
    out
}

/// `GET http://a/`, not added to any table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x01, 1, b'a'];

/// Like [`GET`], with POST.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x01, 1, b'a'];

const END: u8 = flag::END_HEADERS | flag::END_STREAM;

fn get(id: u32) -> Vec<u8> {
    raw(kind::HEADERS, END, id, GET)
}

fn post(id: u32) -> Vec<u8> {
    raw(kind::HEADERS, flag::END_HEADERS, id, POST)
}

fn data(id: u32, content: &[u8], ends: bool) -> Vec<u8> {
    raw(kind::DATA, if ends { flag::END_STREAM } else { 0 }, id, content)
}

fn window_update(id: u32, increment: u32) -> Vec<u8> {
    raw(kind::WINDOW_UPDATE, 0, id, &increment.to_be_bytes())
}

fn rst(id: u32, code: ErrorCode) -> Vec<u8> {
    raw(kind::RST_STREAM, 0, id, &code.0.to_be_bytes())
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    settings::push(id, value, &mut payload);
    raw(kind::SETTINGS, 0, 0, &payload)
}

/// A literal field that neither end adds to its table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0, u8::try_from(name.len()).expect("short")];
    out.extend_from_slice(name.as_bytes());
    assert!(value.len() < 127);
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
    out
}

/// A field block of literal fields.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fields.iter().flat_map(|(name, value)| literal(name, value)).collect()
}

/// The frames of an output.
fn frames(mut out: &[u8]) -> Vec<Sent> {
    let mut all = Vec::new();
    while let Some(bytes) = out.first_chunk::<FRAME_HEAD_BYTES>() {
        let head = FrameHead::parse(bytes);
        let payload = out[FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + head.len].to_vec();
        let FrameHead { kind, flags, stream, .. } = head;
        all.push(Sent { kind, flags, stream, payload });
        out = &out[FRAME_HEAD_BYTES + head.len..];
    }
    assert!(out.is_empty());
    all
}
