//! Output, and fields that are rejected.

use super::*;

fn some_fields() -> Fields {
    let mut fields = Fields::new();
    fields.push_known(Known::ContentType, "text/html");
    fields.push_known(Known::Server, "lighty");
    fields.push_known(Known::ContentLength, "44");
    fields.push(b"X-Own", b"some value");
    fields
}

type List = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes a server's output as a client of this machine.
fn read(output: &[u8]) -> (Status, List) {
    let mut client = Bench::client();
    let parts = RequestParts {
        method: b"GET",
        scheme: b"http",
        authority: b"a",
        path: b"/",
        protocol: None,
    };
    client.conn.open(&parts, &Fields::new(), true).expect("a stream");
    client.feed(output).expect("a response");
    let head = client.conn.head();
    let fields = head.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
    (head.status.expect("a status"), fields.collect())
}

#[test]
fn a_head_is_read_as_it_was_sent_and_a_repetition_is_short() {
    let mut bench = Bench::server();
    let mut lens = Vec::new();
    for nth in 0..3 {
        let key = bench.get(nth * 2 + 1);
        bench.conn.send_head(key, Status::NOT_FOUND, &some_fields(), true).expect("a head");
        bench.conn.release(key);
        let mut out = Vec::new();
        bench.conn.poll_output(&mut out);
        lens.push(out.len());
        if nth == 0 {
            let (status, fields) = read(&out);
            assert_eq!((status, fields.len()), (Status::NOT_FOUND, 4));
            assert_eq!(fields[3], (b"x-own".to_vec(), b"some value".to_vec()));
        }
    }
    // A frame's head, :status, three indexed fields, and the length.
    assert_eq!(lens[1..], [9 + 1 + 3 + 5; 2]);
}

#[test]
fn fields_of_http1_connections_are_left_out() {
    let mut bench = Bench::server();
    let mut fields = some_fields();
    for name in CONNECTION_NAMES {
        fields.push(name.as_bytes(), b"x");
    }
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &fields, true).expect("a head");
    let mut out = Vec::new();
    bench.conn.poll_output(&mut out);
    assert_eq!(read(&out).1.len(), 4);
}

const CONNECTION_NAMES: &[&str] =
    &["Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"];

#[test]
fn fields_that_could_split_a_message_are_not_sent() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    for (name, value, fault) in [
        (&b"x y"[..], &b"z"[..], SendFault::Name),
        (b"", b"z", SendFault::Name),
        (b":path", b"/", SendFault::Name),
        (b"x", b"a\r\nb", SendFault::Value),
        (b"x", b"a\0", SendFault::Value),
    ] {
        let mut fields = some_fields();
        fields.push(name, value);
        assert_eq!(bench.conn.send_head(key, Status::OK, &fields, true), Err(fault));
        assert!(bench.sent().is_empty());
    }
    // The tables of both ends are still equal.
    bench.conn.send_head(key, Status::OK, &some_fields(), true).expect("a head");
    let mut out = Vec::new();
    bench.conn.poll_output(&mut out);
    assert_eq!(read(&out).1.len(), 4);
}

#[test]
fn a_message_has_an_order() {
    let (fields, mut bench) = (some_fields(), Bench::server());
    let key = bench.get(1);
    let misplaced = Err(SendFault::Misplaced);
    assert_eq!(bench.conn.queue_data(key, 1, false), misplaced);
    assert_eq!(bench.conn.send_trailers(key, &fields), misplaced);
    assert_eq!(bench.conn.send_head(key, Status::new(103).expect("103"), &fields, true), misplaced);
    bench.conn.send_head(key, Status::new(103).expect("103"), &fields, false).expect("hints");
    bench.conn.send_head(key, Status::OK, &fields, false).expect("a head");
    assert_eq!(bench.conn.send_head(key, Status::OK, &fields, false), misplaced);
    bench.conn.queue_data(key, 5, false).expect("content");
    assert_eq!(bench.conn.send_trailers(key, &fields), misplaced, "content is still queued");
    assert_eq!(bench.data(), [(1, 5, false)]);
    bench.conn.send_trailers(key, &fields).expect("trailers");
    assert_eq!(bench.conn.queue_data(key, 1, false), misplaced);
    let sent = bench.sent();
    assert_eq!((sent[0].kind, sent[0].flags), (kind::HEADERS, END));
    bench.conn.release(key);
    assert_eq!(bench.conn.queue_data(key, 1, false), Err(SendFault::Gone));
    assert_eq!(bench.conn.send_head(key, Status::OK, &fields, false), Err(SendFault::Gone));
}

#[test]
fn an_end_without_content_needs_no_window() {
    let mut bench = Bench::server();
    let id = super::super::super::settings::id::INITIAL_WINDOW_SIZE;
    bench.feed(&setting(id, 0)).expect("settings");
    let key = bench.get(1);
    bench.sent();
    bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
    bench.conn.queue_data(key, 0, true).expect("the end");
    let sent = bench.sent();
    assert_eq!((sent[1].kind, sent[1].flags), (kind::DATA, flag::END_STREAM));
}

#[test]
fn a_large_head_is_continued() {
    let mut fields = Fields::new();
    for nth in 0..40 {
        let value: Vec<u8> = (0..1000u32).map(|i| 0x80 | (i * 7 + nth) as u8).collect();
        fields.push(b"x-large", &value);
    }
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &fields, true).expect("a head");
    let mut out = Vec::new();
    bench.conn.poll_output(&mut out);
    let sent = frames(&out);
    let kinds: Vec<_> = sent.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(
        kinds,
        [
            (kind::HEADERS, flag::END_STREAM),
            (kind::CONTINUATION, 0),
            (kind::CONTINUATION, flag::END_HEADERS)
        ]
    );
}

#[test]
fn a_response_before_the_end_of_its_request() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    bench.respond(key, 0);
    bench.conn.release(key);
    let sent = bench.sent();
    assert_eq!((sent[0].kind, sent[0].flags), (kind::HEADERS, END));
    assert_eq!((sent[1].kind, sent[1].number()), (kind::RST_STREAM, 0));
    bench.feed(&data(1, &[0; 1000], true)).expect("what was on its way");
    assert!(bench.events.is_empty());
}

#[test]
fn a_response_that_is_given_up() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
    bench.conn.queue_data(key, 100, false).expect("content");
    bench.conn.release(key);
    assert_eq!(bench.reset_code(1), Some(ErrorCode::CANCEL));
    assert!(bench.data().is_empty());
    bench.conn.release(key);
    assert_eq!(bench.conn.streams_alive(), 0);
}

#[test]
fn urgent_responses_overtake() {
    let mut bench = Bench::server();
    let with = |id: u32, value: &str| {
        let block = [GET, &block(&[("priority", value)])].concat();
        raw(kind::HEADERS, END, id, &block)
    };
    let mut keys = Vec::new();
    for (id, value) in [(1, "u=5"), (3, "u=3, i"), (5, "u=3, i"), (7, "u=1")] {
        bench.feed(&with(id, value)).expect("a request");
        let key = bench.key();
        bench.respond(key, 20_000);
        keys.push(key);
    }
    bench.feed(&window_update(0, 1 << 20)).expect("a window");
    let order: Vec<_> = bench.data().iter().map(|sent| sent.0).collect();
    assert_eq!(order, [7, 7, 3, 5, 3, 5, 1, 1]);
    for (id, change) in [(9, &b"u=0"[..]), (11, b"")] {
        let key = bench.get(id);
        bench.conn.merge_priority(key, change);
        bench.respond(key, 10);
    }
    let key = bench.get(13);
    bench.respond(key, 10);
    bench.feed(&raw(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x0Du=2")).expect("an update");
    let order: Vec<_> = bench.data().iter().map(|sent| sent.0).collect();
    assert_eq!(order, [9, 13, 11]);
}

#[test]
fn an_idle_connection_keeps_only_its_tables() {
    let mut bench = Bench::server();
    for nth in 0..50 {
        let key = bench.get(nth * 2 + 1);
        bench.conn.send_head(key, Status::OK, &some_fields(), true).expect("a head");
        bench.conn.release(key);
        bench.sent();
    }
    bench.conn.release_buffers();
    let kept = bench.conn.capacity() + size_of::<Connection>();
    assert!(kept < 1600, "{kept}");
    bench.get(201);
}
