//! Features that work over HTTP/2 as over HTTP/1: programs, pages, WebDAV, tracked uploads, rates,
//! reloads. And a feature of HTTP/2 alone: responses that overtake others.

use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::dav::LOCK_BODY;
use lighty_testkit::http2::{Http2, Http2Response, INITIAL_WINDOW_SIZE, kind};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::{lighty, wait_until};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(30);

const BIG: usize = 10 << 20;

fn connect(server: &Server) -> Http2 {
    Http2::connect(server.address())
}

/// A request with content.
fn send(
    client: &mut Http2,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Http2Response {
    let length = body.len().to_string();
    let fields = [fields, &[("content-length", &*length)]].concat();
    let stream = client.request(method, target, &fields, false);
    client.send_data(stream, body.as_bytes(), true);
    client.answer(stream)
}

#[test]
fn programs_and_pages_answer() {
    let echo = "printf 'Content-Type: text/plain\\nX-Own: 1\\n\\n'\n\
                echo \"$REQUEST_METHOD $SERVER_PROTOCOL $CONTENT_LENGTH $HTTP_X_WORD\"; cat\n";
    let server = lighty!()
        .file("echo.sh", echo)
        .file(
            "page.shtml",
            "<!--#include virtual=\"part.txt\" -->, <!--#echo var=\"QUERY_STRING\" -->",
        )
        .file("part.txt", "a part")
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\nssi.extension = ( \".shtml\" )")
        .start();
    let mut client = connect(&server);
    for _ in 0..3 {
        let got = send(&mut client, "POST", "/echo.sh", &[("x-word", "hello")], "body");
        assert_eq!((got.status, &*got.text()), (200, "POST HTTP/2.0 4 hello\nbody"));
        assert_eq!(got.field("x-own").as_deref(), Some("1"));
        assert_eq!(client.get("/page.shtml?q").text(), "a part, q");
    }
    // Streams of programs do not wait for one another.
    let streams = [(); 5].map(|()| client.request("POST", "/echo.sh", &[], false));
    for stream in streams.into_iter().rev() {
        client.send_data(stream, b"late", true);
        assert!(client.answer(stream).text().ends_with("\nlate"));
    }
}

#[test]
fn webdav_locks_and_moves() {
    let server = lighty!().webdav_with_database("").file("a.txt", "A").start();
    let mut client = connect(&server);
    assert_eq!(send(&mut client, "MKCOL", "/new/", &[], "").status, 201);
    assert_eq!(send(&mut client, "PUT", "/new/b.txt", &[], "B").status, 201);
    let got = send(&mut client, "PROPFIND", "/new/", &[("depth", "1")], "");
    assert_eq!(got.status, 207);
    assert!(got.text().contains("<D:href>/new/b.txt</D:href>"), "{}", got.text());
    let locked = send(&mut client, "LOCK", "/new/b.txt", &[], LOCK_BODY);
    let token = locked.field("lock-token").expect("a token");
    assert_eq!(send(&mut client, "PUT", "/new/b.txt", &[], "C").status, 423);
    let condition = format!("({token})");
    assert_eq!(send(&mut client, "PUT", "/new/b.txt", &[("if", &condition)], "C").status, 204);
    assert_eq!(
        send(&mut client, "UNLOCK", "/new/b.txt", &[("lock-token", &token)], "").status,
        204
    );
    let destination = format!("http://{}/c.txt", server.address());
    let moved = send(&mut client, "MOVE", "/new/b.txt", &[("destination", &destination)], "");
    assert_eq!((moved.status, client.get("/c.txt").text()), (201, "C".to_owned()));
    assert_eq!(send(&mut client, "DELETE", "/new/", &[], "").status, 204);
    assert_eq!(client.get("/new/").status, 404);
}

#[test]
fn an_upload_is_watched_by_another_stream() {
    const ID: &str = "0123456789abcdef0123456789abcdef";
    let backend = Backend::start(|peer| {
        if let Some(seen) = peer.request() {
            peer.answer(&seen.body.len().to_string());
        }
    });
    let server = lighty!()
        .config(&format!(
            "upload-progress.progress-url = \"/progress\"\n$HTTP[\"url\"] =^ \"/take\" {{\n  \
             proxy-core.protocol = \"http\"\n  proxy-core.backends = ( \"{}\" )\n}}",
            backend.address()
        ))
        .start();
    let mut client = connect(&server);
    let fields = [("content-length", "30000"), ("x-progress-id", ID)];
    let upload = client.request("POST", "/take", &fields, false);
    client.send_data(upload, &[b'x'; 10_000], false);
    let seen = format!("/progress?X-Progress-ID={ID}");
    let mut output = String::new();
    let is_notified = wait_until(SOON, || {
        output = client.get(&seen).text();
        output.contains("'received' : 10000") && output.contains("'size' : 30000")
    });
    assert!(is_notified, "{output}");
    client.send_data(upload, &[b'x'; 20_000], true);
    assert_eq!(client.answer(upload).text(), "30000");
}

#[test]
fn a_rate_is_that_of_the_connection_whatever_its_streams() {
    let size = 300 * 1024;
    let server =
        lighty!().file("f", pattern(0, size)).config("connection.kbytes-per-second = 400").start();
    let mut client = connect(&server);
    let start = Stopwatch::start(&server);
    let streams = [(); 2].map(|()| client.request("GET", "/f", &[], true));
    for stream in streams {
        assert_eq!(client.answer(stream).body.len(), size);
    }
    // A quarter of a second's worth may go ahead.
    assert!(start.elapsed() > Duration::from_millis(1_100), "{:?}", start.elapsed());
}

#[test]
fn reloads_under_load_end_no_connection_and_lose_no_stream() {
    let site = |setup: Setup| setup.file("a.txt", "hello\n").file("big", pattern(0, 1 << 20));
    let server = site(lighty!().config("server.max-worker = 2")).start();
    let address = server.address();
    let clients: Vec<_> = (0..3)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Http2::connect(address);
                for _ in 0..40 {
                    let streams =
                        ["/big", "/a.txt", "/a.txt"].map(|t| client.request("GET", t, &[], true));
                    let lengths = streams.map(|stream| client.answer(stream).body.len());
                    assert_eq!(lengths, [1 << 20, 6, 6]);
                }
                client.goaways.len()
            })
        })
        .collect();
    for generation in 1..=5 {
        server.signal(Signal::USR1);
        server.await_log(&format!("reloaded: generation {generation}"));
    }
    for client in clients {
        assert_eq!(client.join().expect("every response"), 0);
    }
}

/// Streams of the received DATA frames, with their lengths, until a stream has ended.
fn order_until(client: &mut Http2, last: u32) -> Vec<(u32, usize)> {
    let mut order = Vec::new();
    while !client.so_far(last).has_ended {
        let frame = client.next_frame().expect("the connection goes on");
        if frame.kind == kind::DATA {
            order.push((frame.stream, frame.payload.len()));
        }
    }
    order
}

#[test]
fn urgent_response_overtakes_within_narrow_windows() {
    let server = lighty!().file("big", pattern(0, BIG)).file("small", pattern(1, 10_000)).start();
    for (priority, is_first) in [("u=0", true), ("u=3", false), ("u=7", false)] {
        let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        client.credits = false;
        let big = client.request("GET", "/big", &[], true);
        client.read_until(big, |answer| answer.body.len() == 65_535);
        let small = client.request("GET", "/small", &[("priority", priority)], true);
        assert_eq!(client.head(small).status, 200);
        client.open_window(0, 20_000);
        if is_first {
            assert_eq!(order_until(&mut client, small), [(small, 10_000)]);
        }
        let got = client.read_until(big, |answer| {
            answer.body.len() >= 65_535 + if is_first { 10_000 } else { 20_000 }
        });
        assert_eq!(got.body.len(), 65_535 + if is_first { 10_000 } else { 20_000 }, "{priority}");
    }
}

#[test]
fn urgent_response_overtakes_on_a_slow_link() {
    let server = lighty!().file("big", pattern(0, BIG)).file("small", pattern(1, 10_000)).start();
    let client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    let settings = [(INITIAL_WINDOW_SIZE, 1 << 30)];
    let mut client = Http2::over(client, &server.address().to_string(), &settings);
    client.credits = false;
    client.open_window(0, 1 << 30);
    let big = client.request("GET", "/big", &[], true);
    // About 6 Mbit/s.
    let take = |client: &mut Http2| {
        std::thread::sleep(Duration::from_millis(20));
        client.next_frame().expect("the connection goes on")
    };
    while client.so_far(big).body.len() < 2 << 20 {
        take(&mut client);
    }
    let before = client.so_far(big).body.len();
    let small = client.request("GET", "/small", &[("priority", "u=0")], true);
    while !client.so_far(small).has_ended {
        take(&mut client);
    }
    let overtaken = client.so_far(big).body.len() - before;
    assert!(overtaken < 300_000, "{overtaken} bytes came first");
}
