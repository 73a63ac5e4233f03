//! gRPC passes: a real client is told by a real service the same through lighty as without it.

use lighty_testkit::lighty;
use lighty_testkit::real::grpc::{GrpcService, call, call_in_vain};
use lighty_testkit::server::Setup;
use lighty_testkit::tls::Authority;

fn front(setup: Setup, backend: &str) -> Setup {
    setup
        .config("proxy-core.protocol = \"h2\"\nproxy-core.hold-time = 0")
        .config(&format!("proxy-core.backends = ( \"{backend}\" )"))
}

/// What the client says of each way to call.
fn expected() -> Vec<&'static str> {
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
        "unknown: UNIMPLEMENTED 'Method not found!'",
        "begun: b'begun'",
        "cancelled: (\"CANCELLED 'Locally cancelled by application!'\", b'cancelled')",
        "deadline: DEADLINE_EXCEEDED 'Deadline Exceeded'",
        "ended there: b'cancelled'",
    ]
}

#[test]
fn every_kind_of_call_passes_in_clear_text() {
    let Some(service) = GrpcService::start(None) else { return };
    let backend = service.listen().backend();
    assert_eq!(call(&backend, None).expect("a client"), expected());
    let server = front(lighty!(), &backend).start();
    let said = call(&server.address().to_string(), None).expect("a client");
    assert_eq!(said, expected(), "{}", server.log());
}

#[test]
fn every_kind_of_call_passes_over_tls() {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1", "localhost"]);
    let (pair, ca) = (authority.path("pair.pem"), authority.path("ca.pem"));
    let Some(service) = GrpcService::start(Some(&pair)) else { return };
    let server = front(setup, &format!("https://{}", service.listen().address()))
        .config(&format!("proxy-core.tls-ca-file = \"{}\"", ca.display()))
        .config(&format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", pair.display()))
        .start();
    let said = call(&server.address().to_string(), Some(&ca)).expect("a client");
    assert_eq!(said, expected(), "{}", server.log());
}

#[test]
fn a_service_that_is_down_is_unavailable() {
    let port = lighty_testkit::backend::Port::reserve();
    let server = front(lighty!(), &port.address().to_string()).start();
    let Some(said) = call_in_vain(&server.address().to_string()) else { return };
    assert!(said.len() == 1 && said[0].starts_with("down: UNAVAILABLE"), "{said:?}");
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
    let Some(service) = GrpcService::start(None) else { return };
    let backend = service.listen().backend();
    for (name, said) in [("down", "the service is NOT_SERVING"), ("gone", "grpc-status 5")] {
        let server = front(lighty!(), &backend).config(&check(name)).start();
        server.await_log(&format!("is down, its check says: {said}"));
        assert_eq!(server.get("/").status, 503);
    }
    let server = front(lighty!(), &backend).config(&check("later")).start();
    server.await_log("is down, its check says: the service is NOT_SERVING");
    server.await_log("is up again");
    let said = call(&server.address().to_string(), None).expect("a client");
    assert_eq!(said, expected(), "{}", server.log());
}

#[test]
fn the_health_service_is_asked_over_tls() {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1"]);
    let Some(service) = GrpcService::start(Some(&authority.path("pair.pem"))) else { return };
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
