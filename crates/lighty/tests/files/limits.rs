//! Limits of the whole server: connections, bandwidth, memory for idle clients.

use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use rustix::process::{Resource, Rlimit};

#[test]
fn at_the_connection_limit_the_longest_idle_make_room() {
    const LIMIT: usize = 64;
    let server =
        lighty!().file("a", "x").config(&format!("server.max-connections = {LIMIT}")).start();
    let mut idle: Vec<Client> = Vec::new();
    for _ in 0..LIMIT {
        let mut client = server.connect();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "x");
        idle.push(client);
    }
    let start = Stopwatch::start(&server);
    let mut fresh = server.connect();
    fresh.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(fresh.response().text(), "x");
    assert!(start.took() < Duration::from_millis(500), "{:?}", start.took());
    idle[0].expect_end();
    let last = idle.last_mut().expect("clients");
    last.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(last.response().text(), "x", "only the longest idle are closed");
}

#[test]
fn a_flood_of_silent_connections_does_not_keep_others_out() {
    let server = lighty!().file("a", "x").config("server.max-connections = 128").start();
    let flood: Vec<Client> = (0..400).map(|_| server.connect()).collect();
    for _ in 0..5 {
        let start = Stopwatch::start(&server);
        assert_eq!(server.get("/a").text(), "x");
        assert!(start.took() < Duration::from_millis(500), "{:?}", start.took());
    }
    drop(flood);
}

#[test]
fn busy_connections_are_not_closed_to_make_room() {
    let server =
        lighty!().file("large", pattern(0, 24 << 20)).config("server.max-connections = 4").start();
    let mut busy: Vec<Client> = (0..4)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
            client.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert_eq!(client.response_head().status, 200);
            client
        })
        .collect();
    let mut waiting = server.connect();
    waiting.send("GET /large HTTP/1.1\r\nHost: a\r\nRange: bytes=0-0\r\n\r\n");
    assert!(waiting.stays_silent(Duration::from_millis(300)), "it waits in the listen queue");
    for client in &mut busy {
        assert_eq!(client.read_to_end().0.len(), 24 << 20);
    }
    assert_eq!(waiting.response().status, 206);
}

#[test]
fn a_connection_that_becomes_idle_makes_room_for_those_who_wait() {
    let limits = "server.max-connections = 2\nserver.max-worker = 1\n\
                  server.max-keep-alive-idle = 600";
    let server =
        lighty!().file("a", "x").file("large", pattern(0, 24 << 20)).config(limits).start();
    let mut busy: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    let mut waiting = server.connect();
    waiting.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    server.await_log("none is idle");
    assert_eq!(busy[1].response().body.len(), 24 << 20);
    assert_eq!(waiting.response().text(), "x");
    busy[1].expect_end();
    assert_eq!(busy[0].response().body.len(), 24 << 20, "one that is in a request stays");
}

#[test]
fn slow_heads_make_room_where_no_connection_is_idle() {
    let limits = "server.max-connections = 32\nserver.max-worker = 1\nserver.max-head-time = 600";
    let server = lighty!().file("a", "x").config(limits).start();
    let mut half: Vec<Client> = (0..48)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /a HTTP/1.1\r\nHost:");
            client
        })
        .collect();
    let mut fresh = server.connect();
    fresh.set_deadline(Duration::from_secs(60));
    fresh.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(fresh.response().text(), "x");
    assert_eq!(half[0].response().status, 408);
    half[0].expect_end();
}

/// Lowers the descriptor limit of a server so that it can open no more; returns the previous limit.
fn without_descriptors(server: &Server) -> Rlimit {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    // Lower than the standard descriptors of every process.
    limit_descriptors(server, Rlimit { current: Some(3), maximum })
}

fn limit_descriptors(server: &Server, limit: Rlimit) -> Rlimit {
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed());
    rustix::process::prlimit(pid, Resource::Nofile, limit).expect("a limit")
}

#[test]
fn a_request_that_was_let_in_waits_for_a_descriptor_for_a_moment() {
    let cgi = "cgi.assign = ( \".sh\" => \"/bin/sh\" )\nserver.max-worker = 1";
    let server = lighty!()
        .file("a", "x")
        .file("b", "y")
        .file("p.sh", "printf 'Content-Type: text/plain\\r\\n\\r\\nz'")
        .config(cgi)
        .start();
    let mut client = server.connect();
    let ask = |client: &mut Client, path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    };
    for (path, text) in [("/a", "x"), ("/p.sh", "z")] {
        ask(&mut client, path);
        assert_eq!(client.response().text(), text);
    }
    let before = without_descriptors(&server);
    ask(&mut client, "/b");
    assert!(client.stays_silent(Duration::from_millis(200)), "it waits");
    limit_descriptors(&server, before);
    assert_eq!(client.response().text(), "y");
    let before = without_descriptors(&server);
    let mut refused = |path: &str| {
        ask(&mut client, path);
        let answer = client.response();
        assert_eq!(answer.status, 503, "{path}: {}", server.log());
        assert_eq!(answer.field("Retry-After"), Some("1"), "{path}");
        answer.field("Connection").map(str::to_owned)
    };
    assert_eq!(refused("/missing").as_deref(), Some("close"));
    limit_descriptors(&server, before);
    let mut client = server.connect();
    ask(&mut client, "/p.sh");
    assert_eq!(client.response().text(), "z");
    let before = without_descriptors(&server);
    ask(&mut client, "/p.sh");
    assert!(client.stays_silent(Duration::from_millis(200)), "it waits");
    limit_descriptors(&server, before);
    assert_eq!(client.response().text(), "z");
    let before = without_descriptors(&server);
    ask(&mut client, "/p.sh");
    let answer = client.response();
    assert_eq!((answer.status, answer.field("Retry-After")), (503, Some("1")), "{}", server.log());
    limit_descriptors(&server, before);
    assert_eq!(server.get("/p.sh").text(), "z");
}

/// All `count` clients request `a` before the first of them reads; each gets it.
fn answers_all_of(server: &Server, count: usize) {
    let mut burst: Vec<Client> = (0..count)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client
        })
        .collect();
    for client in &mut burst {
        assert_eq!(client.response().text(), "x");
    }
}

#[test]
fn too_few_descriptors_are_as_many_as_a_server_needs() {
    for (fds, workers) in [(1, 1), (10, 2), (32, 8)] {
        let server = lighty!()
            .config(&format!("server.max-fds = {fds}\nserver.max-worker = {workers}"))
            .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
            .file("a", "x")
            .file("a.sh", "printf 'X: y\\n\\nprogram'")
            .start();
        assert_eq!((server.get("/a").text(), server.get("/a.sh").text()), ("x", "program"));
    }
}

#[test]
fn a_burst_beyond_the_descriptors_is_answered_whole() {
    let limits = "server.max-fds = 128\nserver.max-connections = 1000\nserver.max-worker = 1";
    let server = lighty!().file("a", "x").config(limits).start();
    for _ in 0..3 {
        answers_all_of(&server, 300);
    }
}

/// Asserts that the transfer took the time that the rate implies: no less, and no longer except for
/// load on the machine. The token bucket begins full, with a quarter of a second's worth.
fn assert_within_10_percent(start: &Stopwatch, bytes: usize, kbytes_per_second: f64) {
    let (elapsed, took) = (start.elapsed(), start.took());
    let wanted = kbytes_per_second * 1024.0;
    let wanted_s = (bytes as f64 - wanted / 4.0) / wanted;
    assert!(elapsed.as_secs_f64() > wanted_s / 1.1, "{elapsed:?} in place of {wanted_s:.3} s");
    assert!(took.as_secs_f64() < wanted_s / 0.9, "{took:?} in place of {wanted_s:.3} s");
}

#[test]
fn a_connections_rate_is_what_is_configured() {
    let size = 1500 * 1024;
    let server =
        lighty!().file("f", pattern(0, size)).config("connection.kbytes-per-second = 400").start();
    let mut client = server.connect();
    let start = Stopwatch::start(&server);
    client.send("GET /f HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().body.len(), size);
    assert_within_10_percent(&start, size, 400.0);
}

#[test]
fn a_shared_rate_is_shared() {
    let size = 700 * 1024;
    let server =
        lighty!().file("f", pattern(0, size)).config("server.kbytes-per-second = 600").start();
    let mut clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    let start = Stopwatch::start(&server);
    for client in &mut clients {
        client.send("GET /f HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    // Read in parallel: neither may fill its socket's buffer while the other one waits.
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || assert_eq!(client.response().body.len(), size));
        }
    });
    assert_within_10_percent(&start, 2 * size, 600.0);
}

#[test]
fn a_rate_holds_only_where_it_is_configured() {
    let server = lighty!()
        .file("slow/f", pattern(0, 300 * 1024))
        .file("fast/f", pattern(0, 300 * 1024))
        .config("$HTTP[\"url\"] =^ \"/slow/\" { connection.kbytes-per-second = 200 }")
        .start();
    let time = |path: &str| {
        let start = Stopwatch::start(&server);
        assert_eq!(server.get(path).body.len(), 300 * 1024);
        start
    };
    assert!(time("/slow/f").elapsed() > Duration::from_millis(900));
    assert!(time("/fast/f").took() < Duration::from_millis(500));
}

#[test]
fn a_client_that_takes_nothing_is_cut_and_the_log_names_the_limit() {
    let server = lighty!()
        .file("large", pattern(0, 24 << 20))
        .config("server.max-write-idle = 1\nserver.errorlog-level = \"info\"")
        .start();
    let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.response_head();
    server.await_log("server.max-write-idle");
    assert!(client.read_to_end().0.len() < 24 << 20);
}

#[test]
fn a_client_that_takes_a_little_now_and_then_is_not_cut() {
    let size = 2 << 20;
    let server = lighty!().file("f", pattern(0, size)).config("server.max-write-idle = 2").start();
    let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    client.send("GET /f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let _ = client.response_head();
    let start = Instant::now();
    let mut taken = 0;
    // Emptying a window every second or two counts as progress.
    while start.elapsed() < Duration::from_secs(5) {
        taken += client.read_exact(100 * 1024).expect("more of the file").len();
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(taken + client.read_to_end().0.len(), size);
}

#[test]
fn a_body_that_never_comes_is_not_waited_for_for_ever() {
    let server = lighty!().file("a", "x").config("server.max-read-idle = 1").start();
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab");
    assert_eq!(client.response().text(), "x");
    let start = Instant::now();
    client.expect_end();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn idle_connections_cost_little_memory() {
    const CLIENTS: usize = 2000;
    let server = lighty!()
        .file("a", "x")
        .config("server.max-connections = 10000\nserver.max-keep-alive-idle = 60")
        .start();
    let ask = |client: &mut Client| {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "x");
    };
    let mut warm: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    warm.iter_mut().for_each(ask);
    let before = server.peak_resident_kib();
    let mut idle: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(ask);
    let grown = server.peak_resident_kib() - before;
    let each = grown as f64 / CLIENTS as f64;
    // The figure for 10,000 connections is in docs/experiments.md. LIGHTY_BIN names a release
    // build; futures of a debug build are larger.
    let most = if std::env::var_os("LIGHTY_BIN").is_some() { 2.5 } else { 12.0 };
    assert!(each < most, "{each:.2} KiB for each idle connection");
}

#[test]
fn document_roots_make_way_when_descriptors_are_few() {
    const HOSTS: usize = 300;
    let mut builder = lighty!().config("server.max-fds = 128\nserver.max-worker = 1");
    for host in 0..HOSTS {
        let name = format!("{host}/f");
        builder = builder.file(&name, host.to_string());
        let root = builder.root(&host.to_string());
        let root = root.display();
        let condition = format!("$HTTP[\"host\"] == \"h{host}\"");
        builder = builder.config(&format!("{condition} {{ server.document-root = \"{root}\" }}"));
    }
    let server = builder.start();
    let mut client = server.connect();
    for host in (0..HOSTS).chain(0..HOSTS) {
        client.send(format!("GET /f HTTP/1.1\r\nHost: h{host}\r\n\r\n"));
        assert_eq!(client.response().text(), host.to_string());
        // Accepting connections is the first operation to suffer.
        if host % 50 == 0 {
            client = server.connect();
        }
    }
    assert!(server.descriptors() < 100, "{} are open", server.descriptors());
    assert!(!server.log().contains("accepting pauses"), "{}", server.log());
}

#[test]
fn a_deleted_file_is_let_go_without_another_request() {
    let server = lighty!().file("a", pattern(0, 1 << 20)).start();
    assert_eq!(server.get("/a").status, 200);
    let held = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("list");
        descriptors
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .any(|target| target.to_string_lossy().contains("/a (deleted)"))
    };
    std::fs::remove_file(server.root("a")).expect("remove");
    assert!(held(), "cached");
    let start = Instant::now();
    while held() {
        assert!(start.elapsed() < Duration::from_secs(30), "its disk space is never freed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_burst_beyond_the_connection_limit_is_answered_whole() {
    let limits = "server.max-connections = 32\nserver.max-worker = 1";
    let server = lighty!().file("a", "x").config(limits).start();
    answers_all_of(&server, 400);
}

#[test]
fn refused_clients_that_do_not_go_count_as_connections() {
    const LIMIT: usize = 32;
    let limits = format!("server.max-connections = {LIMIT}\nserver.max-worker = 1");
    let server = lighty!().file("a", "x").config(&limits).start();
    assert_eq!(server.get("/a").text(), "x");
    let before = server.descriptors();
    let mut refused: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /a HTTP/1.1\r\n\r\n");
            assert_eq!(client.response().status, 400);
            client
        })
        .collect();
    let open = server.descriptors() - before;
    // A last batch of reaped connections may still be open.
    assert!(open <= 2 * LIMIT, "{open} descriptors more than at the start");
    let start = Stopwatch::start(&server);
    assert_eq!(server.get("/a").text(), "x");
    assert!(start.took() < Duration::from_millis(500), "{:?}", start.took());
    refused.iter_mut().for_each(|client| _ = client.expect_end());
}
