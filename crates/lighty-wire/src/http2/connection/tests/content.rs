//! Received content, and windows in both directions.

use std::collections::VecDeque;

use super::super::super::settings::id as setting_id;
use super::*;

#[test]
fn content_is_handed_on_where_it_lies() {
    let mut bench = Bench::server();
    let stream = bench.post(1);
    let frame = raw(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x02hello\0\0");
    let handled = bench.conn.handle_input(&frame, 0).expect("content");
    let event = Event::Data { stream, start: FRAME_HEAD_BYTES + 1, len: 5, ends: true };
    assert_eq!(handled, Handled { consumed: FRAME_HEAD_BYTES + 1 + 5, event: Some(event) });
    let rest = bench.conn.handle_input(&frame[handled.consumed..], 0).expect("padding");
    assert_eq!(rest, Handled { consumed: 2, event: None });
}

#[test]
fn an_empty_frame_is_an_event_only_at_the_end() {
    let mut bench = Bench::server();
    let stream = bench.post(1);
    bench.feed(&data(1, b"", false)).expect("nothing");
    assert!(bench.events.is_empty());
    bench.feed(&data(1, b"", true)).expect("the end");
    assert!(
        matches!(bench.events[..], [Event::Data { stream: s, len: 0, ends: true, .. }] if s == stream)
    );
}

#[test]
fn content_is_as_long_as_announced() {
    let head = |length: &str, flags: u8| {
        let block = [POST, &block(&[("content-length", length)])].concat();
        raw(kind::HEADERS, flag::END_HEADERS | flags, 1, &block)
    };
    for (name, frames, is_fine) in [
        ("as long", vec![head("3", 0), data(1, b"ab", false), data(1, b"c", true)], true),
        ("too short", vec![head("3", 0), data(1, b"ab", true)], false),
        ("too long", vec![head("3", 0), data(1, b"abcd", false)], false),
        ("none at all", vec![head("3", flag::END_STREAM)], false),
        ("none, as announced", vec![head("0", flag::END_STREAM)], true),
        ("none, in a frame", vec![head("0", 0), data(1, b"", true)], true),
        (
            "trailers too early",
            vec![
                head("3", 0),
                data(1, b"ab", false),
                raw(kind::HEADERS, END, 1, &block(&[("x", "y")])),
            ],
            false,
        ),
    ] {
        let mut bench = Bench::server();
        for frame in &frames {
            bench.feed(frame).expect("no fault of the connection");
        }
        let code = bench.reset_code(1);
        assert_eq!(code, (!is_fine).then_some(ErrorCode::PROTOCOL_ERROR), "{name}");
    }
}

#[test]
fn trailers_end_the_message() {
    let trailers = |flags: u8, fields: &[(&str, &str)]| {
        raw(kind::HEADERS, flag::END_HEADERS | flags, 1, &block(fields))
    };
    let mut bench = Bench::server();
    let stream = bench.post(1);
    bench.feed(&data(1, b"x", false)).expect("content");
    bench.feed(&trailers(flag::END_STREAM, &[("x-sum", "1")])).expect("trailers");
    assert_eq!(bench.events.pop(), Some(Event::Trailers { stream }));
    assert_eq!(bench.conn.head().fields.get_named(b"x-sum"), Some(&b"1"[..]));
    for wrong in [trailers(0, &[("x", "y")]), trailers(flag::END_STREAM, &[(":path", "/")])] {
        let mut bench = Bench::server();
        bench.post(1);
        bench.feed(&wrong).expect("no fault of the connection");
        assert_eq!(bench.reset_code(1), Some(ErrorCode::PROTOCOL_ERROR));
    }
}

#[test]
fn windows_are_credited_when_content_is_consumed() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    for _ in 0..3 {
        bench.feed(&data(1, &[0; 16_000], false)).expect("content");
    }
    assert!(bench.sent().is_empty(), "what is not consumed is not credited");
    bench.conn.credit(key, 8_190);
    assert!(bench.sent().is_empty(), "less than an eighth of the window");
    bench.conn.credit(key, 1);
    let sent = bench.sent();
    // An eighth of the window, plus the growth to twice its size.
    assert_eq!(sent, frames(&window_update(1, 8_191 + 65_535)));
    bench.conn.credit(key, 1 << 30);
    let more = bench.sent().iter().map(|frame| i64::from(frame.number())).sum::<i64>();
    let left = 48_000 - 8_191;
    assert_eq!(more, left + 16 * left - 2 * 65_535, "no more than was received, and growth");
}

#[test]
fn a_window_grows_to_its_limit_and_the_connection_with_it() {
    let limits = Limits { stream_window_bytes_max: 100_000, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let key = bench.post(1);
    let mut granted = 65_535i64;
    for _ in 0..200 {
        bench.feed(&data(1, &[0; 16_384], false)).expect("content within the window");
        granted -= 16_384;
        bench.conn.credit(key, 16_384);
        for frame in bench.sent() {
            assert!(matches!(frame.kind, kind::WINDOW_UPDATE | kind::PING));
            if frame.stream == 1 {
                granted += i64::from(frame.number());
                assert!(granted <= 100_000);
            }
        }
    }
    let mut streams = bench.conn.streams;
    assert_eq!(streams.slots()[0].recv_window_max, 100_000);
}

#[test]
fn connection_is_credited_on_receipt_whatever_becomes_of_the_content() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    bench.feed(&raw(kind::DATA, flag::PADDED, 1, &[&[255][..], &[0; 255]].concat())).expect("ok");
    assert_eq!(bench.conn.unannounced, 256);
    bench.feed(&data(1, &[0; 1000], false)).expect("content");
    assert_eq!(bench.conn.unannounced, 1256, "before it is consumed");
    bench.conn.release(key);
    assert_eq!((bench.conn.unannounced, bench.conn.intake.uncredited), (1256, 0), "and once");
    bench.feed(&data(1, &[0; 500], false)).expect("late");
    assert_eq!(bench.conn.unannounced, 1756);
    assert_eq!(bench.reset_code(1), Some(ErrorCode::CANCEL));
}

#[test]
fn a_stream_reset_within_a_frame_takes_no_more_of_it() {
    let mut bench = Bench::server();
    let key = bench.post(1);
    let frame = data(1, &[7; 1000], true);
    bench.feed(&frame[..500]).expect("half of it");
    bench.conn.reset(key, ErrorCode::CANCEL);
    let seen = bench.events.len();
    bench.feed(&frame[500..]).expect("the rest");
    assert_eq!((bench.events.len(), bench.content.len()), (seen, 491));
    bench.conn.release(key);
    assert_eq!(bench.conn.unannounced, 1000);
}

#[test]
fn the_connection_has_a_window_of_its_own() {
    // Content of one read was sent before any of it was credited.
    let limits = Limits { stream_window_bytes: 1 << 20, ..Limits::default() };
    let mut bench = Bench::with(limits);
    let window = bench.conn.recv_window;
    assert_eq!(window, i64::from(limits.conn_window_bytes_max));
    bench.post(1);
    let mut feed_with = |left: i64| {
        let used = u32::try_from(window - left).expect("a part of the window");
        (bench.conn.recv_window, bench.conn.unannounced) = (left, used);
        bench.feed(&data(1, &[0; 16_384], false))
    };
    assert_eq!(feed_with(16_384), Ok(()), "to the brim");
    assert_eq!(feed_with(16_383), Err(ConnFault::WindowExceeded));
}

/// A client at the distance of a round trip: frames for it arrive after it has used up its windows.
struct FarClient {
    bench: Bench,
    keys: Vec<StreamKey>,
    window: i64,
    stream_windows: Vec<i64>,
    sent: i64,
}

impl FarClient {
    fn new(limits: Limits, streams: u32) -> Self {
        let mut bench = Bench::with(limits);
        let keys: Vec<_> = (0..streams).map(|nth| bench.post(nth * 2 + 1)).collect();
        let stream_windows = vec![i64::from(limits.stream_window_bytes); keys.len()];
        let window = i64::from(limits.conn_window_bytes_max.max(65_535));
        Self { bench, keys, window, stream_windows, sent: 0 }
    }

    /// Sends as much on a stream as the windows allow.
    fn send(&mut self, nth: usize, consumes: bool) {
        loop {
            let count = self.window.min(self.stream_windows[nth]).min(16_384);
            if count <= 0 {
                return;
            }
            let key = self.keys[nth];
            let frame = data(key.id(), &vec![0; count as usize], false);
            self.bench.feed(&frame).expect("within the windows");
            (self.bench.content, self.bench.events) = Default::default();
            self.window -= count;
            self.stream_windows[nth] -= count;
            self.sent += count;
            if consumes {
                self.bench.conn.credit(key, count as usize);
            }
        }
    }

    /// Sends on a stream, then reads. Returns the number of bytes sent.
    fn round(&mut self, nth: usize, consumes: bool) -> i64 {
        let before = self.sent;
        self.send(nth, consumes);
        self.hear(nth, consumes);
        self.sent - before
    }

    /// Does `count` rounds in which content is consumed. Returns the number of bytes sent.
    fn rounds(&mut self, nth: usize, count: u32) -> i64 {
        (0..count).map(|_| self.round(nth, true)).sum()
    }

    fn hear(&mut self, nth: usize, consumes: bool) {
        for frame in self.bench.sent() {
            match (frame.kind, frame.stream) {
                (kind::PING, _) => {
                    // Sent after the bytes that the preceding updates allow.
                    self.send(nth, consumes);
                    let reply = raw(kind::PING, flag::ACK, 0, &frame.payload);
                    self.bench.feed(&reply).expect("a reply");
                }
                (kind::WINDOW_UPDATE, 0) => self.window += i64::from(frame.number()),
                (kind::WINDOW_UPDATE, id) => {
                    self.stream_windows[id as usize / 2] += i64::from(frame.number());
                }
                _ => {}
            }
        }
    }

    /// Sends on an unread stream until a window is used up. Returns the number of bytes sent.
    fn fill(&mut self, nth: usize) -> i64 {
        let before = self.sent;
        while self.round(nth, false) > 0 {}
        self.sent - before
    }
}

#[test]
fn window_of_a_stream_grows_with_consumption_and_shrinks_without() {
    let limits = Limits::default();
    let (first, max) =
        (i64::from(limits.conn_window_bytes), i64::from(limits.conn_window_bytes_max));
    let mut client = FarClient::new(limits, 1);
    for _ in 0..2 {
        let sent: Vec<i64> = (0..24).map(|_| client.round(0, true)).collect();
        assert!(sent[23] > max * 3 / 4, "{sent:?}");
        // Without consumption no more is announced, and the window returns to its initial size.
        let unread = client.fill(0);
        assert!(unread <= max && client.stream_windows[0] == 0, "{unread}");
        assert!(client.window > max * 3 / 4, "{}", client.window);
        client.bench.conn.credit(client.keys[0], unread as usize);
        client.hear(0, false);
        let window = client.stream_windows[0];
        assert!(window <= first + 65_535 && window > first * 3 / 4, "{window}");
    }
}

#[test]
fn window_of_a_stream_stays_while_its_consumer_is_slow() {
    let limits = Limits::default();
    let mut client = FarClient::new(limits, 1);
    for _ in 0..12 {
        let sent = client.round(0, false);
        assert!(sent <= i64::from(limits.conn_window_bytes + 65_535), "{sent}");
        client.bench.conn.credit(client.keys[0], sent as usize);
        client.hear(0, false);
    }
    assert_eq!(client.bench.conn.intake.growth_max, limits.conn_window_bytes);
}

#[test]
fn windows_stay_where_the_limit_is_low() {
    let limits =
        Limits { conn_window_bytes: 100_000, conn_window_bytes_max: 100_000, ..Limits::default() };
    let mut client = FarClient::new(limits, 1);
    for _ in 0..12 {
        client.round(0, true);
        let mut streams = std::mem::take(&mut client.bench.conn.streams);
        assert!(streams.slots()[0].recv_window_max <= 65_535 + 100_000);
        client.bench.conn.streams = streams;
    }
    assert_eq!(client.bench.conn.intake.growth_max, 100_000);
}

/// Several handlers stop reading one after another at the worst moment: when their stream's window
/// is largest.
#[test]
fn stalled_uploads_leave_windows_to_the_others() {
    let limits = Limits::default();
    for stalled in [1, 2, 16, 99] {
        let mut client = FarClient::new(limits, stalled + 1);
        for nth in 0..stalled as usize {
            client.rounds(nth, 24);
            client.fill(nth);
            assert_eq!(client.stream_windows[nth], 0, "the stream's own window ends it");
        }
        let unread = client.bench.conn.intake.uncredited;
        let bound = limits.conn_window_bytes_max as usize + stalled as usize * 65_535;
        assert!(unread <= bound, "{stalled}: {unread}");
        let last = stalled as usize;
        let sent = client.rounds(last, 24);
        assert!(sent >= 24 * 65_535 / 2, "{stalled}: {sent}");
        // Streams that continue and streams that end both return their growth.
        for nth in 0..last {
            let key = client.keys[nth];
            client.bench.conn.credit(key, usize::MAX);
            if nth % 2 == 0 {
                client.bench.feed(&data(key.id(), b"", true)).expect("the end");
            }
            client.bench.conn.release(key);
        }
        client.bench.sent();
        client.bench.conn.release(client.keys[last]);
        assert_eq!((client.bench.conn.intake.growth, client.bench.conn.intake.uncredited), (0, 0));
    }
}

/// An upload that begins beside one with the whole window soon gets a fair share of it.
#[test]
fn uploads_side_by_side_share_the_window() {
    let mut client = FarClient::new(Limits::default(), 2);
    client.rounds(0, 24);
    let alone = client.round(0, true);
    let mut last = (0, 0);
    for _ in 0..24 {
        last = (client.round(0, true), client.round(1, true));
    }
    assert!(last.0 > alone / 3 && last.1 > alone / 3, "{alone}: {last:?}");
    let both = last.0 + last.1;
    assert!(both > alone * 3 / 4, "{alone}: {last:?}");
}

/// Content that is unread when its stream ends counts until the driver consumes it.
#[test]
fn unread_content_of_ended_uploads_counts_in_the_window() {
    let mut client = FarClient::new(Limits::default(), 1);
    client.rounds(0, 24);
    let unread = client.fill(0) as usize;
    client.bench.feed(&data(1, b"", true)).expect("the end");
    assert_eq!(client.bench.conn.intake.growth, unread - 65_535);
    client.bench.conn.credit(client.keys[0], unread - 65_535);
    assert_eq!(client.bench.conn.intake.growth, 0);
    client.bench.conn.release(client.keys[0]);
    assert_eq!(client.bench.conn.intake.uncredited, 0);
}

/// A link with a delay and a rate, in simulated time, between a client and a server that consumes
/// all content.
struct Link {
    bench: Bench,
    key: StreamKey,
    delay_ms: u64,
    /// Requests in transit, each with its time of arrival.
    up: VecDeque<(u64, Vec<u8>)>,
    down: VecDeque<(u64, Sent)>,
    conn_window: i64,
    stream_window: i64,
}

impl Link {
    fn new(round_trip_ms: u64) -> Self {
        let mut bench = Bench::fresh(Limits::default());
        let first = [&PREFACE[..], &raw(kind::SETTINGS, 0, 0, &[]), &post(1)[..]].concat();
        bench.feed(&first).expect("a request");
        let key = bench.key();
        let delay_ms = round_trip_ms / 2;
        let down = bench.sent().into_iter().map(|frame| (delay_ms, frame)).collect();
        let (conn_window, stream_window) = (65_535, 65_535);
        Self { bench, key, delay_ms, up: VecDeque::new(), down, conn_window, stream_window }
    }

    /// Sends `bytes` at a rate per millisecond; returns the time at which the last one arrives.
    fn upload(&mut self, bytes: i64, rate: i64) -> u64 {
        let (mut left, mut now_ms, mut room) = (bytes, 0, 0);
        while left > 0 || !self.up.is_empty() {
            self.hear(now_ms);
            room = (room + rate).min(2 * rate.max(16_384));
            loop {
                let count = left.min(16_384).min(self.conn_window).min(self.stream_window);
                if count <= 0 || count > room {
                    break;
                }
                (left, room) = (left - count, room - count);
                (self.conn_window, self.stream_window) =
                    (self.conn_window - count, self.stream_window - count);
                let frame = data(1, &vec![0; count as usize], left == 0);
                self.up.push_back((now_ms + self.delay_ms, frame));
            }
            self.serve(now_ms);
            now_ms += 1;
        }
        now_ms
    }

    /// The client's end.
    fn hear(&mut self, now_ms: u64) {
        while let Some(frame) = due(&mut self.down, now_ms) {
            match (frame.kind, frame.stream) {
                (kind::WINDOW_UPDATE, 0) => self.conn_window += i64::from(frame.number()),
                (kind::WINDOW_UPDATE, _) => self.stream_window += i64::from(frame.number()),
                (kind::PING, _) => {
                    let reply = raw(kind::PING, flag::ACK, 0, &frame.payload);
                    self.up.push_back((now_ms + self.delay_ms, reply));
                }
                _ => {}
            }
        }
    }

    fn serve(&mut self, now_ms: u64) {
        self.bench.now_ms = now_ms;
        while let Some(bytes) = due(&mut self.up, now_ms) {
            self.bench.feed(&bytes).expect("within the windows");
        }
        self.bench.events.clear();
        let content = std::mem::take(&mut self.bench.content);
        self.bench.conn.credit(self.key, content.len());
        let due_ms = now_ms + self.delay_ms;
        self.down.extend(self.bench.sent().into_iter().map(|frame| (due_ms, frame)));
    }
}

/// Removes an arrived item from the front of a queue.
fn due<T>(queue: &mut VecDeque<(u64, T)>, now_ms: u64) -> Option<T> {
    queue.front().is_some_and(|(at, _)| *at <= now_ms).then(|| queue.pop_front())?.map(|(_, it)| it)
}

/// A hundred megabytes over links with a bandwidth-delay product below `http2.connection-window`,
/// compared with the time that the link alone needs.
#[test]
fn upload_over_a_long_way_is_nearly_as_fast_as_the_link() {
    for (round_trip_ms, bytes_per_ms) in [(50, 40_000), (50, 60_000), (20, 125_000), (100, 25_000)]
    {
        let took_ms = Link::new(round_trip_ms).upload(100_000_000, bytes_per_ms);
        let ideal_ms = 100_000_000 / bytes_per_ms as u64 + round_trip_ms / 2;
        let ratio = ideal_ms as f64 / took_ms as f64;
        assert!(ratio > 0.9, "{round_trip_ms} ms, {bytes_per_ms} B/ms: {took_ms} ms, {ratio:.2}");
    }
}

#[test]
fn wait_for_a_window_of_the_connection_is_over_once() {
    // A short frame waits for the connection's window, and then its driver cannot write, or the
    // stream is reset: the deadline must not recur.
    let ends: [fn(&mut Bench, StreamKey); 2] =
        [|_, _| {}, |bench, key| bench.conn.reset(key, ErrorCode::CANCEL)];
    for end in ends {
        let mut bench = Bench::server();
        let key = bench.get(1);
        bench.respond(key, 100_000);
        bench.feed(&window_update(1, 1 << 20)).expect("the stream's own");
        bench.data();
        bench.feed(&window_update(0, 1000)).expect("a little");
        assert!(bench.data().is_empty());
        end(&mut bench, key);
        bench.now_ms = bench.conn.deadline_ms().expect("a deadline");
        bench.conn.handle_timeout(bench.now_ms).expect("in time");
        assert_eq!(bench.conn.deadline_ms(), None);
        let live = bench.conn.streams.live(key).is_some();
        assert_eq!(bench.data().is_empty(), !live, "what has waited is sent");
    }
}

#[test]
fn content_is_sent_within_both_windows() {
    let mut bench = Bench::server();
    let (a, b) = (bench.get(1), bench.get(3));
    bench.respond(a, 100_000);
    bench.respond(b, 10);
    let sent = bench.data();
    let of = |id: u32| sent.iter().filter(|d| d.0 == id).map(|d| d.1).sum::<usize>();
    assert_eq!((of(1), of(3)), (65_535, 0), "the first has it all");
    bench.feed(&window_update(0, 1 << 20)).expect("more");
    assert_eq!(bench.data(), [(3, 10, true)]);
    bench.feed(&window_update(1, 1 << 20)).expect("more");
    let rest: Vec<_> = bench.data();
    assert_eq!(rest.iter().map(|d| d.1).sum::<usize>(), 100_000 - 65_535);
    assert!(rest.last().is_some_and(|d| d.2));
}

#[test]
fn a_window_that_was_made_negative_has_to_be_filled_first() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.respond(key, 100_000);
    bench.feed(&window_update(0, 1 << 20)).expect("more");
    assert_eq!(bench.data().iter().map(|d| d.1).sum::<usize>(), 65_535);
    bench.feed(&setting(setting_id::INITIAL_WINDOW_SIZE, 0)).expect("settings");
    bench.feed(&window_update(1, 65_535)).expect("up to zero");
    assert_eq!((bench.conn.room(key), bench.data().len()), (0, 0));
    bench.feed(&window_update(1, 2000)).expect("above");
    assert_eq!(bench.data(), [(1, 2000, false)]);
}

#[test]
fn room_is_limited_by_all_windows_and_queued_content() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
    assert_eq!(bench.conn.room(key), 65_535);
    bench.conn.queue_data(key, 65_000, false).expect("content");
    assert_eq!(bench.conn.room(key), 535);
    bench.conn.queue_data(key, 65_000, false).expect("content");
    assert_eq!(bench.conn.room(key), 0);
    bench.conn.reset(key, ErrorCode::CANCEL);
    assert_eq!(bench.conn.room(key), 0);
}

#[test]
fn short_frames_wait_for_more_window_unless_they_end_the_stream() {
    let mut bench = Bench::server();
    bench.feed(&setting(setting_id::INITIAL_WINDOW_SIZE, 5)).expect("settings");
    let (long, short) = (bench.get(1), bench.get(3));
    bench.respond(long, 50_000);
    bench.respond(short, 5);
    assert_eq!(bench.data(), [(3, 5, true)], "the whole response");
    assert_eq!(bench.conn.deadline_ms(), Some(101));
    bench.now_ms = 100;
    bench.conn.handle_timeout(100).expect("in time");
    assert!(bench.data().is_empty());
    bench.now_ms = 101;
    bench.conn.handle_timeout(101).expect("in time");
    assert_eq!(bench.data(), [(1, 5, false)]);
    bench.feed(&window_update(1, 1023)).expect("nearly enough");
    assert!(bench.data().is_empty());
    bench.feed(&window_update(1, 1)).expect("enough");
    assert_eq!(bench.data(), [(1, 1024, false)]);
}

#[test]
fn a_short_window_of_the_connection_waits_too() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.respond(key, 100_000);
    bench.feed(&window_update(1, 1 << 20)).expect("the stream's own");
    assert_eq!(bench.data().iter().map(|d| d.1).sum::<usize>(), 65_535);
    bench.feed(&window_update(0, 1023)).expect("a little");
    assert!(bench.data().is_empty());
    let deadline = bench.conn.deadline_ms().expect("a deadline");
    bench.now_ms = deadline;
    assert_eq!(bench.data(), [(1, 1023, false)]);
    bench.feed(&window_update(0, 1024)).expect("enough");
    assert_eq!(bench.data(), [(1, 1024, false)]);
}

#[test]
fn content_that_fills_a_short_window_waits_as_if_there_were_more() {
    let mut bench = Bench::server();
    bench.feed(&setting(setting_id::INITIAL_WINDOW_SIZE, 1)).expect("settings");
    let key = bench.get(1);
    bench.conn.send_head(key, Status::OK, &Fields::new(), false).expect("a head");
    assert_eq!(bench.conn.room(key), 1);
    bench.conn.queue_data(key, 1, false).expect("as much as there is room for");
    assert!(bench.data().is_empty(), "the driver may have more");
    bench.feed(&window_update(1, 1)).expect("a little");
    bench.conn.queue_data(key, 1, false).expect("as much again");
    assert!(bench.data().is_empty());
    bench.now_ms = bench.conn.deadline_ms().expect("a deadline");
    bench.conn.handle_timeout(bench.now_ms).expect("in time");
    assert_eq!(bench.data(), [(1, 2, false)]);
    bench.feed(&window_update(1, 2)).expect("a little");
    bench.conn.queue_data(key, 1, false).expect("less than there is room for");
    assert_eq!(bench.data(), [(1, 1, false)], "there is no more");
    bench.conn.queue_data(key, 1, true).expect("the last");
    assert_eq!(bench.data(), [(1, 1, true)]);
}

#[test]
fn a_smaller_window_counts_once_the_client_knows_of_it() {
    let limits = Limits { stream_window_bytes: 1000, ..Limits::default() };
    let mut bench = Bench::fresh(limits);
    bench.feed(&[&PREFACE[..], &raw(kind::SETTINGS, 0, 0, &[])].concat()).expect("settings");
    bench.post(1);
    bench.feed(&data(1, &[0; 5000], false)).expect("it has not read our settings");
    let mut bench = Bench::with(limits);
    bench.post(1);
    bench.feed(&data(1, &[0; 1000], false)).expect("content");
    bench.feed(&data(1, &[0], false)).expect("no fault of the connection");
    assert_eq!(bench.reset_code(1), Some(ErrorCode::FLOW_CONTROL_ERROR));
}

#[test]
fn content_of_a_stream_that_is_forgotten_is_dropped() {
    let mut bench = Bench::server();
    for nth in 0..200 {
        let key = bench.post(nth * 2 + 1);
        bench.respond(key, 0);
        bench.conn.release(key);
        bench.sent();
    }
    bench.feed(&data(1, &[0; 1000], true)).expect("what was on its way");
    assert!(bench.events.is_empty());
}

#[test]
fn a_driver_does_not_spin_while_a_short_frame_waits() {
    let mut bench = Bench::server();
    let key = bench.get(1);
    bench.respond(key, 100_000);
    bench.feed(&window_update(1, 1 << 20)).expect("the stream's own");
    bench.data();
    assert!(!bench.conn.has_output(), "no window");
    bench.feed(&window_update(0, 10)).expect("a little");
    assert!(bench.conn.has_output());
    assert!(bench.data().is_empty() && !bench.conn.has_output());
    bench.now_ms = bench.conn.deadline_ms().expect("a deadline");
    bench.conn.handle_timeout(bench.now_ms).expect("in time");
    assert!(bench.conn.has_output());
    assert_eq!(bench.data(), [(1, 10, false)]);
}
