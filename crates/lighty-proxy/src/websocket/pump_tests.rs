use std::net::{Ipv4Addr, SocketAddr};

use lighty_io::transport::Stream;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_testkit::websocket::{self, frame};

use super::*;

const NO_LIMITS: PumpLimits = PumpLimits { idle_ms: 0, ping_ms: 0 };

/// A tunnel over memory, and the peers of both its ends.
struct Bench {
    client: MemoryEnd,
    near: Stream,
    far: Stream,
    backend: MemoryEnd,
}

impl Bench {
    /// Creates a tunnel whose client reads nothing beyond so many bytes.
    fn new(room_bytes: usize) -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (client, near) = memory::pair(nowhere, nowhere, room_bytes);
        let (far, backend) = memory::pair(nowhere, nowhere, 1024);
        Self { client, near: Stream::from_memory(near), far: Stream::from_memory(far), backend }
    }

    /// Runs the tunnel to its end, or for so many milliseconds. Returns the end and the time.
    async fn run(&self, limits: PumpLimits, ms_max: u64) -> (Option<io::Result<()>>, u64) {
        self.run_until(limits, ms_max, &Notify::new()).await
    }

    /// Like [`run`](Self::run), with the order to close.
    async fn run_until(
        &self,
        limits: PumpLimits,
        ms_max: u64,
        closer: &Notify,
    ) -> (Option<io::Result<()>>, u64) {
        let clock = Clock::manual(1_000);
        let ends = Ends { near: &self.near, far: &self.far };
        let mut pump = Pump::new(ends, Opcode::Binary, Vec::new());
        let mut run = std::pin::pin!(pump.run(&clock, limits, closer));
        for now_ms in (0..ms_max).step_by(500) {
            let step = Duration::from_millis(500);
            if let Ok(ended) = tokio::time::timeout(step, &mut run).await {
                return (Some(ended), now_ms);
            }
            clock.advance(step);
        }
        (None, ms_max)
    }

    /// True for each peer, the client and the backend, that sees a reset.
    fn resets(&self) -> (bool, bool) {
        (self.client.is_reset(), self.backend.is_reset())
    }

    async fn received(end: &MemoryEnd, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        let count = end.read(&mut bytes).await.expect("bytes");
        bytes.truncate(count);
        bytes
    }
}

fn text(payload: &[u8]) -> Vec<u8> {
    frame(websocket::Opcode::Text, true, payload)
}

fn close() -> Vec<u8> {
    frame(websocket::Opcode::Close, true, &CLOSE_NORMAL.to_be_bytes())
}

#[tokio::test(start_paused = true)]
async fn client_that_resets_has_its_backend_reset() {
    for has_closed in [false, true] {
        let bench = Bench::new(1024);
        let bytes = if has_closed { close() } else { text(b"a part")[..8].to_vec() };
        bench.client.write_all(&bytes).await.expect("room");
        let reset = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            bench.client.reset();
        };
        let ((ended, _), ()) = tokio::join!(bench.run(NO_LIMITS, 10_000), reset);
        assert_eq!(ended.expect("the client is lost").is_ok(), has_closed);
        assert_eq!(bench.backend.is_reset(), !has_closed, "closed: {has_closed}");
    }
}

#[tokio::test(start_paused = true)]
async fn backend_that_fails_leaves_the_client_a_close_frame() {
    let bench = Bench::new(1024);
    bench.backend.reset();
    let reply = async {
        let received = Bench::received(&bench.client, 1024).await;
        assert_eq!(received, [0x88, 2, 0x03, 0xf3], "code {CLOSE_UNEXPECTED}");
        bench.client.write_all(&close()).await.expect("room");
    };
    let ((ended, _), ()) = tokio::join!(bench.run(NO_LIMITS, 10_000), reply);
    ended.expect("it ends").expect("the client is not lost");
    assert!(!bench.client.is_reset());
}

#[tokio::test(start_paused = true)]
async fn order_to_close_sends_one_close_frame() {
    for has_closed in [false, true] {
        let (bench, closer) = (Bench::new(1024), Notify::new());
        if has_closed {
            bench.client.write_all(&close()).await.expect("room");
        }
        let order = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            closer.notify_one();
            let code = if has_closed { 0xe8 } else { 0xe9 };
            assert_eq!(Bench::received(&bench.client, 1024).await, [0x88, 2, 0x03, code]);
            match has_closed {
                true => bench.backend.shutdown_write().expect("open"),
                false => bench.client.write_all(&close()).await.expect("room"),
            }
        };
        let ((ended, _), ()) = tokio::join!(bench.run_until(NO_LIMITS, 10_000, &closer), order);
        ended.expect("it ends").expect("the client is not lost");
        assert_eq!(bench.resets(), (false, false), "closed: {has_closed}");
    }
}

#[tokio::test(start_paused = true)]
async fn order_to_close_resets_a_backend_that_misses_bytes() {
    let (bench, closer) = (Bench::new(4096), Notify::new());
    // More than the backend's room of 1,024 bytes.
    bench
        .client
        .write_all(&frame(websocket::Opcode::Text, true, &[b'x'; 2000]))
        .await
        .expect("room");
    let order = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        closer.notify_one();
        bench.client.write_all(&close()).await.expect("room");
    };
    let ((ended, _), ()) = tokio::join!(bench.run_until(NO_LIMITS, 10_000, &closer), order);
    ended.expect("it ends").expect("the client is not lost");
    assert_eq!(bench.resets(), (false, true));
}

#[tokio::test(start_paused = true)]
async fn idle_limit_resets_both_sides() {
    let limits = PumpLimits { idle_ms: 3_000, ping_ms: 1_000 };
    for bytes in [text(b"a whole message"), text(b"a part")[..8].to_vec()] {
        let bench = Bench::new(1024);
        bench.client.write_all(&bytes).await.expect("room");
        let (ended, took_ms) = bench.run(limits, 10_000).await;
        ended.expect("it ends").expect("the client is not lost");
        assert!((3_000..=5_000).contains(&took_ms), "{took_ms} ms");
        assert_eq!(bench.resets(), (true, true));
    }
    let bench = Bench::new(1024);
    assert!(bench.run(NO_LIMITS, 60_000).await.0.is_none(), "no limit");
}

#[tokio::test(start_paused = true)]
async fn client_that_has_the_close_frame_and_does_not_reply_sees_an_end() {
    let bench = Bench::new(1024);
    bench.backend.shutdown_write().expect("open");
    let (ended, took_ms) = bench.run(NO_LIMITS, 20_000).await;
    ended.expect("it ends").expect("the client is not lost");
    assert!((CLOSE_WAIT_MS..=CLOSE_WAIT_MS + 2 * LOOK_MS).contains(&took_ms), "{took_ms} ms");
    assert_eq!(bench.resets(), (false, true), "the client may have sent more");
    assert_eq!(Bench::received(&bench.client, 1024).await, [0x88, 2, 0x03, 0xe8]);
    assert_eq!(Bench::received(&bench.client, 1024).await, b"");
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_no_close_frame_in_time_is_reset() {
    let bench = Bench::new(3);
    bench.backend.write_all(b"long").await.expect("room");
    bench.backend.shutdown_write().expect("open");
    let read = async {
        // Leaves a part of the frames unread.
        assert_eq!(Bench::received(&bench.client, 3).await, [0x82, 4, b'l']);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(Bench::received(&bench.client, 3).await, b"ong");
    };
    let ((ended, _), ()) = tokio::join!(bench.run(NO_LIMITS, 20_000), read);
    ended.expect("it ends").expect("the client is not lost");
    assert_eq!(bench.resets(), (true, true));
}

#[tokio::test(start_paused = true)]
async fn dropped_tunnel_resets_both_sides_unless_it_is_over() {
    let bench = Bench::new(1024);
    bench.client.write_all(&text(b"a message")).await.expect("room");
    assert!(bench.run(NO_LIMITS, 2_000).await.0.is_none());
    assert_eq!(bench.resets(), (true, true));
    let bench = Bench::new(1024);
    bench.client.write_all(&close()).await.expect("room");
    bench.run(NO_LIMITS, 2_000).await.0.expect("it ends").expect("in order");
    assert_eq!(bench.resets(), (false, false));
}
