//! Listeners with Multipath TCP.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::Setup;
use lighty_testkit::wait_until;
use rustix::process::Signal;
use socket2::{Domain, Protocol, Socket, Type};

/// `IPPROTO_MPTCP` of linux/in.h.
const MPTCP: i32 = 262;

fn site() -> Setup {
    lighty!().file("a.txt", "hello\n").config("server.mptcp = \"enable\"")
}

/// Connections that this machine has accepted with Multipath TCP.
fn accepted() -> u64 {
    let text = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let found = pairs.find(|(name, _)| *name == "MPCapableACKRX");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

fn multipath_client(address: SocketAddr) -> Option<TcpStream> {
    let protocol = Some(Protocol::from(MPTCP));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, protocol).ok()?;
    socket.connect(&address.into()).expect("connected");
    Some(TcpStream::from(socket))
}

#[test]
fn clients_with_and_without_multipath_are_served() {
    let mut server = site().start();
    let before = accepted();
    let mut plain = Client::tcp(server.address());
    plain.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(plain.response().text(), "hello\n");
    let Some(mut stream) = multipath_client(server.address()) else {
        eprintln!("SKIPPED: this system has no MPTCP");
        return;
    };
    let request = "GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("hello\n"), "{response}");
    assert!(wait_until(std::time::Duration::from_secs(10), || accepted() > before));
    server.signal(Signal::INT);
    server.stop();
    assert!(!server.log().contains("MPTCP"), "{}", server.log());
}

#[test]
fn system_without_multipath_gets_plain_tcp_and_a_warning() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can switch MPTCP off");
        return;
    }
    let script = "echo 0 > /proc/sys/net/mptcp/enabled && ip link set lo up; exec \"$@\"";
    let setup = site().through(["unshare", "--net", "sh", "-c", script, "sh"]);
    let config = setup.write_config();
    let mut server = setup.spawn(&["-D", "-f", config.to_str().expect("UTF-8")]);
    server.await_log("is serving");
    server.await_log("listeners with server.mptcp speak plain TCP");
    server.kill();
}
