//! `mod_cache`: stored responses of backends.

mod attacks;
mod bars;
mod disk;
mod flights;
mod forms;
mod lessons;
mod observing;
mod pairs;
mod poisoning;
mod purging;
mod scripts;
mod slices;
mod validation;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use rustix::process::Signal;

/// A server with a store, in front of a backend.
fn caching(backend: &Backend, more: &str) -> Server {
    with_store(lighty!(), backend, more).start()
}

fn with_store(setup: Setup, backend: &Backend, more: &str) -> Setup {
    setup
        .in_front_of(&backend.name())
        .config(
            "cache.stores = ( \"pages\" => ( \"memory\" => \"4M\" ) )\ncache.store = \"pages\"\n\
         cache.status-header = \"enable\"",
        )
        .config(more)
}

/// A backend that numbers its answers, with these fields.
fn counting(fields: &'static str) -> Backend {
    let count = Arc::new(AtomicU32::new(0));
    Backend::replying(move |_| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        answer("200 OK", fields, &format!("answer {number}"))
    })
}

const FRESH: &str = "Cache-Control: max-age=600\r\n";

#[test]
fn fresh_response_is_served_again_with_its_age() {
    let backend = counting("Cache-Control: max-age=600\r\nETag: \"1\"\r\nX-Own: yes\r\n");
    let server = caching(&backend, "");
    for (status, hit) in [("lighty; fwd=uri-miss; stored", false), ("lighty; hit; ttl=", true)] {
        let page = server.get("/a?b");
        assert_eq!((page.status, page.text()), (200, "answer 1"));
        assert_eq!(page.field("X-Own"), Some("yes"));
        assert_eq!(page.all("Content-Length").count(), 1);
        assert!(page.field("Age").is_some_and(|age| age.parse::<u32>().is_ok_and(|age| age < 60)));
        let text = page.field("Cache-Status").expect("a status");
        assert!(text.starts_with(status), "{hit} {text}");
    }
    assert_eq!(server.get("/a?c").text(), "answer 2", "another query");
    assert_eq!(server.get_with("/a?b", "Host: other\r\n").status, 400, "a second Host");
}

#[test]
fn response_decides_whether_it_is_stored() {
    for (fields, is_stored) in [
        (FRESH, true),
        ("Cache-Control: s-maxage=600\r\n", true),
        ("Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n", true),
        ("Last-Modified: Mon, 01 Jan 2001 00:00:00 GMT\r\n", true),
        ("CDN-Cache-Control: max-age=600\r\nCache-Control: no-store\r\n", true),
        ("X-Accel-Expires: 600\r\nCache-Control: no-store\r\n", true),
        ("X-Accel-Expires: 0\r\nCache-Control: max-age=600\r\n", false),
        ("Surrogate-Control: max-age=600\r\n", false),
        ("", false),
        ("Cache-Control: no-store\r\n", false),
        ("Cache-Control: private, max-age=600\r\n", false),
        ("Cache-Control: max-age=0\r\n", false),
        ("Expires: 0\r\n", false),
        ("Cache-Control: max-age=600\r\nSet-Cookie: a=1\r\n", false),
        ("Cache-Control: max-age=600\r\nVary: *\r\n", false),
    ] {
        let backend = counting(fields);
        let server = caching(&backend, "");
        let again = if is_stored { "answer 1" } else { "answer 2" };
        for expected in ["answer 1", again] {
            let page = server.get("/a");
            assert_eq!(page.text(), expected, "{fields}");
            for name in ["X-Accel-Expires", "Surrogate-Control"] {
                assert_eq!(page.field(name), None, "{fields}");
            }
        }
    }
}

#[test]
fn configuration_gives_lifetimes_to_responses_without_one() {
    // The backend's clock is years behind.
    let backend = counting("Content-Type: text/html\r\nDate: Mon, 01 Jan 2001 00:00:00 GMT\r\n");
    let server = caching(&backend, "cache.valid = ( \"200\" => \"10min\" )");
    assert_eq!((server.get("/a").text(), server.get("/a").text()), ("answer 1", "answer 1"));
    // The name of a style sheet, and a page: it may be somebody's own.
    assert_eq!(
        (server.get("/a.css").text(), server.get("/a.css").text()),
        ("answer 2", "answer 3")
    );
}

#[test]
fn varying_responses_are_kept_apart() {
    let backend = Backend::replying(|seen| {
        let language = seen.field("X-Lang").unwrap_or("none").to_owned();
        answer("200 OK", "Cache-Control: max-age=600\r\nVary: X-Lang\r\n", &language)
    });
    let server = caching(&backend, "cache.max-variants = 2");
    let ask = |language: &str| {
        let fields = format!("X-Lang: {language}\r\n");
        server.get_with("/", &fields).text().to_owned()
    };
    for language in ["a", "b", "a", "b"] {
        assert_eq!(ask(language), language);
    }
    assert_eq!(backend.requests().len(), 2);
    assert_eq!(server.get("/").text(), "none");
    assert_eq!(ask("b"), "b");
    assert_eq!(backend.requests().len(), 3, "the oldest of three variants is gone");
    assert_eq!(ask("a"), "a");
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn response_in_the_preferred_language_is_served_again() {
    let backend = Backend::replying(|seen| {
        let wanted = seen.field("Accept-Language").unwrap_or("en");
        let language = if wanted.starts_with("de") { "de" } else { "en" };
        let vary = "Cache-Control: max-age=600\r\nVary: Accept-Language\r\n";
        answer("200 OK", &format!("{vary}Content-Language: {language}\r\n"), language)
    });
    let server = caching(&backend, "");
    let ask = |accepted: &str| {
        let page = server.get_with("/", &format!("Accept-Language: {accepted}\r\n"));
        (page.text().to_owned(), backend.requests().len())
    };
    assert_eq!(ask("de, en;q=0.5"), ("de".to_owned(), 1));
    // Equal, then equal in the first preference.
    assert_eq!(ask("DE ,en; q=0.5"), ("de".to_owned(), 1));
    assert_eq!(ask("de, fr;q=0.8"), ("de".to_owned(), 1));
    assert_eq!(ask("fr, de;q=0.8"), ("en".to_owned(), 2));
    assert_eq!(ask("de;q=0.8, en"), ("en".to_owned(), 2));
    assert_eq!(ask("de, en"), ("de".to_owned(), 3), "no preference");
}

#[test]
fn stored_response_serves_heads_and_ranges() {
    let backend = counting(FRESH);
    let server = caching(&backend, "");
    let _ = server.get("/");
    let mut client = server.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.response_to_head();
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("8")));
    let part = server.get_with("/", "Range: bytes=2-4\r\n");
    assert_eq!((part.status, part.text()), (206, "swe"));
    assert_eq!(part.field("Content-Range"), Some("bytes 2-4/8"));
    let none = server.get_with("/", "Range: bytes=9-\r\n");
    assert_eq!((none.status, none.field("Content-Range")), (416, Some("bytes */8")));
    assert_eq!(backend.requests().len(), 1);
    // Nothing is stored under this name, and a part is not.
    assert_eq!(server.get_with("/other", "Range: bytes=2-4\r\n").text(), "answer 2");
    assert_eq!(server.get("/other").text(), "answer 3");
}

#[test]
fn several_ranges_of_a_stored_response_are_one_response() {
    let backend = Backend::replying(|_| {
        let fields = format!("{FRESH}Content-Type: text/plain\r\n");
        answer("200 OK", &fields, &"0123456789".repeat(1000))
    });
    let server = caching(&backend, "");
    let _ = server.get("/");
    let parts = server.get_with("/", "Range: bytes=0-1, 5005-5006, -1\r\n");
    let media_type = parts.field("Content-Type").expect("a type").to_owned();
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let part = |range: &str, text: &str| {
        let head = format!("Content-Type: text/plain\r\nContent-Range: bytes {range}/10000");
        format!("\r\n--{boundary}\r\n{head}\r\n\r\n{text}")
    };
    let all = [part("0-1", "01"), part("5005-5006", "56"), part("9999-9999", "9")].concat();
    assert_eq!((parts.status, parts.text()), (206, &*format!("{all}\r\n--{boundary}--\r\n")));
    assert_eq!(parts.field("Content-Range"), None);
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn large_responses_pass_through_whole_and_are_not_stored() {
    let body = "x".repeat(300_000);
    for fields in ["", "Transfer-Encoding: chunked\r\n"] {
        let (fields, sent) = (format!("{FRESH}{fields}"), body.clone());
        let is_chunked = fields.contains("chunked");
        let backend = Backend::replying(move |_| match is_chunked {
            false => answer("200 OK", &fields, &sent),
            true => {
                let pieces = sent.as_bytes().chunks(10_000);
                let coded: String = pieces
                    .map(|piece| format!("2710\r\n{}\r\n", String::from_utf8_lossy(piece)))
                    .collect();
                format!("HTTP/1.1 200 OK\r\n{fields}\r\n{coded}0\r\n\r\n").into_bytes()
            }
        });
        let server = with_store(lighty!(), &backend, "")
            .config("cache.stores := ( \"pages\" => ( \"max-object-size\" => \"100K\" ) )")
            .start();
        for _ in 0..2 {
            assert!(server.get("/").text() == body, "{is_chunked}");
        }
        assert_eq!(backend.requests().len(), 2);
    }
}

#[test]
fn memory_has_a_limit() {
    let body = "x".repeat(200_000);
    let backend = Backend::replying(move |_| answer("200 OK", FRESH, &body));
    let server = caching(&backend, "cache.stores := ( \"pages\" => ( \"memory\" => \"1M\" ) )");
    for number in 0..20 {
        assert_eq!(server.get(&format!("/{number}")).status, 200);
    }
    let before = backend.requests().len();
    let hits = (0..20).rev().filter(|number| {
        let page = server.get(&format!("/{number}"));
        page.field("Cache-Status").is_some_and(|text| text.contains("hit"))
    });
    let hits = hits.count();
    assert!((1..=5).contains(&hits), "{hits} of 20, {before}");
}

#[test]
fn reload_keeps_what_is_stored() {
    let backend = counting(FRESH);
    let server = caching(&backend, "");
    let _ = server.get("/");
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert_eq!(server.get("/").text(), "answer 1");
}

#[test]
fn unknown_store_is_an_error() {
    let setup = lighty!().config("cache.store = \"pages\"");
    let (code, _, text) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert_ne!(code, 0);
    assert!(text.contains("cache.store: there is no store \"pages\""), "{text}");
}
