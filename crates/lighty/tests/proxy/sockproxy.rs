//! `sockproxy.server`: a listener that relays its connections to a backend unchanged.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use lighty_testkit::backend::Port;
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(20);

/// Backend that speaks first, and at the end sends its input reversed. It ends with the test's
/// process.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(b"hello\n");
                let mut heard = Vec::new();
                let _ = stream.read_to_end(&mut heard);
                heard.reverse();
                let _ = stream.write_all(&heard);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

/// Address without a listener, as long as the test's process runs.
fn nobody() -> SocketAddr {
    let port = Port::reserve();
    let address = port.address();
    std::mem::forget(port);
    address
}

fn tunnel(backends: &[SocketAddr]) -> Setup {
    let hosts = backends.iter().map(|address| {
        format!("( \"host\" => \"{}\", \"port\" => {} )", address.ip(), address.port())
    });
    let hosts: Vec<String> = hosts.collect();
    lighty!().file("index.html", "a file").config(&format!(
        "$SERVER[\"socket\"] == \"127.0.0.2:0\" {{\n  sockproxy.server = ( \"\" => ( {} ) )\n}}",
        hosts.join(", ")
    ))
}

fn connect(server: &Server) -> Client {
    let all = server.listening();
    let raw = all.iter().find(|address| address.ip().to_string() == "127.0.0.2");
    Client::tcp(*raw.expect("a second listener"))
}

fn greeted(server: &Server) -> Client {
    let mut client = connect(server);
    assert_eq!(client.read_exact(6).expect("a greeting"), b"hello\n");
    client
}

#[test]
fn bytes_and_ends_go_both_ways() {
    let server = tunnel(&[backend()]).start();
    for size in [1, 100_000, 3_000_000] {
        let mut client = greeted(&server);
        let output: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.send(&output);
        client.half_close();
        let (heard, end) = client.read_to_end();
        assert_eq!(end, ConnectionEnd::Closed);
        assert!(heard.iter().eq(output.iter().rev()), "{size}: {} bytes", heard.len());
    }
    assert_eq!(server.get("/index.html").text(), "a file", "the other listener is as before");
}

#[test]
fn a_backend_that_refuses_is_passed_over() {
    let (dead, alive) = (nobody(), backend());
    let server = tunnel(&[dead, alive]).start();
    for _ in 0..4 {
        greeted(&server);
    }
    server.await_log(&format!("backend {dead} is down"));
}

/// Limit on the addresses that are tried for a connection.
const TRIES_MAX: usize = 16;

#[test]
fn connection_is_tried_on_n_addresses_at_most() {
    let dead: Vec<SocketAddr> = (0..TRIES_MAX).map(|_| nobody()).collect();
    let before = |count: usize| {
        let setup = tunnel(&[&dead[..count], &[backend()]].concat());
        setup.config("proxy-core.balancer = \"static\"").start()
    };
    greeted(&before(TRIES_MAX - 1));
    let server = before(TRIES_MAX);
    let (heard, _) = connect(&server).read_to_end();
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
    server.await_log(&format!("backend {}", dead[TRIES_MAX - 1]));
    // The addresses that refused are down now.
    greeted(&server);
}

#[test]
fn without_a_backend_the_connection_ends_and_no_file_is_served() {
    let server = tunnel(&[nobody()]).config("proxy-core.hold-time = 0").start();
    let mut client = connect(&server);
    let _ = client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (heard, _) = client.read_to_end();
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
    server.await_log("sockproxy.server");
}

#[test]
fn a_request_is_no_connection() {
    let address = backend();
    let server = lighty!()
        .file("index.html", "a file")
        .config(&format!(
            "$HTTP[\"host\"] == \"raw\" {{\n  sockproxy.server = ( \"\" => (( \"host\" => \
             \"{}\", \"port\" => {} )) )\n}}",
            address.ip(),
            address.port()
        ))
        .start();
    let mut client = server.connect();
    client.send("GET /index.html HTTP/1.1\r\nHost: raw\r\n\r\n");
    assert_eq!(client.response().status, 500);
    server.await_log("it belongs into a $SERVER[\"socket\"]");
    assert_eq!(server.get("/index.html").text(), "a file");
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_ended() {
    let server = tunnel(&[backend()]).config("proxy-core.tunnel-timeout = 1").start();
    let mut client = greeted(&server);
    client.set_deadline(PATIENCE);
    assert!(client.read_to_end().0.is_empty());
}

#[test]
fn a_backend_gets_the_address_of_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let server = tunnel(&[address]).config("proxy-core.proxy-protocol = \"v1\"").start();
    let mut client = connect(&server);
    client.send("mine");
    client.half_close();
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("what was said");
    let (line, rest) = heard.split_once("\r\n").expect("a header");
    assert!(line.starts_with("PROXY TCP4 127.0.0.1 127.0.0.2 "), "{line}");
    assert_eq!(rest, "mine");
}

#[test]
fn the_end_of_the_server_is_the_end_of_its_tunnels() {
    let mut server = tunnel(&[backend()])
        .config("server.feature-flags = ( \"server.graceful-shutdown-timeout\" => 1 )")
        .start();
    let mut client = greeted(&server);
    server.signal(Signal::INT);
    // The connection works until the timeout.
    client.send("abc");
    let (status, took) = server.await_exit(PATIENCE);
    assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}");
    assert!(client.read_to_end().0.is_empty());
}
