//! gRPC: real clients get the same results from real services through lighty as without it.

use std::path::Path;
use std::process::Command;

use lighty_testkit::lighty;
use lighty_testkit::real::grpc::Library::{Go, Python};
use lighty_testkit::real::grpc::{
    GrpcClient, GrpcService, Lasting, Library, call, call_among_cancellations, call_in_vain,
};
use lighty_testkit::server::{Server, Setup, binary, write_file};
use lighty_testkit::tls::Authority;

/// Each client with each service.
const PAIRS: [(Library, Library); 4] = [(Python, Python), (Python, Go), (Go, Python), (Go, Go)];

/// Server in front of a gRPC service, which may take long to reply to a PING on a busy machine.
fn front(setup: Setup, backend: &str) -> Setup {
    setup
        .config("proxy-core.protocol = \"h2\"\nproxy-core.hold-time = 0")
        .config("proxy-core.ping-timeout = 120")
        .config(&format!("proxy-core.backends = ( \"{backend}\" )"))
}

/// Expected output of the clients for each way to call a service.
fn expected(client: Library, service: Library) -> Vec<&'static str> {
    match (client, service) {
        (Python, Python) => expected_of_python("unknown: UNIMPLEMENTED 'Method not found!'"),
        (Python, Go) => expected_of_python(
            "unknown: UNIMPLEMENTED 'unknown method Nothing for service test.Echo'",
        ),
        (Go, Python) => expected_of_go("unknown: Unimplemented \"Method not found!\""),
        (Go, Go) => expected_of_go(
            "unknown: Unimplemented \"unknown method Nothing for service test.Echo\"",
        ),
    }
}

fn expected_of_python(unknown: &'static str) -> Vec<&'static str> {
    vec![
        "unary: (b'text', '1', 'a word', True)",
        "empty: True",
        "large: True",
        "gzip: True",
        "responses: 12497500",
        "requests: b'1999000'",
        "turns: (200, b'WORD 199')",
        "at a time: 44850",
        "failed: ('FAILED_PRECONDITION', 'no: 50 % \u{e4}', 'it was asked for')",
        "details: b'\\n\\x05asked\\x12\\x04test'",
        unknown,
        "begun: b'begun'",
        "cancelled: (\"CANCELLED 'Locally cancelled by application!'\", b'cancelled')",
        "deadline: DEADLINE_EXCEEDED",
        "ended there: b'cancelled'",
    ]
}

fn expected_of_go(unknown: &'static str) -> Vec<&'static str> {
    vec![
        "unary: text [1] [a word] true",
        "empty: true",
        "large: true",
        "gzip: true",
        "responses: 12497500",
        "requests: 1999000 EOF",
        "turns: 404 EOF",
        "at a time: 124750",
        "failed: FailedPrecondition \"no: 50 % \u{e4}\" [it was asked for]",
        "details: asked test",
        unknown,
        "begun: begun",
        "cancelled: Canceled \"context canceled\" cancelled",
        "deadline: DeadlineExceeded",
        "ended there: cancelled",
    ]
}

/// A certificate for this machine with its key, and the authority that vouches for it.
fn pair(setup: &Setup) -> (std::path::PathBuf, std::path::PathBuf) {
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1", "localhost"]);
    (authority.path("pair.pem"), authority.path("ca.pem"))
}

fn over_tls(setup: Setup, pair: &Path) -> Setup {
    setup.config(&format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", pair.display()))
}

#[test]
fn every_kind_of_call_passes_in_clear_text() {
    for (client, service) in PAIRS {
        let Some(running) = GrpcService::start(service, None) else { continue };
        let backend = running.listen().backend();
        let Some(printed) = call(client, &backend, None) else { continue };
        assert_eq!(printed, expected(client, service), "{client:?} directly at {service:?}");
        let server = front(lighty!(), &backend).start();
        let printed = call(client, &server.address().to_string(), None).expect("a client");
        let log = server.log();
        assert_eq!(printed, expected(client, service), "{client:?} with {service:?}: {log}");
    }
}

#[test]
fn every_kind_of_call_passes_over_tls() {
    for (client, service) in PAIRS {
        let setup = lighty!();
        let (pair, ca) = pair(&setup);
        let Some(running) = GrpcService::start(service, Some(&pair)) else { continue };
        let backend = running.listen().address().to_string();
        let Some(printed) = call(client, &backend, Some(&ca)) else { continue };
        assert_eq!(printed, expected(client, service), "{client:?} directly at {service:?}");
        let server = over_tls(front(setup, &format!("https://{backend}")), &pair)
            .config(&format!("proxy-core.tls-ca-file = \"{}\"", ca.display()))
            .start();
        let printed = call(client, &server.address().to_string(), Some(&ca)).expect("a client");
        let log = server.log();
        assert_eq!(printed, expected(client, service), "{client:?} with {service:?}: {log}");
    }
}

/// Python's client resets streams that it has not opened yet. `LIGHTY_GRPC_CALLS` makes it longer.
#[test]
fn cancellations_lose_no_other_call() {
    let calls = std::env::var("LIGHTY_GRPC_CALLS").map_or(240, |n| n.parse().expect("a number"));
    for (client, service) in PAIRS {
        let Some(running) = GrpcService::start(service, None) else { continue };
        let server = front(lighty!(), &running.listen().backend())
            .config("http2.max-requests = 0\nserver.errorlog-level = \"info\"")
            .start();
        let address = server.address().to_string();
        let Some(printed) = call_among_cancellations(client, &address, calls) else { continue };
        let all = match client {
            Python => format!("calls: {calls} lost 0"),
            Go => format!("calls: {calls} lost 0 connections 1"),
        };
        let log = server.log();
        assert_eq!(printed, [all, "enough".to_owned()], "{client:?} {service:?}: {log}");
    }
}

/// `lighty reload` with another configuration.
fn reload(server: &Server, turn: usize) {
    let directory = server.directory();
    let path = directory.join("lighty.conf");
    let before = std::fs::read_to_string(&path).expect("a configuration");
    write_file(&path, before.replace(&format!("turn {}", turn - 1), &format!("turn {turn}")));
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .args(["reload", "--pid-file"])
        .arg(directory.join("lighty.pid"))
        .output()
        .expect("the binary runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.starts_with("reloaded: "), "{printed}{errors}");
}

/// Calls of Go's client while the server is reloaded again and again.
fn reload_under_calls(service: Library, is_over_tls: bool) {
    let setup = lighty!();
    let (pair, ca) = pair(&setup);
    let Some(running) = GrpcService::start(service, is_over_tls.then_some(&*pair)) else { return };
    let backend = running.listen().backend();
    let setup = match is_over_tls {
        true => over_tls(front(setup, &format!("https://{backend}")), &pair)
            .config(&format!("proxy-core.tls-ca-file = \"{}\"", ca.display())),
        false => front(setup, &backend),
    };
    let server = setup
        .config("server.pid-file = \"@DIR@/lighty.pid\"\nserver.tag = \"turn 0\"")
        // A single connection, without a limit of requests.
        .config("http2.max-requests = 0")
        .start();
    let ca = is_over_tls.then_some(&*ca);
    let client = GrpcClient::start(Lasting::Load, &server.address().to_string(), ca);
    let Some(mut client) = client else { return };
    for turn in 1..=8 {
        client.await_calls();
        reload(&server, turn);
    }
    client.await_calls();
    assert_eq!(client.finish(), ["all: 0 lost, 1 connection"], "{}", server.log());
}

#[test]
fn no_call_is_lost_by_a_reload() {
    reload_under_calls(Go, false);
    reload_under_calls(Python, false);
}

#[test]
fn no_call_is_lost_by_a_reload_over_tls() {
    reload_under_calls(Go, true);
}

#[test]
fn a_client_that_asks_whether_it_is_heard_is_answered() {
    let Some(service) = GrpcService::start(Go, None) else { return };
    let server = front(lighty!(), &service.listen().backend()).start();
    let address = server.address().to_string();
    let Some(mut client) = GrpcClient::start(Lasting::Rest, &address, None) else { return };
    client.await_line("begun: begun");
    // The library measures round trips with others.
    let its_own = "ping=\"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"";
    for _ in 0..2 {
        client.await_frame(&["wrote PING len=8", its_own]);
        client.await_frame(&["read PING flags=ACK", its_own]);
    }
    let ended = ["cancelled: Canceled \"context canceled\" cancelled", "all: 1 connection"];
    assert_eq!(client.finish(), ended, "{}", server.log());
}

#[test]
fn a_service_that_is_down_is_unavailable() {
    let port = lighty_testkit::backend::Port::reserve();
    let server = front(lighty!(), &port.address().to_string()).start();
    let Some(printed) = call_in_vain(&server.address().to_string()) else { return };
    assert!(printed.len() == 1 && printed[0].starts_with("down: UNAVAILABLE"), "{printed:?}");
}

/// A check of the service, by which one result suffices.
fn check(service: &str) -> String {
    format!(
        "proxy-core.check = ( \"type\" => \"grpc\", \"service\" => \"{service}\", \
         \"interval\" => \"100ms\", \"timeout\" => \"10s\", \"rise\" => 1, \"fall\" => 1 )"
    )
}

#[test]
fn the_health_service_says_whether_a_backend_is_well() {
    let Some(service) = GrpcService::start(Python, None) else { return };
    let backend = service.listen().backend();
    for (name, printed) in [("down", "the service is NOT_SERVING"), ("gone", "grpc-status 5")] {
        let server = front(lighty!(), &backend).config(&check(name)).start();
        server.await_log(&format!("is down, its check says: {printed}"));
        assert_eq!(server.get("/").status, 503);
    }
    let server = front(lighty!(), &backend).config(&check("later")).start();
    server.await_log("is down, its check says: the service is NOT_SERVING");
    server.await_log("is up again");
    let printed = call(Python, &server.address().to_string(), None).expect("a client");
    assert_eq!(printed, expected(Python, Python), "{}", server.log());
}

#[test]
fn the_health_service_is_asked_over_tls() {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1"]);
    let Some(service) = GrpcService::start(Python, Some(&authority.path("pair.pem"))) else {
        return;
    };
    let server = front(setup, &format!("https://{}", service.listen().address()))
        .config(&format!("proxy-core.tls-ca-file = \"{}\"", authority.path("ca.pem").display()))
        .config(&check("later"))
        .start();
    server.await_log("is down, its check says: the service is NOT_SERVING");
    server.await_log("is up again");
}

#[test]
fn a_backend_without_a_health_service_is_said_to_have_none() {
    let other = lighty!().file("index.html", "a site").start();
    let address = other.address().to_string();
    let server = front(lighty!(), &address).config(&check("")).start();
    server.await_log("is down, its check says: status 404");
}
