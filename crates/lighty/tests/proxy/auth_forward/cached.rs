//! Kept permissions, and equal requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::server::Server;
use lighty_testkit::{lighty, wait_until};

use rustix::process::Signal;

use super::guarded;

const KEYS: &str = "\"cache\" => 60, \"response-headers\" => ( \"Remote-User\" )";

/// A service that names the user of the cookie.
fn naming_service() -> Backend {
    Backend::replying(|seen| {
        let cookie = seen.field("Cookie").unwrap_or("nobody");
        answer("200 OK", &format!("Remote-User: {cookie}\r\n"), "")
    })
}

fn statistics(server: &Server) -> String {
    server.get("/statistics").text().to_owned()
}

#[test]
fn equal_requests_share_a_permission_and_others_do_not() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let setup = lighty!().config("extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )");
    let server = guarded(setup, &service, &backend, KEYS);
    let get = |target: &str, lines: &str| {
        let before = service.requests().len();
        assert_eq!(server.get_with(target, lines).status, 200);
        service.requests().len() > before
    };
    let same = "Cookie: kim\r\nX-Forwarded-For: 192.0.2.1\r\n";
    assert!(get("/a", same));
    let mut rows = vec![vec!["request".to_owned(), "asks".into(), "user".into()]];
    for (kind, target, lines) in [
        ("the same", "/a", same),
        ("another cookie", "/a", "Cookie: lee\r\nX-Forwarded-For: 192.0.2.1\r\n"),
        ("no cookie", "/a", "X-Forwarded-For: 192.0.2.1\r\n"),
        ("another client", "/a", "Cookie: kim\r\nX-Forwarded-For: 192.0.2.2\r\n"),
        (
            "another scheme",
            "/a",
            "Cookie: kim\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n",
        ),
        ("credentials", "/a", "Cookie: kim\r\nX-Forwarded-For: 192.0.2.1\r\nAuthorization: x\r\n"),
        ("another path", "/b", same),
        ("another query", "/a?b", same),
        ("the first again", "/a", same),
    ] {
        let asks = get(target, lines);
        let seen = backend.requests().pop().expect("a request");
        let user = seen.field("Remote-User").unwrap_or("none").to_owned();
        rows.push(vec![kind.to_owned(), asks.to_string(), user]);
    }
    for (kind, request) in [
        ("another host", "GET /a HTTP/1.1\r\nHost: other\r\n"),
        ("another method", "HEAD /a HTTP/1.1\r\nHost: localhost\r\n"),
    ] {
        let before = service.requests().len();
        let mut client = server.connect();
        client.send(format!("{request}{same}Connection: close\r\n\r\n"));
        let _ = client.read_to_end();
        let asks = service.requests().len() > before;
        let seen = backend.requests().pop().expect("a request");
        let user = seen.field("Remote-User").unwrap_or("none").to_owned();
        rows.push(vec![kind.to_owned(), asks.to_string(), user]);
    }
    assert_matrix(&table(&rows), QUESTIONS);
}

const QUESTIONS: &str = "
request          asks   user
the same         false  kim
another cookie   true   lee
no cookie        true   nobody
another client   true   kim
another scheme   true   kim
credentials      true   kim
another path     true   kim
another query    true   kim
the first again  false  kim
another host     true   kim
another method   true   kim
";

#[test]
fn refusals_and_new_sessions_are_not_kept() {
    let backend = Backend::answering("page");
    for (fields, status) in [
        ("", "401 Unauthorized"),
        ("", "302 Found"),
        ("Set-Cookie: session=2\r\n", "200 OK"),
        ("Cache-Control: no-store\r\n", "200 OK"),
        ("Cache-Control: max-age=0\r\n", "204 No Content"),
        ("", "500 No"),
    ] {
        let service = Backend::replying(move |_| answer(status, fields, ""));
        for keys in [KEYS, "\"cache\" => 60, \"set-cookie\" => \"disable\""] {
            let before = service.requests().len();
            let server = guarded(lighty!(), &service, &backend, keys);
            for nth in 1..=3 {
                assert_ne!(server.get("/a").status, 0);
                assert_eq!(service.requests().len() - before, nth, "{status} {fields} {keys}");
            }
        }
    }
}

#[test]
fn permission_expires() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let keys = "\"cache\" => 1, \"response-headers\" => ( \"Remote-User\" )";
    let server = guarded(lighty!(), &service, &backend, keys);
    assert_eq!(server.get("/a").status, 200);
    let asks_again = || {
        assert_eq!(server.get("/a").status, 200);
        service.requests().len() == 2
    };
    assert!(wait_until(Duration::from_secs(30), asks_again));
}

#[test]
fn equal_requests_in_flight_ask_once() {
    let release = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&release);
    let service = Backend::replying(move |_| {
        wait_until(Duration::from_secs(60), || held.load(Ordering::SeqCst));
        answer("200 OK", "", "")
    });
    let backend = Backend::answering("page");
    let setup = lighty!().config("server.max-worker = 2\nstatus.statistics-url = \"/statistics\"");
    let keys = "\"cache\" => 60, \"timeout\" => 60";
    let rule = format!("\"url\" => \"http://{}\", {keys}", service.name());
    let server = setup
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/app/\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\" )\nauth.forward = ( \"/app/\" => ( {rule} ) ) }}",
            backend.name()
        ))
        .start();
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /app/a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert!(wait_until(Duration::from_secs(30), || service.requests().len() == 1));
    // The first one leaves; another one asks in its place.
    release.store(true, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.response().text(), "page");
    }
    assert_eq!(service.requests().len(), 1);
    let figures = statistics(&server);
    assert!(figures.contains("server.auth-forward-allowed: 8\n"), "{figures}");
    assert!(figures.contains("server.auth-forward-cached: 7\n"), "{figures}");
}

#[test]
fn client_that_leaves_ends_no_request_that_waits_for_its_verdict() {
    let release = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&release);
    let service = Backend::start(move |peer| {
        while let Some(_request) = peer.request() {
            let is_stopping = || held.load(Ordering::SeqCst) || peer.is_stopping();
            wait_until(Duration::from_secs(60), is_stopping);
            if !peer.send(answer("200 OK", "", "")) {
                return;
            }
        }
    });
    let backend = Backend::answering("page");
    let server = guarded(lighty!(), &service, &backend, "\"cache\" => 60, \"timeout\" => 60");
    let request = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = server.connect();
    first.send(request);
    assert!(wait_until(Duration::from_secs(30), || service.requests().len() == 1));
    let mut others: Vec<_> = (0..4).map(|_| server.connect()).collect();
    others.iter_mut().for_each(|client| client.send(request));
    first.reset();
    let asks_again = || service.requests().len() == 2;
    assert!(wait_until(Duration::from_secs(30), asks_again), "{}", service.requests().len());
    release.store(true, Ordering::SeqCst);
    for client in &mut others {
        assert_eq!(client.response().text(), "page");
    }
    assert_eq!(service.requests().len(), 2);
}

#[test]
fn reload_forgets_permissions() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    for _ in 0..2 {
        assert_eq!(server.get("/a").status, 200);
    }
    assert_eq!(service.requests().len(), 1);
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert_eq!(server.get("/a").status, 200);
    assert_eq!(service.requests().len(), 2);
}
