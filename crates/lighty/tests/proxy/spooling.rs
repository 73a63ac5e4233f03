//! Bodies buffered on disk: requests before they are sent to a backend, and responses for clients
//! that read slowly.

use std::ffi::CStr;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::content::{assert_pattern, chunked, pattern};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::{lighty, wait_until};

const MEGABYTE: usize = 1 << 20;

fn proxied(setup: Setup, backend: &str, lines: &str) -> Server {
    let spool = setup.directory().join("spool");
    if !spool.exists() {
        std::fs::create_dir(&spool).expect("a directory");
    }
    setup
        .in_front_of(backend)
        .config("server.upload-dirs = ( \"@DIR@/spool\" )")
        .config(lines)
        .start()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("the directory").next().is_none()
}

/// File system of this size for the spool, mounted until it is dropped.
fn spool_disk(setup: &Setup, options: &CStr) -> Option<SmallDisk> {
    let path = setup.directory().join("spool");
    std::fs::create_dir(&path).expect("a directory");
    SmallDisk::mount(&path, options)
}

#[test]
fn a_body_of_any_length_arrives_whole_and_with_its_length() {
    let backend = Backend::replying(|seen| {
        let length = seen.field("Content-Length").unwrap_or("none");
        answer("200 OK", "", &format!("{length} {}", seen.body.len()))
    });
    let server = proxied(lighty!(), &backend.name(), "server.stream-request-body = 0");
    let mut client = server.connect();
    for length in [0, 1, 65_535, 65_536, 65_537, 3 * MEGABYTE + 1] {
        let content = pattern(7, length);
        client
            .send(format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&content);
        assert_eq!(client.response().text(), format!("{length} {length}"));
        client.send("POST /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(chunked(&content, 70_000));
        assert_eq!(client.response().text(), format!("{length} {length}"));
        for seen in backend.requests().iter().rev().take(2) {
            assert!(seen.body == content, "{length} bytes, {}", seen.target());
        }
    }
    assert!(is_empty(&server.directory().join("spool")));
}

#[test]
fn no_backend_gets_a_request_before_it_is_whole() {
    let backend = Backend::replying(|_| answer("200 OK", "", "heard"));
    let server = proxied(lighty!(), &backend.name(), "server.stream-request-body = 0");
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(pattern(0, 199_999));
    assert!(client.stays_silent(Duration::from_millis(200)));
    assert_eq!(backend.opened(), 0);
    client.send("x");
    assert_eq!(client.response().text(), "heard");
}

#[test]
fn a_stored_body_is_sent_again_to_another_backend() {
    // The first backend hears all of a request and closes.
    let closes = Backend::replying(|_| Vec::new());
    let answers = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let setup = lighty!();
    std::fs::create_dir(setup.directory().join("spool")).expect("a directory");
    let config = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.balancer = \"static\"\n\
         proxy-core.backends = ( \"{}\", \"{}\" )\nserver.upload-dirs = ( \"@DIR@/spool\" )\n\
         server.stream-request-body = 0",
        closes.name(),
        answers.name()
    );
    let server = setup.config(&config).start();
    let mut client = server.connect();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(pattern(3, 1_000_000));
    assert_eq!(client.response().text(), "1000000");
    let heard = closes.requests();
    assert!(heard.len() == 1 && heard[0].body == answers.requests()[0].body);
    assert_pattern(&heard[0].body, 3, "the stored body");
}

#[test]
fn a_body_that_finds_no_room_is_refused() {
    let backend = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let setup = lighty!();
    let Some(_disk) = spool_disk(&setup, c"size=2m") else { return };
    let lines = "server.stream-request-body = 0\nserver.max-request-size = 6000";
    let server = proxied(setup, &backend.name(), lines);
    let post = |length: usize| {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        // The response may come before the end.
        let _ = client.try_send(pattern(0, length));
        client.response()
    };
    assert_eq!(post(MEGABYTE).text(), MEGABYTE.to_string());
    assert_eq!(post(3 * MEGABYTE).status, 500);
    server.await_log("server.upload-dirs");
    assert_eq!(post(7_000 * 1024).status, 413);
    assert_eq!(post(MEGABYTE).text(), MEGABYTE.to_string(), "the disk is free again");
}

/// Backend that sends a response of this many bytes as fast as it can, and then notes its end.
fn fast_backend(length: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("its address").to_string();
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).expect("a request") > 0);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("the client waits");
        stream.write_all(&pattern(11, length)).expect("the client waits");
    });
    (name, sending)
}

fn slow_client(server: &Server) -> Client {
    let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    client
}

#[test]
fn a_backend_is_free_while_a_slow_client_reads() {
    const LENGTH: usize = 24 * MEGABYTE;
    let (backend, sending) = fast_backend(LENGTH);
    let server = proxied(lighty!(), &backend, "server.stream-response-body = 0");
    let mut client = slow_client(&server);
    assert!(wait_until(Duration::from_secs(60), || sending.is_finished()));
    sending.join().expect("the backend");
    let (body, _) = client.read_to_end();
    assert_eq!(body.len(), LENGTH);
    assert_pattern(&body, 11, "the whole response");
    assert!(is_empty(&server.directory().join("spool")));
    assert!(server.peak_resident_kib() < 64 * 1024, "{}", server.peak_resident_kib());
}

#[test]
fn with_a_full_disk_the_backend_waits_and_nothing_is_lost() {
    const LENGTH: usize = 24 * MEGABYTE;
    let (backend, sending) = fast_backend(LENGTH);
    let setup = lighty!();
    let Some(_disk) = spool_disk(&setup, c"size=2m") else { return };
    let server = proxied(setup, &backend, "server.stream-response-body = 0");
    let mut client = slow_client(&server);
    server.await_log("waits for its client");
    let (body, _) = client.read_to_end();
    assert_eq!(body.len(), LENGTH);
    assert_pattern(&body, 11, "the whole response");
    sending.join().expect("the backend");
    assert!(is_empty(&server.directory().join("spool")));
}

#[test]
fn spooled_bytes_on_disk_are_limited() {
    const LENGTH: usize = 24 * MEGABYTE;
    let (backend, sending) = fast_backend(LENGTH);
    let lines = "server.stream-response-body = 0\nserver.max-spool-size = 1048576";
    let server = proxied(lighty!(), &backend, lines);
    let mut client = slow_client(&server);
    server.await_log("1048576 bytes are spooled");
    let (body, _) = client.read_to_end();
    assert_eq!(body.len(), LENGTH);
    assert_pattern(&body, 11, "the whole response");
    sending.join().expect("the backend");
}

#[test]
fn a_response_that_is_cut_never_ends_cleanly() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("its address").to_string();
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).expect("a request") > 0);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n";
        stream.write_all(head.as_bytes()).expect("the client waits");
        stream.write_all(&pattern(0, 700_000)).expect("the client waits");
    });
    let server = proxied(lighty!(), &name, "server.stream-response-body = 0");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err(), "a cut body has no end");
    sending.join().expect("the backend");
    server.await_log("ended early");
}

#[test]
fn a_body_may_be_a_while_behind_its_head() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("its address").to_string();
    let server = proxied(lighty!(), &name, "");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut request = [0; 4096];
    assert!(stream.read(&mut request).expect("a request") > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n").expect("a client");
    assert_eq!(client.response_head().status, 200);
    assert!(client.stays_silent(Duration::from_millis(600)));
    stream.write_all(b"late").expect("a client");
    assert_eq!(client.read_exact(4).expect("the body"), b"late");
}

#[test]
fn events_arrive_as_they_are_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let name = listener.local_addr().expect("its address").to_string();
    let server = proxied(lighty!(), &name, "server.stream-response-body = 0");
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut request = [0; 4096];
    assert!(stream.read(&mut request).expect("a request") > 0);
    stream.write_all(b"HTTP/1.0 200 OK\r\n\r\none").expect("the client waits");
    assert_eq!(client.response_head().status, 200);
    assert_eq!(client.read_exact(3).expect("an event"), b"one");
    stream.write_all(b"two").expect("the client waits");
    assert_eq!(client.read_exact(3).expect("an event"), b"two");
    drop(stream);
    let _ = client.expect_end();
}

#[test]
fn programs_that_want_a_length_first_are_given_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let config = format!(
        "scgi.server = ( \"/app\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {}, \
         \"check-local\" => \"disable\" ) ) )",
        listener.local_addr().expect("its address").port()
    );
    let server = lighty!().config(&config).start();
    let content = pattern(5, 100_000);
    let program = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        let is_whole = |request: &[u8]| {
            let end = request.windows(2).position(|bytes| bytes == b"\0,");
            end.is_some_and(|end| request.len() >= end + 2 + 100_000)
        };
        while !is_whole(&request) {
            let mut piece = [0; 64 * 1024];
            let count = stream.read(&mut piece).expect("a request");
            assert!(count > 0, "the request ends early");
            request.extend_from_slice(&piece[..count]);
        }
        stream.write_all(b"Status: 200 OK\r\n\r\n").expect("a response");
        request
    });
    let mut client = server.connect();
    client.send("POST /app HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked(&content, 30_000));
    assert_eq!(client.response().status, 200);
    let request = program.join().expect("the program");
    let has = |part: &[u8]| request.windows(part.len()).any(|bytes| bytes == part);
    assert!(has(b":CONTENT_LENGTH\x00100000\0"), "its length comes first");
    assert!(request.ends_with(&content));
}

/// Server with a program that writes this many bytes as fast as it can, and then notes its end.
fn with_fast_program(lines: &str, length: usize) -> Server {
    let program =
        format!("printf 'Content-Type: a/b\\n\\n'; head -c {length} /dev/zero; touch done");
    let setup = lighty!().config("cgi.assign = ( \".sh\" => \"/bin/sh\" )");
    let setup = setup.config("server.upload-dirs = ( \"@DIR@/spool\" )").file("fast.sh", &program);
    std::fs::create_dir(setup.directory().join("spool")).expect("a directory");
    setup.config(lines).start()
}

#[test]
fn a_program_is_done_while_a_slow_client_reads() {
    const LENGTH: usize = 24 * MEGABYTE;
    let ask = |server: &Server| {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
        client.send("GET /fast.sh HTTP/1.0\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_head().status, 200);
        client
    };
    let server = with_fast_program("server.stream-response-body = 0", LENGTH);
    let mut client = ask(&server);
    assert!(wait_until(Duration::from_secs(60), || server.root("done").exists()));
    let (body, _) = client.read_to_end();
    assert_eq!(body.len(), LENGTH);
    assert!(is_empty(&server.directory().join("spool")));
    assert!(server.peak_resident_kib() < 64 * 1024, "{}", server.peak_resident_kib());
    let server = with_fast_program("server.stream-response-body = 1", LENGTH);
    let mut client = ask(&server);
    assert!(!wait_until(Duration::from_millis(700), || server.root("done").exists()));
    assert_eq!(client.read_to_end().0.len(), LENGTH);
    assert!(wait_until(Duration::from_secs(60), || server.root("done").exists()));
}

#[test]
fn incomplete_output_of_a_program_is_no_whole_response() {
    let server = lighty!()
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\nserver.stream-response-body = 0")
        .file("torn.sh", "printf 'Content-Length: 100\\n\\nhello'")
        .start();
    let mut client = server.connect();
    client.send("GET /torn.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    server.await_log("before its Content-Length was reached");
}
