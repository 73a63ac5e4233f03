//! Every network backend with both file engines: each must send every file byte for byte, even if
//! the file changes meanwhile, and stop at once when the server stops.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::content::{assert_pattern, pattern, sparse_file};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};

const BACKENDS: &[&str] = &[
    "auto",
    "write",
    "writev",
    "linux-sendfile",
    "linux-aio-sendfile",
    "posix-aio",
    "gthread-aio",
    "gthread-sendfile",
    "io-uring",
];

const ENGINES: &[&str] = &["io-uring", "threads"];

const MEGABYTE: usize = 1 << 20;

/// The pattern's beginning, made once.
static TEN_MEGABYTES: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(0, 10 * MEGABYTE));

/// Large enough that no socket buffer holds it.
const LARGE: usize = 24 * MEGABYTE;

/// Runs `test` for each backend with each engine.
fn for_each(mut test: impl FnMut(&str, Setup)) {
    for backend in BACKENDS {
        for engine in ENGINES {
            let setup = lighty!()
                .config(&format!("server.network-backend = \"{backend}\""))
                .config(&format!("server.io-engine = \"{engine}\""));
            test(&format!("{backend} with {engine}"), setup);
        }
    }
}

/// Writes a file and drops it from the page cache, so that reads go to the disk.
fn cold_file(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
    let file = fs::File::open(path).expect("the file");
    file.sync_all().expect("sync");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
}

fn range(server: &Server, path: &str, from: u64, to: u64) -> Vec<u8> {
    let response = server.get_with(path, &format!("Range: bytes={from}-{to}\r\n"));
    assert_eq!(response.status, 206, "{response:?}");
    response.body
}

#[test]
fn every_size_arrives_byte_for_byte_cold_and_warm() {
    for_each(|name, setup| {
        let sizes = [0, 1, 4095, 4096, 4097, 100 * 1024, 10 * MEGABYTE];
        for size in sizes {
            cold_file(&setup.root(&size.to_string()), &TEN_MEGABYTES[..size]);
        }
        let server = setup.start();
        let mut client = server.connect();
        for round in ["cold", "warm"] {
            for size in sizes {
                client.send(format!("GET /{size} HTTP/1.1\r\nHost: a\r\n\r\n"));
                let response = client.response();
                assert_eq!(response.status, 200, "{name}, {size} bytes, {round}");
                assert!(response.body == TEN_MEGABYTES[..size], "{name}, {size} bytes, {round}");
            }
        }
    });
}

#[test]
fn ranges_at_every_alignment_arrive() {
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &TEN_MEGABYTES[..3 * MEGABYTE + 123]);
        let server = setup.start();
        for (from, to) in [
            (0, 0),
            (1, 4096),
            (4095, 4096),
            (4096, 8191),
            (511, 1_048_577),
            (1_048_575, 2_097_153),
            (3 * MEGABYTE, 3 * MEGABYTE + 122),
        ] {
            let body = range(&server, "/f", from as u64, to as u64);
            assert!(body == TEN_MEGABYTES[from..=to], "{name}, {from}-{to}");
        }
        let several = server.get_with("/f", "Range: bytes=0-99,70000-170000,3000000-3000001\r\n");
        assert_eq!(several.status, 206, "{name}");
        let has = |part: &[u8]| several.body.windows(part.len()).any(|w| w == part);
        assert!(has(&TEN_MEGABYTES[70_000..70_400]), "{name}");
        assert!(has(&TEN_MEGABYTES[169_900..=170_000]), "{name}");
    });
}

#[test]
fn five_gigabytes_are_addressed_to_the_last_byte() {
    const SIZE: u64 = 5 << 30;
    let spots = [0, (1 << 31) - 2000, (1 << 32) - 2000, SIZE - 4000];
    for_each(|name, setup| {
        sparse_file(&setup.root("huge"), SIZE, &spots, 4000);
        let server = setup.start();
        let mut client = server.connect();
        client.send("HEAD /huge HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_to_head().field("Content-Length"), Some("5368709120"));
        for spot in spots {
            let body = range(&server, "/huge", spot, spot + 3999);
            assert_pattern(&body, spot, name);
        }
        let hole = range(&server, "/huge", 1_000_000_000, 1_002_000_000);
        assert!(hole.len() == 2_000_001 && hole.iter().all(|b| *b == 0), "{name}");
        assert_eq!(server.get_with("/huge", "Range: bytes=-1\r\n").body.len(), 1);
    });
}

/// Requests a large file and reads only its head; the server holds the remainder.
fn begin_download(server: &Server, path: &str) -> (Client, usize) {
    let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    let head = client.response_head();
    assert_eq!(head.status, 200);
    let length = head.field("Content-Length").and_then(|l| l.parse().ok()).expect("a length");
    (client, length)
}

fn large_content() -> Vec<u8> {
    pattern(0, LARGE)
}

#[test]
fn a_file_cut_while_it_is_sent_cuts_the_response_and_nothing_else() {
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        let server = setup.file("other", "still here").start();
        let (mut client, length) = begin_download(&server, "/f");
        let file = fs::File::options().write(true).open(server.root("f")).expect("the file");
        file.set_len(1000).expect("truncate");
        let (body, _) = client.read_to_end();
        assert!(body.len() < length, "{name}: {} of {length} bytes of a cut file", body.len());
        let known = body.len().min(1000);
        assert!(body[..known] == content[..known], "{name}");
        assert_eq!(server.get("/other").text(), "still here", "{name}");
    });
}

#[test]
fn a_file_that_grows_is_sent_as_long_as_it_was() {
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        let server = setup.start();
        let (mut client, length) = begin_download(&server, "/f");
        let mut file = fs::File::options().append(true).open(server.root("f")).expect("the file");
        std::io::Write::write_all(&mut file, b"and more").expect("append");
        let (body, _) = client.read_to_end();
        assert_eq!(body.len(), length, "{name}");
        assert!(body == content, "{name}");
    });
}

#[test]
fn a_file_that_is_replaced_is_sent_as_it_was() {
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        fs::write(setup.root("next"), b"the next one").expect("a file");
        let server = setup.start();
        let (mut client, _) = begin_download(&server, "/f");
        fs::rename(server.root("next"), server.root("f")).expect("rename");
        let (body, _) = client.read_to_end();
        assert!(body == content, "{name}: {} bytes", body.len());
    });
}

#[test]
fn slow_readers_get_everything_and_delay_no_client() {
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &TEN_MEGABYTES[..2 * MEGABYTE]);
        let server = setup.file("small", "quick").start();
        let mut slow: Vec<Client> = (0..4).map(|_| begin_download(&server, "/f").0).collect();
        let mut got = vec![Vec::new(); slow.len()];
        for step in 0..20 {
            for (client, got) in slow.iter_mut().zip(&mut got) {
                got.extend(client.read_exact(1000).expect("some of the file"));
            }
            if step % 5 == 0 {
                assert_eq!(server.get("/small").text(), "quick", "{name}");
            }
        }
        for (client, got) in slow.iter_mut().zip(&mut got) {
            got.extend(client.read_to_end().0);
            assert!(*got == TEN_MEGABYTES[..2 * MEGABYTE], "{name}");
        }
    });
}

#[test]
fn want_of_descriptors_cuts_nothing_that_has_begun() {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        let server = setup.start();
        let (mut client, _) = begin_download(&server, "/f");
        let pid = Pid::from_raw(server.pid().cast_signed());
        let none = Rlimit { current: Some(1), maximum: getrlimit(Resource::Nofile).maximum };
        let before = prlimit(pid, Resource::Nofile, none).expect("a limit");
        let (body, _) = client.read_to_end();
        assert!(body == content, "{name}: {} bytes\n{}", body.len(), server.log());
        prlimit(pid, Resource::Nofile, before).expect("a limit");
    });
}

#[test]
fn a_client_that_leaves_takes_nothing_with_it() {
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        let server = setup.start();
        assert_eq!(server.get("/none").status, 404);
        for _ in 0..5 {
            begin_download(&server, "/f").0.reset();
        }
        drop(begin_download(&server, "/f"));
        let freed = lighty_testkit::wait_until(Duration::from_secs(30), || {
            range(&server, "/f", 0, 9).len() == 10 && sockets(&server) <= 2
        });
        assert!(freed, "{name}: {} sockets are still open", sockets(&server));
    });
}

/// TCP sockets that the server has open.
fn sockets(server: &Server) -> usize {
    let port = format!(":{:04X}", server.address().port());
    let text = fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
    let states = ["01", "0A", "08"];
    text.lines()
        .filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 9
                && fields[1].ends_with(&port)
                && states.contains(&fields[3])
                && fields[9] != "0"
        })
        .count()
}

#[test]
fn stopping_is_prompt_with_transfers_under_way() {
    let content = large_content();
    for_each(|name, setup| {
        cold_file(&setup.root("f"), &content);
        let mut server = setup.start();
        let clients: Vec<_> = (0..8).map(|_| begin_download(&server, "/f")).collect();
        let start = std::time::Instant::now();
        server.stop();
        assert!(start.elapsed() < Duration::from_secs(10), "{name}: {:?}", start.elapsed());
        drop(clients);
    });
}
