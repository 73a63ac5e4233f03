//! Sockets that speak Multipath TCP (RFC 8684). Clients that do not speak it get plain TCP on the
//! same socket: the kernel falls back for each connection.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::process::syscall_fallback::Syscall;

/// Creates a stream socket, with Multipath TCP if that is wanted and the system has it. If not, a
/// warning says so once.
pub(super) fn stream_socket(address: SocketAddr, wants_mptcp: bool) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    if wants_mptcp && !Syscall::Mptcp.is_refused() {
        match Socket::new(domain, Type::STREAM, Some(Protocol::from(libc::IPPROTO_MPTCP))) {
            Err(error) if is_missing(&error) => Syscall::Mptcp.refuse(),
            made => return made,
        }
    }
    Socket::new(domain, Type::STREAM, None)
}

/// EPROTONOSUPPORT and EINVAL: the kernel was built without it; ENOPROTOOPT: `net.mptcp.enabled` is
/// 0; EPERM and EACCES: a security policy.
fn is_missing(error: &io::Error) -> bool {
    let codes = [libc::EPROTONOSUPPORT, libc::EINVAL, libc::ENOPROTOOPT, libc::EPERM, libc::EACCES];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_made_with_and_without_multipath() {
        let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let plain = stream_socket(address, false).expect("a socket");
        assert_eq!(plain.protocol().expect("a protocol"), Some(Protocol::TCP));
        let wanted = stream_socket(address, true).expect("a socket");
        let expected = match Syscall::Mptcp.is_refused() {
            true => Protocol::TCP,
            false => Protocol::from(libc::IPPROTO_MPTCP),
        };
        assert_eq!(wanted.protocol().expect("a protocol"), Some(expected));
    }

    #[test]
    fn lack_of_descriptors_is_no_lack_of_the_protocol() {
        for (code, expected) in [(libc::ENOPROTOOPT, true), (libc::EMFILE, false)] {
            assert_eq!(is_missing(&io::Error::from_raw_os_error(code)), expected);
        }
    }
}
