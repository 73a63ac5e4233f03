//! Limits of single messages, on each side.

use super::*;

/// A request's block with `count` additional fields.
fn fields(count: usize) -> Vec<u8> {
    let more = literal("x", "y");
    [GET, &more.repeat(count)].concat()
}

/// Size of the fields of [`GET`] for the limits.
const GET_BYTES: usize = 10 + 11 + 6 + 11 + 4 * 32;

#[test]
fn the_number_of_fields() {
    for (count, is_within) in [(252, true), (253, false)] {
        let mut bench = Bench::server();
        bench.feed(&raw(kind::HEADERS, END, 1, &fields(count))).expect("no fault");
        let is_whole = matches!(bench.events[0], Event::Request { .. });
        assert_eq!(is_whole, is_within, "{count} and four");
        let stream = bench.key();
        bench.conn.send_head(stream, Status::OK, &Fields::new(), true).expect("it is answered");
    }
}

#[test]
fn crumbs_of_a_cookie_count_each() {
    let crumbs = [GET, &literal("cookie", "a=b").repeat(253)].concat();
    let mut bench = Bench::server();
    bench.feed(&raw(kind::HEADERS, END, 1, &crumbs)).expect("no fault");
    assert!(matches!(bench.events[..], [Event::Oversized { ends: true, .. }]));
}

/// One-byte references to one table entry of about 3,000 bytes.
fn references(count: usize) -> Vec<u8> {
    let value = vec![b'v'; 3000];
    // Incremental indexing; a name of one byte, a value of 3,000 (127 + 2,873).
    let mut block = [GET, &[0x40, 1, b'x', 0x7F, 0xB9, 0x16]].concat();
    block.extend_from_slice(&value);
    block.extend(std::iter::repeat_n(0x80 | 62, count));
    block
}

#[test]
fn the_bytes_of_fields_as_they_are_decoded() {
    let limits = Limits::default();
    let of = |count: usize| GET_BYTES + (count + 1) * (3001 + 32);
    for count in 0..40 {
        let mut bench = Bench::server();
        let result = bench.feed(&raw(kind::HEADERS, END, 1, &references(count)));
        let bytes = of(count);
        if bytes > 2 * limits.field_bytes_max {
            assert_eq!(result, Err(ConnFault::FieldsTooLarge), "{bytes}");
            continue;
        }
        assert_eq!(result, Ok(()));
        let is_whole = matches!(bench.events[0], Event::Request { .. });
        assert_eq!(is_whole, bytes <= limits.field_bytes_max, "{bytes}");
        assert_eq!(bench.conn.head().bytes, bytes);
        assert!(bench.conn.head().capacity() < 80 * 1024);
    }
}

/// Thousands of references cost their sender one byte each, and the receiver no memory.
#[test]
fn a_bomb_takes_no_memory() {
    let mut bench = Bench::server();
    let result = bench.feed(&raw(kind::HEADERS, END, 1, &references(13_000)));
    assert_eq!(result, Err(ConnFault::FieldsTooLarge));
    assert!(bench.conn.capacity() < 100 * 1024, "{}", bench.conn.capacity());
}

#[test]
fn continuations_by_number() {
    for (count, result) in [(8, Ok(())), (9, Err(ConnFault::Continuations))] {
        let mut bench = Bench::server();
        bench.feed(&raw(kind::HEADERS, flag::END_STREAM, 1, &GET[..1])).expect("a beginning");
        let mut last = Ok(());
        for nth in 0..count {
            let flags = if nth == count - 1 { flag::END_HEADERS } else { 0 };
            let piece = if nth == 0 { &GET[1..] } else { &literal("x", "y")[..] };
            last = bench.feed(&raw(kind::CONTINUATION, flags, 1, piece));
            if last.is_err() {
                break;
            }
        }
        assert_eq!(last, result);
    }
}

#[test]
fn empty_continuations() {
    for (count, result) in [(1, Ok(())), (2, Err(ConnFault::Continuations))] {
        let mut bench = Bench::server();
        bench.feed(&raw(kind::HEADERS, flag::END_STREAM, 1, GET)).expect("a beginning");
        let results: Vec<_> =
            (0..count).map(|_| bench.feed(&raw(kind::CONTINUATION, 0, 1, &[]))).collect();
        assert_eq!(*results.last().expect("one"), result);
    }
}

#[test]
fn the_bytes_of_a_block() {
    let limits = Limits { block_bytes_max: 20_000, ..Limits::default() };
    for (more, result) in [(3616, Ok(())), (3617, Err(ConnFault::BlockTooLarge))] {
        let mut bench = Bench::with(limits);
        let first = raw(kind::HEADERS, 0, 1, &[0; FRAME_BYTES_MAX]);
        bench.feed(&first).expect("a beginning");
        assert_eq!(bench.feed(&raw(kind::CONTINUATION, 0, 1, &vec![0; more])), result);
    }
}

#[test]
fn requests_of_a_connection() {
    let mut bench = Bench::with(Limits { requests_max: 3, ..Limits::default() });
    for nth in 0..3 {
        assert!(!bench.conn.is_shutting_down());
        bench.get(nth * 2 + 1);
    }
    assert!(bench.conn.is_shutting_down());
    // Requests in transit are still served.
    bench.get(7);
}
