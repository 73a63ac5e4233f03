//! A warm request allocates nothing: a whole server runs in this process, and the test counts every
//! allocation except its own.

#[path = "../../../lighty-testkit/shared/counting.rs"]
mod counting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{FsLoader, LoadOptions, Main, Table, load};
use lighty_core::Settings;
use lighty_core::settings::directives;
use lighty_server::{boot, modules};
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::http2::Http2;
use lighty_testkit::wait_until;

/// Requests before counting begins: pools and buffers find their size.
const WARM_UP: usize = 200;

/// Number of counted requests.
const COUNTED: u64 = 2000;

/// Requests in a burst. Once a second a worker checks its files and connections, which may
/// allocate: a burst between two checks must not. On a busy machine, 200 streams take that second.
const BURST: u64 = 5;

/// Starts a server in this process; it ends with the process.
fn start(root: &std::path::Path, more: &str) -> SocketAddr {
    let reserved = lighty_testkit::backend::Port::reserve();
    let port = reserved.address().port();
    std::mem::forget(reserved);
    let text = format!(
        "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         server.max-worker = 1\nserver.max-keep-alive-requests = 1000000\n{more}",
        root.display()
    );
    std::thread::spawn(move || {
        let table: Table<Settings> = Table::new()
            .rows(modules::directives())
            .planned(directives::PLANNED.iter().copied())
            .removed(directives::REMOVED.iter().copied());
        let main = Main::Text { name: "test", text: text.as_bytes() };
        let (config, _, _) = load(&FsLoader, &main, &table, LoadOptions { strict: false });
        boot::run(Arc::new(config.expect("a good configuration")), boot::Options::default())
            .expect("a server");
    });
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Returns the server's allocations during each burst of the [`COUNTED`] keep-alive requests.
fn allocations(client: &mut Client, path: &str, length: usize) -> Vec<u64> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test/1\r\nAccept: */*\r\n\r\n"
    );
    let mut ask = || {
        client.send(&request);
        let response = client.response();
        assert_eq!((response.status, response.body.len()), (200, length));
    };
    count_bursts(&mut ask)
}

/// Counts the allocations outside this test's own code.
fn allocations_elsewhere() -> u64 {
    counting::allocations() - counting::own_allocations()
}

fn count_bursts(ask: &mut dyn FnMut()) -> Vec<u64> {
    (0..WARM_UP).for_each(|_| ask());
    let mut serve_burst = || {
        let before = allocations_elsewhere();
        (0..BURST).for_each(|_| ask());
        allocations_elsewhere() - before
    };
    (0..COUNTED / BURST).map(|_| serve_burst()).collect()
}

/// Like [`allocations`], over HTTP/2, with eight requests at a time.
fn allocations_in_streams(client: &mut Http2, path: &str, length: usize) -> Vec<u64> {
    count_bursts(&mut || {
        let fields = [("user-agent", "test/1"), ("accept", "*/*")];
        let streams = [(); 8].map(|()| client.request("GET", path, &fields, true));
        for stream in streams {
            let response = client.answer(stream);
            assert_eq!((response.status, response.body.len()), (200, length));
        }
    })
}

#[test]
fn a_warm_request_allocates_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("small"), pattern(0, 44)).expect("a file");
    std::fs::write(root.path().join("large"), pattern(0, 100 * 1024)).expect("a file");
    let files = [("/small", 44), ("/large", 100 * 1024)];
    let mut client = connect(start(root.path(), ""));
    for (path, length) in files {
        let counted = allocations(&mut client, path, length);
        println!("{path} ({length} bytes): allocations in bursts of {BURST}: {counted:?}");
        let none = counted.iter().filter(|count| **count == 0).count();
        assert!(none * 3 > counted.len() * 2, "a warm request for {path} allocates: {counted:?}");
    }
    let address = start(root.path(), "http2.max-requests = 0\n");
    drop(connect(address));
    let mut client = Http2::connect(address);
    let counted = allocations_in_streams(&mut client, "/small", 44);
    println!("/small over HTTP/2: allocations in bursts of {BURST} times 8: {counted:?}");
    let none = counted.iter().filter(|count| **count == 0).count();
    assert!(none * 3 > counted.len() * 2, "a warm stream allocates: {counted:?}");
    // A log passes its buffer to its writer every few hundred lines and takes another.
    let mut client = connect(start(root.path(), "accesslog.filename = \"/dev/null\"\n"));
    for (path, length) in files {
        let counted = allocations(&mut client, path, length);
        println!("{path} with a log: allocations in bursts of {BURST}: {counted:?}");
        let few = counted.iter().filter(|count| **count <= 2).count();
        assert!(few * 3 > counted.len() * 2, "a logged request for {path} allocates: {counted:?}");
    }
}

#[test]
fn hit_of_the_cache_allocates_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let backend = lighty_testkit::backend::Backend::replying(|seen| {
        let (length, varies) = (seen.target()[1..].split('?').next(), seen.target().contains('?'));
        let body = "x".repeat(length.and_then(|length| length.parse().ok()).expect("a size"));
        let vary = if varies { "Vary: User-Agent, Accept-Encoding\r\n" } else { "" };
        let fields = format!("Cache-Control: max-age=600\r\nContent-Type: text/html\r\n{vary}");
        lighty_testkit::backend::answer("200 OK", &fields, &body)
    });
    let more = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )\n\
         cache.stores = ( \"pages\" => ( \"memory\" => \"4M\" ) )\ncache.store = \"pages\"\n",
        backend.name()
    );
    let mut client = connect(start(root.path(), &more));
    for (path, length) in [("/44", 44), ("/102400", 100 * 1024), ("/44?varies", 44)] {
        let mut counted = allocations(&mut client, path, length);
        counted.sort_unstable();
        let usual = counted[counted.len() / 2];
        println!("a hit of {path}: allocations in bursts of {BURST}: {usual}");
        assert_eq!(usual, 0, "{path}: {counted:?}");
    }
    assert_eq!(backend.requests().len(), 3);
}

fn connect(address: SocketAddr) -> Client {
    assert!(wait_until(Duration::from_secs(60), || Client::try_tcp(address).is_ok()));
    Client::tcp(address)
}
