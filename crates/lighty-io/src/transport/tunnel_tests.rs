use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use super::*;
use crate::transport::memory::{self, MemoryEnd};
use crate::transport::tests::{tcp_pair, unix_pair};
use crate::transport::{ShutdownHow, Stream};

/// Pseudo-random bytes that differ with the seed.
fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut step = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| step()).collect()
}

struct Bench {
    buffers: BufPool,
    clock: Clock,
    meter: TunnelMeter,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_buffers(8)
    }

    fn with_buffers(buffers_max: usize) -> Bench {
        let buffers = BufPool::new(16_384, buffers_max);
        Bench { buffers, clock: Clock::manual(1_000), meter: TunnelMeter::default() }
    }

    async fn run(&self, near: &Stream, far: &Stream) -> Result<(), TunnelError> {
        let (early_near, early_far) = (Bytes::new(), Bytes::new());
        self.run_tunnel(Tunnel { near, far, early_near, early_far }).await
    }

    async fn run_tunnel(&self, tunnel: Tunnel<'_>) -> Result<(), TunnelError> {
        let run = tunnel.run(&self.buffers, &self.clock, &self.meter);
        tokio::time::timeout(Duration::from_secs(30), run).await.expect("it ends")
    }
}

/// Sends everything and closes that half, while reading until the end.
fn talk<S>(stream: S, send: Vec<u8>) -> std::thread::JoinHandle<Vec<u8>>
where
    S: Duplex,
{
    std::thread::spawn(move || {
        let mut writer = stream.second();
        let sender = std::thread::spawn(move || {
            writer.write_all(&send).expect("send");
            writer.half_close();
        });
        let mut reader = stream;
        let mut heard = Vec::new();
        reader.read_to_end(&mut heard).expect("hear");
        sender.join().expect("sender");
        heard
    })
}

trait Duplex: Read + Write + Send + 'static {
    fn second(&self) -> Self;
    fn half_close(&self);
}

impl Duplex for std::net::TcpStream {
    fn second(&self) -> Self {
        self.try_clone().expect("clone")
    }

    fn half_close(&self) {
        self.shutdown(Shutdown::Write).expect("shutdown");
    }
}

impl Duplex for std::os::unix::net::UnixStream {
    fn second(&self) -> Self {
        self.try_clone().expect("clone")
    }

    fn half_close(&self) {
        self.shutdown(Shutdown::Write).expect("shutdown");
    }
}

async fn megabytes_go_both_ways(bench: Bench) {
    let (near, client) = tcp_pair().await;
    let (far, backend) = unix_pair();
    let (up, down) = (content(1, 3_000_001), content(2, 5_000_003));
    let client = talk(client, up.clone());
    let backend = talk(backend, down.clone());
    bench.run(&near, &far).await.expect("whole");
    assert!(client.join().expect("client") == down);
    assert!(backend.join().expect("backend") == up);
    assert_eq!(bench.meter.to_far_bytes.get(), 3_000_001);
    assert_eq!(bench.meter.to_near_bytes.get(), 5_000_003);
    assert_eq!(bench.buffers.in_use(), 0);
}

#[tokio::test]
async fn everything_arrives_both_ways_at_once() {
    megabytes_go_both_ways(Bench::new()).await;
}

#[tokio::test]
async fn an_empty_pool_slows_a_tunnel_and_does_not_stop_it() {
    megabytes_go_both_ways(Bench::with_buffers(0)).await;
}

#[tokio::test]
async fn early_bytes_go_first() {
    let (near, client) = unix_pair();
    let (far, backend) = unix_pair();
    let client = talk(client, b" late".to_vec());
    let backend = talk(backend, b" too".to_vec());
    let tunnel = Tunnel {
        near: &near,
        far: &far,
        early_near: Bytes::from_static(b"early,"),
        early_far: Bytes::from_static(b"early,"),
    };
    let bench = Bench::new();
    bench.run_tunnel(tunnel).await.expect("whole");
    assert_eq!(client.join().expect("client"), b"early, too");
    assert_eq!(backend.join().expect("backend"), b"early, late");
    assert_eq!(bench.meter.to_far_bytes.get(), 11);
}

#[tokio::test]
async fn a_half_close_is_passed_on_and_the_other_half_goes_on() {
    let (near, mut client) = tcp_pair().await;
    let (far, mut backend) = tcp_pair().await;
    let bench = Bench::new();
    let peers = std::thread::spawn(move || {
        client.write_all(b"question").expect("write");
        client.shutdown(Shutdown::Write).expect("shutdown");
        let mut question = String::new();
        backend.read_to_string(&mut question).expect("the end arrives");
        backend.write_all(b"answer").expect("write");
        drop(backend);
        let mut response = String::new();
        client.read_to_string(&mut response).expect("read");
        (question, response)
    });
    bench.run(&near, &far).await.expect("whole");
    let received = peers.join().expect("peers");
    assert_eq!(received, ("question".to_owned(), "answer".to_owned()));
}

#[tokio::test]
async fn an_idle_tunnel_holds_no_buffer_and_stamps_only_activity() {
    let (near, mut client) = tcp_pair().await;
    let (far, mut backend) = tcp_pair().await;
    let bench = Bench::new();
    let shutdown = near.shutdown_handle();
    let far_shutdown = far.shutdown_handle();
    let watch = async {
        client.write_all(b"x").expect("write");
        while bench.meter.to_far_bytes.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stamped = bench.meter.active_ms.get();
        bench.clock.advance(Duration::from_secs(60));
        tokio::task::yield_now().await;
        assert_eq!(bench.meter.active_ms.get(), stamped);
        assert_eq!(bench.buffers.in_use(), 0);
        backend.write_all(b"y").expect("write");
        while bench.meter.to_near_bytes.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(bench.meter.active_ms.get(), stamped + 60_000);
        assert_eq!(bench.meter.half_closed.get(), None);
        assert!(shutdown.shut_down(ShutdownHow::Both) && far_shutdown.shut_down(ShutdownHow::Both));
    };
    // The two ends see the end of their streams.
    let (ended, ()) = tokio::join!(bench.run(&near, &far), watch);
    ended.expect("shut down");
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_with_a_limit_is_cut_at_both_ends_when_nothing_moves() {
    let (near, _client) = tcp_pair().await;
    let (far, _backend) = tcp_pair().await;
    let bench = Bench::new();
    let early = || (Bytes::from_static(b"question"), Bytes::from_static(b"answer"));
    for (idle_ms, advance_s, is_cut) in [(60_001, 60, false), (0, 600, false), (60_000, 60, true)] {
        let (early_near, early_far) = early();
        let tunnel = Tunnel { near: &near, far: &far, early_near, early_far };
        let run = tunnel.run_while_active(&bench.buffers, &bench.clock, idle_ms);
        let advance = async {
            // By then the early bytes have been passed on, and the activity is recorded.
            tokio::time::sleep(Duration::from_millis(LOOK_MS / 2)).await;
            bench.clock.advance(Duration::from_secs(advance_s));
        };
        let limit = Duration::from_millis(2 * LOOK_MS);
        let (ended, ()) = tokio::join!(tokio::time::timeout(limit, run), advance);
        let expected = TunnelEnd { was_idle: true, is_near_cut: false, to_near_bytes: 6 };
        assert_eq!(ended.ok(), is_cut.then_some(expected), "{idle_ms} ms");
    }
}

#[tokio::test]
async fn a_side_that_ended_and_then_resets_ends_the_tunnel() {
    let (near, client) = tcp_pair().await;
    let (far, backend) = tcp_pair().await;
    let bench = Bench::new();
    let watch = async {
        client.shutdown(Shutdown::Write).expect("shutdown");
        while bench.meter.half_closed.get() != Some(Side::Near) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let socket = socket2::Socket::from(client);
        socket.set_linger(Some(Duration::ZERO)).expect("linger");
    };
    let (ended, ()) = tokio::join!(bench.run(&near, &far), watch);
    let error = ended.expect_err("reset");
    assert_eq!((error.side, error.error.kind()), (Side::Near, io::ErrorKind::ConnectionReset));
    drop(backend);
}

#[tokio::test]
async fn a_reset_names_its_side() {
    let (near, client) = tcp_pair().await;
    let (far, backend) = tcp_pair().await;
    let socket = socket2::Socket::from(backend);
    socket.set_linger(Some(Duration::ZERO)).expect("linger");
    drop(socket);
    let error = Bench::new().run(&near, &far).await.expect_err("reset");
    assert_eq!(error.side, Side::Far);
    assert!(error.to_string().starts_with("Far side"), "{error}");
    drop(client);
}

#[tokio::test]
async fn a_reset_is_passed_on_unless_the_stream_was_complete() {
    for is_complete in [false, true] {
        let (near, mut client) = tcp_pair().await;
        let (far, mut backend) = tcp_pair().await;
        let bench = Bench::new();
        let watch = async {
            backend.write_all(b"answer").expect("write");
            if is_complete {
                backend.shutdown(Shutdown::Write).expect("shutdown");
            }
            let half_closed = is_complete.then_some(Side::Far);
            while bench.meter.half_closed.get() != half_closed
                || bench.meter.to_near_bytes.get() < 6
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let socket = socket2::Socket::from(backend);
            socket.set_linger(Some(Duration::ZERO)).expect("linger");
        };
        let (ended, ()) = tokio::join!(bench.run(&near, &far), watch);
        assert_eq!(ended.expect_err("reset").side, Side::Far);
        drop(near);
        let mut received = Vec::new();
        let read = client.read_to_end(&mut received).map_err(|error| error.kind());
        let expected = if is_complete { Ok(6) } else { Err(io::ErrorKind::ConnectionReset) };
        assert_eq!(read, expected);
    }
}

#[tokio::test]
async fn a_full_side_holds_the_other_back() {
    let (near, client) = tcp_pair().await;
    let (far, backend) = unix_pair();
    let bench = Bench::new();
    let client = talk(client, content(3, 30_000_000));
    let watch = async {
        // Until the socket is full: then one buffer is held, and no more is read.
        let mut last = u64::MAX;
        while bench.meter.to_far_bytes.get() != last || bench.buffers.in_use() == 0 {
            last = bench.meter.to_far_bytes.get();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(last < 2_000_000 && bench.buffers.in_use() == 1, "{last}");
        talk(backend, Vec::new())
    };
    let (ended, backend) = tokio::join!(bench.run(&near, &far), watch);
    ended.expect("whole");
    assert_eq!(backend.join().expect("backend").len(), 30_000_000);
    assert!(client.join().expect("client").is_empty());
}

/// A connection in memory: our stream and the peer's end.
fn memory_pair(room_bytes: usize) -> (Stream, MemoryEnd) {
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let (ours, peer) = memory::pair(nowhere, nowhere, room_bytes);
    (Stream::from_memory(ours), peer)
}

#[tokio::test(start_paused = true)]
async fn idle_limit_resets_a_side_for_which_bytes_are_held() {
    let bench = Bench::new();
    let (near, client) = memory_pair(4);
    let (far, backend) = memory_pair(16);
    backend.write_all(b"answer").await.expect("room");
    let (early_near, early_far) = (Bytes::new(), Bytes::new());
    let tunnel = Tunnel { near: &near, far: &far, early_near, early_far };
    let run = tunnel.run_while_active(&bench.buffers, &bench.clock, 1_000);
    let advance = async {
        tokio::time::sleep(Duration::from_millis(LOOK_MS / 2)).await;
        bench.clock.advance(Duration::from_secs(1));
    };
    let (ended, ()) = tokio::join!(run, advance);
    assert!(ended.was_idle && !ended.is_near_cut, "{ended:?}");
    assert_eq!((client.is_reset(), backend.is_reset()), (true, false));
    assert!(backend.is_ended(), "it has everything");
}

#[tokio::test]
async fn bytes_of_a_side_that_takes_none_are_passed_on_before_its_reset() {
    let bench = Bench::new();
    let (near, client) = memory_pair(4);
    let (far, mut backend) = tcp_pair().await;
    let moved = |count| {
        let meter = &bench.meter;
        async move {
            while meter.to_near_bytes.get() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let watch = async {
        backend.write_all(b"answer").expect("write");
        moved(4).await;
        let socket = socket2::Socket::from(backend);
        socket.set_linger(Some(Duration::ZERO)).expect("linger");
        drop(socket);
        // The write fails, while two bytes of the response are held.
        client.write_all(b"q").await.expect("room");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(client.read(&mut [0; 4]).await.expect("no reset yet"), 4);
    };
    let (ended, ()) = tokio::join!(bench.run(&near, &far), watch);
    assert_eq!(ended.expect_err("reset").side, Side::Far);
    assert_eq!((bench.meter.to_near_bytes.get(), bench.meter.cut.get()), (6, Some(Side::Near)));
    assert!(client.is_reset(), "the response is not whole");
}

/// A stream that never takes its end.
#[derive(Debug)]
struct Endless(Stream);

impl ByteStream for Endless {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_readable(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buffer)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ByteStream::poll_write(&self.0, cx, bytes)
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn reset(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
        ByteStream::reset(&self.0)
    }

    fn shut_down(&self) {
        ByteStream::shut_down(&self.0);
    }

    fn abort(&self) {
        ByteStream::abort(&self.0);
    }
}

#[tokio::test]
async fn reset_is_seen_while_the_end_before_it_is_passed_on() {
    let bench = Bench::new();
    let (near, client) = memory_pair(16);
    let near = Endless(near);
    let (far, backend) = memory_pair(16);
    backend.shutdown_write().expect("open");
    let (early_near, early_far) = (Bytes::new(), Bytes::new());
    let tunnel = Tunnel { near: &near, far: &far, early_near, early_far };
    let reset = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        backend.reset();
    };
    let (ended, ()) = tokio::join!(bench.run_tunnel(tunnel), reset);
    assert_eq!(ended.expect_err("reset").side, Side::Far);
    assert!(client.is_reset(), "it does not have the end");
}
