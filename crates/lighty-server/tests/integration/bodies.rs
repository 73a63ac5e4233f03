//! Request bodies as a handler sees them: a module of this test reads them and reports the result.

use std::net::SocketAddr;

use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Settings};
use lighty_http::Status;
use lighty_testkit::client::Client;

use crate::harness;

/// Responds with the length and the byte sum of the body; to `/early` without reading it.
struct Adder;

impl Module for Adder {
    fn name(&self) -> &'static str {
        "mod_adder"
    }

    fn traits(&self) -> Traits {
        Hooks { physical: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ex.request.path == b"/early" {
            ex.response.set_text(Status::OK, "text/plain", "early");
            return Step::Answered;
        }
        Step::Wait(Box::pin(add(ex)))
    }
}

async fn add(ex: &mut Exchange) -> Step<'static> {
    let (mut length, mut sum) = (0, 0u64);
    while let Some(piece) = ex.body.next().await {
        match piece {
            Ok(piece) => {
                length += piece.len();
                sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            Err(fault) => {
                ex.fail_saying(Fault::of_body(fault), &format!("{fault:?}"));
                return Step::Answered;
            }
        }
    }
    ex.response.set_text(Status::OK, "text/plain", format!("{length} {sum}"));
    Step::Answered
}

/// Starts a worker with only that module; it ends with the process.
fn start(settings: &str) -> SocketAddr {
    harness::start_one(Adder, settings)
}

fn expected(body: &[u8]) -> String {
    format!("{} {}", body.len(), body.iter().map(|byte| u64::from(*byte)).sum::<u64>())
}

#[test]
fn a_body_of_known_length_arrives_whole_however_it_is_cut() {
    let mut client = Client::tcp(start(""));
    for (size, piece) in [(0, 1), (1, 1), (5, 2), (70_000, 999), (3_000_000, 100_000)] {
        let body: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let head = format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n");
        client.send(&head);
        client.send_in_pieces(&body, piece);
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(String::from_utf8_lossy(&response.body), expected(&body));
    }
}

#[test]
fn a_chunked_body_arrives_whole_and_the_next_request_is_found_behind_it() {
    let mut client = Client::tcp(start(""));
    let wire = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                3\r\nabc\r\nA;ext=1\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n\
                POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nz";
    for piece in [1, 2, 7, wire.len()] {
        client.send_in_pieces(wire.as_bytes(), piece);
        assert_eq!(client.response().body, expected(b"abc0123456789").as_bytes());
        assert_eq!(client.response().body, expected(b"z").as_bytes());
    }
}

#[test]
fn continue_is_said_when_the_body_is_wanted_and_not_before() {
    let address = start("");
    let mut client = Client::tcp(address);
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    client.send(head("/a"));
    assert_eq!(client.interim(), 100);
    client.send("abc");
    assert_eq!(client.response().body, expected(b"abc").as_bytes());
    // The server cannot know if the client will send the body, so it closes the connection.
    client.send(head("/early"));
    let response = client.response();
    assert_eq!((response.status, &response.body[..]), (200, &b"early"[..]));
    client.expect_end();
}

#[test]
fn bad_chunks_are_refused_and_end_the_connection() {
    let address = start("");
    for bad in ["x\r\n", "3\nabc\r\n", "3\r\nabcd\r\n", "fffffffffffffffff\r\n", "-1\r\n"] {
        let mut client = Client::tcp(address);
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(bad);
        assert_eq!(client.response().status, 400, "{bad:?}");
        client.expect_end();
    }
}

#[test]
fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let address = start("server.max-request-size = 1\n");
    let chunked = "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (size, status) in [(1024, 200), (1025, 413)] {
        let body = vec![b'x'; size];
        let mut client = Client::tcp(address);
        client.send(format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n"));
        client.send(&body);
        assert_eq!(client.response().status, status, "{size} announced");
        let mut client = Client::tcp(address);
        client.send(format!("{chunked}{size:x}\r\n"));
        client.send(&body);
        client.send("\r\n0\r\n\r\n");
        assert_eq!(client.response().status, status, "{size} in a chunk");
    }
    for size in ["401", "ffffffffffffffff"] {
        let mut client = Client::tcp(address);
        client.send(format!("{chunked}{size}\r\n"));
        assert_eq!(client.response().status, 413, "a chunk that only announces {size}");
        client.expect_end();
        let mut client = Client::tcp(address);
        client.send(format!("{chunked}1\r\nx\r\n{size}\r\n"));
        assert_eq!(client.response().status, 413, "the same behind another chunk");
    }
    let mut client = Client::tcp(address);
    client.send(format!("{chunked}1\r\nx\r\n3ff\r\n"));
    client.send(vec![b'x'; 1023]);
    client.send("\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 200, "1024 in two chunks");
}

#[test]
fn a_body_that_stops_arriving_is_answered_408() {
    let mut client = Client::tcp(start("server.max-read-idle = 1\n"));
    client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.response().status, 408);
    client.expect_end();
}

#[test]
fn a_short_unread_body_is_dropped_and_a_long_one_ends_the_connection() {
    let address = start("");
    let mut client = Client::tcp(address);
    client.send("POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcde");
    assert_eq!(client.response().body, b"early");
    client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nz");
    assert_eq!(client.response().body, expected(b"z").as_bytes());
    for (length, closes) in [(64 * 1024, false), (64 * 1024 + 1, true)] {
        let mut client = Client::tcp(address);
        client.send(format!("POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"));
        let response = client.response_to_head();
        assert_eq!(response.status, 200);
        assert_eq!(response.field("Connection").is_some(), closes, "{length}");
    }
}

#[test]
fn a_short_unread_body_in_chunks_is_dropped_and_a_long_one_ends_the_connection() {
    let address = start("");
    let early = "POST /early HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let next = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nz";
    for first in [0, 5] {
        let mut client = Client::tcp(address);
        let rest = "5\r\nabcde\r\n0\r\nTrailer: x\r\n\r\n";
        client.send(early);
        client.send(&rest[..first]);
        let response = client.response();
        assert_eq!((&response.body[..], response.field("Connection")), (&b"early"[..], None));
        client.send(&rest[first..]);
        client.send(next);
        assert_eq!(client.response().body, expected(b"z").as_bytes());
    }
    for (length, goes_on) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let mut client = Client::tcp(address);
        client.send(format!("{early}{length:x}\r\n"));
        assert_eq!(client.response().body, b"early");
        client.send(vec![b'x'; length]);
        client.send("\r\n0\r\n\r\n");
        client.send(next);
        assert_eq!(client.try_response(false).is_ok(), goes_on, "{length}");
    }
    let mut client = Client::tcp(address);
    client.send(early);
    assert_eq!(client.response().body, b"early");
    client.send(format!("x\r\n{next}"));
    client.expect_end();
}
