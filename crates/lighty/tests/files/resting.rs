//! Resources that an idle server releases: directories, memory.

use std::fs;
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::http2::Http2;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};

/// Longer than the ten seconds after which the server closes the document root.
const REST: Duration = Duration::from_secs(60);

/// Server with its document root on a file system of its own.
fn on_its_own_disk(engine: &str) -> Option<(SmallDisk, Server)> {
    let setup = lighty!();
    let root = setup.root("");
    fs::create_dir_all(&root).expect("a directory");
    let disk = SmallDisk::mount(&root, c"size=1m")?;
    let config =
        format!("server.stat-cache-engine = \"{engine}\"\ndir-listing.activate = \"enable\"");
    let server = setup.file("site/a", "x").file("site/big", vec![7; 100_000]).config(&config);
    Some((disk, server.start()))
}

#[test]
fn an_unused_file_system_can_be_unmounted_and_served_again() {
    let mut servers = Vec::new();
    for engine in ["simple", "inotify", "disable"] {
        let Some((disk, server)) = on_its_own_disk(engine) else { return };
        for target in ["/site/a", "/site/big", "/site/"] {
            assert_eq!(server.get(target).status, 200, "{engine} {target}");
        }
        assert_eq!(server.get("/missing").status, 404);
        let error = disk.unmount().expect_err("it is in use");
        assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
        servers.push((engine, disk, server));
    }
    for (engine, disk, server) in &servers {
        assert!(wait_until(REST, || disk.unmount().is_ok()), "{engine}: it stays busy");
        write_file(&server.root("other"), "what was below");
        assert_eq!(server.get("/other").text(), "what was below");
    }
}

/// Reproducible text with some work for an encoder.
fn pseudo_text(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(length + 16);
    while out.len() < length {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(format!("{:x} ", (state >> 40) % 5_000).as_bytes());
    }
    out
}

#[test]
fn the_memory_of_encoders_goes_back() {
    const KIB_MAX: u64 = 12 << 10;
    let mut setup = lighty!();
    for page in 0..6 {
        setup = setup.file(&format!("{page}.txt"), pseudo_text(400_000, page));
    }
    let server = setup
        .config("server.modules = ( \"mod_deflate\" )\ndeflate.mimetypes = ( \"text/plain\" )")
        .config("deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 9 )")
        .start();
    assert_eq!(server.get("/none").status, 404);
    let (before, own) = (server.resident_kib(), server.own_kib());
    let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
    for (page, client) in clients.iter_mut().enumerate() {
        let lines = "Host: a\r\nAccept-Encoding: br";
        client.send(format!("GET /{page}.txt HTTP/1.1\r\n{lines}\r\n\r\n"));
    }
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.field("content-encoding"), Some("br"), "{response:?}");
    }
    assert!(server.peak_resident_kib() > before + 3 * KIB_MAX, "{}", server.peak_resident_kib());
    let given_back = || server.own_kib() < own + KIB_MAX;
    assert!(wait_until(REST, given_back), "{own} {}", server.own_kib());
}

#[test]
fn an_idle_connection_of_http2_is_small_and_goes_on() {
    const CONNECTIONS: u64 = 400;
    /// A quarter of the memory of a busy connection.
    const KIB_MAX: u64 = 5;
    let config = "server.max-keep-alive-idle = 300";
    let server = lighty!().file("a.txt", "a file\n").config(config).start();
    let ask = |client: &mut Http2| {
        let answer = client.get("/a.txt");
        assert_eq!((answer.status, &*answer.body), (200, &b"a file\n"[..]));
        answer
    };
    let connect = || {
        let mut client = Http2::connect(server.address());
        ask(&mut client);
        client
    };
    let mut clients: Vec<Http2> = (0..CONNECTIONS / 10).map(|_| connect()).collect();
    let before = server.own_kib();
    clients.extend((0..CONNECTIONS).map(|_| connect()));
    let each = || server.own_kib().saturating_sub(before) as f64 / CONNECTIONS as f64;
    let is_small = wait_until(REST, || each() <= KIB_MAX as f64);
    assert!(is_small, "{} KiB each", each());
    // Repeated fields are found in the header tables of both ends.
    clients.iter_mut().for_each(|client| {
        let (first, again) = (ask(client), ask(client));
        assert_eq!(first.field("etag"), again.field("etag"));
    });
}

#[test]
fn an_idle_connection_with_tls_is_small_and_goes_on() {
    const CONNECTIONS: u64 = 500;
    const KIB_MAX: f64 = 3.0;
    let setup = lighty!().file("a.txt", "a file\n").config("server.max-keep-alive-idle = 300");
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test"]);
    let config = "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"";
    let server = setup.config(config).start();
    let ask = |client: &mut Client| {
        client.send("GET /a.txt HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!(client.response().body, b"a file\n");
    };
    let connect = || {
        let mut client = authority.client().connect(server.address(), "a.test");
        ask(&mut client);
        client
    };
    let mut clients: Vec<Client> = (0..CONNECTIONS / 10).map(|_| connect()).collect();
    let before = server.own_kib();
    clients.extend((0..CONNECTIONS).map(|_| connect()));
    let each = || server.own_kib().saturating_sub(before) as f64 / CONNECTIONS as f64;
    assert!(wait_until(REST, || each() <= KIB_MAX), "{} KiB each", each());
    // The keys still work.
    clients.iter_mut().for_each(|client| (0..2).for_each(|_| ask(client)));
}
