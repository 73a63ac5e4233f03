//! Hellos and records that arrive in pieces: the pieces never change the result.

use std::future::poll_fn;
use std::task::Poll;

use lighty_testkit::shredder::{byte_by_byte, random_fragments, shred};

use super::*;
use crate::transport::memory::{self, MemoryEnd};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// A client in memory whose flights the test cuts into pieces.
struct PiecewiseClient {
    tls: ClientConnection,
    far: MemoryEnd,
}

impl PiecewiseClient {
    /// Takes everything that the client has to send.
    fn flight(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("memory");
        }
        out
    }

    /// Reads the server's bytes, and waits for them if the handshake needs more.
    async fn receive(&mut self) {
        let mut buffer = vec![0; 32 << 10];
        let count = self.far.read(&mut buffer).await.expect("an open connection");
        let mut received = &buffer[..count];
        while !received.is_empty() {
            self.tls.read_tls(&mut received).expect("memory");
            self.tls.process_new_packets().expect("records of the server");
        }
    }
}

/// Lets the server read a piece before the next one follows.
async fn send_piece(far: &MemoryEnd, piece: &[u8]) {
    far.write_all(piece).await.expect("an open connection");
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

/// The suite and names of a handshake, and the data that followed, for a client whose flights are
/// cut by `cut`.
async fn serve(
    site: &TestPki,
    policy: &Arc<Policy>,
    mut cut: impl FnMut(&[u8]) -> Vec<Vec<u8>>,
) -> (String, Vec<u8>) {
    let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let (near, far) = memory::pair(address(1), address(2), 64 << 10);
    let name = ServerName::try_from("a.test").expect("a name");
    let tls = ClientConnection::new(Arc::new(site.client(None, None)), name).expect("a client");
    let mut client = PiecewiseClient { tls, far };
    let server = async {
        let mut stream = Stream::from_memory(near);
        let info = accept(&mut stream, policy).await.expect("a handshake");
        let seen =
            format!("{} {} {:?} {:?}", info.version, info.cipher, info.alpn, info.server_name);
        (seen, read_to_end(&stream, 100).await)
    };
    let dialled = async {
        while client.tls.is_handshaking() {
            for piece in cut(&client.flight()) {
                send_piece(&client.far, &piece).await;
            }
            if client.tls.is_handshaking() {
                client.receive().await;
            }
        }
        for message in [REQUEST, &text(40_000)] {
            client.tls.writer().write_all(message).expect("buffered");
        }
        client.tls.send_close_notify();
        for piece in cut(&client.flight()) {
            send_piece(&client.far, &piece).await;
        }
        client.far.shutdown_write().expect("shut down");
    };
    let (seen, ()) = tokio::join!(server, dialled);
    seen
}

fn owned(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    pieces.iter().map(|piece| piece.to_vec()).collect()
}

#[tokio::test]
async fn session_is_the_same_in_any_pieces() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let whole = serve(&site, &policy, |flight| vec![flight.to_vec()]).await;
    assert_eq!(whole.1, [REQUEST, &text(40_000)].concat());
    let bytes = serve(&site, &policy, |flight| {
        let mut pieces = Vec::new();
        byte_by_byte(flight, |cut| pieces = owned(cut));
        pieces
    });
    assert!(bytes.await == whole, "byte by byte");
    for seed in 0..20 {
        let random = serve(&site, &policy, |flight| {
            let mut pieces = Vec::new();
            random_fragments(flight, seed, 1, |cut| pieces = owned(cut));
            pieces
        });
        assert!(random.await == whole, "seed {seed}");
    }
}

/// The name in a hello that arrives in these pieces, and the end of its handshake, which the server
/// denies.
async fn read_hello(pieces: &[&[u8]]) -> (Option<String>, String) {
    let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let (near, far) = memory::pair(address(1), address(2), 64 << 10);
    let mut name = None;
    let mut stream = Stream::from_memory(near);
    let deny = async |hello: &Hello<'_>| {
        name = hello.server_name.map(str::to_owned);
        Err(Denial::UnknownName)
    };
    let sent = async {
        for piece in pieces {
            send_piece(&far, piece).await;
        }
    };
    let (ended, ()) = tokio::join!(stream.accept_tls(Vec::new(), deny, async || {}), sent);
    let ended = format!("{:?}", ended.expect_err("a denial"));
    (name, ended)
}

#[test]
fn hello_is_the_same_in_any_pieces() {
    let site = TestPki::new();
    let name = ServerName::try_from("a.test").expect("a name");
    let config = Arc::new(site.client(None, None));
    let mut tls = ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).expect("memory");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let whole = runtime.block_on(read_hello(&[&hello]));
    assert_eq!(whole.0.as_deref(), Some("a.test"), "{whole:?}");
    shred(&hello, |pieces| assert_eq!(runtime.block_on(read_hello(pieces)), whole));
}

/// Reads the bytes that have arrived, without waiting.
async fn read_available(stream: &Stream, all: &mut Vec<u8>) {
    let mut buffer = [0; 1_000];
    let read = poll_fn(|cx| match stream.poll_read(cx, &mut buffer) {
        Poll::Ready(read) => Poll::Ready(Some(read.expect("whole records"))),
        Poll::Pending => Poll::Ready(None),
    });
    if let Some(count) = read.await {
        all.extend_from_slice(&buffer[..count]);
    }
}

#[tokio::test]
async fn record_may_be_cut_anywhere() {
    let site = TestPki::new();
    let policy = site.policy(&site.options());
    let address = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let (near, far) = memory::pair(address(1), address(2), 64 << 10);
    let name = ServerName::try_from("a.test").expect("a name");
    let tls = ClientConnection::new(Arc::new(site.client(None, None)), name).expect("a client");
    let mut client = PiecewiseClient { tls, far };
    let mut stream = Stream::from_memory(near);
    let dialled = async {
        while client.tls.is_handshaking() {
            let flight = client.flight();
            client.far.write_all(&flight).await.expect("sent");
            if client.tls.is_handshaking() {
                client.receive().await;
            }
        }
        let rest = client.flight();
        client.far.write_all(&rest).await.expect("sent");
    };
    let (info, ()) = tokio::join!(accept(&mut stream, &policy), dialled);
    info.expect("a handshake");
    let mut record_bytes = 1;
    let mut at = 0;
    while at <= record_bytes {
        client.tls.writer().write_all(REQUEST).expect("buffered");
        let record = client.flight();
        record_bytes = record.len();
        let mut received = Vec::new();
        client.far.write_all(&record[..at]).await.expect("sent");
        read_available(&stream, &mut received).await;
        assert!(at == record_bytes || received.is_empty(), "{at} of {record_bytes} bytes suffice");
        client.far.write_all(&record[at..]).await.expect("sent");
        read_available(&stream, &mut received).await;
        assert!(received == REQUEST, "cut at byte {at}: {received:?}");
        at += 1;
    }
    assert!(record_bytes > REQUEST.len() + 16, "{record_bytes}");
}
