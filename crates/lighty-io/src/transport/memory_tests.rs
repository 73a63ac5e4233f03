//! Compares the connection in memory with TCP.

use super::*;
use crate::transport::{LingerLimits, Stream};

fn address(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn connected(room_bytes: usize) -> (Stream, MemoryEnd) {
    let (ours, peer) = pair(address(80), address(40_000), room_bytes);
    (Stream::from_memory(ours), peer)
}

#[tokio::test]
async fn bytes_go_both_ways_and_a_half_close_is_passed_on() {
    let (ours, peer) = connected(64);
    peer.write_all(b"ping").await.expect("written");
    let mut buffer = [0; 16];
    assert_eq!(ours.read(&mut buffer).await.expect("read"), 4);
    assert_eq!(ours.try_write(b"pong").expect("written"), 4);
    peer.shutdown_write().expect("open");
    assert_eq!(ours.read(&mut buffer).await.expect("the end"), 0);
    assert_eq!(ours.peer_close().await.expect("heard"), PeerClose::Half);
    assert_eq!(ours.try_write(b"!").expect("still writable"), 1);
    drop(ours);
    assert_eq!(peer.read(&mut buffer).await.expect("read"), 5);
    assert_eq!(&buffer[..5], b"pong!");
    assert_eq!(peer.read(&mut buffer).await.expect("the end"), 0);
}

#[tokio::test]
async fn a_full_buffer_takes_no_more_until_it_is_read() {
    let (ours, peer) = connected(8);
    assert_eq!(ours.try_write(b"0123456789").expect("some"), 8);
    let full = ours.try_write(b"89").expect_err("full");
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let mut buffer = [0; 3];
    let (waited, read) = tokio::join!(ours.writable(), peer.read(&mut buffer));
    waited.expect("room");
    assert_eq!(read.expect("read"), 3);
    assert_eq!(ours.try_write(b"89").expect("room"), 2);
}

#[tokio::test]
async fn closing_with_bytes_unread_is_a_reset_that_destroys_the_response() {
    let (ours, peer) = connected(64);
    peer.write_all(b"more").await.expect("written");
    assert_eq!(ours.try_write(b"413").expect("written"), 3);
    drop(ours);
    let error = peer.read(&mut [0; 8]).await.expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (ours, peer) = connected(64);
    peer.write_all(b"more").await.expect("written");
    assert_eq!(ours.try_write(b"413").expect("written"), 3);
    peer.shutdown_write().expect("open");
    ours.linger_close(LingerLimits::default()).await.expect("lingers");
    assert_eq!(peer.read(&mut [0; 8]).await.expect("the response"), 3);
}

#[tokio::test]
async fn undelivered_bytes_count_as_unread() {
    let (ours, peer) = connected(64);
    drop(peer);
    assert_eq!(ours.probe(), Idle::Closed);
    assert_eq!(ours.try_write(b"request").expect("taken"), 7);
    assert!(ours.went_unread(7, std::time::Duration::ZERO).await);
    let error = ours.try_write(b"again").expect_err("reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let (ours, peer) = connected(64);
    assert_eq!(ours.try_write(b"request").expect("taken"), 7);
    peer.reset();
    assert!(!ours.went_unread(7, std::time::Duration::ZERO).await);
}

#[tokio::test]
async fn a_shutdown_ends_a_read_or_fails_a_writer() {
    let (ours, peer) = connected(4);
    let shutdown = ours.shutdown_handle();
    let mut buffer = [0; 4];
    let (read, was_open) =
        tokio::join!(ours.read(&mut buffer), async { shutdown.shut_down(ShutdownHow::Read) });
    assert_eq!((read.expect("the end"), was_open), (0, true));
    assert_eq!(ours.try_write(b"408!").expect("still writable"), 4);
    let (waited, _) =
        tokio::join!(ours.writable(), async { shutdown.shut_down(ShutdownHow::Both) });
    waited.expect("woken");
    let error = ours.try_write(b"x").expect_err("shut down");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    drop(ours);
    assert!(!shutdown.shut_down(ShutdownHow::Both));
    assert_eq!(peer.read(&mut buffer).await.expect("the response"), 4);
}
