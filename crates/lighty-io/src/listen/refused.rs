//! Finds the cause of a failed bind: the process that holds the port, a missing privilege, or an
//! address that this machine does not have. Runs only after a failure.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::BindSpec;

/// Sockets of `/proc/net/tcp` that listen (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const LISTENING: &str = "0A";

/// Lowest unprivileged port, unless the kernel's setting says otherwise.
const FIRST_FREE_PORT: u16 = 1024;

/// Text to append to the kernel's message; empty if the cause is unknown.
pub(super) fn reason(spec: &BindSpec, error: &io::Error) -> String {
    let BindSpec::Inet(address) = spec else { return String::new() };
    match error.kind() {
        io::ErrorKind::AddrInUse => holder(*address),
        io::ErrorKind::PermissionDenied => missing_right(address.port()),
        io::ErrorKind::AddrNotAvailable => {
            format!("; no interface of this machine has the address {}", address.ip())
        }
        _ => String::new(),
    }
}

fn holder(address: SocketAddr) -> String {
    let Some(inode) = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| listening_inode(&table, address))
    else {
        return String::new();
    };
    match process_of(&inode) {
        Some((pid, name)) => format!("; held by {name} (process {pid})"),
        None => "; held by a process of another user (as root, `ss -ltnp` names it)".to_owned(),
    }
}

/// The inode of the socket that listens on `address` or on a wildcard address.
fn listening_inode(table: &str, address: SocketAddr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let local = parse_local(columns.nth(1)?)?;
        let is_listening = columns.nth(1)? == LISTENING;
        let overlaps = local.port() == address.port()
            && (local.ip() == address.ip()
                || local.ip().is_unspecified()
                || address.ip().is_unspecified());
        // After the state come queues, timer, retransmits, user, timeout, inode.
        (is_listening && overlaps).then(|| columns.nth(5).map(str::to_owned))?
    })
}

/// `0100007F:1F90`: words in the host's byte order, then the port.
fn parse_local(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok();
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The process that has the socket open, as far as this one may see.
fn process_of(inode: &str) -> Option<(String, String)> {
    let socket = format!("socket:[{inode}]");
    let numbered = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().into_string().ok().filter(|name| numbered(name))?;
        let mut descriptors = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        descriptors
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == Path::new(&socket)))
            .then(|| {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                (pid, name.trim_end().escape_default().to_string())
            })
    })
}

fn missing_right(port: u16) -> String {
    let first_free = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(FIRST_FREE_PORT);
    if port >= first_free {
        return String::new();
    }
    format!(
        "; a port below {first_free} needs root or the capability CAP_NET_BIND_SERVICE \
         (`setcap cap_net_bind_service=+ep` on the program, or AmbientCapabilities= in its unit)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_process_that_holds_a_port_is_named() {
        let held = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = held.local_addr().expect("its address");
        let error = TcpListener::bind(address).expect_err("it is taken");
        let message = reason(&BindSpec::Inet(address), &error);
        assert!(message.contains(&format!("(process {})", std::process::id())), "{message}");
        let every = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        assert_eq!(holder(every), message);
    }

    #[test]
    fn an_unused_port_has_no_holder() {
        let port = lighty_testkit::backend::Port::reserve();
        assert_eq!(holder(port.address()), "");
    }

    #[test]
    fn only_a_low_port_needs_a_right() {
        assert_eq!(missing_right(u16::MAX), "");
        assert!(missing_right(0).contains("CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn only_a_listening_socket_on_that_address_counts() {
        let row = |local: &str, state: &str, inode: u32| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 \
                 0 0 {inode} 1 0 100 0 0 10 0\n"
            )
        };
        let table = ["  sl local_address\n".to_owned(), row("0100007F:1F90", "0A", 4711)].concat()
            + &row("0100007F:1F91", "01", 4712);
        let at = |text: &str| listening_inode(&table, text.parse().expect("an address"));
        assert_eq!(at("127.0.0.1:8080").as_deref(), Some("4711"));
        assert_eq!(at("0.0.0.0:8080").as_deref(), Some("4711"));
        assert_eq!(at("127.0.0.2:8080"), None);
        assert_eq!(at("127.0.0.1:8081"), None);
    }

    #[test]
    fn an_address_of_another_machine_is_said_to_be_one() {
        let foreign: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        let error = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let message = reason(&BindSpec::Inet(foreign), &error);
        assert!(message.ends_with("has the address 192.0.2.1"), "{message}");
    }
}
