//! Services that are dead, slow or wrong: the request is refused.

use std::time::Duration;

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::lighty;
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::stopwatch::Stopwatch;

use super::{guarded, send};

/// The bytes of a response, by the name of the failure.
fn broken(kind: &str) -> Vec<u8> {
    let text = |text: &str| text.as_bytes().to_vec();
    match kind {
        "nothing" => Vec::new(),
        "other protocol" => text("SSH-2.0-OpenSSH\r\n\r\n"),
        "status 99" => text("HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n"),
        "status 600" => text("HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n"),
        "101" => {
            text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
        }
        "two lengths" => text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n"),
        "short body" => text("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort"),
        "bad chunk" => text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        "large head" => {
            let fields = format!("X-A: {}\r\n", "a".repeat(70_000));
            answer("200 OK", &fields, "")
        }
        "large body" => answer("200 OK", "", &"x".repeat(3000)),
        "large refusal" => answer("403 Forbidden", "", &"x".repeat(3000)),
        "endless body" => {
            let mut bytes = text("HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n");
            bytes.extend("400\r\n".bytes().chain([b'x'; 1024]).chain(*b"\r\n"));
            bytes.repeat(1)
        }
        "two users" => answer("200 OK", "Remote-User: a\r\nRemote-User: b\r\n", ""),
        "500" => answer("500 Internal Server Error", "Remote-User: kim\r\n", "page"),
        "502" => answer("502 Bad Gateway", "", "page"),
        "304" => text("HTTP/1.1 304 Not Modified\r\n\r\n"),
        _ => panic!("{kind}"),
    }
}

const KINDS: [&str; 16] = [
    "nothing",
    "other protocol",
    "status 99",
    "status 600",
    "101",
    "two lengths",
    "short body",
    "bad chunk",
    "large head",
    "large body",
    "large refusal",
    "endless body",
    "two users",
    "500",
    "502",
    "304",
];

#[test]
fn every_failure_of_a_service_refuses_the_request() {
    let backend = Backend::answering("secret");
    let mut rows = vec![vec!["failure".to_owned(), "GET".into(), "POST".into()]];
    for kind in KINDS {
        let service = Backend::replying(move |_| broken(kind));
        let keys = "\"response-headers\" => ( \"Remote-User\" ), \"user-header\" => \
                    \"Remote-User\", \"timeout\" => \"2s\", \"max-response\" => 2048";
        let server = guarded(lighty!(), &service, &backend, keys);
        let got = server.get("/a");
        let posted = send(&server, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        for page in [&got, &posted] {
            assert!(!page.text().contains("secret"), "{kind}");
            assert_eq!(page.field("Remote-User"), None);
        }
        server.await_log("a service of auth.forward gives no verdict");
        rows.push(vec![kind.to_owned(), got.status.to_string(), posted.status.to_string()]);
    }
    assert!(backend.requests().is_empty(), "{:?}", backend.requests());
    assert_matrix(&table(&rows), STATUSES);
}

const STATUSES: &str = "
failure         GET  POST
nothing         503  503
other protocol  503  503
status 99       503  503
status 600      503  503
101             503  503
two lengths     503  503
short body      503  503
bad chunk       503  503
large head      503  503
large body      503  503
large refusal   503  503
endless body    503  503
two users       503  503
500             503  503
502             503  503
304             503  503
";

#[test]
fn dead_service_refuses_and_its_return_is_noticed() {
    let backend = Backend::answering("page");
    let port = Port::reserve();
    let server = lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.hold-time = 0\nproxy-core.disable-time = 1")
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{}\", \"timeout\" => 2 ) )",
            port.address()
        ))
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/a").status, 503);
    }
    assert!(backend.requests().is_empty());
    server.await_log("gives no verdict: auth.forward http://127.0.0.1");
    let _service = Backend::start_at(&port, |peer| peer.respond_to_all(""));
    let is_back = || server.get("/a").status == 200;
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), is_back), "{}", server.log());
}

#[test]
fn silent_service_costs_its_timeout_and_no_more() {
    let backend = Backend::answering("page");
    let service = Backend::after_request(|peer| _ = peer.hang());
    let server = guarded(lighty!().file("x", ""), &service, &backend, "\"timeout\" => \"300ms\"");
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/a").status, 503);
    // A busy machine only makes it longer.
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(260), "{elapsed:?}");
    server.await_log("gives no verdict");
    assert!(backend.requests().is_empty());
}

#[test]
fn service_that_drips_has_a_limit_for_its_whole_response() {
    let backend = Backend::answering("page");
    let service = Backend::after_request(|peer| {
        let response = answer("200 OK", "", &"x".repeat(1000));
        peer.drip(response, 1, Duration::from_millis(50));
    });
    let server = guarded(lighty!(), &service, &backend, "\"timeout\" => \"700ms\"");
    assert_eq!(server.get("/a").status, 503);
    server.await_log("no verdict within 700 ms");
    assert!(backend.requests().is_empty());
}

#[test]
fn page_of_a_failure_cannot_be_had_around_the_service() {
    let backend = Backend::answering("secret");
    let service = Backend::replying(|_| answer("500 No", "", ""));
    let setup =
        lighty!().file("sorry.html", "sorry").config("server.error-handler = \"/sorry.html\"");
    let server = guarded(setup, &service, &backend, "");
    let page = server.get("/a");
    assert_eq!(page.status, 503);
    assert!(!page.text().contains("secret"));
    assert_eq!(service.requests().len(), 1, "a failed service is not question again");
    assert!(backend.requests().is_empty());
}

#[test]
fn client_that_leaves_ends_the_request_to_the_service() {
    let (service, backend) =
        (Backend::after_request(|peer| _ = peer.hang()), Backend::answering(""));
    let server = guarded(lighty!(), &service, &backend, "\"timeout\" => 60");
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let question = || !service.requests().is_empty();
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), question));
    client.reset();
    let ended = || service.open() == 0;
    assert!(lighty_testkit::wait_until(Duration::from_secs(30), ended), "the connection stays");
}
