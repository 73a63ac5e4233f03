//! Stale responses: validation, and service in place of errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::wait_until;

use super::{caching, counting};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn stale_response_is_validated() {
    let backend = Backend::replying(|seen| match seen.field("If-None-Match") {
        None => answer(
            "200 OK",
            "Cache-Control: max-age=0\r\nETag: \"1\"\r\nX-Version: old\r\n",
            "page",
        ),
        Some("\"1\"") => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nCache-Control: max-age=600\r\nX-Version: \
              new\r\n\r\n"
                .to_vec()
        }
        Some(_) => answer("500 Internal Server Error", "", "a client's condition"),
    });
    let server = caching(&backend, "");
    assert_eq!(server.get("/").field("X-Version"), Some("old"));
    // The client's own condition is not the backend's concern.
    let page = server.get_with("/", "If-None-Match: \"other\"\r\n");
    assert_eq!((page.status, page.text(), page.field("X-Version")), (200, "page", Some("new")));
    let page = server.get_with("/", "If-None-Match: \"1\"\r\n");
    assert_eq!(page.status, 304);
    assert_eq!(server.get("/").text(), "page");
    assert_eq!(backend.requests().len(), 2, "fresh after its validation");
}

#[test]
fn stale_response_is_served_while_it_is_fetched_anew() {
    let backend = counting("Cache-Control: max-age=0, stale-while-revalidate=600\r\n");
    let server = caching(&backend, "");
    assert_eq!(server.get("/").text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 1");
    assert!(wait_until(SOON, || backend.requests().len() >= 2));
    assert!(wait_until(SOON, || server.get("/").text() != "answer 1"));
}

#[test]
fn stale_response_is_served_in_place_of_an_error() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let count = AtomicU32::new(0);
    let backend = Backend::replying(move |_| match own.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable", "", "broken"),
        false => {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let fields = "Cache-Control: max-age=0, stale-if-error=600\r\n";
            answer("200 OK", fields, &format!("answer {number}"))
        }
    });
    let server = caching(&backend, "");
    assert_eq!(server.get("/").text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 2");
    is_broken.store(true, Ordering::Relaxed);
    let page = server.get("/");
    assert_eq!((page.status, page.text()), (200, "answer 2"));
    assert!(page.field("Cache-Status").is_some_and(|text| text.starts_with("lighty; hit; ttl=")));
    is_broken.store(false, Ordering::Relaxed);
    assert_eq!(server.get("/").text(), "answer 3");
}

#[test]
fn must_revalidate_forbids_stale_responses() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let backend = Backend::replying(move |_| match own.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable", "", "broken"),
        false => answer("200 OK", "Cache-Control: max-age=0, must-revalidate\r\n", "page"),
    });
    let server = caching(&backend, "cache.stale-if-error = \"24h\"");
    assert_eq!(server.get("/").status, 200);
    is_broken.store(true, Ordering::Relaxed);
    assert_eq!(server.get("/").status, 503);
}

#[test]
fn clients_cannot_force_a_fetch_unless_they_may() {
    for (more, text) in [
        ("", "answer 1"),
        ("cache.request-directives = \"revalidate\"", "answer 2"),
        ("cache.request-directives = \"honor\"", "answer 2"),
    ] {
        let backend = counting(super::FRESH);
        let server = caching(&backend, more);
        let _ = server.get("/");
        assert_eq!(server.get_with("/", "Cache-Control: no-cache\r\n").text(), text, "{more}");
    }
}

#[test]
fn only_if_cached_never_asks_the_backend() {
    let backend = counting(super::FRESH);
    let server = caching(&backend, "");
    let ask = || server.get_with("/", "Cache-Control: only-if-cached\r\n");
    assert_eq!(ask().status, 504);
    let _ = server.get("/");
    assert_eq!(ask().text(), "answer 1");
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn not_modified_from_the_store_varies_as_the_whole_does() {
    let fields = "Cache-Control: max-age=600\r\nETag: \"1\"\r\nContent-Type: text/html\r\n\
                  Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT\r\n";
    let body = "a long text ".repeat(100);
    let encoded = "Cache-Control: max-age=600\r\nETag: \"1\"\r\nContent-Type: text/html\r\n\
                   Content-Encoding: gzip\r\n";
    let backend = Backend::replying(move |seen| match seen.target() {
        "/encoded" => answer("200 OK", encoded, &body),
        _ => answer("200 OK", fields, &body),
    });
    let server = caching(
        &backend,
        "server.modules += ( \"mod_deflate\" )\ndeflate.mimetypes = ( \"text/\" )\n\
         deflate.allowed-encodings = ( \"gzip\" )",
    );
    let gzip = "Accept-Encoding: gzip\r\n";
    let whole = server.get_with("/", gzip);
    assert_eq!(whole.field("Content-Encoding"), Some("gzip"));
    let tag = whole.field("ETag").expect("a tag").to_owned();
    for condition in [
        format!("If-None-Match: {tag}\r\n"),
        "If-Modified-Since: Mon, 01 Jan 2001 00:00:00 GMT\r\n".to_owned(),
    ] {
        let page = server.get_with("/", &format!("{gzip}{condition}"));
        assert_eq!((page.status, page.field("Vary")), (304, Some("Accept-Encoding")));
        assert_eq!(page.field("ETag"), Some(&*tag), "{condition}");
        assert_eq!((page.field("Content-Type"), page.field("Content-Encoding")), (None, None));
    }
    // The filter leaves a body with a coding alone, and its 304 too.
    let whole = server.get_with("/encoded", gzip);
    let page = server.get_with("/encoded", &format!("{gzip}If-None-Match: \"1\"\r\n"));
    assert_eq!((page.status, page.field("ETag")), (304, whole.field("ETag")));
    assert_eq!(page.field("Vary"), whole.field("Vary"));
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn fields_that_are_not_shared_reach_the_client_of_the_fetch() {
    let backend = Backend::replying(|seen| {
        let fields = "Cache-Control: max-age=0, private=\"X-Mine, Set-Cookie\", \
                      no-cache=\"X-Once\"\r\nETag: \"1\"\r\nX-Mine: a\r\nX-Once: b\r\n\
                      Set-Cookie: c=1\r\n";
        match seen.field("If-None-Match") {
            None => answer("200 OK", fields, "page"),
            Some(_) => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n")
                .replace("max-age=0", "max-age=600")
                .into_bytes(),
        }
    });
    let server = caching(&backend, "");
    for (number, has_fields) in [(1, true), (2, true), (2, false)] {
        let page = server.get("/");
        assert_eq!((page.status, page.text()), (200, "page"));
        let found = ["X-Mine", "X-Once", "Set-Cookie"].map(|name| page.field(name));
        let expected = if has_fields { [Some("a"), Some("b"), Some("c=1")] } else { [None; 3] };
        assert_eq!(found, expected, "{number}");
        assert_eq!(backend.requests().len(), number);
    }
}

#[test]
fn stale_response_in_the_preferred_language_is_served_in_place_of_an_error() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let backend = Backend::replying(move |_| match own.load(Ordering::Relaxed) {
        true => answer("503 Service Unavailable", "", "broken"),
        false => answer(
            "200 OK",
            "Cache-Control: max-age=0, stale-if-error=600\r\nVary: Accept-Language\r\n\
             Content-Language: de\r\n",
            "page",
        ),
    });
    let server = caching(&backend, "");
    assert_eq!(server.get_with("/", "Accept-Language: de\r\n").text(), "page");
    is_broken.store(true, Ordering::Relaxed);
    let page = server.get_with("/", "Accept-Language: de, fr;q=0.5\r\n");
    assert_eq!((page.status, page.text()), (200, "page"));
    assert_eq!(backend.requests().len(), 2);
}
