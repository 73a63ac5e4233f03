//! Sockets that a launcher binds and connects for the server: a reload may bring listeners and
//! backends at ports that the sandbox's rules lack. The ports come from the configuration, which
//! the launcher has read itself, so foreign code in the server gains nothing.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::SendFlags;

use crate::listen::handshakes;
use crate::process::descriptors;
use crate::sandbox::Ports;

/// TCP ports that a configuration names.
#[derive(Clone, Debug)]
pub struct PermittedPorts {
    /// Ports to listen on.
    pub bind: Ports,
    /// Ports to connect to.
    pub connect: Ports,
}

impl Default for PermittedPorts {
    fn default() -> Self {
        let none = || Ports::These(BTreeSet::new());
        Self { bind: none(), connect: none() }
    }
}

/// The use of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressUse {
    Bind,
    Connect,
    /// The socket shall refuse handshakes. The address does not matter.
    Refuse,
}

/// An order to bind, connect or restrict the socket that comes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressOrder {
    pub(super) purpose: AddressUse,
    pub(super) address: SocketAddr,
}

impl PermittedPorts {
    pub(super) fn permits(&self, order: AddressOrder) -> bool {
        let ports = match order.purpose {
            AddressUse::Bind => &self.bind,
            AddressUse::Connect => &self.connect,
            AddressUse::Refuse => return true,
        };
        match ports {
            Ports::All(_) => true,
            Ports::These(ports) => ports.contains(&order.address.port()),
        }
    }

    /// Carries an order out, in the launcher's process, and replies on the socket that came with
    /// it: 0, or an error of the system as a negative number.
    pub(super) fn obey(&self, order: &[u8], fds: Vec<OwnedFd>) {
        let Ok([control, socket]) = <[OwnedFd; 2]>::try_from(fds) else { return };
        let done = match AddressOrder::decode(order) {
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            Some(order) if !self.permits(order) => Err(refused()),
            Some(order) => order.carry_out(&socket),
        };
        let code = done.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        let _ = descriptors::send(&control, &code.to_ne_bytes(), &[], SendFlags::DONTWAIT);
    }
}

/// The error of the sandbox's own rules.
pub(super) fn refused() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}

impl AddressOrder {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![match self.purpose {
            AddressUse::Bind => b'b',
            AddressUse::Connect => b'c',
            AddressUse::Refuse => b'r',
        }];
        let scope = match self.address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        bytes.extend(self.address.port().to_be_bytes());
        bytes.extend(scope.to_be_bytes());
        match self.address.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes
    }

    /// `None` if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (purpose, rest) = bytes.split_first()?;
        let purpose = match purpose {
            b'b' => AddressUse::Bind,
            b'c' => AddressUse::Connect,
            b'r' => AddressUse::Refuse,
            _ => return None,
        };
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (scope, ip) = rest.split_first_chunk::<4>()?;
        let (port, scope) = (u16::from_be_bytes(*port), u32::from_be_bytes(*scope));
        let address = match (<[u8; 4]>::try_from(ip), <[u8; 16]>::try_from(ip)) {
            (Ok(ip), _) => SocketAddr::from((ip, port)),
            (_, Ok(ip)) => SocketAddrV6::new(ip.into(), port, 0, scope).into(),
            _ => return None,
        };
        Some(Self { purpose, address })
    }

    fn carry_out(self, socket: &OwnedFd) -> io::Result<()> {
        match self.purpose {
            AddressUse::Bind => Ok(rustix::net::bind(socket, &self.address)?),
            AddressUse::Refuse => handshakes::refuse(socket),
            AddressUse::Connect => {
                // The launcher waits for nobody.
                rustix::io::ioctl_fionbio(socket, true)?;
                match rustix::net::connect(socket, &self.address) {
                    Err(rustix::io::Errno::INPROGRESS) => Ok(()),
                    connected => Ok(connected?),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_keep_their_content() {
        for (text, purpose) in [
            ("127.0.0.1:80", AddressUse::Bind),
            ("[::1]:65535", AddressUse::Connect),
            ("[fe80::1%3]:1", AddressUse::Refuse),
        ] {
            let order = AddressOrder { purpose, address: text.parse().expect("an address") };
            assert_eq!(AddressOrder::decode(&order.encode()), Some(order));
            assert_eq!(AddressOrder::decode(&order.encode()[..6]), None);
        }
        assert_eq!(AddressOrder::decode(b"x"), None);
        assert_eq!(AddressOrder::decode(b""), None);
    }

    #[test]
    fn ports_are_permitted_for_one_use() {
        let these = |ports: &[u16]| Ports::These(ports.iter().copied().collect());
        let ports = PermittedPorts { bind: these(&[80]), connect: Ports::All("x".to_owned()) };
        let permits = |purpose, address: &str| {
            ports.permits(AddressOrder { purpose, address: address.parse().expect("an address") })
        };
        assert!(permits(AddressUse::Bind, "127.0.0.1:80"));
        assert!(!permits(AddressUse::Bind, "127.0.0.1:81"));
        assert!(permits(AddressUse::Connect, "[::1]:81"));
    }
}
