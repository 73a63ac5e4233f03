//! One connection whose client is the other end of the codec.

use std::net::SocketAddr;
use std::task::Wake;

use lighty_io::transport::memory;
use lighty_wire::http2::{Event, Limits, RequestParts};

use super::*;

const WRITE_BYTES: usize = 128 * 1024;

struct Pair {
    client: Connection,
    shared: H2Shared,
    /// Events of the client, and the content that it has received.
    events: Vec<Event>,
    content: Vec<u8>,
    now_ms: u64,
    opens_windows: bool,
}

impl Pair {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    /// Creates a connection whose client has these limits.
    fn with(limits: Limits) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (near, _) = memory::pair(nowhere, nowhere, 1);
        let server = Connection::server(Limits::default(), 0);
        let mut pair = Self {
            client: Connection::client(limits, 0),
            shared: H2Shared::new(server, Rc::new(Stream::from_memory(near))),
            events: Vec::new(),
            content: Vec::new(),
            now_ms: 0,
            opens_windows: true,
        };
        pair.exchange();
        pair
    }

    /// Moves all frames in both directions, as the loop of a connection does.
    fn exchange(&mut self) {
        for _ in 0..3 {
            self.read_client();
            self.write();
        }
    }

    /// Handles all frames of the client.
    fn read_client(&mut self) {
        let mut input = Vec::new();
        self.client.poll_output(&mut input);
        self.read(&input);
    }

    /// Handles bytes from the client.
    fn read(&mut self, input: &[u8]) {
        let mut at = 0;
        loop {
            let handled = self.shared.machine.handle_input(&input[at..], self.now_ms);
            let handled = handled.expect("no fault");
            match handled.event {
                Some(Event::Request { stream, ends }) => self.shared.begin(stream, ends),
                Some(Event::Data { stream, start, len, ends }) => {
                    self.shared.receive(stream, &input[at..][start..start + len], ends);
                }
                Some(Event::Reset { stream, .. }) => self.shared.lose(stream),
                _ => {}
            }
            at += handled.consumed;
            if handled.event.is_none() {
                return;
            }
        }
    }

    /// Writes all frames of the server, which the client handles.
    fn write(&mut self) {
        let mut out = Vec::new();
        self.shared.fill(&mut out, WRITE_BYTES, self.now_ms);
        let mut at = 0;
        loop {
            let handled = self.client.handle_input(&out[at..], self.now_ms).expect("no fault");
            if let Some(Event::Data { stream, start, len, .. }) = handled.event {
                self.content.extend_from_slice(&out[at..][start..start + len]);
                if self.opens_windows {
                    self.client.credit(stream, len);
                }
            }
            at += handled.consumed;
            self.events.extend(handled.event);
            if handled.event.is_none() {
                return;
            }
        }
    }

    /// Sends a request. Returns the client's stream and the server's.
    fn request(&mut self, ends: bool) -> (StreamKey, StreamKey) {
        let parts = RequestParts {
            method: b"POST",
            scheme: b"http",
            authority: b"a",
            path: b"/",
            protocol: None,
        };
        let near = self.client.open(&parts, &Fields::new(), ends).expect("a stream");
        self.read_client();
        let far = self.shared.buffers.iter().filter_map(|buffers| buffers.key);
        let far = far.max_by_key(|key| key.id()).expect("a stream");
        assert_eq!(far.id(), near.id());
        (near, far)
    }

    /// Sends content of a request.
    fn send(&mut self, near: StreamKey, content: &[u8], ends: bool) {
        self.client.queue_data(near, content.len() as u64, ends).expect("queued");
        let mut frames = Vec::new();
        let mut left = content;
        while let Some(frame) = self.client.poll_data(WRITE_BYTES, self.now_ms, &mut frames) {
            frames.extend_from_slice(&left[..frame.len]);
            left = &left[frame.len..];
        }
        self.read(&frames);
        self.read_client();
    }

    /// Sends a whole response, and ends the exchange.
    fn respond(&mut self, far: StreamKey, content: &'static [u8]) {
        self.begin_response(far, content);
        self.shared.end(far);
    }

    fn begin_response(&mut self, far: StreamKey, content: &'static [u8]) {
        self.shared.send_head(far, Status::OK, &Fields::new(), false).expect("sent");
        self.shared.push(far, Bytes::from_static(content), true).expect("queued");
    }

    fn resets(&self) -> Vec<(u32, ErrorCode)> {
        let reset = |event: &Event| match *event {
            Event::Reset { stream, code, .. } => Some((stream.id(), code)),
            _ => None,
        };
        self.events.iter().filter_map(reset).collect()
    }

    fn streams(&self) -> usize {
        self.shared.buffers.iter().filter(|buffers| buffers.key.is_some()).count()
    }
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn half_close_resets_incomplete_requests_with_a_queued_response() {
    let mut pair = Pair::new();
    let (_, incomplete) = pair.request(false);
    let (_, running) = pair.request(false);
    let (_, whole) = pair.request(true);
    pair.respond(incomplete, &[b'x'; 1000]);
    pair.begin_response(running, &[b'y'; 1000]);
    assert!(pair.shared.end_input(), "one request is complete");
    pair.write();
    assert!(pair.content.is_empty(), "nothing of a lost stream is sent");
    let lost = [incomplete, running].map(|stream| (stream.id(), ErrorCode::CANCEL));
    assert_eq!(pair.resets(), lost);
    pair.shared.end(running);
    pair.respond(whole, b"whole");
    pair.write();
    assert_eq!((&*pair.content, pair.streams()), (&b"whole"[..], 0));
}

/// Its request is incomplete, but its response is not.
#[test]
fn half_close_resets_a_stream_with_a_whole_response_without_an_error() {
    let mut pair = Pair::new();
    let (_, far) = pair.request(false);
    pair.respond(far, b"early");
    pair.exchange();
    assert_eq!(pair.streams(), 1, "it lingers");
    assert!(!pair.shared.end_input(), "no request is complete");
    pair.write();
    assert_eq!((pair.resets(), pair.streams()), (vec![(far.id(), ErrorCode::NO_ERROR)], 0));
}

/// The first stream uses the connection's window up. The exchange of the second one still runs.
#[test]
fn half_close_resets_a_running_exchange_whose_content_lacks_a_window() {
    static CONTENT: [u8; 40_000] = [b'x'; 40_000];
    let mut pair = Pair::with(Limits { conn_window_bytes: 65_535, ..Limits::default() });
    let (_, whole) = pair.request(true);
    let (_, running) = pair.request(true);
    pair.respond(whole, &CONTENT);
    pair.shared.send_head(running, Status::OK, &Fields::new(), false).expect("sent");
    pair.shared.push(running, Bytes::from_static(&CONTENT), false).expect("queued");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pair.shared.poll_drained(running, &mut cx).is_pending());
    assert!(pair.shared.end_input(), "the requests are complete");
    pair.write();
    pair.write();
    assert_eq!(pair.resets(), [(running.id(), ErrorCode::CANCEL)]);
    assert_eq!(pair.shared.never_sent(running), 80_000 - 65_535);
    pair.shared.reset(running, ErrorCode::CANCEL);
    assert_eq!(pair.shared.never_sent(running), 80_000 - 65_535, "reset again");
    assert!(matches!(pair.shared.poll_drained(running, &mut cx), Poll::Ready(Err(_))));
    pair.shared.end(running);
    pair.write();
    assert_eq!((pair.content.len(), pair.streams()), (65_535, 0));
}

/// The client takes other responses, and opens no window for the rest of one whose exchange has
/// ended.
#[test]
fn content_of_an_ended_exchange_waits_for_its_window_only_so_long() {
    static CONTENT: [u8; 50_000] = [b'x'; 50_000];
    let limits = Limits {
        stream_window_bytes: 40_000,
        stream_window_bytes_max: 40_000,
        ..Limits::default()
    };
    let mut pair = Pair::with(limits);
    let clock = Clock::manual(0);
    let (_, stuck) = pair.request(true);
    pair.opens_windows = false;
    pair.respond(stuck, &CONTENT);
    pair.write();
    for (now_ms, streams) in [(1_000, 1), (5_999, 1), (7_000, 0)] {
        pair.now_ms = now_ms;
        let (_, other) = pair.request(true);
        pair.respond(other, b"other");
        pair.write();
        let look = Look { now_ms, idle_s: 6, write_bytes: 14, sent_bytes: 14 };
        assert!(pair.shared.accept(14, look, &clock));
        pair.write();
        assert_eq!(pair.streams(), streams, "after {now_ms} ms");
    }
    assert_eq!(pair.resets(), [(stuck.id(), ErrorCode::CANCEL)]);
    assert_eq!(pair.content.len(), 40_015);
}

/// A PING every few minutes must not keep content alive that waits for a window.
#[test]
fn replies_to_frames_are_no_content() {
    let mut pair = Pair::new();
    let look = Look { now_ms: 0, idle_s: 6, write_bytes: 14, sent_bytes: 14 };
    let (_, far) = pair.request(true);
    pair.respond(far, b"other");
    pair.write();
    assert!(pair.shared.accept(14, look, &Clock::manual(0)));
    pair.client.ping([1; 8]);
    pair.read_client();
    assert!(pair.shared.machine.output_bytes() > 0, "a reply");
    pair.write();
    assert!(!pair.shared.accept(17, look, &Clock::manual(0)));
}

#[test]
fn reset_of_a_queued_response_frees_its_stream_once() {
    let mut pair = Pair::new();
    let (near, far) = pair.request(true);
    pair.respond(far, &[b'x'; 1000]);
    pair.client.reset(near, ErrorCode::CANCEL);
    pair.client.release(near);
    pair.read_client();
    assert_eq!((pair.shared.queued_bytes, pair.streams()), (0, 1));
    pair.write();
    assert_eq!((pair.content.len(), pair.streams()), (0, 0));
    let (_, next) = pair.request(true);
    assert_eq!(next.slot(), far.slot(), "the slot is used again");
    pair.shared.lose(far);
    pair.respond(next, b"next");
    pair.write();
    assert_eq!(pair.content, b"next");
}

#[test]
fn client_may_finish_its_request_after_the_response() {
    let mut pair = Pair::new();
    let (near, far) = pair.request(false);
    pair.respond(far, b"early");
    pair.exchange();
    assert_eq!((&*pair.content, pair.streams()), (&b"early"[..], 1), "it lingers");
    let until_ms = pair.shared.lingers_until_ms().expect("a timer");
    pair.send(near, b"some", false);
    pair.write();
    assert_eq!((pair.streams(), pair.shared.lingers_until_ms()), (1, Some(until_ms)));
    pair.send(near, b"more", true);
    pair.exchange();
    assert_eq!((pair.streams(), pair.shared.lingers_until_ms()), (0, None));
    assert!(pair.resets().is_empty());
}

#[test]
fn lingering_stream_is_reset_when_its_time_or_its_bytes_are_over() {
    for is_late in [true, false] {
        let mut pair = Pair::new();
        let (near, far) = pair.request(false);
        pair.respond(far, b"early");
        pair.exchange();
        if is_late {
            let until_ms = pair.shared.lingers_until_ms().expect("a timer");
            pair.shared.stop_lingering(until_ms - 1);
            assert_eq!(pair.streams(), 1, "it has a millisecond left");
            pair.shared.stop_lingering(until_ms);
        } else {
            for _ in 0..=limits::DRAIN_BYTES_MAX / 16_384 {
                pair.send(near, &[b'x'; 16_384], false);
                pair.exchange();
            }
        }
        pair.exchange();
        assert_eq!((pair.streams(), pair.shared.lingers_until_ms()), (0, None), "{is_late}");
        assert_eq!(pair.resets(), [(near.id(), ErrorCode::NO_ERROR)], "{is_late}");
    }
}

#[test]
fn loss_wakes_every_task_of_a_stream() {
    let mut pair = Pair::new();
    let (_, far) = pair.request(false);
    let wakers: [std::sync::Arc<Woken>; 3] = Default::default();
    let [reader, sender, watcher] = wakers.clone().map(Waker::from);
    let shared = &mut pair.shared;
    assert!(shared.poll_received(far, &mut Context::from_waker(&reader)).is_pending());
    shared.send_head(far, Status::OK, &Fields::new(), false).expect("sent");
    shared.push(far, Bytes::from_static(b"content"), false).expect("queued");
    assert!(shared.poll_drained(far, &mut Context::from_waker(&sender)).is_pending());
    assert!(shared.poll_gone(far, &mut Context::from_waker(&watcher)).is_pending());
    shared.reset(far, ErrorCode::CANCEL);
    assert!(wakers.iter().all(|woken| woken.0.load(std::sync::atomic::Ordering::Relaxed)));
    let mut cx = Context::from_waker(&reader);
    assert!(matches!(shared.poll_received(far, &mut cx), Poll::Ready(Err(_))));
    assert!(matches!(shared.poll_room(far, &mut cx), Poll::Ready(Err(_))));
    assert!(shared.poll_gone(far, &mut cx).is_ready());
    assert!(shared.push(far, Bytes::new(), true).is_err());
    shared.end(far);
    pair.write();
    assert_eq!(pair.streams(), 0);
}
