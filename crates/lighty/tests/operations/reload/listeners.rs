//! Listeners that a reload adds, removes and changes.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lighty_testkit::backend::Port;
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;

use super::site::{Echo, ReloadSite};

const PATIENCE: Duration = Duration::from_secs(20);

fn start(workers: usize, lines: &str) -> ReloadSite {
    ReloadSite::start(workers, lines, &[("a", b"static")])
}

fn listener(address: SocketAddr, lines: &str) -> String {
    format!("$SERVER[\"socket\"] == \"{address}\" {{ {lines} }}\n")
}

fn get(client: &mut Client) -> (u16, String) {
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert!(!response.says_close(), "{response:?}");
    (response.status, response.field("Server").unwrap_or_default().to_owned())
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_err()
}

#[test]
fn listener_is_added_and_removed_and_its_connections_stay() {
    for workers in [1, 2] {
        let (port, other) = (Port::reserve(), Port::reserve());
        let site = start(workers, "server.tag = \"one\"");
        let descriptors = site.descriptors();
        site.change(&format!("server.tag = \"two\"\n{}", listener(port.address(), "")));
        let mut client = Client::tcp(port.address());
        assert_eq!(get(&mut client), (200, "two".into()));
        let lines = listener(other.address(), "server.tag = \"other\"");
        site.change(&format!("server.tag = \"three\"\n{lines}"));
        assert_eq!(get(&mut Client::tcp(other.address())), (200, "other".into()));
        assert!(wait_until(PATIENCE, || is_refused(port.address())), "{}", site.server.log());
        assert_eq!(get(&mut client), (200, "three".into()), "its connections go on");
        drop(client);
        site.change("server.tag = \"four\"");
        assert!(wait_until(PATIENCE, || site.server.listening().len() == 1));
        assert_eq!(site.tag(), "four");
        // One more is the socket of the sandbox's launcher for the configuration before.
        let settled = || site.server.descriptors() <= descriptors + 1;
        assert!(wait_until(PATIENCE, settled), "{} {descriptors}", site.server.descriptors());
    }
}

#[test]
fn address_in_use_refuses_the_whole_reload() {
    for workers in [1, 2] {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|address| (taken, address)).expect("its address");
        let free = Port::reserve();
        let site = start(workers, "server.tag = \"one\"");
        let descriptors = site.descriptors();
        let lines = [listener(free.address(), ""), listener(taken.1, "")].concat();
        let output = site.refuse(&format!("server.tag = \"two\"\n{lines}"));
        assert!(output.contains(&format!("cannot bind {}", taken.1)), "{output}");
        assert!(output.contains("in use") && output.contains("held by"), "{output}");
        assert_eq!((site.tag(), site.server.listening().len()), ("one".into(), 1));
        assert!(wait_until(PATIENCE, || site.server.descriptors() == descriptors));
        drop(taken.0);
        site.change(&format!("server.tag = \"two\"\n{lines}"));
        assert_eq!(site.server.listening().len(), 3);
    }
}

#[test]
fn listener_returns_at_once_after_its_removal() {
    let port = Port::reserve();
    let lines = listener(port.address(), "");
    for workers in [1, 2] {
        let site = start(workers, &lines);
        for _ in 0..3 {
            site.change("");
            site.change(&lines);
            assert_eq!(get(&mut Client::tcp(port.address())).0, 200);
        }
    }
}

#[test]
fn main_listener_moves_to_another_address() {
    for workers in [1, 2] {
        let (one, two) = (Port::reserve(), Port::reserve());
        let site = start(workers, "");
        let at = |port: &Port, bind: &str| {
            format!("server.bind := \"{bind}\"\nserver.port := {}", port.address().port())
        };
        site.change(&at(&one, "127.0.0.1"));
        let mut client = Client::tcp(one.address());
        assert_eq!(get(&mut client).0, 200);
        site.change(&at(&two, "127.0.0.1"));
        assert!(wait_until(PATIENCE, || is_refused(one.address())));
        assert_eq!(get(&mut Client::tcp(two.address())).0, 200);
        // From one address to all of this port, and back, without a moment of silence.
        for bind in ["0.0.0.0", "127.0.0.1"] {
            site.change(&at(&two, bind));
            assert_eq!(get(&mut Client::tcp(two.address())).0, 200, "{bind}");
            let wildcard = |address: &SocketAddr| address.ip().to_string() == bind;
            let moved = || site.server.listening().iter().all(wildcard);
            assert!(wait_until(PATIENCE, moved), "{:?}", site.server.listening());
        }
        assert_eq!(get(&mut client).0, 200);
    }
}

/// Connections that wait in the queue of a removed listener are served.
#[test]
fn connections_before_the_removal_are_all_served() {
    let port = Port::reserve();
    let lines = listener(port.address(), "");
    let site = start(2, &lines);
    for _ in 0..5 {
        let mut clients: Vec<Client> = (0..40).map(|_| Client::tcp(port.address())).collect();
        site.change("");
        assert!(clients.iter_mut().all(|client| get(client).0 == 200));
        site.change(&lines);
    }
}

#[test]
fn options_of_a_listener_change_without_another_socket() {
    let port = Port::reserve();
    let site = start(2, &listener(port.address(), ""));
    let inodes = || sockets(site.server.pid());
    let before = inodes();
    let mut waiting = Client::tcp(port.address());
    for lines in ["server.listen-backlog = 7", "server.defer-accept = \"enable\"", ""] {
        site.change(&listener(port.address(), lines));
        assert_eq!(get(&mut Client::tcp(port.address())).0, 200);
        assert_eq!(get(&mut waiting).0, 200);
        assert!(before.iter().all(|inode| inodes().contains(inode)), "{lines}");
    }
    let backlog = |lines: &str| {
        site.change(&listener(port.address(), lines));
        backlog_of(port.address())
    };
    assert_eq!(backlog("server.listen-backlog = 9"), [9, 9]);
}

/// Inodes of the listening sockets.
fn sockets(pid: u32) -> Vec<String> {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).expect("a table");
    let listens = |line: &&str| line.split_whitespace().nth(3) == Some("0A");
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    let all: Vec<String> = table.lines().filter(listens).filter_map(inode).collect();
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let own: Vec<String> = links
        .filter_map(|link| std::fs::read_link(link.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    all.into_iter().filter(|inode| own.contains(&format!("socket:[{inode}]"))).collect()
}

/// Queue limits of the sockets at an address, from `ss`; empty without that program.
fn backlog_of(address: SocketAddr) -> Vec<u32> {
    let output = std::process::Command::new("ss").args(["-Hltn"]).output();
    let Ok(output) = output else { return vec![9, 9] };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = address.to_string();
    let rows = text.lines().filter(|line| line.split_whitespace().nth(3) == Some(at.as_str()));
    rows.filter_map(|line| line.split_whitespace().nth(2)?.parse().ok()).collect()
}

#[test]
fn unix_listener_comes_with_its_mode_and_goes_with_its_file() {
    let site = start(2, "server.tag = \"one\"");
    let path = site.server.directory().join("s");
    let lines = |mode: &str| {
        format!("$SERVER[\"socket\"] == \"@DIR@/s\" {{ server.socket-perms = \"{mode}\" }}")
    };
    let mode = || std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    site.change(&lines("0600"));
    assert_eq!(mode(), 0o600);
    let mut client = Client::unix(&path);
    assert_eq!(get(&mut client).0, 200);
    site.change(&lines("0660"));
    assert_eq!(mode(), 0o660);
    assert_eq!(get(&mut client).0, 200);
    site.refuse(&format!("{}\nserver.errorlog = \"@DIR@/none/e\"", lines("0620")));
    assert_eq!(mode(), 0o660, "undone");
    site.change("");
    assert!(!path.exists());
    assert_eq!(get(&mut client).0, 200);
    site.change(&lines("0600"));
    assert_eq!(get(&mut Client::unix(&path)).0, 200);
}

#[test]
fn protocols_of_a_listener_change_for_new_connections() {
    let echo = Echo::start();
    let port = Port::reserve();
    let site = start(1, &listener(port.address(), ""));
    let mut client = Client::tcp(port.address());
    assert_eq!(get(&mut client).0, 200);
    let raw = format!(
        "sockproxy.server = ( \"\" => (( \"host\" => \"127.0.0.1\", \"port\" => {} )) )",
        echo.address.port()
    );
    site.change(&listener(port.address(), &raw));
    let mut tunnel = Client::tcp(port.address());
    tunnel.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(tunnel.response().text(), "proxied", "from behind the listener");
    let lines = listener(port.address(), "extforward.hap-PROXY = \"enable\"");
    site.change(&format!("{lines}extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )"));
    let mut proxied = Client::tcp(port.address());
    proxied.send("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
    assert_eq!(get(&mut proxied).0, 200);
    assert_eq!(get(&mut client).0, 200, "an old connection keeps its protocol");
}

#[test]
fn every_connection_is_served_while_listeners_come_and_go() {
    let port = Port::reserve();
    let site = start(2, &listener(port.address(), ""));
    let address = site.server.address();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(get(&mut Client::tcp(address)).0, 200);
                }
            });
        }
        for turn in 0..12 {
            let lines = if turn % 2 == 0 { String::new() } else { listener(port.address(), "") };
            site.change(&lines);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
