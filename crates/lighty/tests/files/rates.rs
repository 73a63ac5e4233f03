//! Limits per client: request rate, number of connections, bandwidth.

use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;

#[test]
fn a_burst_passes_and_one_more_gets_retry_after() {
    let server = lighty!()
        .file("a", "page")
        .config("limit.requests = ( \"rate\" => 1, \"per\" => 30, \"burst\" => 3 )\nserver.max-worker = 2")
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/a").status, 200);
    }
    let response = server.get("/a");
    assert_eq!(response.status, 429);
    let after: u64 = response.field("Retry-After").expect("when").parse().expect("seconds");
    assert!((1..=30).contains(&after), "{after}");
}

#[test]
fn keys_are_counted_apart() {
    let server = lighty!()
        .file("a", "page")
        .file("../users", "kim:secret\nlee:secret\n")
        .config(
            r#"
            extforward.forwarder = ( "all" => "trust" )
            $HTTP["url"] =^ "/a" {
                limit.requests = ( "rate" => 1, "per" => 600, "key" => "header:X-Key" )
            }
            $HTTP["url"] =^ "/b" { limit.requests = ( "rate" => 1, "per" => 600 ) }
            auth.backend = "plain"
            auth.backend.plain.userfile = "@DIR@/users"
            auth.require = ( "/u" => ( "method" => "basic", "realm" => "r", "require" => "valid-user" ) )
            $HTTP["url"] =^ "/u" {
                limit.requests = ( "rate" => 1, "per" => 600, "key" => "user" )
            }
            "#,
        )
        .start();
    let status = |path: &str, line: &str| server.get_with(path, &format!("{line}\r\n")).status;
    assert_eq!((status("/a", "X-Key: 1"), status("/a", "X-Key: 1")), (200, 429));
    assert_eq!((status("/a", "X-Key: 2"), status("/a", "X-Key: 2")), (200, 429));
    assert_eq!((status("/a", "X-No: 1"), status("/a", "X-No: 2")), (200, 429), "the address");
    let from = |ip: &str| status("/b", &format!("X-Forwarded-For: {ip}"));
    assert_eq!((from("192.0.2.1"), from("192.0.2.2"), from("192.0.2.1")), (404, 404, 429));
    assert_eq!((from("2001:db8::1"), from("2001:db8::2:1")), (404, 429), "one network");
    let user = |credentials: &str| status("/u", &format!("Authorization: Basic {credentials}"));
    assert_eq!((user("a2ltOnNlY3JldA=="), user("a2ltOnNlY3JldA==")), (404, 429));
    assert_eq!(user("bGVlOnNlY3JldA=="), 404);
}

/// Client that does not read the response it is being sent.
fn busy(address: std::net::SocketAddr) -> Client {
    let mut client = Client::tcp_with_receive_buffer(address, 8 * 1024);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    client
}

#[test]
fn so_many_at_a_time() {
    for (line, status) in [
        ("limit.connections = ( \"max\" => 2 )", 429),
        ("evasive.max-conns-per-ip = 2", 403),
        ("evasive.max-conns-per-ip = 2\nevasive.silent = 1", 403),
        ("evasive.max-conns-per-ip = 2\nevasive.location = \"/busy\"\nevasive.silent = 1", 302),
    ] {
        let server = lighty!()
            .file("large", pattern(0, 24 << 20))
            .file("a", "x")
            .config(&format!("server.errorlog-level = \"info\"\n{line}"))
            .start();
        let first = busy(server.address());
        let second = busy(server.address());
        assert_eq!(server.get("/a").status, status, "{line}");
        let message = "more than evasive.max-conns-per-ip";
        if line.ends_with("per-ip = 2") {
            server.await_log(message);
        }
        assert!(!line.contains("silent") || !server.log().contains(message), "{line}");
        drop(first);
        let free = || server.get("/a").status == 200;
        assert!(lighty_testkit::wait_until(Duration::from_secs(30), free), "{line}");
        drop(second);
    }
}

#[test]
fn of_fifty_at_once_as_many_as_may_are_served() {
    const MAX: usize = 25;
    let server = lighty!()
        .file("large", pattern(0, 24 << 20))
        .config("evasive.max-conns-per-ip = 25\nserver.max-worker = 4")
        .start();
    let start = std::sync::Barrier::new(2 * MAX);
    let ask = || {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
        start.wait();
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = client.response_head().status;
        (client, status)
    };
    let requested: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2 * MAX).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a response")).collect()
    });
    let count = |wanted: u16| requested.iter().filter(|(_, status)| *status == wanted).count();
    assert_eq!((count(200), count(403)), (MAX, MAX));
    // Closing a connection frees its place for another client.
    let mut served: Vec<_> = requested.into_iter().filter(|(_, status)| *status == 200).collect();
    drop(served.pop());
    let free = || server.get("/none").status == 404;
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), free));
    let last = busy(server.address());
    assert_eq!(server.get("/none").status, 403);
    drop((served, last));
    assert!(lighty_testkit::wait_until(Duration::from_secs(60), free));
}

#[test]
fn all_connections_of_a_client_share_its_bandwidth() {
    let server = lighty!()
        .file("a", pattern(0, 200 * 1024))
        .config("limit.bandwidth = ( \"kbytes-per-second\" => 400 )")
        .start();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(server.get("/a").body.len(), 200 * 1024));
        }
    });
    // 600 KB, of which the bucket holds a quarter of a second's worth.
    assert!(start.elapsed() >= Duration::from_millis(1100), "{:?}", start.elapsed());
}
