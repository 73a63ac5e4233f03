//! Encoded forms of stored responses: each is made once, and belongs to one body.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};

use super::with_store;

const SOON: Duration = Duration::from_secs(30);

const GZIP: &str = "Accept-Encoding: gzip\r\n";

const DEFLATE: &str = "deflate.mimetypes = ( \"text/\" )\ndeflate.debug = 1\n\
    status.status-url = \"/server-status\"\n\
    cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )";

/// Text of some length that compresses well. All bodies of a length have the same size.
fn text(number: u32, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        text += &format!("<p>version {number:05} of a line with words like many others</p>\n");
    }
    text.truncate(length);
    text
}

/// A backend that numbers its versions, each as long as the path says.
fn versions(fields: &'static str) -> (Backend, Arc<AtomicU32>) {
    let version = Arc::new(AtomicU32::new(1));
    let own = Arc::clone(&version);
    let backend = Backend::replying(move |seen| {
        let length = seen.target().split('/').nth(1).and_then(|length| length.parse().ok());
        let fields = format!("Content-Type: text/html\r\n{fields}");
        let number = own.load(Ordering::Relaxed);
        answer("200 OK", &fields, &text(number, length.unwrap_or(20_000)))
    });
    (backend, version)
}

const TAGGED: &str = "Cache-Control: max-age=600\r\nETag: \"1\"\r\n";

fn compressing(backend: &Backend, more: &str) -> Server {
    setup(backend, more).start()
}

fn setup(backend: &Backend, more: &str) -> Setup {
    with_store(lighty!(), backend, DEFLATE).config(more)
}

/// The body, decoded; the response must have this coding.
fn decoded(page: &Response, coding: &str) -> String {
    assert_eq!(page.field("Content-Encoding"), Some(coding), "{}", page.status);
    let mut out = Vec::new();
    match coding {
        "gzip" => {
            let mut decoder = flate2::read::GzDecoder::new(&*page.body);
            decoder.read_to_end(&mut out).expect("gzip");
        }
        "zstd" => zstd::stream::copy_decode(&*page.body, &mut out).expect("zstd"),
        _ => brotli::BrotliDecompress(&mut &*page.body, &mut out).expect("brotli"),
    }
    String::from_utf8(out).expect("text")
}

/// Number of responses in a form that was stored.
fn form_hits(server: &Server) -> u64 {
    let page = server.get("/server-status?json");
    let text = String::from_utf8_lossy(&page.body);
    let figure = text.lines().find_map(|line| line.trim().split_once("encoded-hits\":"));
    let number = figure.map(|(_, number)| number.trim_end_matches(','));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no figure: {text}"))
}

/// Requests a page until its form is stored: the response then has a length.
fn warm(server: &Server, target: &str, fields: &str) -> Response {
    let mut warm = None;
    let is_stored = wait_until(SOON, || {
        let page = server.get_with(target, fields);
        if page.field("Content-Length").is_some() {
            warm = Some(page);
        }
        warm.is_some()
    });
    assert!(is_stored, "{target}: no form is stored");
    warm.expect("a page")
}

/// Removes all responses.
fn purge(server: &Server) {
    let mut client = server.connect();
    client.send("POST /purge?all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

#[test]
fn second_hit_makes_a_form_that_later_ones_get() {
    let (backend, _) = versions(TAGGED);
    let server = compressing(&backend, "");
    for _ in 0..3 {
        let page = server.get_with("/20000/a", GZIP);
        assert_eq!(decoded(&page, "gzip"), text(1, 20_000));
    }
    let page = warm(&server, "/20000/a", GZIP);
    assert_eq!(decoded(&page, "gzip"), text(1, 20_000));
    assert_eq!(page.field("ETag"), Some("\"1-gzip\""));
    assert_eq!(page.field("Vary"), Some("Accept-Encoding"));
    assert_eq!(page.field("Accept-Ranges").filter(|ranges| *ranges != "none"), None);
    server.await_log("mod_deflate: gzip: stored");
    let hits = form_hits(&server);
    let mut client = server.connect();
    client.send(format!("HEAD /20000/a HTTP/1.1\r\nHost: localhost\r\n{GZIP}\r\n"));
    let head = client.response_to_head();
    assert_eq!(head.field("Content-Length"), Some(&*page.body.len().to_string()));
    assert_eq!(head.field("Content-Encoding"), Some("gzip"));
    assert_eq!(form_hits(&server), hits + 1);
    let known =
        server.get_with("/20000/a", "Accept-Encoding: gzip\r\nIf-None-Match: \"1-gzip\"\r\n");
    assert_eq!((known.status, known.field("ETag")), (304, Some("\"1-gzip\"")));
    let part = server.get_with("/20000/a", "Accept-Encoding: gzip\r\nRange: bytes=5-9\r\n");
    assert_eq!((part.status, part.field("Content-Encoding")), (206, None));
    assert_eq!(part.text(), &text(1, 20_000)[5..10]);
    let resumed = "Accept-Encoding: gzip\r\nRange: bytes=5-9\r\nIf-Range: \"1-gzip\"\r\n";
    let whole = server.get_with("/20000/a", resumed);
    assert_eq!((whole.status, decoded(&whole, "gzip")), (200, text(1, 20_000)));
    assert_eq!(server.get("/20000/a").text(), text(1, 20_000), "without a coding");
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn form_of_an_earlier_body_serves_nobody() {
    // Neither length nor validators tell the versions apart.
    let (backend, version) = versions("Cache-Control: max-age=600\r\n");
    let server = compressing(&backend, "cache.request-directives = \"honor\"");
    for number in 1..4 {
        version.store(number, Ordering::Relaxed);
        let anew =
            server.get_with("/20000/a", "Accept-Encoding: gzip\r\nCache-Control: no-cache\r\n");
        assert_eq!(decoded(&anew, "gzip"), text(number, 20_000));
        for _ in 0..5 {
            let page = server.get_with("/20000/a", GZIP);
            assert_eq!(decoded(&page, "gzip"), text(number, 20_000));
        }
        let page = warm(&server, "/20000/a", GZIP);
        assert_eq!(decoded(&page, "gzip"), text(number, 20_000));
    }
}

#[test]
fn purge_removes_forms_too() {
    let (backend, version) = versions(TAGGED);
    let server = compressing(&backend, "");
    for number in 1..4 {
        version.store(number, Ordering::Relaxed);
        let _ = warm(&server, "/20000/a", GZIP);
        let page = server.get_with("/20000/a", GZIP);
        assert_eq!(decoded(&page, "gzip"), text(number, 20_000));
        purge(&server);
    }
    assert_eq!(backend.requests().len(), 3);
}

#[test]
fn codings_and_variants_have_forms_of_their_own() {
    let backend = Backend::replying(|seen| {
        let language = seen.field("X-Lang").unwrap_or("none").to_owned();
        let fields = "Cache-Control: max-age=600\r\nContent-Type: text/html\r\nVary: X-Lang\r\n";
        answer("200 OK", fields, &format!("{language} {}", text(1, 20_000)))
    });
    let more = "deflate.allowed-encodings = ( \"gzip\", \"br\", \"zstd\" )";
    let server = compressing(&backend, more);
    for round in 0..6 {
        for language in ["de", "fr"] {
            for coding in ["gzip", "br", "zstd"] {
                let fields = format!("X-Lang: {language}\r\nAccept-Encoding: {coding}\r\n");
                let page = server.get_with("/", &fields);
                let expected = format!("{language} {}", text(1, 20_000));
                assert_eq!(decoded(&page, coding), expected, "{round}");
            }
        }
    }
    let hits = form_hits(&server);
    assert!(hits >= 12, "{hits}");
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn responses_that_may_not_change_have_no_forms() {
    let (backend, _) = versions("Cache-Control: max-age=600, no-transform\r\nETag: \"1\"\r\n");
    let server = compressing(&backend, "");
    for _ in 0..6 {
        let page = server.get_with("/20000/a", GZIP);
        assert_eq!((page.field("Content-Encoding"), page.body.len()), (None, 20_000));
    }
    let (backend, _) = versions(TAGGED);
    let server = compressing(&backend, "");
    for _ in 0..6 {
        let fields = "Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n";
        let page = server.get_with("/20000/a", fields);
        assert_eq!((page.field("Content-Encoding"), page.body.len()), (None, 20_000));
    }
    assert_eq!(form_hits(&server), 0);
}

#[test]
fn body_that_a_script_changes_is_encoded_as_the_script_leaves_it() {
    const START: &str = "lighty.r.resp_body.set('for ' .. (lighty.r.req_header['X-Name'] or '') \
         .. string.rep(' all the same', 1000))";
    const CONTENT: &str = "local name = lighty.r.req_header['X-Name'] or '' \
         return function(piece) return piece and piece:gsub('version', 'for ' .. name) end";
    for (stage, script) in [("response-start", START), ("response-content", CONTENT)] {
        let (backend, _) = versions(TAGGED);
        let more = format!(
            "$HTTP[\"url\"] =^ \"/20000/\" {{ magnet.attract-{stage}-to = ( \"@DIR@/s.lua\" ) }}"
        );
        let server = setup(&backend, &more).file("../s.lua", script).start();
        for round in 0..6 {
            for name in ["one", "two"] {
                let page = server.get_with("/20000/a", &format!("X-Name: {name}\r\n{GZIP}"));
                let part = format!("for {name} ");
                assert!(decoded(&page, "gzip").contains(&part), "{stage} {round} {name}");
            }
        }
        assert_eq!(form_hits(&server), 0, "{stage}");
    }
}

#[test]
fn crowd_gets_one_form_while_it_is_made() {
    // Long enough to be made on a thread, in many turns.
    let (backend, _) = versions(TAGGED);
    let server = compressing(&backend, "deflate.compression-level = 9");
    let length = 1_000_000;
    let target = format!("/{length}/a");
    assert_eq!(decoded(&server.get_with(&target, GZIP), "gzip").len(), length);
    assert_eq!(decoded(&server.get_with(&target, GZIP), "gzip").len(), length);
    let expected = text(1, length);
    let encoded = |server: &Server| server.log().matches("gzip: on its way").count();
    assert!(wait_until(SOON, || encoded(&server) == 2), "{}", server.log());
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{GZIP}\r\n"));
    }
    // One of them leaves before its end; the others lose nothing.
    drop(clients.remove(0));
    for client in &mut clients {
        assert!(decoded(&client.response(), "gzip") == expected);
    }
    let stored = || server.log().matches("gzip: stored").count() >= clients.len();
    assert!(wait_until(SOON, stored) && encoded(&server) == 2, "{}", server.log());
}

#[test]
fn forms_outlive_a_restart_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, _) = versions(TAGGED);
    let store = format!(
        "cache.stores = ( \"files\" => ( \"path\" => \"{}/store\", \"size\" => \"64M\", \
         \"memory\" => \"4M\", \"min-free\" => \"0%\" ) )\ncache.store = \"files\"",
        dir.path().display()
    );
    let setup = || lighty!().in_front_of(&backend.name()).config(&store).config(DEFLATE);
    let mut server = setup().start();
    for target in ["/20000/a", "/3000000/b"] {
        let length = if target.starts_with("/2") { 20_000 } else { 3_000_000 };
        for _ in 0..4 {
            assert!(decoded(&server.get_with(target, GZIP), "gzip") == text(1, length));
        }
        let _ = warm(&server, target, GZIP);
        let _ = server.get_with(target, GZIP);
    }
    server.stop();
    let server = setup().start();
    for (target, length) in [("/20000/a", 20_000), ("/3000000/b", 3_000_000)] {
        let page = server.get_with(target, GZIP);
        assert!(page.field("Content-Length").is_some(), "{target}: encoded again");
        assert!(decoded(&page, "gzip") == text(1, length));
    }
    assert_eq!(form_hits(&server), 2);
    assert_eq!(backend.requests().len(), 2);
}
