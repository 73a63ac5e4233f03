//! What the kernel knows of a connection's way.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;

use super::{Socket, Stream};
use crate::tls::Link;

impl Stream {
    /// `None` where there is no way to speak of, or the kernel does not say.
    pub(super) fn link(&self) -> Option<Link> {
        let Socket::Tcp(socket) = &self.socket else { return None };
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: the descriptor is open for as long as `self` lives; TCP_INFO writes at most
        // `length` bytes to where the pointer points, and there is as much room.
        let done = unsafe {
            let (fd, info) = (socket.as_raw_fd(), info.as_mut_ptr().cast());
            libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
        };
        // SAFETY: every pattern of bits is a value of its numbers, and what the kernel has not
        // written is zero.
        let info = unsafe { info.assume_init() };
        let link = Link { round_trip_us: info.tcpi_rtt, segment_bytes: info.tcpi_snd_mss };
        (done == 0).then_some(link)
    }
}

#[cfg(test)]
mod tests {
    use crate::transport::tests::{tcp_pair, unix_pair};

    #[tokio::test]
    async fn a_connection_of_this_machine_is_short() {
        let (ours, _peer) = tcp_pair().await;
        let link = ours.link().expect("known");
        assert!(link.segment_bytes > 500 && link.round_trip_us < 1_000_000, "{link:?}");
        assert!(unix_pair().0.link().is_none());
    }
}
