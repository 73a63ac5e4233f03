//! nginx and Apache behind the server.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lighty_testkit::content::{chunked, pattern};
use lighty_testkit::lighty;
use lighty_testkit::real::Listen;
use lighty_testkit::real::apache::Apache;
use lighty_testkit::real::nginx::Nginx;
use lighty_testkit::server::{Server, Setup, write_file};
use tempfile::TempDir;

fn setup(listen: &Listen) -> Setup {
    lighty!()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", listen.backend()))
        .config("proxy-core.max-pool-size = 4")
}

/// Files for a backend to serve; the server's own document root stays empty.
fn files() -> TempDir {
    let root = TempDir::with_prefix("lighty-files-").expect("a directory");
    // The backend's user must get there.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path(), open).expect("permissions");
    write_file(&root.path().join("small.txt"), "a small file\n");
    write_file(&root.path().join("text.txt"), "compressible ".repeat(10_000));
    write_file(&root.path().join("large.bin"), pattern(0, 5 << 20));
    root
}

/// Runs `test` with nginx and with Apache behind the server.
fn for_each(test: impl Fn(&str, Server)) {
    let root = files();
    let gzip =
        "gzip on; gzip_vary on; gzip_types text/plain; gzip_proxied any; gzip_min_length 100;";
    if let Some(nginx) = Nginx::start(root.path(), gzip) {
        test("nginx", setup(nginx.listen()).start());
    }
    if let Some(apache) = Apache::start(root.path()) {
        test("Apache", setup(apache.listen()).start());
    }
}

#[test]
fn files_ranges_and_validators_pass() {
    for_each(|name, server| {
        let small = server.get("/small.txt");
        assert_eq!((small.status, small.text()), (200, "a small file\n"), "{name}: {small:?}");
        assert_eq!(small.field("Content-Length"), Some("13"), "{name}");
        let tag = small.field("ETag").expect("a tag").to_owned();
        let unchanged = server.get_with("/small.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some(&*tag)), "{name}");
        let part = server.get_with("/large.bin", "Range: bytes=1000000-3000000\r\n");
        assert_eq!(part.status, 206, "{name}");
        assert!(part.body == pattern(1_000_000, 2_000_001), "{name}");
        assert_eq!(
            part.field("Content-Range"),
            Some("bytes 1000000-3000000/5242880"),
            "{name}: {part:?}"
        );
        let beyond = server.get_with("/small.txt", "Range: bytes=100-200\r\n");
        assert_eq!(beyond.status, 416, "{name}");
        assert!(server.get("/large.bin").body == pattern(0, 5 << 20), "{name}");
        assert_eq!(server.get("/absent").status, 404, "{name}");
        let mut client = server.connect();
        client.send("HEAD /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.response_to_head();
        assert_eq!(head.field("Content-Length"), Some("5242880"), "{name}: {head:?}");
        client.send("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "a small file\n", "{name}");
    });
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("gzip reads");
    let output = child.wait_with_output().expect("gzip ends");
    assert!(output.status.success(), "gzip refuses {} bytes", bytes.len());
    output.stdout
}

#[test]
fn compressed_and_chunked_answers_pass_as_they_are() {
    for_each(|name, server| {
        let mut client = server.connect();
        for _ in 0..3 {
            client
                .send("GET /text.txt HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
            let response = client.response();
            assert_eq!(response.field("Content-Encoding"), Some("gzip"), "{name}: {response:?}");
            assert_eq!(response.all("Vary").count(), 1, "{name}: {response:?}");
            assert_eq!(gunzip(&response.body), "compressible ".repeat(10_000).as_bytes(), "{name}");
        }
        client.send("GET /text.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let plain = client.response();
        assert_eq!((plain.field("Content-Encoding"), plain.body.len()), (None, 130_000), "{name}");
        // A client of 1.0 knows no chunks.
        let mut old = server.connect();
        old.send("GET /text.txt HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
        assert_eq!(old.response().status, 200, "{name}");
    });
}

/// Numbers of the connections that nginx responded on.
fn connections(nginx: &Nginx) -> BTreeSet<String> {
    let log = nginx.access_log();
    log.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn one_connection_carries_many_requests() {
    let root = files();
    let Some(nginx) = Nginx::start(root.path(), "") else { return };
    let server = setup(nginx.listen()).start();
    let mut client = server.connect();
    for _ in 0..300 {
        client.send("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "a small file\n");
    }
    assert_eq!(connections(&nginx).len(), 1);
}

#[test]
fn connections_that_the_backend_ends_cost_no_request() {
    let root = files();
    let lines = "keepalive_requests 7; location /sink { return 200 taken; }";
    let Some(nginx) = Nginx::start(root.path(), lines) else { return };
    let server = setup(nginx.listen()).start();
    let mut client = server.connect();
    for _ in 0..50 {
        client.send("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 200, "{}", server.log());
        client.send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "taken", "{}", server.log());
    }
    assert!(connections(&nginx).len() >= 100 / 7);
}

/// Non-idempotent requests take no connection that is about to time out; all other requests are
/// retried.
#[test]
fn connections_that_end_while_they_rest_cost_no_request() {
    let root = files();
    let lines = "keepalive_timeout 1s; location /sink { return 200 taken; }";
    let Some(nginx) = Nginx::start(root.path(), lines) else { return };
    let server = setup(nginx.listen()).start();
    for wait_ms in [0, 600, 900, 1000, 1100, 1500] {
        std::thread::sleep(Duration::from_millis(wait_ms));
        let mut client = server.connect();
        client.send("POST /sink HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "taken", "after {wait_ms} ms: {}", server.log());
    }
}

/// Requests that arrive at the very moment when nginx closes their connection.
#[test]
fn requests_at_the_edge_of_a_keepalive_timeout_are_answered() {
    let root = files();
    let Some(nginx) = Nginx::start(root.path(), "keepalive_timeout 50ms;") else { return };
    let server = setup(nginx.listen()).start();
    let mut client = server.connect();
    for index in 0..150_u64 {
        client.send("GET /small.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "a small file\n", "{index}: {}", server.log());
        std::thread::sleep(Duration::from_micros(49_000 + index * 20));
    }
}

#[test]
fn a_large_post_is_taken_by_dav() {
    let root = files();
    let store = root.path().join("store");
    std::fs::create_dir(&store).expect("a directory");
    let Some(nginx) = Nginx::start(root.path(), "location /store { dav_methods PUT; }") else {
        return;
    };
    let server = setup(nginx.listen()).start();
    let body = pattern(9, 4 << 20);
    let mut client = server.connect();
    client.send("PUT /store/length HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\n");
    client.send(&body);
    assert_eq!(client.response().status, 201, "{}", server.log());
    client.send("PUT /store/chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunked(&body, 100_000));
    assert_eq!(client.response().status, 201, "{}", server.log());
    assert_same(&store, &body);
}

fn assert_same(store: &Path, body: &[u8]) {
    for name in ["length", "chunked"] {
        let stored = std::fs::read(store.join(name)).expect("the stored file");
        assert!(stored == body, "{name}: {} of {} bytes", stored.len(), body.len());
    }
}
