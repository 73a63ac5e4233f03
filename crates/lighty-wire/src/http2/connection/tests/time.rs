//! Timeouts and graceful ends.

use super::*;

fn goaways(bench: &mut Bench) -> Vec<(u32, ErrorCode)> {
    let sent = bench.sent();
    let goaways = sent.iter().filter(|frame| frame.kind == kind::GOAWAY);
    let code = |frame: &Sent| frame::number(&frame.payload[4..]).expect("a code");
    goaways.map(|frame| (frame.number(), ErrorCode(code(frame)))).collect()
}

#[test]
fn settings_and_their_acknowledgement() {
    let mut bench = Bench::fresh(Limits::default());
    assert_eq!(bench.conn.deadline_ms(), Some(10_000));
    assert_eq!(bench.conn.handle_timeout(9999), Ok(()));
    bench.now_ms = 9999;
    bench.feed(&[&PREFACE[..], &raw(kind::SETTINGS, 0, 0, &[])].concat()).expect("settings");
    assert_eq!(bench.conn.deadline_ms(), Some(10_000));
    assert_eq!(bench.conn.handle_timeout(10_000), Err(ConnFault::SettingsTimeout));
    assert_eq!(goaways(&mut bench), [(0, ErrorCode::SETTINGS_TIMEOUT)]);
    assert_eq!((bench.conn.handle_timeout(20_000), bench.conn.deadline_ms()), (Ok(()), None));
    assert_eq!(Bench::server().conn.deadline_ms(), None, "acknowledged");
}

#[test]
fn a_field_block_has_to_end() {
    let mut bench = Bench::server();
    bench.now_ms = 5;
    bench.feed(&raw(kind::HEADERS, 0, 1, GET)).expect("a beginning");
    assert_eq!(bench.conn.deadline_ms(), Some(30_005));
    bench.now_ms = 20_000;
    bench.feed(&raw(kind::CONTINUATION, 0, 1, &literal("x", "y"))).expect("more");
    assert_eq!(bench.conn.handle_timeout(30_004), Ok(()));
    assert_eq!(bench.conn.handle_timeout(30_005), Err(ConnFault::BlockTimeout));
}

#[test]
fn reset_before_any_stream_ends_the_connection_unless_one_follows() {
    let mut bench = Bench::server();
    bench.now_ms = 5;
    bench.feed(&rst(19, ErrorCode::CANCEL)).expect("forgiven");
    bench.now_ms = 500;
    bench.feed(&rst(19, ErrorCode::CANCEL)).expect("forgiven");
    assert_eq!(bench.conn.deadline_ms(), Some(1005));
    assert_eq!(bench.conn.handle_timeout(1004), Ok(()));
    assert_eq!(bench.conn.handle_timeout(1005), Err(ConnFault::IdleStream));
    assert_eq!(goaways(&mut bench), [(0, ErrorCode::PROTOCOL_ERROR)]);

    let mut bench = Bench::server();
    bench.feed(&rst(19, ErrorCode::CANCEL)).expect("forgiven");
    bench.get(1);
    assert_eq!(bench.conn.deadline_ms(), None);
    bench.feed(&rst(7, ErrorCode::CANCEL)).expect("forgiven");
    bench.get(5);
    assert_eq!((bench.conn.deadline_ms(), goaways(&mut bench).len()), (None, 0));
}

#[test]
fn a_graceful_end_has_two_steps() {
    let mut bench = Bench::server();
    let first = bench.get(1);
    bench.conn.shut_down(0);
    bench.conn.shut_down(0);
    let mut out = Vec::new();
    bench.conn.poll_output(&mut out);
    let [announced, ping] = &frames(&out)[..] else { panic!("GOAWAY and PING") };
    assert_eq!((announced.kind, announced.number()), (kind::GOAWAY, (1 << 31) - 1));
    // A request that was in transit.
    let second = bench.get(3);
    bench.feed(&raw(kind::PING, flag::ACK, 0, &ping.payload)).expect("a reply");
    assert_eq!(goaways(&mut bench), [(3, ErrorCode::NO_ERROR)]);
    bench.feed(&get(5)).expect("refused");
    assert_eq!(bench.reset_code(5), Some(ErrorCode::REFUSED_STREAM));
    assert!(bench.events.is_empty());
    bench.respond(first, 0);
    bench.respond(second, 5);
    assert_eq!(bench.data(), [(3, 5, true)]);
    bench.conn.release(first);
    assert!(!bench.conn.is_finished());
    bench.conn.release(second);
    assert!(bench.conn.is_finished());
}

#[test]
fn a_client_that_does_not_reply_is_not_waited_for() {
    let mut bench = Bench::server();
    bench.conn.shut_down(100);
    bench.sent();
    assert_eq!(bench.conn.deadline_ms(), Some(1100));
    bench.conn.handle_timeout(1099).expect("in time");
    assert!(!bench.conn.is_finished());
    bench.conn.handle_timeout(1100).expect("in time");
    assert_eq!(goaways(&mut bench), [(0, ErrorCode::NO_ERROR)]);
    assert!(bench.conn.is_finished());
}

#[test]
fn an_end_after_the_final_goaway_names_no_refused_stream() {
    let end = |end: fn(&mut Bench)| {
        let mut bench = Bench::server();
        bench.get(1);
        bench.conn.shut_down(0);
        bench.now_ms = 1000;
        bench.conn.handle_timeout(1000).expect("in time");
        assert_eq!(goaways(&mut bench).last(), Some(&(1, ErrorCode::NO_ERROR)));
        bench.feed(&get(3)).expect("refused");
        end(&mut bench);
        goaways(&mut bench)
    };
    let aborted = end(|bench| bench.conn.abort(ErrorCode::NO_ERROR));
    assert_eq!(aborted, [(1, ErrorCode::NO_ERROR)]);
    let failed = end(|bench| {
        let fault = bench.feed(&raw(kind::PING, 0, 1, &[0; 8]));
        assert_eq!(fault, Err(ConnFault::StreamNotZero));
    });
    assert_eq!(failed, [(1, ErrorCode::PROTOCOL_ERROR)]);
}

#[test]
fn an_end_at_once() {
    let mut bench = Bench::server();
    bench.get(1);
    bench.conn.abort(ErrorCode::INTERNAL_ERROR);
    assert_eq!(goaways(&mut bench), [(1, ErrorCode::INTERNAL_ERROR)]);
    assert!(bench.conn.is_finished());
    bench.feed(&get(3)).expect("dropped");
    assert!(bench.events.is_empty());
}
