//! Memory of encoders: its amount, its limit, and behaviour when it is exhausted.

use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

use super::{accepting, setup, text};

fn with_memory(kib: u32) -> Server {
    setup()
        .config(&format!("deflate.max-memory = {kib}\ndeflate.allowed-encodings = ( \"gzip\" )"))
        .file("noise.html", pattern(0, 16 << 20))
        .start()
}

/// A client that reads no more than the head of a long response, and the response's coding.
fn start_reading(server: &Server) -> (Client, Option<String>) {
    let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
    client.send("GET /noise.html HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
    let coding = client.response_head().field("Content-Encoding").map(str::to_owned);
    (client, coding)
}

#[test]
fn memory_of_encoders_is_limited() {
    // gzip: 512 KB, an input block of 256 and an output block of 64. One encoder fits, two do not.
    let server = with_memory(1663);
    let start = || start_reading(&server);
    let (first, coding) = start();
    assert_eq!(coding.as_deref(), Some("gzip"));
    let (_second, coding) = start();
    assert_eq!(coding, None, "there is no room for another");
    let short = accepting(&server, "/small.html", "gzip");
    assert_eq!(short.field("Content-Encoding"), Some("gzip"), "what is short needs none");
    first.reset();
    assert!(wait_until(Duration::from_secs(60), || start().1.is_some()), "the room is free again");
    let server = with_memory(1664);
    let start = || start_reading(&server);
    let clients = [start(), start(), start()];
    let codings: Vec<bool> = clients.iter().map(|(_, coding)| coding.is_some()).collect();
    assert_eq!(codings, [true, true, false]);
}

#[test]
fn the_next_body_has_the_memory_of_the_last() {
    const BODIES: u64 = 40;
    let server = setup().file("page.html", text(100 << 10)).start();
    for coding in ["br", "gzip", "zstd"] {
        let fetch = || {
            let response = accepting(&server, "/page.html", coding);
            assert_eq!(response.field("Content-Encoding"), Some(coding));
        };
        (0..BODIES / 2).for_each(|_| fetch());
        let before = server.minor_faults();
        (0..BODIES).for_each(|_| fetch());
        let pages = (server.minor_faults() - before) / BODIES;
        // If freed and allocated each time, br's tables would take more than 300.
        assert!(pages < 150, "{coding}: the kernel gave {pages} pages for each body");
    }
}

#[test]
fn memory_of_encoders_is_given_back() {
    let server = setup()
        .config("deflate.allowed-encodings = ( \"br\" )")
        .file("noise.html", pattern(0, 16 << 20))
        .start();
    assert_eq!(server.get("/none").status, 404);
    let before = server.own_kib();
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
            client.send("GET /noise.html HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\n\r\n");
            assert_eq!(client.response_head().field("Content-Encoding"), Some("br"));
            client
        })
        .collect();
    let least = before + 20 * 2048;
    assert!(wait_until(Duration::from_secs(60), || server.own_kib() > least), "tables");
    clients.into_iter().for_each(Client::reset);
    let given_back = wait_until(Duration::from_secs(60), || {
        accepting(&server, "/small.html", "br");
        server.own_kib() < before + 16 * 1024
    });
    assert!(given_back, "{before} KiB before, {} after", server.own_kib());
}

#[test]
fn a_busy_machine_compresses_nothing() {
    let server = setup().config("deflate.max-loadavg = \"0.0\"").start();
    let response = accepting(&server, "/middle.html", "gzip");
    assert_eq!(response.field("Content-Encoding"), None);
    assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
    let server = setup().config("deflate.max-loadavg = \"100000\"").start();
    assert!(accepting(&server, "/middle.html", "gzip").field("Content-Encoding").is_some());
}
