//! Limits on the frequency of frames: RFC 9113 section 10.5.

use super::super::super::limits::FREE_FIELD_BYTES;
use super::*;

/// Number of such frames that a server accepts before it ends the connection, and the fault. Output
/// is taken after each, as by a driver that can write.
fn taken(bench: &mut Bench, max: u32, mut frame: impl FnMut(u32) -> Vec<u8>) -> (u32, ConnFault) {
    for nth in 0..max {
        if let Err(fault) = bench.feed(&frame(nth)) {
            return (nth, fault);
        }
        bench.sent();
        for event in std::mem::take(&mut bench.events) {
            if let Event::Reset { stream, .. } = event {
                bench.conn.release(stream);
            }
        }
    }
    panic!("{max} frames were taken");
}

#[test]
fn rapid_resets() {
    let mut bench = Bench::server();
    let reset = |nth: u32| [get(nth * 2 + 1), rst(nth * 2 + 1, ErrorCode::CANCEL)].concat();
    assert_eq!(taken(&mut bench, 1000, reset), (100, ConnFault::Resets));
}

#[test]
fn resets_of_streams_that_are_never_opened() {
    let mut bench = Bench::server();
    bench.get(1);
    let reset = |nth: u32| rst(nth * 2 + 3, ErrorCode::CANCEL);
    assert_eq!(taken(&mut bench, 1000, reset), (100, ConnFault::Resets));
}

#[test]
fn responses_make_up_for_resets() {
    let mut bench = Bench::server();
    for nth in 0..5000 {
        let id = nth * 4 + 1;
        let key = bench.get(id);
        bench.respond(key, 0);
        bench.conn.release(key);
        bench.get(id + 2);
        bench.feed(&rst(id + 2, ErrorCode::CANCEL)).expect("as many were of use");
        let Some(Event::Reset { stream, .. }) = bench.events.pop() else { panic!("no reset") };
        bench.conn.release(stream);
        bench.sent();
    }
}

#[test]
fn time_makes_up_for_resets() {
    let mut bench = Bench::server();
    for nth in 0..500 {
        bench.now_ms = u64::from(nth) * 100;
        let reset = [get(nth * 2 + 1), rst(nth * 2 + 1, ErrorCode::CANCEL)].concat();
        bench.feed(&reset).expect("ten per second");
        let Some(Event::Reset { stream, .. }) = bench.events.pop() else { panic!("no reset") };
        bench.conn.release(stream);
        bench.events.clear();
        bench.sent();
    }
}

/// CVE-2025-8671: each mistake makes the server reset a stream while its handler continues.
#[test]
fn resets_that_the_client_made_us_send() {
    for mistake in [
        |id: u32| window_update(id, 0),
        |id: u32| window_update(id, (1 << 31) - 1),
        |id: u32| data(id, b"x", true),
        |id: u32| raw(kind::PRIORITY, 0, id, &[0; 4]),
    ] {
        let mut bench = Bench::server();
        let pair = |nth: u32| [get(nth * 2 + 1), mistake(nth * 2 + 1)].concat();
        assert_eq!(taken(&mut bench, 1000, pair), (20, ConnFault::Resets));
    }
    let mut bench = Bench::server();
    let malformed = |nth: u32| raw(kind::HEADERS, END, nth * 2 + 1, &GET[..2]);
    assert_eq!(taken(&mut bench, 1000, malformed), (20, ConnFault::Resets));
}

#[test]
fn frames_that_move_nothing() {
    let max = Limits::default().unproductive_max;
    let rows: [(&str, Vec<u8>); 6] = [
        ("PING", raw(kind::PING, 0, 0, &[0; 8])),
        ("SETTINGS", raw(kind::SETTINGS, 0, 0, &[])),
        ("empty DATA", data(1, b"", false)),
        ("PRIORITY", raw(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 9])),
        ("PRIORITY_UPDATE", raw(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", raw(0x77, 0, 0, b"x")),
    ];
    for (name, frame) in rows {
        let mut bench = Bench::server();
        bench.post(1);
        let (count, fault) = taken(&mut bench, 3000, |_| frame.clone());
        assert_eq!(fault, ConnFault::Unproductive, "{name}");
        // The settings that opened the connection count too.
        assert!(count >= max - 1 && count <= max, "{name}: {count}");
    }
    let mut bench = Bench::server();
    bench.post(1);
    let (count, fault) = taken(&mut bench, 3000, |_| window_update(1, 1));
    assert_eq!((count, fault), (Limits::default().window_updates_max, ConnFault::WindowUpdates));
}

#[test]
fn moved_content_makes_up_for_frames_that_move_nothing() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    for _ in 0..3000 {
        bench.feed(&raw(kind::PING, 0, 0, &[0; 8])).expect("one for each 16 KiB");
        bench.feed(&data(1, &[0; 16_384], false)).expect("content");
        bench.conn.credit(key, 16_384);
        bench.sent();
    }
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
    for _ in 0..3000 {
        bench.conn.queue_data(key, 100, false).expect("content");
        bench.data();
        // Go's client sends a window update for every few KiB that it reads.
        for _ in 0..8 {
            bench.feed(&window_update(1, 10)).expect("of what was sent");
            bench.feed(&window_update(0, 10)).expect("of what was sent");
        }
        bench.feed(&raw(kind::PING, 0, 0, &[0; 8])).expect("one for each frame");
    }
}

#[test]
fn replies_that_cannot_be_written() {
    for frame in [raw(kind::PING, 0, 0, &[0; 8]), raw(kind::SETTINGS, 0, 0, &[])] {
        let mut bench = Bench::server();
        let result = (0..200).map(|_| bench.feed(&frame)).take_while(Result::is_ok).count();
        assert_eq!(result, 100);
        let mut bench = Bench::server();
        for _ in 0..500 {
            bench.feed(&frame).expect("they were written");
            bench.sent();
        }
    }
}

#[test]
fn streams_beyond_the_limit() {
    let limits = Limits { streams_max: 10, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let keys: Vec<_> = (0..10).map(|nth| bench.get(nth * 2 + 1)).collect();
    bench.feed(&get(21)).expect("refused");
    assert_eq!(bench.reset_code(21), Some(ErrorCode::REFUSED_STREAM));
    // A reset stream counts as closed, although its handler is still running.
    bench.feed(&rst(1, ErrorCode::CANCEL)).expect("a reset");
    bench.events.clear();
    bench.get(23);
    assert_eq!(bench.conn.streams_alive(), 11);
    bench.conn.release(keys[0]);
    assert_eq!(bench.conn.streams_alive(), 10);
    let refused = taken(&mut bench, 1000, |nth| get(nth * 2 + 25));
    assert_eq!(refused, (99, ConnFault::Refusals), "100 less the one before");
}

#[test]
fn closed_streams_are_not_charged_to_the_client() {
    let limits = Limits { streams_max: 10, refusals_max: 0, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let (mut keys, mut id) = (Vec::new(), 1);
    for round in 0..2 {
        for _ in 0..10 {
            bench.now_ms += 100;
            bench.sent();
            keys.push(bench.get(id));
            id += 2;
        }
        for key in &keys[round * 10..] {
            // Ended by both sides, or reset by either.
            match key.id() % 3 {
                0 => bench.respond(*key, 0),
                1 => bench.feed(&rst(key.id(), ErrorCode::CANCEL)).expect("a reset"),
                _ => bench.conn.reset(*key, ErrorCode::INTERNAL_ERROR),
            }
        }
        bench.events.clear();
    }
    assert_eq!(bench.conn.streams_alive(), 20, "the driver has released none");
    bench.sent();
    for _ in 0..3 {
        bench.feed(&get(id)).expect("refused, and not for the client's fault");
        assert_eq!(bench.reset_code(id), Some(ErrorCode::REFUSED_STREAM));
        id += 2;
    }
    keys.into_iter().for_each(|key| bench.conn.release(key));
    bench.sent();
    for nth in 0..10 {
        bench.get(id + nth * 2);
    }
    assert_eq!(bench.feed(&get(id + 20)), Err(ConnFault::Refusals), "ten are open");
}

/// A request with one field of `bytes`, repeated by reference, and cookie crumbs.
fn many_fields(id: u32, bytes: usize, times: usize) -> Vec<u8> {
    let value = vec![b'v'; bytes];
    let mut block = [GET, &[0x40, 1, b'x', 0x7F][..]].concat();
    let mut rest = bytes - 127;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
    block.extend_from_slice(&value);
    block.extend(std::iter::repeat_n(0x80 | 62, times - 1));
    block.extend(literal("cookie", "a=b").repeat(8));
    raw(kind::HEADERS, END, id, &block)
}

#[test]
fn fields_that_streams_hold_are_bounded() {
    let limits = Limits::default();
    let mut bench = Bench::with(limits);
    let mut keys = Vec::new();
    for nth in 0..100 {
        bench.feed(&many_fields(nth * 2 + 1, 3000, 5)).expect("taken or refused");
        if let Some(Event::Request { stream, .. }) = bench.events.pop() {
            keys.push(stream);
        }
    }
    let each = bench.conn.streams.slots()[0].field_bytes as usize;
    let excess = each - FREE_FIELD_BYTES;
    assert_eq!(keys.len(), limits.held_field_bytes_max as usize / excess, "{each} each");
    assert!(bench.conn.intake.held_field_bytes <= limits.held_field_bytes_max as usize);
    // Small requests are still accepted.
    let small = bench.get(201);
    bench.conn.release(small);
    // Releasing a stream makes room.
    bench.sent();
    bench.conn.release(keys.remove(0));
    bench.feed(&many_fields(203, 3000, 5)).expect("taken");
    keys.push(bench.key());
    keys.into_iter().for_each(|key| bench.conn.release(key));
    assert_eq!(bench.conn.intake.held_field_bytes, 0);
}

#[test]
fn trailers_count_among_the_fields_that_streams_hold() {
    let limits = Limits { held_field_bytes_max: 6_000, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let keys = [bench.post(1), bench.post(3)];
    let trailers = |id| {
        let value = [&[0, 1, b'x', 0x7F, 0xC1, 0x3D][..], &[b'v'; 8000]].concat();
        raw(kind::HEADERS, END, id, &value)
    };
    bench.feed(&trailers(1)).expect("trailers");
    assert_eq!(bench.events.pop(), Some(Event::Trailers { stream: keys[0] }));
    bench.feed(&trailers(3)).expect("too many");
    assert_eq!(bench.reset_code(3), Some(ErrorCode::ENHANCE_YOUR_CALM));
    keys.into_iter().for_each(|key| bench.conn.release(key));
    assert_eq!(bench.conn.intake.held_field_bytes, 0);
}

#[test]
fn streams_in_one_burst() {
    let limits = Limits { streams_max: 10, ..Limits::default() };
    let mut bench = Bench::with(limits);
    for nth in 0..20 {
        let key = bench.get(nth * 2 + 1);
        bench.respond(key, 0);
        bench.conn.release(key);
    }
    bench.feed(&get(41)).expect("refused");
    assert_eq!(bench.reset_code(41), Some(ErrorCode::REFUSED_STREAM));
    bench.get(43);
}

#[test]
fn priorities_of_streams_to_come_are_remembered_up_to_a_limit() {
    let limits = Limits { streams_max: 10, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let update = |id: u32, value: &[u8]| {
        raw(kind::PRIORITY_UPDATE, 0, 0, &[&id.to_be_bytes()[..], value].concat())
    };
    for nth in 0..50 {
        bench.feed(&update(nth * 2 + 1, b"u=0")).expect("remembered or not");
    }
    bench.feed(&update(19, b"u=6, i")).expect("changed");
    assert_eq!(bench.conn.early_priorities.len(), 10);
    for (id, urgency) in [(19, 6), (21, 3)] {
        let key = bench.get(id);
        assert_eq!(bench.conn.streams.slots()[key.slot()].priority.urgency, urgency);
    }
    assert!(bench.conn.early_priorities.is_empty(), "lower ones will not come");
}
