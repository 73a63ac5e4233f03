//! Path characteristics and options of TCP connections.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;

use super::{Socket, Stream};
use crate::tls::Link;

impl Stream {
    /// `None` for other transports, or if the kernel reports an error.
    pub(super) fn link(&self) -> Option<Link> {
        let Socket::Tcp(socket) = &self.socket else { return None };
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the descriptor is open for as long as `self` lives; TCP_INFO writes at most
        // `length` bytes to the structure, which has this length.
        let done = unsafe {
            let (fd, info) = (socket.as_raw_fd(), info.as_mut_ptr().cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
        };
        // SAFETY: every bit pattern is valid for its numbers, and the fields that the kernel has
        // not written are zero.
        let info = unsafe { info.assume_init() };
        let link = Link { round_trip_us: info.tcpi_rtt, segment_bytes: info.tcpi_snd_mss };
        (done == 0).then_some(link)
    }
}

impl Stream {
    /// Limits the bytes that the kernel's buffer of a TCP connection accepts beyond the bytes in
    /// flight: buffered data cannot be overtaken by more urgent data.
    pub fn set_unsent_max(&self, bytes: u32) {
        let Socket::Tcp(socket) = &self.socket else { return };
        let (fd, length) = (socket.as_raw_fd(), size_of::<u32>() as libc::socklen_t);
        // SAFETY: the descriptor is open for as long as `self` lives; the option reads one int, to
        // which the pointer points. If it fails, the buffer accepts as much as before.
        unsafe {
            let value = (&raw const bytes).cast();
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, length);
        }
    }

    /// Acknowledges received data on a TCP socket immediately. A peer without TCP_NODELAY delays a
    /// short segment until the previous one is acknowledged, which the kernel delays by 40 ms.
    pub fn acknowledge(&self) {
        let Socket::Tcp(socket) = &self.socket else { return };
        let on: libc::c_int = 1;
        let (fd, length) = (socket.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: the descriptor is open for as long as `self` lives; the option reads one int, to
        // which the pointer points. If it fails, the acknowledgement is late.
        unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, value, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::transport::tests::{tcp_pair, unix_pair};

    #[tokio::test]
    async fn a_socket_takes_no_more_than_it_may() {
        let mut taken = [0; 2];
        for (taken, bytes) in taken.iter_mut().zip([None, Some(16 << 10)]) {
            let (ours, _peer) = tcp_pair().await;
            bytes.into_iter().for_each(|bytes| ours.set_unsent_max(bytes));
            ours.writable().await.expect("writable");
            while let Ok(count) = ours.try_write(&[0; 4_096]) {
                *taken += count;
            }
        }
        // The rest is in flight, in the peer's buffer.
        assert!(taken[1] + 100_000 < taken[0], "{taken:?}");
    }

    #[tokio::test]
    async fn a_connection_of_this_machine_is_short() {
        let (ours, _peer) = tcp_pair().await;
        let link = ours.link().expect("known");
        assert!(link.segment_bytes > 500 && link.round_trip_us < 1_000_000, "{link:?}");
        assert!(unix_pair().0.link().is_none());
    }
}
