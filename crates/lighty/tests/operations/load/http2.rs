//! Load over HTTP/2.

use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::Setup;
use lighty_testkit::tls::Authority;

use super::{load, measured, text};

const MANY: [&str; 6] = ["--http2", "-m", "10", "-c", "3", "-n"];

fn before(backend: &Backend) -> Setup {
    lighty!().config(&format!(
        "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )",
        backend.name()
    ))
}

#[test]
fn many_are_asked_at_a_time() {
    let server = lighty!().file("a.txt", "0123456789").file("large", vec![b'x'; 300_000]).start();
    for (target, length) in [("a.txt", 10), ("large", 300_000)] {
        let url = format!("http://{}/{target}", server.address());
        let more = [&MANY[..], &["300", "--checksum"]].concat();
        let (value, is_well) = measured(&[&[&*url], &more[..]].concat());
        assert!(is_well, "{value}");
        assert_eq!(
            (&value["body_bytes"], &value["responses"]),
            (&(300 * length).into(), &300.into())
        );
        assert_eq!(value["connections_made"], 3, "{value}");
    }
    let url = format!("http://{}/a.txt", server.address());
    let (value, is_well) = measured(&[&url, "--http2", "-n", "20", "--no-keep-alive"]);
    assert!(is_well && value["connections_made"] == 20, "{value}");
    let (value, is_well) =
        measured(&[&url, "--http2", "-m", "5", "--rate", "500", "-n", "100", "-c", "2"]);
    assert!(is_well && value["responses"] == 100, "{value}");
}

#[test]
fn over_tls_it_is_chosen_or_it_is_said_that_it_is_not() {
    let directory = tempfile::tempdir().expect("a directory");
    Authority::new(directory.path()).issue("one.pem", &["localhost"]);
    let pem = format!("ssl.pemfile = \"{}/one.pem\"", directory.path().display());
    let secure = |more: &str| {
        let config = format!("ssl.engine = \"enable\"\n{pem}\n{more}");
        lighty!().file("a.txt", "0123456789").config(&config).start()
    };
    let with = secure("");
    let url = format!("https://localhost:{}/a.txt", with.address().port());
    let (value, is_well) = measured(&[&[&*url, "-k"], &MANY[..], &["100"]].concat());
    assert!(is_well && value["responses"] == 100, "{value}");
    let without = secure("server.feature-flags = ( \"server.h2proto\" => \"disable\" )");
    let url = format!("https://localhost:{}/a.txt", without.address().port());
    let message = text(&load(&[&url, "-k", "--http2", "-n", "1"]));
    assert!(message.contains("1 handshakes failed: it does not choose HTTP/2"), "{message}");
}

#[test]
fn bodies_are_sent_within_windows() {
    let backend = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let server = before(&backend).start();
    let body = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(body.path(), vec![b'y'; 400_000]).expect("written");
    let path = body.path().to_str().expect("UTF-8");
    let url = format!("http://{}/", server.address());
    let more = ["60", "-X", "POST", "--body", path, "--expect-length", "6", "--checksum"];
    let (value, is_well) = measured(&[&[&*url], &MANY[..], &more].concat());
    assert!(is_well && value["responses"] == 60, "{value}");
}

#[test]
fn a_server_that_ends_connections_loses_nothing() {
    let server = lighty!().file("a.txt", "0123456789").config("http2.max-requests = 20").start();
    let url = format!("http://{}/a.txt", server.address());
    let (value, is_well) = measured(&[&[&*url], &MANY[..], &["200"]].concat());
    assert!(is_well && value["responses"] == 200, "{value}");
    assert!(value["connections_made"].as_u64() >= Some(10), "{value}");
}

#[test]
fn failures_over_http2_are_named() {
    let backend = Backend::replying(|_| {
        std::thread::sleep(Duration::from_secs(3));
        answer("200 OK", "", "late")
    });
    let server = before(&backend).start();
    let url = format!("http://{}/", server.address());
    let more = ["--http2", "-m", "2", "-c", "1", "-n", "2", "--timeout", "1"];
    let (value, is_well) = measured(&[&[&*url], &more[..]].concat());
    assert!(!is_well && value["failures"]["responses timed out"] == 2, "{value}");
    // A server that speaks another protocol.
    let other = Backend::replying(|_| answer("400 Bad", "", "what?"));
    let url = format!("http://{}/", other.name());
    let (value, is_well) = measured(&[&url, "--http2", "-n", "2", "-c", "1"]);
    assert!(!is_well && value["responses"] == 0, "{value}");
}

/// Server that responds to each frame of one kind with the given bytes, and to no other frame.
fn answering(
    kind: u8,
    with: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    first: &'static [u8],
) -> Backend {
    Backend::start(move |peer| {
        let preface_bytes = 24;
        if peer.read_exact(preface_bytes).is_none() || !peer.send(first) {
            return;
        }
        while let Some(head) = peer.read_exact(9) {
            let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
            peer.skip(length);
            if head[3] == kind && !peer.send(with(&head[5..])) {
                return;
            }
        }
    })
}

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const NO_STREAMS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];
const HEADERS: u8 = 1;

#[test]
fn a_server_that_takes_nothing_ends_the_run_with_its_name() {
    let refused = |stream: &[u8]| [&[0, 0, 4, 3, 0], stream, &[0, 0, 0, 7]].concat();
    let leaves = |_: &[u8]| [&[0, 0, 8, 7, 0, 0, 0, 0, 0][..], &[0; 8]].concat();
    for (server, message) in [
        (answering(HEADERS, refused, SETTINGS), "streams reset"),
        (answering(HEADERS, leaves, SETTINGS), "streams reset"),
        (answering(HEADERS, refused, NO_STREAMS), "responses timed out"),
    ] {
        let url = format!("http://{}/", server.name());
        let more = ["--http2", "-m", "4", "-c", "1", "-n", "6", "--timeout", "1"];
        let (value, is_well) = measured(&[&[&*url], &more[..]].concat());
        assert!(!is_well && value["failures"][message].as_u64() >= Some(1), "{message}: {value}");
        assert_eq!(value["responses"], 0, "{value}");
    }
}

#[test]
fn a_stream_that_is_refused_is_asked_again_three_times() {
    for (refusals, is_taken) in [(3, true), (4, false)] {
        let turn = std::sync::atomic::AtomicUsize::new(0);
        let server = answering(
            HEADERS,
            move |stream| match turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                at if at < refusals => [&[0, 0, 4, 3, 0], stream, &[0, 0, 0, 7]].concat(),
                // `:status: 200`, and nothing more.
                _ => [&[0, 0, 1, 1, 5], stream, &[0x88]].concat(),
            },
            SETTINGS,
        );
        let url = format!("http://{}/", server.name());
        let (value, is_well) = measured(&[&url, "--http2", "-n", "1", "-c", "1"]);
        assert_eq!((is_well, value["responses"] == 1), (is_taken, is_taken), "{value}");
    }
}

#[test]
fn a_request_that_cannot_be_sent_ends_by_itself() {
    let server = lighty!().file("a.txt", "0123456789").start();
    let url = format!("http://{}/a.txt", server.address());
    let message = text(&load(&[&url, "--http2", "-H", "Host: a b", "-n", "3", "-c", "1"]));
    assert!(message.contains("3 responses that are not HTTP: "), "{message}");
}
