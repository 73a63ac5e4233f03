//! The rules of RFC 9113 for frames, one row each: a violation, and its consequence.

use super::super::super::settings::id as setting_id;
use super::*;

/// Consequence of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    Conn(ConnFault),
    /// RST_STREAM for this stream.
    Stream(u32, StreamFault),
}

use Fate::{Conn, Fine, Stream};

/// Feeds a server that has exchanged settings, and checks the consequence.
fn check(name: &str, frames: &[Vec<u8>], fate: Fate) {
    let mut bench = Bench::server();
    let result = frames.iter().try_for_each(|frame| bench.feed(frame));
    let sent = bench.sent();
    let last = sent.last();
    match fate {
        Conn(fault) => {
            assert_eq!(result, Err(fault), "{name}");
            let goaway = last.expect("GOAWAY");
            assert_eq!(goaway.kind, kind::GOAWAY, "{name}");
            assert_eq!(goaway.payload[4..8], fault.code().0.to_be_bytes(), "{name}");
            assert_eq!(&goaway.payload[8..], fault.message().as_bytes(), "{name}");
            assert!(bench.conn.is_finished(), "{name}");
            assert_eq!(bench.feed(&get(99)), Ok(()), "{name}: the rest is dropped");
        }
        Stream(id, fault) => {
            assert_eq!(result, Ok(()), "{name}");
            let reset = last.unwrap_or_else(|| panic!("{name}: no RST_STREAM"));
            assert_eq!((reset.kind, reset.stream), (kind::RST_STREAM, id), "{name}");
            assert_eq!(reset.number(), fault.code().0, "{name}: {sent:?}");
            let in_event = bench
                .events
                .iter()
                .any(|event| matches!(event, Event::Reset { fault: Some(f), .. } if *f == fault));
            let opened = bench.events.iter().any(|event| matches!(event, Event::Request { .. }));
            assert!(
                in_event || !opened || fault == StreamFault::Closed,
                "{name}: {:?}",
                bench.events
            );
        }
        Fine => {
            assert_eq!(result, Ok(()), "{name}");
            let is_calm = |frame: &Sent| !matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY);
            assert!(sent.iter().all(is_calm), "{name}: {sent:?}");
        }
    }
}

#[test]
fn the_preface_and_the_first_frame() {
    for (bytes, fault) in [
        (&b"GET / HTTP/1.1\r\n"[..], ConnFault::Preface),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", ConnFault::Preface),
    ] {
        assert_eq!(Bench::fresh(Limits::default()).feed(bytes), Err(fault));
    }
    for first in [get(1), raw(kind::SETTINGS, flag::ACK, 0, &[]), raw(0x77, 0, 0, &[])] {
        let mut bench = Bench::fresh(Limits::default());
        bench.feed(PREFACE).expect("a preface");
        assert_eq!(bench.feed(&first), Err(ConnFault::FirstFrame));
    }
}

#[test]
fn frames_of_any_kind() {
    use ConnFault as C;
    for (name, frame, fate) in [
        ("the longest that is allowed", raw(0x77, 0, 0, &[0; FRAME_BYTES_MAX]), Fine),
        ("one byte more", raw(0x77, 0, 0, &[0; FRAME_BYTES_MAX + 1]), Conn(C::FrameTooLarge)),
        ("an unknown type with all flags", raw(0xFF, 0xFF, 5, b"x"), Fine),
        ("DATA on 0", data(0, b"x", true), Conn(C::StreamZero)),
        ("HEADERS on 0", raw(kind::HEADERS, END, 0, GET), Conn(C::StreamZero)),
        ("RST_STREAM on 0", rst(0, ErrorCode::CANCEL), Conn(C::StreamZero)),
        ("PRIORITY on 0", raw(kind::PRIORITY, 0, 0, &[0, 0, 0, 1, 9]), Conn(C::StreamZero)),
        ("SETTINGS on 1", raw(kind::SETTINGS, 0, 1, &[]), Conn(C::StreamNotZero)),
        ("PING on 1", raw(kind::PING, 0, 1, &[0; 8]), Conn(C::StreamNotZero)),
        ("GOAWAY on 1", raw(kind::GOAWAY, 0, 1, &[0; 8]), Conn(C::StreamNotZero)),
        (
            "PRIORITY_UPDATE on 1",
            raw(kind::PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]),
            Conn(C::StreamNotZero),
        ),
        ("PUSH_PROMISE", raw(5, flag::END_HEADERS, 1, &[0, 0, 0, 2]), Conn(C::PushPromise)),
        ("CONTINUATION", raw(kind::CONTINUATION, 4, 1, GET), Conn(C::StrayContinuation)),
    ] {
        check(name, &[frame], fate);
    }
}

#[test]
fn identifiers_and_states_of_streams() {
    use ConnFault as C;
    let closed = |more: Vec<u8>| vec![get(3), more];
    for (name, frames, fate) in [
        ("an even one", vec![get(2)], Conn(C::StreamId)),
        ("a lower one that was never opened", vec![get(5), get(3)], Conn(C::StreamId)),
        ("gaps", vec![get(5), get(101)], Fine),
        ("idle: DATA", vec![data(1, b"", true)], Conn(C::IdleStream)),
        ("idle: RST_STREAM", vec![rst(1, ErrorCode::CANCEL)], Fine),
        ("idle: RST_STREAM, even", vec![rst(2, ErrorCode::CANCEL)], Conn(C::IdleStream)),
        ("idle: WINDOW_UPDATE", vec![window_update(1, 1)], Conn(C::IdleStream)),
        ("idle: even", vec![window_update(2, 1)], Conn(C::IdleStream)),
        ("idle: PRIORITY", vec![raw(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 9])], Fine),
        ("half-closed: DATA", closed(data(3, b"x", true)), Stream(3, StreamFault::Closed)),
        ("half-closed: HEADERS", closed(get(3)), Stream(3, StreamFault::Closed)),
        ("half-closed: WINDOW_UPDATE", closed(window_update(3, 1)), Fine),
        ("half-closed: PRIORITY", closed(raw(kind::PRIORITY, 0, 3, &[0, 0, 0, 1, 9])), Fine),
        ("half-closed: RST_STREAM", closed(rst(3, ErrorCode::CANCEL)), Fine),
        (
            "reset by the client: DATA",
            vec![post(3), rst(3, ErrorCode::CANCEL), data(3, b"x", true)],
            Stream(3, StreamFault::Closed),
        ),
        (
            "reset by the client: HEADERS",
            vec![post(3), rst(3, ErrorCode::CANCEL), get(3)],
            Stream(3, StreamFault::Closed),
        ),
    ] {
        check(name, &frames, fate);
    }
}

#[test]
fn a_stream_that_has_ended_takes_nothing_but_what_was_on_its_way() {
    for (frame, fault) in [
        (data(1, b"x", true), Some(ConnFault::ClosedStream)),
        (get(1), Some(ConnFault::ClosedStream)),
        (window_update(1, 1), None),
        (rst(1, ErrorCode::CANCEL), None),
        (raw(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 9]), None),
    ] {
        let mut bench = Bench::server();
        let key = bench.get(1);
        bench.respond(key, 0);
        bench.conn.release(key);
        assert_eq!(bench.feed(&frame).err(), fault, "{frame:?}");
    }
}

#[test]
fn frames_for_a_stream_reset_by_this_end_are_swallowed() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    bench.conn.reset(key, ErrorCode::CANCEL);
    let window = bench.conn.recv_window + i64::from(bench.conn.unannounced);
    // The block's field is still added to the table.
    let indexed = [&[0x40, 1, b'x', 1, b'y'][..]].concat();
    for frame in [
        data(1, &[0; 1000], false),
        data(1, b"x", true),
        raw(kind::HEADERS, END, 1, &indexed),
        window_update(1, 5),
        rst(1, ErrorCode::CANCEL),
    ] {
        bench.feed(&frame).expect("swallowed");
    }
    assert!(bench.events.is_empty(), "{:?}", bench.events);
    assert_eq!(bench.conn.recv_window + i64::from(bench.conn.unannounced), window);
    bench.feed(&raw(kind::HEADERS, END, 3, &[GET, &[0x80 | 62]].concat())).expect("a request");
    assert_eq!(bench.conn.head().fields.get_named(b"x"), Some(&b"y"[..]));
}

#[test]
fn data_and_its_padding() {
    use ConnFault as C;
    let padded = |payload: &[u8]| raw(kind::DATA, flag::PADDED, 1, payload);
    for (name, frame, fate) in [
        ("padding of all but its length", padded(&[3, 0, 0, 0]), Fine),
        ("padding as long as the payload", padded(&[4, 0, 0, 0]), Conn(C::Padding)),
        ("no room for the length", padded(&[]), Conn(C::FrameLength)),
        ("all of the window", data(1, &[0; 16_384], false), Fine),
    ] {
        check(name, &[post(1), frame], fate);
    }
    let full: Vec<Vec<u8>> = (0..4).map(|_| data(1, &[0; 16_383], false)).collect();
    let within = [vec![post(1)], full, vec![data(1, &[0; 3], false)]].concat();
    check("65,535 bytes", &within, Fine);
    let beyond = [within, vec![data(1, &[0], false)]].concat();
    check("one more", &beyond, Stream(1, StreamFault::WindowExceeded));
}

#[test]
fn headers_and_their_parts() {
    use ConnFault as C;
    let headers = |flags: u8, payload: &[u8]| raw(kind::HEADERS, END | flags, 1, payload);
    let prioritised = |on: u8| [&[0, 0, 0, on, 9][..], GET].concat();
    for (name, frame, fate) in [
        ("padding", headers(flag::PADDED, &[&[2][..], GET, &[0, 0]].concat()), Fine),
        ("too much padding", headers(flag::PADDED, &[7, 0, 0]), Conn(C::Padding)),
        ("priority", headers(flag::PRIORITY, &prioritised(3)), Fine),
        ("half a priority", headers(flag::PRIORITY, &[0, 0, 0]), Conn(C::FrameLength)),
        (
            "a stream that depends on itself",
            headers(flag::PRIORITY, &prioritised(1)),
            Stream(1, StreamFault::DependsOnItself),
        ),
    ] {
        check(name, &[frame], fate);
    }
    let open = |flags: u8| raw(kind::HEADERS, flags | flag::END_STREAM, 1, &GET[..3]);
    let more = |id: u32, flags: u8| raw(kind::CONTINUATION, flags, id, &GET[3..]);
    for (name, frames, fate) in [
        ("continued", vec![open(0), more(1, flag::END_HEADERS)], Fine),
        ("of another stream", vec![open(0), more(3, flag::END_HEADERS)], Conn(C::NoContinuation)),
        ("interrupted", vec![open(0), raw(kind::PING, 0, 0, &[0; 8])], Conn(C::NoContinuation)),
        ("an unknown frame within", vec![open(0), raw(0x77, 0, 1, &[])], Conn(C::NoContinuation)),
        ("after the end", vec![get(1), more(1, 4)], Conn(C::StrayContinuation)),
    ] {
        check(name, &frames, fate);
    }
}

#[test]
fn lengths_of_control_frames() {
    use ConnFault as C;
    let of = |kind: u8, len: usize, id: u32| raw(kind, 0, id, &vec![0; len]);
    for (name, frame, fate) in [
        ("PRIORITY of 4", of(kind::PRIORITY, 4, 1), Stream(1, StreamFault::PriorityLength)),
        ("PRIORITY of 6", of(kind::PRIORITY, 6, 1), Stream(1, StreamFault::PriorityLength)),
        ("PRIORITY of 4, idle", of(kind::PRIORITY, 4, 7), Conn(C::FrameLength)),
        ("RST_STREAM of 3", of(kind::RST_STREAM, 3, 1), Conn(C::FrameLength)),
        ("RST_STREAM of 5", of(kind::RST_STREAM, 5, 1), Conn(C::FrameLength)),
        ("SETTINGS of 5", of(kind::SETTINGS, 5, 0), Conn(C::FrameLength)),
        ("PING of 7", of(kind::PING, 7, 0), Conn(C::FrameLength)),
        ("PING of 9", of(kind::PING, 9, 0), Conn(C::FrameLength)),
        ("GOAWAY of 7", of(kind::GOAWAY, 7, 0), Conn(C::FrameLength)),
        ("GOAWAY of 9", of(kind::GOAWAY, 9, 0), Fine),
        ("WINDOW_UPDATE of 3", of(kind::WINDOW_UPDATE, 3, 0), Conn(C::FrameLength)),
        ("WINDOW_UPDATE of 5", of(kind::WINDOW_UPDATE, 5, 1), Conn(C::FrameLength)),
        ("PRIORITY_UPDATE of 3", of(kind::PRIORITY_UPDATE, 3, 0), Conn(C::FrameLength)),
        ("SETTINGS ACK of 6", raw(kind::SETTINGS, flag::ACK, 0, &[0; 6]), Conn(C::FrameLength)),
    ] {
        check(name, &[post(1), frame], fate);
    }
}

#[test]
fn dependencies_are_ignored_unless_they_are_circles() {
    let on = |id: u32, on: u8| raw(kind::PRIORITY, 0, id, &[0x80, 0, 0, on, 9]);
    check("on another", &[post(1), on(1, 3)], Fine);
    check("on itself", &[post(1), on(1, 1)], Stream(1, StreamFault::DependsOnItself));
    check("on itself, idle", &[on(7, 7)], Conn(ConnFault::SelfDependency));
}

#[test]
fn priorities_of_streams_that_no_client_can_open() {
    let of = |id: u32| raw(kind::PRIORITY_UPDATE, 0, 0, &[&id.to_be_bytes()[..], b"u=1"].concat());
    check("0", &[of(0)], Conn(ConnFault::PrioritisedStream));
    check("even", &[of(2)], Conn(ConnFault::PrioritisedStream));
    check("idle", &[of(77)], Fine);
    check("open", &[post(1), of(1)], Fine);
}

#[test]
fn settings_are_checked_applied_in_order_and_acknowledged() {
    use ConnFault as C;
    for (name, frame, fate) in [
        ("push 2", setting(setting_id::ENABLE_PUSH, 2), Conn(C::SettingValue)),
        ("frames of 16,383", setting(setting_id::MAX_FRAME_SIZE, 16_383), Conn(C::SettingValue)),
        (
            "a window of 2^31",
            setting(setting_id::INITIAL_WINDOW_SIZE, 1 << 31),
            Conn(C::WindowSetting),
        ),
        ("connect 2", setting(setting_id::ENABLE_CONNECT_PROTOCOL, 2), Conn(C::SettingValue)),
        ("an unknown one", setting(0x99, 1), Fine),
    ] {
        check(name, &[frame], fate);
    }
    let mut bench = Bench::server();
    let mut payload = Vec::new();
    settings::push(setting_id::INITIAL_WINDOW_SIZE, 7, &mut payload);
    settings::push(setting_id::INITIAL_WINDOW_SIZE, 70_000, &mut payload);
    bench.feed(&raw(kind::SETTINGS, 0, 0, &payload)).expect("settings");
    assert_eq!(bench.conn.peer_settings().window_bytes, 70_000);
    let sent = bench.sent();
    assert_eq!(sent, [Sent { kind: kind::SETTINGS, flags: flag::ACK, stream: 0, payload: vec![] }]);
}

#[test]
fn windows_have_an_end() {
    use ConnFault as C;
    let to_the_brim = (1 << 31) - 1 - 65_535;
    check("0 for the connection", &[window_update(0, 0)], Conn(C::WindowIncrement));
    check("the largest", &[window_update(0, to_the_brim)], Fine);
    check("one more", &[window_update(0, to_the_brim + 1)], Conn(C::WindowOverflow));
    let of_stream = |increment| [post(1), window_update(1, increment)];
    check("0 for a stream", &of_stream(0), Stream(1, StreamFault::WindowIncrement));
    check("the reserved bit", &of_stream(1 << 31 | 1), Fine);
    check("the largest of a stream", &of_stream(to_the_brim), Fine);
    check(
        "one more of a stream",
        &of_stream(to_the_brim + 1),
        Stream(1, StreamFault::WindowOverflow),
    );
    let frames =
        [post(1), window_update(1, to_the_brim), setting(setting_id::INITIAL_WINDOW_SIZE, 65_536)];
    check("by a setting", &frames, Conn(C::WindowSetting));
}

#[test]
fn pings_are_answered_and_replies_are_not() {
    let mut bench = Bench::server();
    bench.feed(&raw(kind::PING, 0, 0, b"12345678")).expect("a ping");
    let reply =
        Sent { kind: kind::PING, flags: flag::ACK, stream: 0, payload: b"12345678".to_vec() };
    assert_eq!(bench.sent(), [reply]);
    bench.feed(&raw(kind::PING, flag::ACK, 0, b"12345678")).expect("a reply");
    assert!(bench.sent().is_empty());
    assert_eq!(bench.events, [Event::Pong { payload: *b"12345678" }]);
}

#[test]
fn a_goaway_may_not_take_back_what_one_before_refused() {
    let goaway = |last: u32| raw(kind::GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    check("falling", &[goaway(9), goaway(9), goaway(7)], Fine);
    check("rising", &[goaway(7), goaway(9)], Conn(ConnFault::GoAwayGrew));
}

#[test]
fn errors_of_compression_end_the_connection() {
    use ConnFault as C;
    for (name, block, fault) in [
        ("index 0", &[0x80][..], C::HpackIndex),
        ("behind the tables", &[0xBE], C::HpackIndex),
        ("cut", &[0x41], C::HpackTruncated),
        ("a huge integer", &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F], C::HpackInteger),
        ("padding of zeros", &[0x00, 0x81, 0x18, 0x00], C::HpackHuffman),
        ("a size update late", &[0x82, 0x20], C::HpackSizeUpdate),
        ("a size update too large", &[0x3F, 0xE2, 0x1F], C::HpackSizeUpdate),
    ] {
        check(name, &[raw(kind::HEADERS, END, 1, block)], Conn(fault));
    }
}

#[test]
fn extended_connect_is_announced_and_read_where_it_is_on() {
    let connect = block(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/chat"),
        (":authority", "a"),
    ]);
    let frames =
        [raw(kind::SETTINGS, 0, 0, &[]), raw(kind::HEADERS, flag::END_HEADERS, 1, &connect)];
    let input = [&PREFACE[..], &frames.concat()].concat();
    for is_on in [true, false] {
        let mut bench = Bench::fresh(Limits::default());
        if is_on {
            bench.conn = Connection::server_with_extended_connect(Limits::default(), 0);
        }
        let announced =
            bench.sent()[0].payload.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]);
        assert_eq!(announced, is_on);
        bench.feed(&input).expect("no fault of the connection");
        if is_on {
            let key = bench.key();
            let head = bench.conn.head();
            assert_eq!((head.protocol(), head.path()), (Some(&b"websocket"[..]), &b"/chat"[..]));
            // Both directions stay open for the tunnel.
            bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
            bench.feed(&data(1, b"up", false)).expect("content");
            bench.conn.queue_data(key, 4, false).expect("content");
            assert_eq!((bench.data(), &bench.content[..]), (vec![(1, 4, false)], &b"up"[..]));
        } else {
            assert_eq!(bench.reset_code(1), Some(ErrorCode::PROTOCOL_ERROR));
        }
    }
}
