//! Removal of stored responses: by requests that change them, and by operators.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;

use super::{FRESH, caching, counting, with_store};

const PURGE: &str = "cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )";

fn purge(server: &Server, query: &str, lines: &str) -> u16 {
    let mut client = server.connect();
    client.send(format!(
        "POST /purge?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{lines}\r\n"
    ));
    client.response().status
}

#[test]
fn unsafe_request_removes_what_it_changes() {
    let backend = Backend::replying(|seen| match seen.method() {
        "POST" if seen.target() == "/fails" => answer("500 Internal Server Error", "", ""),
        "POST" => answer("200 OK", "Location: /list\r\nContent-Location: http://a/else\r\n", ""),
        _ => answer("200 OK", FRESH, "page"),
    });
    let server = caching(&backend, "");
    for target in ["/item", "/list", "/other", "/fails"] {
        let _ = server.get(target);
        let _ = server.get(target);
        assert_eq!(backend.requests_for(target).len(), 1);
    }
    for target in ["/item", "/fails"] {
        let mut client = server.connect();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
        ));
        let _ = client.response();
    }
    for (target, gets) in [("/item", 2), ("/list", 2), ("/other", 1), ("/fails", 1)] {
        let _ = server.get(target);
        let seen = backend.requests_for(target);
        assert_eq!(seen.iter().filter(|seen| seen.method() == "GET").count(), gets, "{target}");
    }
}

#[test]
fn operator_purges_by_url_prefix_tag_host_and_all() {
    let backend = counting("Cache-Control: max-age=600\r\nSurrogate-Key: news sport\r\n");
    let server = caching(&backend, PURGE);
    let ask = || server.get("/a/b?c").text().to_owned();
    assert_eq!((ask(), ask()), ("answer 1".to_owned(), "answer 1".to_owned()));
    let mut number = 1;
    for (query, is_purged) in [
        ("url=/a/b", false),
        ("url=/a/b%3Fc", true),
        ("prefix=/b", false),
        ("prefix=/a/", true),
        ("tag=new", false),
        ("tag=sport", true),
        ("host=other", false),
        ("host=localhost", true),
        ("all", true),
    ] {
        assert_eq!(purge(&server, query, ""), 200, "{query}");
        number += u32::from(is_purged);
        assert_eq!(ask(), format!("answer {number}"), "{query}");
    }
    assert_eq!(server.get("/a/b?c").field("Surrogate-Key"), None, "tags are hidden");
    server.await_log("cache.purge: tag sport");
    for query in ["", "url=a", "x=y"] {
        assert_eq!(purge(&server, query, ""), 400, "{query}");
    }
    assert_eq!(server.get("/purge?all").status, 405);
}

#[test]
fn softly_purged_response_is_stale() {
    let backend = counting("Cache-Control: max-age=600, stale-while-revalidate=600\r\n");
    let server = caching(&backend, PURGE);
    let _ = server.get("/");
    assert_eq!(purge(&server, "all&soft", ""), 200);
    assert_eq!(server.get("/").text(), "answer 1", "served while it is fetched anew");
    let is_new = || server.get("/").text() != "answer 1";
    assert!(lighty_testkit::wait_until(std::time::Duration::from_secs(30), is_new));
}

#[test]
fn strangers_cannot_purge() {
    for (rule, lines, status) in [
        ("\"from\" => ( \"192.0.2.0/24\" )", "", 403),
        ("\"from\" => ( \"127.0.0.0/8\", \"::1\" )", "", 200),
        ("\"token-file\" => \"@DIR@/token\"", "", 403),
        ("\"token-file\" => \"@DIR@/token\"", "Authorization: Bearer wrong\r\n", 403),
        ("\"token-file\" => \"@DIR@/token\"", "Authorization: Bearer secret\r\n", 200),
        ("\"token-file\" => \"@DIR@/none\"", "Authorization: Bearer secret\r\n", 403),
        (
            "\"from\" => ( \"192.0.2.1\" ), \"token-file\" => \"@DIR@/token\"",
            "Authorization: Bearer secret\r\n",
            403,
        ),
    ] {
        let backend = counting(FRESH);
        let setup = lighty!().file("../token", "secret\n");
        let more = format!("cache.purge = ( \"/purge\" => ( {rule} ) )");
        let server = with_store(setup, &backend, &more).start();
        let _ = server.get("/");
        assert_eq!(purge(&server, "all", lines), status, "{rule} {lines}");
        let text = if status == 200 { "answer 2" } else { "answer 1" };
        assert_eq!(server.get("/").text(), text, "{rule} {lines}");
    }
}

#[test]
fn purge_without_a_permission_is_an_error() {
    let (code, _, text) =
        lighty!().config("cache.purge = ( \"/purge\" => ( ) )").run(&["-t", "-f", "@CONF@"]);
    assert!(code != 0 && text.contains("anybody could purge"), "{text}");
}

#[test]
fn unsafe_request_invalidates_groups() {
    let backend = Backend::replying(|seen| match (seen.method(), seen.target()) {
        ("POST", "/lists") => answer("200 OK", "Cache-Group-Invalidation: \"lists\"\r\n", "ok"),
        ("POST", _) => answer("200 OK", "", "ok"),
        (_, "/lists") => {
            answer("200 OK", &format!("{FRESH}Cache-Group-Invalidation: \"lists\"\r\n"), "ok")
        }
        (_, "/alone") => answer("200 OK", FRESH, "ok"),
        _ => answer("200 OK", &format!("{FRESH}Cache-Groups: \"lists\", \"b\"\r\n"), "ok"),
    });
    let server = caching(&backend, "");
    let post = |target: &str| {
        let mut client = server.connect();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(client.response().status, 200);
    };
    let is_hit = |target: &str| {
        let page = server.get(target);
        page.field("Cache-Status").is_some_and(|text| text.contains("hit"))
    };
    let all = ["/a", "/b", "/alone"];
    assert_eq!(all.map(is_hit), [false; 3]);
    assert!(!is_hit("/lists"), "a GET invalidates nothing");
    assert_eq!(all.map(is_hit), [true; 3]);
    post("/other");
    assert_eq!(all.map(is_hit), [true; 3]);
    post("/lists");
    assert_eq!(all.map(is_hit), [false, false, true]);
    assert_eq!(all.map(is_hit), [true; 3]);
}
