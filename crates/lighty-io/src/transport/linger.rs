//! Lingering close: delivers a response to a client that is still sending.
//!
//! Closing a TCP socket with unread bytes makes the kernel send RST, and RST makes the client's
//! kernel discard the response (RFC 9112, section 9.6). So the write side is closed first, and
//! further client data is read and dropped for a bounded time.

use std::io;
use std::time::Duration;

use super::{Socket, Stream};

/// Limits of a lingering close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LingerLimits {
    /// Maximum bytes to read and drop.
    pub bytes_max: u64,
    /// Maximum duration in milliseconds.
    pub ms_max: u64,
}

impl Default for LingerLimits {
    /// The limit is on time: clients that send a whole body before they read, such as Java's, then
    /// get the response to a refused upload.
    fn default() -> Self {
        LingerLimits { bytes_max: 64 << 20, ms_max: 5_000 }
    }
}

/// Result of a lingering close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LingerReport {
    /// Bytes read and dropped.
    pub dropped_bytes: u64,
    /// True if the client closed its side within the limits, so it has the response.
    pub peer_closed: bool,
}

/// Interval between two looks at the bytes that the peer's kernel does not have yet: nothing
/// reports that it has them.
const DELIVERY_LOOK: Duration = Duration::from_millis(10);

/// Small, because it is part of every lingering connection's future.
const DRAIN_BYTES: usize = 2_048;

impl Stream {
    /// Makes the later close a reset, so that the peer knows its data is incomplete. Bytes that the
    /// peer's kernel does not have by then are lost.
    pub fn reset_on_close(&self) {
        self.ends_with_reset.set(true);
        // If the option cannot be set, the connection is already broken.
        let _ = each!(&self.socket,
            socket => rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)),
            end => { end.reset(); Ok(()) });
    }

    /// Makes the later end a reset. [`linger_close`](Self::linger_close) delivers the bytes before
    /// it first, a drop does not. A unix socket has no reset: its peer sees the end of the stream.
    pub fn reset_at_end(&self) {
        self.ends_with_reset.set(true);
        if let Socket::Memory(end) = &self.socket {
            end.reset();
        }
    }

    /// Ends the stream with a reset. The peer of a connection in memory reads the bytes before it
    /// first; for a socket this is [`reset_at_end`](Self::reset_at_end).
    pub fn reset_behind_bytes(&self) {
        match &self.socket {
            Socket::Memory(end) => end.reset_behind_bytes(),
            Socket::Tcp(_) | Socket::Unix(_) => self.reset_at_end(),
        }
    }

    /// True if the connection will end with a reset.
    pub fn ends_with_reset(&self) -> bool {
        self.ends_with_reset.get()
    }

    /// Waits until the peer has every byte that was sent, or is gone.
    async fn deliver(&self) {
        let delivered = async {
            while let Err(error) = self.try_send_records() {
                if error.kind() != io::ErrorKind::WouldBlock || self.writable().await.is_err() {
                    return;
                }
            }
            while self.unconfirmed_bytes().is_ok_and(|bytes| bytes > 0) {
                tokio::time::sleep(DELIVERY_LOOK).await;
            }
        };
        tokio::select! {
            biased;
            _ = self.reset() => {}
            () = delivered => {}
        }
    }

    /// Closes the connection so that the response already sent is delivered, with a reset if
    /// [`reset_at_end`](Self::reset_at_end) was called.
    ///
    /// # Errors
    /// If the client resets the connection, which cannot be remedied.
    pub async fn linger_close(self, limits: LingerLimits) -> io::Result<LingerReport> {
        let mut report = LingerReport { dropped_bytes: 0, peer_closed: false };
        let closing = async {
            if self.ends_with_reset() {
                self.deliver().await;
                return Ok(());
            }
            notify_end(&self, limits.bytes_max, &mut report).await?;
            self.shutdown_write()?;
            drain(&self, limits.bytes_max, &mut report).await
        };
        match tokio::time::timeout(Duration::from_millis(limits.ms_max), closing).await {
            Ok(result) => result.map(|()| report),
            Err(_elapsed) => Ok(report),
        }
    }
}

/// Sends close_notify, if the connection uses TLS, and waits until the socket has accepted it: a
/// response may have filled the socket's buffer to its last bytes. A client that sends before it
/// reads makes no room until its bytes are read.
async fn notify_end(stream: &Stream, bytes_max: u64, report: &mut LingerReport) -> io::Result<()> {
    stream.close_notify();
    loop {
        match stream.try_send_records() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
        let may_read = !report.peer_closed && report.dropped_bytes < bytes_max;
        tokio::select! {
            biased;
            writable = stream.writable() => writable?,
            drained = drain(stream, bytes_max, report), if may_read => drained?,
        }
    }
}

async fn drain(stream: &Stream, bytes_max: u64, report: &mut LingerReport) -> io::Result<()> {
    while !report.peer_closed && report.dropped_bytes < bytes_max {
        // Holds no buffer while waiting.
        stream.readable().await?;
        let mut buffer = [0; DRAIN_BYTES];
        let room = (bytes_max - report.dropped_bytes).min(DRAIN_BYTES as u64) as usize;
        match stream.read(&mut buffer[..room]).await? {
            0 => report.peer_closed = true,
            bytes => report.dropped_bytes += bytes as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::tcp_pair;
    use std::io::{Read, Write};

    #[tokio::test]
    async fn a_client_that_still_sends_gets_its_response() {
        let (ours, mut peer) = tcp_pair().await;
        let client = std::thread::spawn(move || {
            peer.write_all(&[b'x'; 300_000]).expect("nobody resets");
            let mut response = Vec::new();
            peer.read_to_end(&mut response).expect("answer, not RST");
            response
        });
        ours.readable().await.expect("readable");
        ours.try_write(b"413").expect("answer");
        let report = ours.linger_close(LingerLimits::default()).await.expect("linger");
        assert_eq!(client.join().expect("client"), b"413");
        assert_eq!(report, LingerReport { dropped_bytes: 300_000, peer_closed: true });
    }

    #[tokio::test]
    async fn the_byte_limit_holds_at_n_and_n_plus_one() {
        for (sent, peer_closed) in [(100_u64, true), (101, false)] {
            let (ours, mut peer) = tcp_pair().await;
            peer.write_all(&vec![b'x'; sent as usize]).expect("write");
            peer.shutdown(std::net::Shutdown::Write).expect("shutdown");
            // Seeing the end of the stream takes one more read than the bytes do.
            let limits = LingerLimits { bytes_max: 101, ms_max: 10_000 };
            let report = ours.linger_close(limits).await.expect("linger");
            assert_eq!(report, LingerReport { dropped_bytes: sent, peer_closed });
        }
    }

    #[tokio::test]
    async fn reset_at_the_end_follows_all_bytes() {
        let (ours, mut peer) = tcp_pair().await;
        ours.writable().await.expect("writable");
        let mut sent = 0;
        while let Ok(count) = ours.try_write(&[b'x'; 65_536]) {
            sent += count;
        }
        ours.reset_at_end();
        let reading = std::thread::spawn(move || {
            let mut received = Vec::new();
            let error = peer.read_to_end(&mut received).expect_err("a reset, and no end");
            (received.len(), error.kind())
        });
        let limits = LingerLimits { ms_max: 60_000, ..LingerLimits::default() };
        ours.linger_close(limits).await.expect("delivered");
        assert!(sent > 65_536, "{sent} bytes");
        let expected = (sent, io::ErrorKind::ConnectionReset);
        assert_eq!(reading.join().expect("the peer"), expected);
    }

    #[tokio::test]
    async fn reset_at_the_end_waits_for_no_peer_that_reads_nothing() {
        let (ours, mut peer) = tcp_pair().await;
        ours.writable().await.expect("writable");
        while ours.try_write(&[b'x'; 65_536]).is_ok() {}
        ours.reset_at_end();
        let limits = LingerLimits { ms_max: 50, ..LingerLimits::default() };
        ours.linger_close(limits).await.expect("given up");
        let error = peer.read_to_end(&mut Vec::new()).expect_err("a reset, and no end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_left_after_the_time_limit() {
        let (ours, _peer) = tcp_pair().await;
        let before = tokio::time::Instant::now();
        let limits = LingerLimits { bytes_max: 100, ms_max: 3_000 };
        let report = ours.linger_close(limits).await.expect("linger");
        assert_eq!(report, LingerReport { dropped_bytes: 0, peer_closed: false });
        assert_eq!(before.elapsed().as_millis(), 3_000);
    }
}
