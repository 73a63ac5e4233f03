//! HTTP/2: the connection against any frames, compression both ways.

use lighty_http::{Fields, Known, Status};
use lighty_wire::http2::hpack::{Decoder, Encoder};
use lighty_wire::http2::{ConnFault, Connection, Event, Limits, RequestParts, StreamKey};

/// Any frames at all lead to the same events and the same output in one piece and in many, never to
/// more streams than the limit, and to no more memory than the limits add up to.
pub fn http2_connection(data: &[u8]) {
    let Some((&[mode, step], rest)) = data.split_first_chunk() else { return };
    let is_client = mode & 1 != 0;
    let input = if mode & 2 != 0 { rest.to_vec() } else { framed(rest) };
    let whole = drive(&input, usize::MAX, is_client);
    let cut = drive(&input, usize::from(step).max(1), is_client);
    assert_eq!(whole, cut, "the pieces must not matter");
}

/// Frames of short descriptions: type, flags, stream, length, and the payload. Chance seldom finds
/// a frame's head.
fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((&[kind, flags, stream, len], more)) = rest.split_first_chunk() {
        let kind = if kind < 0xF0 { kind % 12 } else { 0x10 };
        let payload = &more[..usize::from(len).min(more.len())];
        out.extend_from_slice(&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream]);
        out.extend_from_slice(payload);
        rest = &more[payload.len()..];
    }
    out
}

const LIMITS: Limits = Limits {
    streams_max: 5,
    refusals_max: 20,
    requests_max: 0,
    stream_window_bytes: 65_535,
    stream_window_bytes_max: 100_000,
    conn_window_bytes: 100_000,
    conn_window_bytes_max: 200_000,
    held_field_bytes_max: 3000,
    decoder_table_bytes: 4096,
    encoder_table_bytes_max: 4096,
    field_bytes_max: 1000,
    fields_max: 20,
    block_bytes_max: 2000,
    continuations_max: 4,
    resets_max: 50,
    unproductive_max: 200,
    window_updates_max: 100,
    queued_replies_max: 50,
    settings_ms: 1000,
    block_ms: 1000,
};

/// What can be observed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    events: Vec<Event>,
    content: Vec<u8>,
    heads: Vec<(Vec<u8>, Vec<u8>)>,
    output: Vec<u8>,
    fault: Option<ConnFault>,
}

fn drive(input: &[u8], step: usize, is_client: bool) -> Seen {
    let mut seen = Seen::default();
    let (mut conn, input) = if is_client {
        (client(), [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], input].concat())
    } else {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        (Connection::server(LIMITS, 0), [&preface[..], input].concat())
    };
    let (mut at, mut end) = (0, 0);
    while end < input.len() && seen.fault.is_none() {
        end = end.saturating_add(step).min(input.len());
        loop {
            let piece = &input[at..end];
            match conn.handle_input(piece, 0) {
                Err(fault) => {
                    seen.fault = Some(fault);
                    break;
                }
                Ok(handled) => {
                    assert!(handled.consumed <= piece.len());
                    at += handled.consumed;
                    let Some(event) = handled.event else { break };
                    seen.note(event, piece, &mut conn);
                }
            }
        }
        assert!(conn.streams_alive() <= LIMITS.streams_max);
        assert!(conn.capacity() < 300_000, "{}", conn.capacity());
    }
    while let Some(frame) = conn.poll_data(1000, 0, &mut seen.output) {
        assert!(frame.len > 0 && frame.len <= 1000);
        seen.output.resize(seen.output.len() + frame.len, 7);
        if frame.ends {
            conn.release(frame.stream);
        }
    }
    conn.poll_output(&mut seen.output);
    assert_eq!(seen.fault.is_some(), conn.is_finished() && !conn.is_shutting_down());
    check_frames(&seen.output[if is_client { 24 } else { 0 }..]);
    seen
}

/// A client that waits for three responses.
fn client() -> Connection {
    let mut conn = Connection::client(LIMITS, 0);
    for method in ["GET", "HEAD", "POST"] {
        let parts = RequestParts {
            method: method.as_bytes(),
            scheme: b"http",
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        let key = conn.open(&parts, &Fields::new(), method != "POST").expect("a stream");
        if method == "POST" {
            conn.queue_data(key, 2000, true).expect("content");
        }
    }
    conn
}

impl Seen {
    fn note(&mut self, event: Event, piece: &[u8], conn: &mut Connection) {
        match event {
            Event::Request { stream, .. } => {
                self.note_head(conn);
                respond(conn, stream);
            }
            Event::Response { .. } | Event::Interim { .. } | Event::Trailers { .. } => {
                self.note_head(conn);
            }
            Event::Oversized { stream, .. } => {
                let status = Status::REQUEST_HEADER_FIELDS_TOO_LARGE;
                conn.send_head(stream, status, &Fields::new(), true).expect("a head");
                conn.release(stream);
            }
            Event::Data { stream, start, len, ends } => {
                self.content.extend_from_slice(&piece[start..start + len]);
                let event = Event::Data { stream, start: 0, len: 0, ends };
                // Pieces of one frame's content count as one.
                if let Some(Event::Data { stream: last, ends: false, .. }) = self.events.last()
                    && *last == stream
                {
                    self.events.pop();
                }
                return self.events.push(event);
            }
            Event::Reset { stream, .. } => conn.release(stream),
            Event::GoAway { .. } | Event::Pong { .. } => {}
        }
        self.events.push(event);
    }

    fn note_head(&mut self, conn: &mut Connection) {
        for (name, value) in conn.head().fields.iter() {
            assert!(!name.is_empty() && !name.contains(&b':') && !name.contains(&b' '));
            assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            self.heads.push((name.to_vec(), value.to_vec()));
        }
    }
}

fn respond(conn: &mut Connection, stream: StreamKey) {
    let mut fields = Fields::new();
    fields.push_known(Known::Server, "lighty");
    match stream.id() % 8 {
        1 => {
            conn.send_head(stream, Status::OK, &fields, true).expect("a head");
            conn.release(stream);
        }
        3 => conn.release(stream),
        _ => {
            conn.send_head(stream, Status::OK, &fields, false).expect("a head");
            conn.queue_data(stream, 3000, true).expect("content");
        }
    }
}

/// Whatever comes in, what goes out is frames.
fn check_frames(mut output: &[u8]) {
    while let Some((head, rest)) = output.split_first_chunk::<9>() {
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        assert!(len <= 16_384 && rest.len() >= len, "{head:?}");
        output = &rest[len..];
    }
    assert!(output.is_empty());
}

/// What can be decoded can be encoded, and is decoded the same again; any fields at all arrive.
pub fn hpack(data: &[u8]) {
    let Some((&mode, rest)) = data.split_first() else { return };
    let (mut encoder, mut other) = (Encoder::new(4096), Decoder::new());
    if mode & 1 != 0 {
        return relay(&fields_of(rest), mode, &mut encoder, &mut other);
    }
    let mut decoder = Decoder::new();
    for block in rest.split(|&byte| byte == 0xF7) {
        let mut fields = Vec::new();
        let result = decoder.decode(block, |field| {
            if field.fault.is_none() {
                fields.push((field.name.to_vec(), field.value.to_vec()));
            }
        });
        relay(&fields, mode, &mut encoder, &mut other);
        if result.is_err() {
            return;
        }
    }
}

type List = Vec<(Vec<u8>, Vec<u8>)>;

/// Fields of short descriptions: the lengths of name and value, then both.
fn fields_of(mut rest: &[u8]) -> List {
    let mut list = Vec::new();
    while let Some((&[name_len, value_len], more)) = rest.split_first_chunk() {
        let (name, more) = more.split_at(usize::from(name_len % 32).min(more.len()));
        let (value, more) = more.split_at(usize::from(value_len).min(more.len()));
        if !name.is_empty() {
            list.push((name.to_ascii_lowercase(), lighty_http::fields::trim(value).to_vec()));
        }
        rest = more;
    }
    list
}

fn relay(fields: &List, mode: u8, encoder: &mut Encoder, decoder: &mut Decoder) {
    for chunk in fields.chunks(5) {
        if mode & 2 != 0 {
            encoder.set_peer_size_max(usize::from(mode) * chunk.len());
        }
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in chunk {
            encoder.field(Known::from_bytes(name), name, value, &mut block);
        }
        let mut read = Vec::new();
        decoder
            .decode(&block, |field| read.push((field.name.to_vec(), field.value.to_vec())))
            .expect("what was encoded can be decoded");
        assert_eq!(read, chunk);
    }
}
