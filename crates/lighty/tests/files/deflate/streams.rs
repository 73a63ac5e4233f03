//! Compression of streams: pieces, slow clients, early ends.

use std::io::{Read, Write};
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::{lighty, wait_until};

use super::{OneResponseBackend, accepting, plain, setup, text};

#[test]
fn events_arrive_as_they_happen() {
    for (path, content_type, coding, more) in [
        ("/events", "text/event-stream", "gzip", ""),
        ("/events", "text/event-stream; charset=utf-8", "br", ""),
        ("/events", "text/event-stream", "zstd", ""),
        ("/page", "text/html", "gzip", "deflate.sync-flush = \"enable\""),
        ("/page", "text/html", "br", "deflate.sync-flush = \"enable\""),
    ] {
        let backend = OneResponseBackend::start(move |_, stream| {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n"
            )
            .expect("sent");
            for number in 0..3 {
                write!(stream, "data: event {number} {}\n\n", pattern_text(3000)).expect("sent");
                // The next piece waits until the client has received this one.
                let mut go = [0];
                if stream.read_exact(&mut go).is_err() {
                    return;
                }
            }
        });
        let server = setup().config(more).config(&backend.route(path)).start();
        let mut client = server.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\nContent-Length: 3\r\n\r\n"
        ));
        let response = client.response_head();
        assert_eq!(response.field("Content-Encoding"), Some(coding));
        let mut seen = Vec::new();
        for number in 0..3 {
            let event = format!("event {number}");
            let all = format!("data: {event} {}\n\n", pattern_text(3000));
            while !String::from_utf8_lossy(&begun(coding, &seen)).contains(&all) {
                seen.extend(next_chunk(&mut client));
            }
            client.send("g");
        }
    }
}

/// Text that hardly compresses.
fn pattern_text(length: usize) -> String {
    pattern(0, length).iter().map(|byte| char::from(b' ' + byte % 90)).collect()
}

/// Decodes the beginning of an encoded body as far as possible.
fn begun(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
        _ => Box::new(brotli::Decompressor::new(bytes, 4096)),
    };
    let mut piece = [0];
    while let Ok(1) = reader.read(&mut piece) {
        out.push(piece[0]);
    }
    out
}

/// The next chunk of a body.
fn next_chunk(client: &mut Client) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.read_exact(1).expect("a size"));
    }
    let size = std::str::from_utf8(&line).expect("a size").trim_end();
    let size = usize::from_str_radix(size, 16).expect("a size");
    let mut chunk = client.read_exact(size + 2).expect("a chunk");
    chunk.truncate(size);
    chunk
}

#[test]
fn a_client_that_takes_nothing_costs_little() {
    let server = lighty!()
        .config("deflate.enabled = \"enable\"\ndeflate.allowed-encodings = ( \"gzip\" )")
        .start();
    // Incompressible data, so that the output is as long as the input.
    let noise: Vec<u8> = pattern(0, 16 << 20);
    std::fs::write(server.root("noise.bin"), noise).expect("a file");
    assert_eq!(server.get("/none").status, 404);
    let before = server.peak_resident_kib();
    let mut clients: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
            client.send("GET /noise.bin HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
            assert_eq!(client.response_head().field("Content-Encoding"), Some("gzip"));
            client
        })
        .collect();
    // Encoding stops soon, and uses no more processor time.
    let mut used = server.cpu_time();
    assert!(
        wait_until(Duration::from_secs(60), || {
            std::thread::sleep(Duration::from_millis(200));
            let now = server.cpu_time();
            let rests = now == used;
            used = now;
            rests
        }),
        "it goes on"
    );
    let grown = server.peak_resident_kib() - before;
    assert!(grown < 8 * 2048, "{grown} KiB for eight clients");
    clients.iter_mut().for_each(|client| {
        client.read_exact(100_000).expect("it goes on when asked");
    });
}

#[test]
fn unfiltered_file_is_sent_by_sendfile() {
    let length = 3 << 20;
    let server = setup()
        .config("server.network-backend = \"linux-sendfile\"\nserver.errorlog-level = \"info\"")
        .file("picture.jpg", pattern(0, length))
        .start();
    let response = accepting(&server, "/picture.jpg", "gzip");
    assert_eq!((response.body.len(), response.field("Content-Encoding")), (length, None));
    server.signal(rustix::process::Signal::USR2);
    server.await_log(&format!("({length} by sendfile)"));
}

#[test]
fn a_backend_that_breaks_off_is_noticed_behind_the_filter() {
    for framing in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let backend = OneResponseBackend::start(move |_, stream| {
            let begin = if framing.contains("chunked") { "4000\r\n" } else { "" };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{framing}\r\n{begin}{}",
                text(0x3000)
            )
            .expect("sent");
        });
        let server = setup().config(&backend.route("/cut")).start();
        let mut client = server.connect();
        client.send("GET /cut HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
        assert!(client.try_response(false).is_err(), "a torn answer must not look whole");
        server.await_log("ended early");
    }
}

#[test]
fn without_chunks_the_end_of_the_connection_is_the_end_of_the_body() {
    let server = setup().config("chunked.encoding = \"disable\"").start();
    let response = accepting(&server, "/large.html", "gzip");
    assert_eq!(
        (response.field("Transfer-Encoding"), response.field("Content-Length")),
        (None, None)
    );
    assert!(response.until_close && response.says_close());
    assert!(plain(&response) == text(700_000).as_bytes());
    let server = setup().start();
    let mut client = server.connect();
    client.send("GET /large.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    let old = client.response();
    assert!(old.until_close && old.field("Transfer-Encoding").is_none());
    assert!(plain(&old) == text(700_000).as_bytes());
}
