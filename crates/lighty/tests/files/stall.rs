//! Disks that stall or fail: other clients do not wait, nothing breaks. Uses a file system of the
//! test's own; without the right to mount one, the tests report it and pass.

use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::stallfs::{EIO_FROM, FILE_BYTES, StallFs};
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::{lighty, wait_until};

const ENGINES: &[&str] = &["io-uring", "threads"];

/// Limit for the delay of clients of other disks (the figure), for 95 of 100 requests; the
/// others allow for the load of the test machine.
const INNOCENT_DELAY: Duration = Duration::from_millis(20);

/// Mounts the stalling file system beneath a document root.
fn mount(setup: &Setup) -> Option<StallFs> {
    let path = setup.root("disk");
    std::fs::create_dir(&path).expect("a directory");
    match StallFs::mount(&path) {
        Ok(mounted) => Some(mounted),
        Err(reason) => {
            eprintln!("SKIPPED: no stalling file system can be mounted here: {reason}");
            None
        }
    }
}

fn site(engine: &str) -> Setup {
    lighty!()
        .file("hot", "hot\n")
        .file("hot-large", pattern(0, 100_000))
        .config(&format!("server.io-engine = \"{engine}\""))
}

/// Latencies of requests for hot files over one connection, for a while.
fn innocent_latencies(server: &Server, time: Duration) -> Vec<Duration> {
    let mut client = server.connect();
    let begin = Instant::now();
    let mut latencies = Vec::new();
    while begin.elapsed() < time {
        for path in ["/hot", "/hot-large"] {
            let start = Stopwatch::start(server);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.response().status, 200);
            latencies.push(start.took());
        }
    }
    latencies.sort();
    latencies
}

#[test]
fn a_stalled_disk_delays_no_other_request() {
    for engine in ENGINES {
        let setup = site(engine).config("server.max-keep-alive-requests = 1000000");
        let Some(disk) = mount(&setup) else { return };
        let server = setup.start();
        let _ = innocent_latencies(&server, Duration::from_millis(100));
        disk.stall();
        let mut stuck: Vec<Client> = (0..100)
            .map(|index| {
                let mut client = server.connect();
                let kind = if index % 4 == 0 { "wait" } else { "stall" };
                client.send(format!(
                    "GET /disk/{kind}-{index} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
                ));
                client
            })
            .collect();
        assert!(wait_until(Duration::from_secs(30), || disk.waiting() >= 16), "{}", disk.waiting());
        let latencies = innocent_latencies(&server, Duration::from_millis(1500));
        let p95 = latencies[latencies.len() * 95 / 100];
        let most = latencies[latencies.len() - 1];
        // The longest is bounded too, by far less than the stall, which lasts until `resume`.
        let bounded = p95 < INNOCENT_DELAY && most < Duration::from_millis(1400);
        assert!(bounded, "{engine}: {p95:?}, at most {most:?}");
        disk.resume();
        for client in &mut stuck {
            let response = client.response();
            assert_eq!(response.status, 200, "{engine}");
            assert_eq!(response.body.len() as u64, FILE_BYTES, "{engine}");
            assert_pattern(&response.body[..5000], 0, engine);
        }
    }
}

#[test]
fn clients_that_give_up_on_a_stalled_disk_do_no_harm() {
    for engine in ENGINES {
        let setup = site(engine);
        let Some(disk) = mount(&setup) else { return };
        let server = setup.start();
        assert_eq!(server.get("/hot").text(), "hot\n");
        disk.stall();
        for index in 0..40 {
            let mut client = server.connect();
            client.send(format!("GET /disk/stall-{index} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if index % 2 == 0 {
                client.reset();
            }
        }
        assert!(wait_until(Duration::from_secs(30), || disk.waiting() >= 8), "{}", disk.waiting());
        assert_eq!(server.get("/hot").text(), "hot\n", "{engine}");
        disk.resume();
        let response = server.get("/disk/stall-1");
        assert_eq!(response.body.len() as u64, FILE_BYTES, "{engine}");
        assert_pattern(&response.body, 0, engine);
    }
}

#[test]
fn a_read_error_cuts_the_response_and_is_logged() {
    for backend in ["auto", "linux-sendfile", "writev", "gthread-aio", "io-uring"] {
        for engine in ENGINES {
            let setup = site(engine).config(&format!("server.network-backend = \"{backend}\""));
            let Some(_disk) = mount(&setup) else { return };
            let server = setup.start();
            let mut client = server.connect();
            client.send("GET /disk/eio-1 HTTP/1.1\r\nHost: a\r\n\r\n");
            let (bytes, _) = client.read_to_end();
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(15)]).into_owned();
            let body = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
            let sent = (bytes.len() - body) as u64;
            let name = format!("{backend} with {engine}");
            // Either the error came before the head (500), or the response is cut short.
            if text.starts_with("HTTP/1.1 200") {
                assert!(sent <= EIO_FROM, "{name}: {sent} bytes");
                assert_pattern(&bytes[body..], 0, &name);
            } else {
                assert!(text.starts_with("HTTP/1.1 500"), "{name}: {text}");
            }
            server.await_log("eio-1");
            assert_eq!(server.get("/hot").text(), "hot\n", "{name}");
            assert_eq!(server.get("/disk/plain-1").body.len() as u64, FILE_BYTES, "{name}");
        }
    }
}

#[test]
fn the_server_stops_while_clients_wait_for_the_disk() {
    for engine in ENGINES {
        let setup = site(engine);
        let Some(disk) = mount(&setup) else { return };
        let mut server = setup.start();
        disk.stall();
        let mut client = server.connect();
        client.send("GET /disk/stall-1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(wait_until(Duration::from_secs(30), || disk.waiting() > 0));
        server.signal(rustix::process::Signal::TERM);
        let (_, end) = client.read_to_end();
        // The kernel keeps a process until its reads return: after the disk resumes, the process is
        // gone.
        disk.resume();
        let (status, _) = server.await_exit(Duration::from_secs(5));
        assert!(status.success(), "{engine}: {status}, client saw {end:?}");
    }
}
