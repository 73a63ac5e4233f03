//! Retried requests, and connections kept or closed for later requests.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use lighty_testkit::backend::{Backend, Peer};
use lighty_testkit::client::Client;
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::real::php::PhpFpm;
use lighty_testkit::server::Server;
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::wait_until;

const SOON: Duration = Duration::from_secs(5);

fn front(backend: &Backend, lines: &str) -> Server {
    lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.read-timeout = 5")
        .config(lines)
        .start()
}

/// Reads the records of one request, up to the end of its body.
fn read_fastcgi(peer: &mut Peer) -> Option<()> {
    loop {
        let head = peer.read_exact(8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        peer.read_exact(length + usize::from(head[6]))?;
        if (head[1], length) == (5, 0) {
            return Some(());
        }
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a short record");
    [&[1, kind, 0, 1, 0, length, 0, 0], content].concat()
}

fn fastcgi_response() -> Vec<u8> {
    let output = record(6, b"Content-Type: text/plain\r\n\r\ndone");
    [output, record(6, b""), record(3, &[0; 8])].concat()
}

/// Three bodies, each with its framing fields and its bytes.
const BODIES: [(&str, &[u8]); 3] = [
    ("Content-Length: 5", b"hello"),
    ("Content-Length: 0", b""),
    ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
];

fn put_all(server: &Server, name: &str) {
    for (fields, body) in BODIES {
        let mut client = server.connect();
        client.set_deadline(SOON);
        client.send(format!("PUT /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        client.send(body);
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "done"), "{name}, {fields}");
    }
}

#[test]
fn resent_body_is_ended_again_over_http1() {
    let backend = Backend::start(|peer| {
        let is_first = peer.number().is_multiple_of(2);
        if peer.request().is_some() && !is_first {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone");
        }
    });
    put_all(&front(&backend, ""), "HTTP/1.1");
    assert_eq!(backend.opened(), 2 * BODIES.len());
}

#[test]
fn resent_body_is_ended_again_over_fastcgi() {
    let backend = Backend::start(|peer| {
        let is_first = peer.number().is_multiple_of(2);
        if read_fastcgi(peer).is_some() && !is_first {
            peer.send(fastcgi_response());
        }
    });
    let lines = "proxy-core.protocol := \"fastcgi\"\nproxy-core.max-idle-connections = 0";
    put_all(&front(&backend, lines), "FastCGI");
    assert_eq!(backend.opened(), 2 * BODIES.len());
}

#[test]
fn program_that_closes_after_each_response_gets_every_post() {
    let backend = Backend::start(|peer| {
        if read_fastcgi(peer).is_some() {
            peer.send(fastcgi_response());
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let server = front(&backend, "proxy-core.protocol := \"fastcgi\"");
    for nth in 0..20 {
        let text = server.post("/x", "Content-Length: 2", b"hi");
        assert_eq!(text, b"done", "{nth}: {}", server.log());
    }
}

#[test]
fn get_with_a_length_of_zero_keeps_the_connection() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    let mut client = server.connect();
    for _ in 0..5 {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(backend.opened(), 1);
}

/// The second write waits for the acknowledgement of the first one in the backend's kernel.
#[test]
fn response_in_two_writes_does_not_wait_for_a_delayed_acknowledgement() {
    // Without TCP_NODELAY, as most programs leave it.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().expect("a connection");
        let mut request = [0; 4_096];
        while peer.read(&mut request).is_ok_and(|count| count > 0) {
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n").expect("a head");
            peer.write_all(b"ok").expect("a body");
        }
    });
    let server = lighty!().in_front_of(&address.to_string()).start();
    let mut client = server.connect();
    let watch = Stopwatch::start(&server);
    for _ in 0..50 {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "ok");
    }
    let took = watch.took();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn upload_that_ends_early_behind_a_head_lets_the_backend_go() {
    let backend = Backend::start(|peer| {
        if peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
            peer.hang();
        }
    });
    let server = lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.read-timeout = 60\nserver.errorlog-level = \"debug\"")
        .start();
    for is_malformed in [false, true] {
        let mut client = server.connect();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(client.response_head().status, 200);
        match is_malformed {
            true => client.send("zz\r\n"),
            false => client.half_close(),
        }
        let is_free = wait_until(SOON, || backend.open() == 0);
        assert!(is_free, "malformed: {is_malformed}\n{}", server.log());
    }
    server.await_log("malformed request body");
}

/// The exchange waits for the program, and another task for the client.
#[test]
fn upload_to_a_program_that_stalls_behind_a_head_is_cut() {
    let server = lighty!()
        .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
        .config("server.max-read-idle = 1\nserver.errorlog-level = \"info\"")
        .file("up.cgi", "echo 'Content-Type: text/plain'; echo; echo begun; cat | wc -c\n")
        .start();
    let mut client = server.connect();
    client.send("POST /up.cgi HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    client.send([0; 1_000]);
    assert_eq!(client.response_head().status, 200);
    server.await_log("server.max-read-idle ran out");
}

/// Longest response of a backend that is not slow: half of the silence that raises a suspicion.
const QUICK: Duration = Duration::from_millis(90);

/// Repeats `attempt` with a backend over each kind of socket, until it returns true: until the
/// responses before the measured ones were quick. After others, silence is no evidence, and on a
/// busy machine any response may be slow.
fn with_quick_fpm(processes: u32, attempt: impl Fn(&Server, &str) -> bool) {
    for start in [PhpFpm::unix, PhpFpm::tcp] {
        let was_quick = (0..60).any(|_| {
            let Some(fpm) = start(processes) else { return true };
            let backend = fpm.listen().host_keys();
            let works_on = "fastcgi_finish_request(); sleep(40);";
            let server = lighty!()
                .config(&format!("fastcgi.server = ( \".php\" => (( {backend} )) )"))
                .file("bg.php", format!("<?php echo 1; {works_on}"))
                .file("late.php", format!("<?php echo 1; usleep(150000); {works_on}"))
                .file("x.php", "<?php echo 2;")
                .start();
            attempt(&server, &backend)
        });
        assert!(was_quick, "no response was quick");
    }
}

/// Fails if requests have waited for the process that works on, for 40 s. On a busy machine a
/// suspicion may prove nothing; the next ones follow after 1, 2 and 4 s.
fn expect_no_wait(watch: &Stopwatch, backend: &str) {
    let took = watch.took();
    assert!(took < Duration::from_secs(20), "{backend}: {took:?}");
}

/// `fastcgi_finish_request()` of PHP ends the response, and the process works on.
#[test]
fn process_that_works_on_after_its_response_delays_no_other_request() {
    with_quick_fpm(4, |server, backend| {
        let watch = Stopwatch::start(server);
        assert_eq!(server.get("/bg.php").text(), "1");
        if watch.elapsed() > QUICK {
            return false;
        }
        let watch = Stopwatch::start(server);
        for _ in 0..10 {
            assert_eq!(server.get("/x.php").text(), "2");
        }
        expect_no_wait(&watch, backend);
        assert_eq!(server.get("/bg.php").text(), "1");
        let watch = Stopwatch::start(server);
        assert_eq!(server.post("/x.php", "Content-Length: 2", b"hi"), b"2");
        expect_no_wait(&watch, backend);
        true
    });
}

/// The same for requests that come together, each on the connection of a busy process.
#[test]
fn processes_that_work_on_after_their_responses_delay_no_crowd() {
    with_quick_fpm(6, |server, backend| {
        let crowd = |path: &str, text: &str| {
            let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
            for client in &mut clients {
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            }
            for client in &mut clients {
                assert_eq!(client.response().text(), text, "{backend}");
            }
        };
        let quickly = |limit, requests: &dyn Fn()| {
            let watch = Stopwatch::start(server);
            requests();
            watch.elapsed() <= limit
        };
        assert_eq!(server.get("/x.php").text(), "2");
        // The mean counts each response with a weight of an eighth.
        let is_quick =
            quickly(QUICK, &|| (0..19).for_each(|_| assert_eq!(server.get("/x.php").text(), "2")));
        if !is_quick || !quickly(2 * QUICK + QUICK / 2, &|| crowd("/late.php", "1")) {
            return false;
        }
        let watch = Stopwatch::start(server);
        crowd("/x.php", "2");
        expect_no_wait(&watch, backend);
        true
    });
}

/// The same if no request may be retried, and none before has shown how the processes behave.
#[test]
fn process_that_works_on_after_its_response_delays_no_post() {
    with_quick_fpm(4, |server, backend| {
        let post = |path: &str| server.post(path, "Content-Length: 2", b"hi");
        let watch = Stopwatch::start(server);
        assert_eq!(post("/x.php"), b"2");
        assert_eq!(post("/bg.php"), b"1");
        if watch.elapsed() > QUICK {
            return false;
        }
        let watch = Stopwatch::start(server);
        for _ in 0..10 {
            assert_eq!(post("/x.php"), b"2");
        }
        expect_no_wait(&watch, backend);
        true
    });
}

/// HTTP/2: some clients end a GET with an empty DATA frame.
#[test]
fn get_that_ends_by_an_empty_frame_is_served() {
    let backend = Backend::answering("ok");
    let server = front(&backend, "");
    for (content, status) in [(&b""[..], 200), (b"x", 400)] {
        let mut client = Http2::connect(server.address());
        let stream = client.request("GET", "/x", &[], false);
        client.send_data(stream, content, true);
        assert_eq!(client.answer(stream).status, status);
    }
    assert_eq!(backend.requests().len(), 1);
}

/// A backend without processor time is silent on all of its connections, and then responds on all
/// of them.
#[test]
fn kept_connections_of_a_backend_that_was_paused_stay() {
    let pause = Arc::new(RwLock::new(()));
    let paused = Arc::clone(&pause);
    let backend = Backend::start(move |peer| {
        while read_fastcgi(peer).is_some() {
            let _runs = paused.read().expect("no panic");
            if !peer.send(fastcgi_response()) {
                return;
            }
        }
    });
    let lines = "proxy-core.max-pool-size = 16\nserver.max-keep-alive-requests = 10000000";
    let server = front(&backend, &format!("proxy-core.protocol := \"fastcgi\"\n{lines}"));
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let send = |client: &mut Client| client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..10 {
        clients.iter_mut().for_each(&send);
        clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "done"));
    }
    let opened = backend.opened();
    {
        let _held = pause.write().expect("no panic");
        clients.iter_mut().for_each(&send);
        // A request leaves its connection, since the process may be busy.
        assert!(wait_until(Duration::from_secs(30), || backend.opened() > opened));
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "done"));
    let (opened, watch) = (backend.opened(), Stopwatch::start(&server));
    let mut requests = 0;
    while requests < 50 || watch.elapsed() < Duration::from_secs(1) {
        send(&mut clients[0]);
        assert_eq!(clients[0].response().text(), "done");
        requests += 1;
    }
    let more = backend.opened() - opened;
    assert!(more <= 2, "{more} connections for {requests} requests: {}", server.log());
}

/// A process that serves one connection at a time accepts the new one when the silent one is
/// closed.
#[test]
fn paused_process_with_one_connection_at_a_time_serves_the_request() {
    let (pause, one) = (Arc::new(RwLock::new(())), Mutex::new(()));
    let paused = Arc::clone(&pause);
    let backend = Backend::start(move |peer| {
        let _alone = one.lock().expect("no panic");
        while read_fastcgi(peer).is_some() {
            let _runs = paused.read().expect("no panic");
            if !peer.send(fastcgi_response()) {
                return;
            }
        }
    });
    let server = front(&backend, "proxy-core.protocol := \"fastcgi\"");
    let mut client = server.connect();
    let send = |client: &mut Client| client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    for _ in 0..10 {
        send(&mut client);
        assert_eq!(client.response().text(), "done");
    }
    let opened = backend.opened();
    {
        let _held = pause.write().expect("no panic");
        send(&mut client);
        assert!(wait_until(Duration::from_secs(30), || backend.opened() > opened));
    }
    let response = client.response();
    assert_eq!((response.status, response.text()), (200, "done"), "{}", server.log());
}
