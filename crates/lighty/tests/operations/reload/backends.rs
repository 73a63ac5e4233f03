//! Programs, names and raw listeners through a reload.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lighty_testkit::backend::Port;
use lighty_testkit::client::Client;
use lighty_testkit::name_server::NameServer;
use lighty_testkit::origin::Origin;
use lighty_testkit::process::is_running;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

use super::site::ReloadSite;

const PATIENCE: Duration = Duration::from_secs(20);

/// The body of each POST. The program reads the head byte by byte, so that it ends before it.
const POSTED: &str = "posted";

/// Address of the programs' ports. The server listens there as well, and clients connect to its
/// first address.
const HOST: &str = "127.0.0.2";

/// Program of the tests: responds on each connection with its variable and its process id. `/slow`
/// takes half a second; a POST (its body is [`POSTED`]) takes 10 ms.
#[test]
#[ignore = "a backend, not a test"]
fn program() {
    let Ok(fd) = std::io::stdin().as_fd().try_clone_to_owned() else { return };
    let Some(name) = std::env::var_os("LIGHTY_TEST_PROGRAM") else { return };
    match std::env::var_os("LIGHTY_TEST_PORT") {
        Some(_) => TcpListener::from(fd).incoming().flatten().for_each(|s| answer(s, &name)),
        None => UnixListener::from(fd).incoming().flatten().for_each(|s| answer(s, &name)),
    }
}

fn answer(mut stream: impl Read + Write, name: &std::ffi::OsStr) {
    let (mut head, mut piece) = (Vec::new(), [0; 1]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(1) => head.push(piece[0]),
            _ => break,
        }
    }
    if head.starts_with(b"GET /slow") {
        std::thread::sleep(Duration::from_millis(500));
    }
    if head.starts_with(b"POST ") {
        let mut body = [0; POSTED.len()];
        if stream.read_exact(&mut body).is_err() || body != POSTED.as_bytes() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let body = format!("{} {}", name.to_string_lossy(), std::process::id());
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close");
    let _ = write!(stream, "{head}\r\n\r\n{body}");
}

/// A program called `name`, behind a socket of that name, or port, if there is one.
fn spawned(name: &str, socket: Option<&str>, more: &str) -> String {
    let this = std::env::current_exe().expect("this program");
    let command =
        format!("{} --exact reload::backends::program --ignored --nocapture", this.display());
    let port = socket.and_then(|name| Some((HOST, name.strip_prefix(HOST)?.strip_prefix(':')?)));
    let environment = format!("\"LIGHTY_TEST_PROGRAM\" => \"{name}\"");
    let (socket, environment) = match (port, socket) {
        (Some((host, port)), _) => (
            format!("\"host\" => \"{host}\", \"port\" => {port},"),
            format!("{environment}, \"LIGHTY_TEST_PORT\" => \"{port}\""),
        ),
        (None, Some(name)) if name.starts_with('@') => {
            (format!("\"socket\" => \"{name}\","), environment)
        }
        (None, Some(name)) => (format!("\"socket\" => \"@DIR@/{name}\","), environment),
        (None, None) => (String::new(), environment),
    };
    format!(
        "{more}\nproxy.server = ( \"/\" => (( \"bin-path\" => \"{command}\", {socket} \
         \"max-procs\" => 1, \"bin-environment\" => ( {environment} ) )) )"
    )
}

fn running_program(site: &ReloadSite) -> (String, u32) {
    let response = site.server.get("/");
    assert_eq!(response.status, 200, "{response:?}\n{}", site.server.log());
    let (name, pid) = response.text().split_once(' ').expect("two words");
    (name.to_owned(), pid.parse().expect("a number"))
}

fn a_changed_program_takes_over(socket: Option<&str>) {
    let site = ReloadSite::start(1, &spawned("one", socket, ""), &[]);
    let (name, first) = running_program(&site);
    assert_eq!(name, "one");
    site.change(&spawned("one", socket, "server.tag = \"other\""));
    assert_eq!(running_program(&site), ("one".into(), first), "an unchanged program runs on");
    let mut slow = site.server.connect();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slow.stays_silent(Duration::from_millis(50)));
    site.change(&spawned("two", socket, ""));
    let fresh = || running_program(&site).0 == "two";
    assert!(wait_until(PATIENCE, fresh), "{}", site.server.log());
    assert!(
        slow.response().text().starts_with("one "),
        "what was under way ended with the old one"
    );
    assert!(wait_until(PATIENCE, || !is_running(first)), "{}", site.server.log());
    let (name, second) = running_program(&site);
    assert!(name == "two" && second != first && is_running(second));
    let refused = site.refuse(&spawned("three", socket, "server.no-such-bracket = ("));
    assert!(refused.contains("lighty.conf:"), "{refused}");
    assert_eq!(running_program(&site), ("two".into(), second));
    site.change("");
    assert!(wait_until(PATIENCE, || !is_running(second)), "a program nobody names ends");
}

#[test]
fn a_changed_program_takes_over_on_a_socket_of_its_own() {
    a_changed_program_takes_over(None);
}

#[test]
fn a_changed_program_takes_over_on_the_same_socket() {
    a_changed_program_takes_over(Some("program.socket"));
}

/// Sends posts on one connection until `stop`.
fn keep_posting(server: &Server, stop: &AtomicBool, posted: &AtomicUsize) {
    let mut client = server.connect();
    let length = POSTED.len();
    while !stop.load(Ordering::Relaxed) {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{POSTED}"
        ));
        let response = client.response();
        assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
        posted.fetch_add(1, Ordering::Relaxed);
    }
}

/// A POST cannot be sent twice, so none may reach a socket that no process will accept from.
fn posts_that_wait_are_answered(socket: Option<&str>) {
    let site = ReloadSite::start(2, &spawned("one", socket, ""), &[]);
    let (stop, posted) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| keep_posting(&site.server, &stop, &posted));
        }
        for turn in 0..20 {
            let before = posted.load(Ordering::Relaxed);
            let name = ["two", "one"][turn % 2];
            site.change(&spawned(name, socket, ""));
            let go_on = || posted.load(Ordering::Relaxed) >= before + 20;
            assert!(wait_until(PATIENCE, go_on), "{}", site.server.log());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_changed_program_takes_over_at_the_same_port() {
    let port = Port::reserve();
    a_changed_program_takes_over(Some(&format!("{HOST}:{}", port.address().port())));
}

#[test]
fn posts_that_wait_are_answered_at_the_same_port() {
    let port = Port::reserve();
    posts_that_wait_are_answered(Some(&format!("{HOST}:{}", port.address().port())));
}

/// A name in the abstract name space that no other test has.
fn abstract_name(test: &str) -> String {
    format!("@lighty-test-{}-{test}", std::process::id())
}

#[test]
fn a_changed_program_takes_over_at_the_same_abstract_name() {
    a_changed_program_takes_over(Some(&abstract_name("takes-over")));
}

#[test]
fn posts_that_wait_are_answered_at_the_same_abstract_name() {
    posts_that_wait_are_answered(Some(&abstract_name("posts")));
}

/// The port of another server is not shared.
#[test]
fn a_program_whose_port_is_taken_refuses_the_reload() {
    let taken = TcpListener::bind((HOST, 0)).expect("a port");
    let port = format!("{HOST}:{}", taken.local_addr().expect("its address").port());
    let site = ReloadSite::start(1, "", &[]);
    let refused = site.refuse(&spawned("one", Some(&port), ""));
    assert!(refused.contains("in use"), "{refused}");
}

#[test]
fn posts_that_wait_are_answered_on_a_socket_of_its_own() {
    posts_that_wait_are_answered(None);
}

#[test]
fn posts_that_wait_are_answered_on_the_same_socket() {
    posts_that_wait_are_answered(Some("program.socket"));
}

#[test]
fn a_program_that_does_not_start_refuses_the_reload() {
    let site = ReloadSite::start(1, &spawned("one", Some("s"), ""), &[]);
    let (_, first) = running_program(&site);
    let lines = "fastcgi.server = ( \".x\" => (( \"bin-path\" => \"/nonexistent/program\", \
                 \"socket\" => \"@DIR@/x\" )) )\n";
    let refused = site.refuse(&format!("{lines}{}", spawned("two", Some("s"), "")));
    assert!(refused.contains("/nonexistent/program"), "{refused}");
    assert_eq!(running_program(&site), ("one".into(), first));
    let site_socket = site.server.directory().join("s");
    assert!(site_socket.exists(), "the socket is still that of the program that runs");
}

#[test]
fn a_name_stays_resolved() {
    let backend = Origin::start_at("127.0.0.2:0".parse().expect("an address"), "named");
    let names = NameServer::start("127.0.0.2 app.test\n", &[]);
    let lines = |weight: u32| {
        let name = format!("app.test:{}", backend.address().port());
        format!(
            "proxy-core.resolver = ( \"{}\" )\nproxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{name}\" )\nproxy-core.weights = ( \"{name}\" => {weight} )",
            names.address()
        )
    };
    let site = ReloadSite::start(1, &lines(1), &[]);
    assert_eq!(site.server.get("/").text(), "named");
    names.set_hosts("127.0.0.9 other.test\n");
    site.change(&lines(4));
    assert_eq!(site.server.get("/").text(), "named", "{}", site.server.log());
}

/// Sends its name to each client.
fn greeter(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(name.as_bytes());
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
                let _ = stream.write_all(&rest);
            });
        }
    });
    address
}

#[test]
fn a_raw_listener_follows_and_its_tunnels_stay() {
    let (one, two) = (greeter("one"), greeter("two"));
    let lines = |backend: SocketAddr| {
        let (host, port) = (backend.ip(), backend.port());
        format!(
            "$SERVER[\"socket\"] == \"127.0.0.2:0\" {{ sockproxy.server = ( \"\" => (( \"host\" => \
             \"{host}\", \"port\" => {port} )) ) }}"
        )
    };
    let site = ReloadSite::start(1, &lines(one), &[]);
    let raw = || {
        let all = site.server.listening();
        all.into_iter().find(|address| address.ip().to_string() == "127.0.0.2").expect("it listens")
    };
    let greeted = || {
        let mut client = Client::tcp(raw());
        let name = client.read_exact(3).expect("a name");
        (client, String::from_utf8(name).expect("text"))
    };
    let (mut old, name) = greeted();
    assert_eq!(name, "one");
    site.change(&lines(two));
    assert_eq!(greeted().1, "two");
    old.send("still here");
    old.half_close();
    assert_eq!(old.read_to_end().0, b"still here");
}
