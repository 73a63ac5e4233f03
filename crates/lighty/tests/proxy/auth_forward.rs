//! Forward authentication: a service decides about requests (`auth.forward`).

mod cached;
mod failures;
mod identity;
mod interplay;
mod presets;
mod upgrades;

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

/// A server in front of a backend, with one rule for `/`; `keys` are those of the rule besides its
/// URL.
fn guarded(setup: Setup, service: &Backend, backend: &Backend, keys: &str) -> Server {
    let rule = format!("\"url\" => \"http://{}/auth\", {keys}", service.name());
    setup
        .in_front_of(&backend.name())
        .config(&format!("auth.forward = ( \"/\" => ( {rule} ) )"))
        .start()
}

/// Sends a request as it is written, and reads the response.
fn send(server: &Server, request: &str) -> Response {
    let mut client = server.connect();
    client.send(request);
    client.response()
}

fn values<'a>(seen: &'a RequestSeen, name: &'a str) -> Vec<&'a str> {
    seen.all(name).collect()
}

fn only(requests: Vec<RequestSeen>) -> RequestSeen {
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.into_iter().next().expect("one")
}

#[test]
fn permitted_request_reaches_the_backend_with_the_services_fields() {
    let service = Backend::replying(|_| {
        answer("200 OK", "Remote-User: kim\r\nRemote-Groups: a,b\r\nX-Other: no\r\n", "welcome")
    });
    let backend = Backend::answering("page");
    let keys = "\"response-headers\" => ( \"Remote-User\", \"Remote-Groups\" )";
    let server = guarded(lighty!(), &service, &backend, keys);
    let page = server.get_with("/a/b?c=d", "Cookie: session=1\r\nAccept: text/html\r\n");
    assert_eq!((page.status, page.text()), (200, "page"));
    assert_eq!(page.field("Cache-Control"), Some("private"));
    let question = only(service.requests());
    assert_eq!(question.line(), "GET /auth HTTP/1.1");
    assert_eq!(question.field("Host"), Some(&*service.name()));
    for (name, value) in [
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Uri", "/a/b?c=d"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "localhost"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("Cookie", "session=1"),
        ("Accept", "text/html"),
    ] {
        assert_eq!(question.field(name), Some(value), "{name}\n{}", question.head);
    }
    let seen = only(backend.requests());
    assert_eq!(seen.target(), "/a/b?c=d");
    assert_eq!(
        (seen.field("Remote-User"), seen.field("Remote-Groups")),
        (Some("kim"), Some("a,b"))
    );
    assert_eq!(seen.field("X-Other"), None);
    assert_eq!(server.get("/again").status, 200);
    assert_eq!(service.opened(), 1, "connections are kept");
}

#[test]
fn refusals_are_passed_on_and_the_backend_sees_nothing() {
    let service = Backend::replying(|seen| {
        let uri = seen.field("X-Forwarded-Uri").expect("a URL");
        let status = uri.trim_start_matches('/').replace('_', " ");
        answer(
            &status,
            "WWW-Authenticate: Basic realm=\"r\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
             Location: https://login.example/?rd=x\r\nX-Reason: why\r\nContent-Type: text/x\r\n",
            "no",
        )
    });
    let backend = Backend::answering("page");
    let server = guarded(lighty!(), &service, &backend, "");
    for (target, status) in [
        ("/401_Unauthorized", 401),
        ("/403_Forbidden", 403),
        ("/302_Found", 302),
        ("/303_See_Other", 303),
        ("/404_Not_Found", 404),
        ("/429_Too_Many_Requests", 429),
    ] {
        let refusal = server.get(target);
        assert_eq!((refusal.status, refusal.text()), (status, "no"), "{target}");
        assert_eq!(refusal.field("Location"), Some("https://login.example/?rd=x"));
        assert_eq!(refusal.field("WWW-Authenticate"), Some("Basic realm=\"r\""));
        assert_eq!(refusal.all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(refusal.field("Cache-Control"), Some("no-store"));
        assert_eq!(
            (refusal.field("X-Reason"), refusal.field("Content-Type")),
            (Some("why"), Some("text/x"))
        );
    }
    assert!(backend.requests().is_empty());
    for target in ["/500_No", "/503_No", "/304_No", "/305_No"] {
        assert_eq!(server.get(target).status, 503, "{target}");
    }
    server.await_log("it responds with status 500");
    assert!(backend.requests().is_empty());
}
