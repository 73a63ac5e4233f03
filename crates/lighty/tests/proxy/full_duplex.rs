//! Clients that send their whole body before they read a byte of a response that has begun long
//! before. A server that waits for either direction would wait for ever.

use std::io::Read;

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};

const UPLOAD: usize = 24 << 20;

/// More than the client's socket takes before it reads, less than the kernel buffers on the way
/// from the backend.
const EARLY: usize = 5 << 20;

const DEFLATE: &str = "deflate.mimetypes = ( \"text/\" )
    deflate.allowed-encodings = ( \"gzip\" )";

const SLOW: &str = "connection.kbytes-per-second = 4096";

/// Program that responds before it reads, and reports at the end if it got the whole body.
const PROGRAM: &str = "import os, sys
os.write(1, b'Content-Type: text/plain\\n\\n')
early, got = os.urandom(1 << 20), 0
for _ in range(5):
    sys.stdout.buffer.write(early)
sys.stdout.buffer.flush()
while piece := os.read(0, 1 << 20):
    got += len(piece)
os.write(1, b'ok' if got == 24 << 20 else b'no')
";

/// Sends everything, then reads.
fn upload(server: &Server, path: &str, fields: &str) -> Vec<u8> {
    let mut client = Client::tcp_with_receive_buffer(server.address(), 16 << 10);
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {UPLOAD}\r\n\r\n"
    ));
    let piece = vec![b'x'; 1 << 20];
    (0..UPLOAD >> 20).for_each(|_| client.send(&piece));
    let got = client.response();
    assert_eq!(got.status, 200);
    if got.field("Content-Encoding").is_none() {
        return got.body;
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&got.body[..]).read_to_end(&mut plain).expect("gzip");
    plain
}

fn check(server: &Server, path: &str, fields: &str) {
    let got = upload(server, path, fields);
    assert!(got.len() == EARLY + 2 && got.ends_with(b"ok"), "{} bytes", got.len());
}

fn unlimited() -> Setup {
    lighty!().config("server.max-request-size = 0")
}

fn in_front_of_backend(lines: &str) -> (Backend, Server) {
    let backend = Backend::start(|peer| {
        if peer.head().is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length:";
        peer.send(format!("{head} {}\r\n\r\n", EARLY + 2));
        peer.send(pattern(0, EARLY));
        let got = peer.skip(UPLOAD as u64);
        peer.send(if got == UPLOAD as u64 { "ok" } else { "no" });
    });
    let server = unlimited().in_front_of(&backend.name()).config(lines).start();
    (backend, server)
}

/// Program that echoes its input.
const ECHO: &str = "printf 'Content-Type: text/plain\\n\\n'; exec cat";

/// Program that reads nothing.
const DEAF: &str = "import os, sys
sys.stdout.buffer.write(b'Content-Type: text/plain\\n\\n' + os.urandom(5 << 20) + b'ok')
";

fn with_program(lines: &str) -> Server {
    let setup = unlimited().file("early.py", PROGRAM).file("echo.sh", ECHO).file("deaf.py", DEAF);
    let setup = setup.config("cgi.assign = ( \".sh\" => \"/bin/sh\" )");
    setup.config("cgi.assign += ( \".py\" => \"/usr/bin/python3\" )").config(lines).start()
}

#[test]
fn a_backend() {
    let (_backend, server) = in_front_of_backend("");
    check(&server, "/x", "");
}

#[test]
fn a_backend_behind_a_filter() {
    let (_backend, server) = in_front_of_backend(DEFLATE);
    check(&server, "/x", "Accept-Encoding: gzip\r\n");
}

#[test]
fn a_backend_at_a_limited_rate() {
    let (_backend, server) = in_front_of_backend(SLOW);
    check(&server, "/x", "");
}

#[test]
fn a_program() {
    check(&with_program(""), "/early.py", "");
}

#[test]
fn a_program_that_sends_back_what_it_gets() {
    for lines in ["", DEFLATE] {
        let got = upload(&with_program(lines), "/echo.sh", "Accept-Encoding: gzip\r\n");
        assert!(got.len() == UPLOAD && got.iter().all(|byte| *byte == b'x'), "{} bytes", got.len());
    }
}

#[test]
fn a_program_that_reads_nothing() {
    for lines in ["", DEFLATE, "server.stream-response-body = 1"] {
        check(&with_program(lines), "/deaf.py", "Accept-Encoding: gzip\r\n");
    }
}

#[test]
fn a_program_behind_a_filter() {
    check(&with_program(DEFLATE), "/early.py", "Accept-Encoding: gzip\r\n");
}

#[test]
fn a_program_at_a_limited_rate() {
    check(&with_program(SLOW), "/early.py", "");
}

#[test]
fn a_file() {
    let server = unlimited().file("big.bin", pattern(0, EARLY + 2)).start();
    assert_eq!(upload(&server, "/big.bin", "").len(), EARLY + 2);
}

#[test]
fn a_client_that_never_reads_is_cut() {
    let (_backend, server) =
        in_front_of_backend("server.max-write-idle = 2\nserver.errorlog-level = \"info\"");
    let mut client = Client::tcp_with_receive_buffer(server.address(), 16 << 10);
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    // It may be cut before it has sent everything.
    let _ = (0..UPLOAD >> 20).try_for_each(|_| client.try_send(&piece));
    server.await_log("server.max-write-idle");
}

#[test]
fn a_program_that_fills_the_spool_is_cut() {
    // The smallest allowed spool; `cat` sends back more.
    let server = with_program(
        "server.max-spool-size = 65536
         server.max-write-idle = 2
         server.errorlog-level = \"info\"",
    );
    let mut client = Client::tcp_with_receive_buffer(server.address(), 16 << 10);
    client.send(format!("POST /echo.sh HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n"));
    let piece = vec![b'x'; 1 << 20];
    let _ = (0..UPLOAD >> 20).try_for_each(|_| client.try_send(&piece));
    server.await_log("server.max-write-idle");
}
