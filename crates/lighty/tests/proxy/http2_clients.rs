//! HTTP/2 clients in front of backends: windows of parallel uploads, and half-closed connections.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::content::pattern;
use lighty_testkit::http2::{
    END_HEADERS, END_STREAM, Http2, Http2Response, INITIAL_WINDOW_SIZE, block, frame, kind,
};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;

const SOON: Duration = Duration::from_secs(5);

/// Windows in which the server accepts content, by stream; 0 is the connection's.
struct Windows(BTreeMap<u32, i64>);

impl Windows {
    fn of(client: &mut Http2) -> Self {
        while client.settings.is_empty() {
            client.next_frame().expect("the server's settings");
        }
        assert_eq!(client.settings.get(&INITIAL_WINDOW_SIZE), None, "the initial value");
        Self(BTreeMap::from([(0, 65_535)]))
    }

    fn room(&self, stream: u32) -> usize {
        let own = self.0.get(&stream).copied().unwrap_or(65_535);
        usize::try_from(own.min(self.0[&0])).unwrap_or(0)
    }

    /// Processes the received frames, and waits for more for at most `wait`.
    fn read(&mut self, client: &mut Http2, wait: Duration) {
        while client.client().has_pending() || !client.client().stays_silent(wait) {
            let Some(frame) = client.next_frame() else { return };
            if frame.kind == kind::WINDOW_UPDATE {
                *self.0.entry(frame.stream).or_insert(65_535) += i64::from(frame.number(0));
            }
        }
    }

    fn send(&mut self, client: &mut Http2, stream: u32, content: &[u8], ends: bool) {
        client.send_data(stream, content, ends);
        let count = content.len() as i64;
        *self.0.entry(stream).or_insert(65_535) -= count;
        *self.0.entry(0).or_default() -= count;
    }

    /// Sends on a stream until the server gives no window any more.
    fn fill(&mut self, client: &mut Http2, stream: u32) -> usize {
        let mut sent = 0;
        loop {
            let room = self.room(stream).min(16_384);
            if room == 0 {
                self.read(client, Duration::from_millis(300));
                if self.room(stream) == 0 {
                    return sent;
                }
                continue;
            }
            self.send(client, stream, &vec![b'x'; room], false);
            sent += room;
            self.read(client, Duration::from_millis(1));
        }
    }
}

/// Uploads to a backend that reads none of them take no window from another one.
#[test]
fn uploads_that_nobody_reads_leave_windows_to_others() {
    let deaf = Backend::start(|peer| {
        if peer.head().is_some() {
            while !peer.is_stopping() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let eager = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let proxied = |url: &str, backend: &Backend| {
        let (host, port) = (backend.address().ip(), backend.address().port());
        let server = format!("( \"host\" => \"{host}\", \"port\" => {port} )");
        format!("$HTTP[\"url\"] =^ \"{url}\" {{ proxy.server = ( \"\" => ( {server} ) ) }}\n")
    };
    let server = lighty!()
        .config("server.stream-request-body = 2\nserver.max-read-idle = 2")
        .config(&proxied("/deaf", &deaf))
        .config(&proxied("/eager", &eager))
        .start();
    let mut client = Http2::connect(server.address());
    let mut windows = Windows::of(&mut client);
    let length = [("content-length", "100000000")];
    for _ in 0..3 {
        let stream = client.request("POST", "/deaf", &length, false);
        assert!(windows.fill(&mut client, stream) > 65_535, "the backend's kernel takes some");
        let body = pattern(1, 300_000);
        let stream = client.request("POST", "/eager", &[("content-length", "300000")], false);
        let (begun, mut sent) = (Instant::now(), 0);
        while sent < body.len() {
            assert!(begun.elapsed() < SOON, "{sent} sent\n{}", server.log());
            let count = windows.room(stream).min(body.len() - sent).min(16_384);
            if count == 0 {
                windows.read(&mut client, Duration::from_millis(20));
                continue;
            }
            let is_last = sent + count == body.len();
            windows.send(&mut client, stream, &body[sent..sent + count], is_last);
            sent += count;
        }
        let response = client.answer(stream);
        assert_eq!((response.status, response.text()), (200, "300000".to_owned()));
    }
}

/// Sends a body as windows open, and returns the response.
fn upload(server: &Server, target: &str, body: &[u8]) -> Http2Response {
    let mut client = Http2::connect(server.address());
    let mut windows = Windows::of(&mut client);
    let length = body.len().to_string();
    let stream = client.request("POST", target, &[("content-length", &length)], false);
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < body.len() {
        assert!(begun.elapsed() < 4 * SOON, "{sent} sent\n{}", server.log());
        let count = windows.room(stream).min(body.len() - sent).min(16_384);
        if count == 0 {
            windows.read(&mut client, Duration::from_millis(20));
            continue;
        }
        windows.send(&mut client, stream, &body[sent..sent + count], sent + count == body.len());
        sent += count;
    }
    client.answer(stream)
}

/// Programs of CGI that read first, and programs that respond first.
#[test]
fn programs_get_whole_uploads_however_those_are_streamed() {
    let head = "echo 'Content-Type: text/plain'; echo";
    for stream in [0, 1, 2] {
        let server = lighty!()
            .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
            .config(&format!("server.stream-request-body = {stream}"))
            .file("first.cgi", format!("n=$(cat | wc -c); {head}; echo $n\n"))
            .file("last.cgi", format!("{head}; cat | wc -c\n"))
            .file("none.cgi", format!("{head}; echo none\n"))
            .start();
        for bytes in [1, 65_536, 1 << 20] {
            for (target, wanted) in
                [("/first.cgi", bytes.to_string()), ("/last.cgi", bytes.to_string())]
            {
                let got = upload(&server, target, &pattern(2, bytes));
                let what = format!("{target}, {bytes} bytes, {stream}");
                assert_eq!((got.status, got.text().trim()), (200, &*wanted), "{what}");
            }
        }
        let got = upload(&server, "/none.cgi", b"small");
        assert_eq!((got.status, got.text().trim()), (200, "none"), "{stream}");
    }
}

const LARGE: usize = 6 << 20;

fn front(backend: &Backend, lines: &str) -> Server {
    lighty!()
        .in_front_of(&backend.name())
        .config("proxy-core.read-timeout = 60\nserver.errorlog-level = \"info\"")
        .config(lines)
        .start()
}

/// A client that has received the server's settings and gives it windows of any size.
fn wide_client(server: &Server) -> Http2 {
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    client.credits = false;
    client.open_window(0, 1 << 30);
    Windows::of(&mut client);
    client
}

#[test]
fn half_closed_client_gets_all_responses() {
    let backend = Backend::after_request(|peer| {
        std::thread::sleep(Duration::from_millis(300));
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"));
        peer.send(pattern(5, LARGE));
    });
    let server = front(&backend, "");
    let mut client = wide_client(&server);
    let length = [("content-length", "5")];
    let streams = [
        client.request("GET", "/x", &[], true),
        client.request("POST", "/x", &length, false),
        client.request("POST", "/x", &length, false),
    ];
    client.send_data(streams[1], b"hello", true);
    client.send_data(streams[2], b"hel", false);
    client.client().half_close();
    for stream in &streams[..2] {
        let response = client.answer(*stream);
        assert_eq!((response.status, response.reset), (200, None));
        assert!(response.body == pattern(5, LARGE), "{} bytes", response.body.len());
    }
    let cut = client.answer(streams[2]);
    assert!(cut.reset.is_some() && cut.status != 200, "its request was not whole: {cut:?}");
    client.read_to_end();
}

#[test]
fn half_closed_client_gets_a_file_that_is_being_sent() {
    let server = lighty!().file("big.bin", "0123456789abcdef".repeat(LARGE / 16)).start();
    let mut client = wide_client(&server);
    let stream = client.request("GET", "/big.bin", &[], true);
    client.head(stream);
    client.client().half_close();
    assert_eq!(client.answer(stream).body.len(), LARGE);
    client.read_to_end();
}

#[test]
fn half_closed_client_without_window_is_not_waited_for() {
    let server = lighty!().file("big.bin", "0123456789abcdef".repeat(LARGE / 16)).start();
    let mut client = Http2::connect(server.address());
    client.credits = false;
    let stream = client.request("GET", "/big.bin", &[], true);
    client.head(stream);
    client.client().half_close();
    let begun = Instant::now();
    let response = client.answer(stream);
    assert!(response.reset.is_some() && response.body.len() == 65_535, "{:?}", response.reset);
    client.read_to_end();
    assert!(begun.elapsed() < SOON);
}

/// Responses to requests that arrive together are queued whole, so no task is left to time the part
/// for which the connection has no window.
#[test]
fn client_without_window_for_ended_exchanges_does_not_stay() {
    let server = lighty!()
        .config("server.max-write-idle = 1\nserver.stat-cache-engine = \"inotify\"")
        .file("page.bin", "0123456789abcdef".repeat(2_500))
        .start();
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.credits = false;
    // The file is open from here on, so neither response has to wait.
    assert_eq!(client.request("HEAD", "/page.bin", &[], true), 1);
    assert_eq!(client.answer(1).status, 200);
    let head = block(&client.request_fields("GET", "/page.bin"));
    let ends = END_HEADERS | END_STREAM;
    let heads = [3, 5].map(|stream| frame(kind::HEADERS, ends, stream, &head));
    client.client().send(heads.concat());
    client.read_to_end();
    let answers = [3, 5].map(|stream| client.so_far(stream));
    assert_eq!(answers.iter().map(|answer| answer.body.len()).sum::<usize>(), 65_535);
    assert!(answers.iter().all(|answer| answer.reset.is_none()), "{answers:?}");
}

#[test]
fn half_closed_client_waits_as_long_as_the_limit_allows() {
    let backend = Backend::after_request(|peer| {
        let _ = peer.hang();
    });
    let server = front(&backend, "server.max-half-closed-idle = 1");
    let mut client = wide_client(&server);
    let stream = client.request("GET", "/x", &[], true);
    client.client().half_close();
    assert_eq!(client.answer(stream).status, 408);
    client.read_to_end();
    assert!(wait_until(SOON, || backend.open() == 0));
    server.await_log("server.max-half-closed-idle ran out");
}

/// A client that closes looks like one that half-closes until it is sent something.
#[test]
fn client_that_closes_lets_its_backends_go_at_once() {
    let backend = Backend::after_request(|peer| {
        let _ = peer.hang();
    });
    let server = front(&backend, "server.max-half-closed-idle = 60");
    let mut client = wide_client(&server);
    let _ = client.request("GET", "/x", &[], true);
    assert!(wait_until(SOON, || backend.open() == 1));
    drop(client);
    assert!(wait_until(SOON, || backend.open() == 0), "{}", server.log());
}
