//! The client's end.

use super::super::super::settings::id as setting_id;
use super::*;

const PARTS: RequestParts<'static> = RequestParts {
    method: b"GET",
    scheme: b"https",
    authority: b"a.example",
    path: b"/x",
    protocol: None,
};

fn response(id: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    raw(kind::HEADERS, flag::END_HEADERS | flags, id, &block(fields))
}

#[test]
fn the_preface_comes_first() {
    let mut conn = Connection::client(Limits::default(), 0);
    let mut out = Vec::new();
    conn.poll_output(&mut out);
    let rest = out.strip_prefix(&PREFACE[..]).expect("the preface");
    let kinds: Vec<_> = frames(rest).iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [kind::SETTINGS, kind::WINDOW_UPDATE]);
}

#[test]
fn requests_are_read_by_the_other_end() {
    let (mut client, mut server) = (Bench::client(), Bench::server());
    let mut fields = Fields::new();
    fields.push_known(Known::UserAgent, "me");
    fields.push_known(Known::Connection, "close");
    fields.push(b"X-Upper", b" a ");
    for (id, method) in [(1, "GET"), (3, "HEAD"), (5, "GET")] {
        let parts = RequestParts { method: method.as_bytes(), ..PARTS };
        let key = client.conn.open(&parts, &fields, true).expect("a stream");
        assert_eq!(key.id(), id);
        let mut out = Vec::new();
        client.conn.poll_output(&mut out);
        server.feed(&out).expect("a request");
        server.key();
        let head = server.conn.head();
        assert_eq!((head.method(), head.path()), (method.as_bytes(), &b"/x"[..]));
        let fields: Vec<_> = head.fields.iter().collect();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"Host", b"a.example"), (b"User-Agent", b"me"), (b"x-upper", b"a")];
        assert_eq!(fields, expected);
    }
}

/// A name, frames, and the number of events or the fault that they lead to.
type Row = (&'static str, Vec<Vec<u8>>, Result<usize, StreamFault>);

#[test]
fn responses_and_what_is_wrong_with_them() {
    use StreamFault as F;
    let ok = [(":status", "200")];
    let rows: Vec<Row> = vec![
        ("whole", vec![response(1, flag::END_STREAM, &ok)], Ok(1)),
        (
            "interim first",
            vec![response(1, 0, &[(":status", "103")]), response(1, flag::END_STREAM, &ok)],
            Ok(2),
        ),
        ("with content", vec![response(1, 0, &ok), data(1, b"x", true)], Ok(2)),
        (
            "with trailers",
            vec![
                response(1, 0, &ok),
                data(1, b"x", false),
                response(1, flag::END_STREAM, &[("x", "y")]),
            ],
            Ok(3),
        ),
        ("DATA first", vec![data(1, b"x", true)], Err(F::DataBeforeHead)),
        (
            "an interim end",
            vec![response(1, flag::END_STREAM, &[(":status", "100")])],
            Err(F::InterimEnds),
        ),
        ("101", vec![response(1, 0, &[(":status", "101")])], Err(F::Status)),
        (
            "too short",
            vec![
                response(1, 0, &[(":status", "200"), ("content-length", "2")]),
                data(1, b"x", true),
            ],
            Err(F::LengthMismatch),
        ),
        (
            "after the end",
            vec![response(1, flag::END_STREAM, &ok), data(1, b"x", true)],
            Err(F::Closed),
        ),
    ];
    for (name, frames, expected) in rows {
        let mut bench = Bench::client();
        bench.conn.open(&PARTS, &Fields::new(), true).expect("a stream");
        for frame in &frames {
            bench.feed(frame).expect("no fault of the connection");
        }
        let fault = bench.events.iter().find_map(|event| match event {
            Event::Reset { fault, .. } => *fault,
            _ => None,
        });
        match expected {
            Ok(events) => assert_eq!((fault, bench.events.len()), (None, events), "{name}"),
            Err(expected) => assert_eq!(fault, Some(expected), "{name}"),
        }
    }
}

#[test]
fn the_response_to_head_has_a_length_and_no_content() {
    let mut bench = Bench::client();
    let parts = RequestParts { method: b"HEAD", ..PARTS };
    bench.conn.open(&parts, &Fields::new(), true).expect("a stream");
    let fields = [(":status", "200"), ("content-length", "99")];
    bench.feed(&response(1, flag::END_STREAM, &fields)).expect("a response");
    assert!(matches!(bench.events[..], [Event::Response { ends: true, .. }]));
}

#[test]
fn the_servers_limit_of_streams_is_respected() {
    let mut bench = Bench::client();
    bench.feed(&setting(setting_id::MAX_CONCURRENT_STREAMS, 1)).expect("settings");
    let key = bench.conn.open(&PARTS, &Fields::new(), true).expect("a stream");
    let more = bench.conn.open(&PARTS, &Fields::new(), true);
    assert_eq!(more, Err(SendFault::TooManyStreams));
    bench.conn.release(key);
    bench.conn.open(&PARTS, &Fields::new(), true).expect("a stream");
    bench.feed(&raw(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).expect("the end");
    let code = ErrorCode::NO_ERROR;
    assert_eq!(bench.events.pop(), Some(Event::GoAway { last_stream: 1, code }));
    let more = bench.conn.open(&PARTS, &Fields::new(), true);
    assert_eq!(more, Err(SendFault::Exhausted));
}

#[test]
fn a_server_opens_no_streams() {
    for frame in [
        response(2, flag::END_STREAM, &[(":status", "200")]),
        response(1, flag::END_STREAM, &[(":status", "200")]),
    ] {
        assert_eq!(Bench::client().feed(&frame), Err(ConnFault::StreamId));
    }
    let mut server = Bench::server();
    let opened = server.conn.open(&PARTS, &Fields::new(), true);
    assert_eq!(opened, Err(SendFault::Exhausted));
}

#[test]
fn requests_that_could_be_read_as_two() {
    for parts in [
        RequestParts { path: b"/a b", ..PARTS },
        RequestParts { path: b"/\r\nx: y", ..PARTS },
        RequestParts { authority: b"a\0", ..PARTS },
    ] {
        let opened = Bench::client().conn.open(&parts, &Fields::new(), true);
        assert_eq!(opened, Err(SendFault::Value));
    }
}

/// Only the windows of the streams hold a backend back: a client that does not read its response
/// must not stop the others'.
#[test]
fn connection_window_is_credited_on_receipt() {
    let mut bench = Bench::client();
    let initial = bench.conn.recv_window;
    let mut keys = Vec::new();
    for id in [1, 3, 5, 7] {
        keys.push(bench.conn.open(&PARTS, &Fields::new(), true).expect("a stream"));
        bench.feed(&response(id, 0, &[(":status", "200")])).expect("a head");
        for _ in 0..16 {
            bench.feed(&data(id, &[0; 4_000], false)).expect("content");
        }
    }
    let part = i64::from(super::super::super::limits::CONN_WINDOW_BYTES) / 8;
    let left = bench.conn.recv_window;
    assert!(left > initial - part, "{left} of {initial}");
    keys.into_iter().for_each(|key| bench.conn.credit(key, 64_000));
    assert_eq!(bench.conn.recv_window, left, "counted once");
}
