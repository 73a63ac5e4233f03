//! `Proxy-Status`: the type of each fault.

use lighty_testkit::backend::{Port, answer};

use super::*;

const ON: &str = "proxy-core.status-header = \"enable\"";

const CACHED: &str = "cache.stores = ( \"a\" => ( ) )\ncache.store = \"a\"";

/// The field of a response, with its status.
fn status_field(server: &Server) -> (u16, Option<String>) {
    let response = server.get("/x");
    (response.status, response.field("Proxy-Status").map(str::to_owned))
}

fn assert_error(backend: &Backend, lines: &str, status: u16, error: &str) {
    for more in ["", CACHED] {
        let server = front(backend, &format!("{ON}\n{lines}\n{more}"));
        let expected = Some(format!("lighty; error={error}"));
        assert_eq!(status_field(&server), (status, expected), "{more}\n{}", server.log());
    }
    let server = front(backend, lines);
    assert_eq!(status_field(&server), (status, None));
}

#[test]
fn responses_that_cannot_be_had_have_a_type() {
    let malformed = Backend::after_request(|peer| _ = peer.send("HTTP/1.1 xyz\r\n\r\n"));
    assert_error(&malformed, "", 502, "http_protocol_error");
    let closing = Backend::after_request(|_| {});
    assert_error(&closing, "", 502, "connection_terminated");
    let silent = Backend::after_request(|peer| _ = peer.hang());
    assert_error(&silent, READ_LIMIT, 504, "connection_read_timeout");
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    let talkative = Backend::after_request(move |peer| _ = peer.send(&head));
    assert_error(&talkative, "", 502, "http_response_header_section_size");
    let clear = Backend::start(|peer| _ = peer.send("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let tls = format!(
        "proxy-core.backends := ( \"https://{}\" )\nproxy-core.tls-verify = \"disable\"",
        clear.name()
    );
    assert_error(&clear, &tls, 502, "tls_protocol_error");
}

#[test]
fn unreachable_backend_has_a_type() {
    let port = Port::reserve();
    let lines = format!("{ON}\nproxy-core.backends = ( \"{}\" )", port.address());
    let server = lighty!().config("proxy-core.protocol = \"http\"").config(&lines).start();
    let refused = (502, Some("lighty; error=connection_refused".to_owned()));
    let down = (503, Some("lighty; error=destination_unavailable".to_owned()));
    let first = status_field(&server);
    assert!(first == refused || first == down, "{first:?}");
    let second = status_field(&server);
    assert!(second == refused || second == down, "{second:?}");
}

#[test]
fn own_errors_of_a_backend_have_their_status() {
    let backend = Backend::replying(|seen| match seen.target() {
        "/x" => answer("503 Service Unavailable", "Proxy-Status: inner; error=dns_error\r\n", "no"),
        "/missing" => answer("404 Not Found", "", "no"),
        _ => answer("200 OK", "", "yes"),
    });
    let server = front(&backend, ON);
    let response = server.get("/x");
    let members: Vec<&str> = response.all("Proxy-Status").collect();
    assert_eq!(members, ["inner; error=dns_error", "lighty; received-status=503"]);
    for target in ["/", "/missing"] {
        assert_eq!(server.get(target).field("Proxy-Status"), None, "{target}");
    }
}
