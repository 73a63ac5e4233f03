//! HTTP/2 with prior knowledge, from the client's side: files, bodies, backends, programs, and the
//! end of streams and connections.

use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::http2::{
    CANCEL, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Http2, INITIAL_WINDOW_SIZE, NO_ERROR,
    PROTOCOL_ERROR, REFUSED_STREAM, block, frame, kind,
};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(30);

const BIG: usize = 3 << 20;

fn site() -> Setup {
    lighty!()
        .file("a.txt", "hello\n")
        .file("empty", "")
        .file("big", pattern(0, BIG))
        .file("secret/a.txt", "secret\n")
        .config("mimetype.assign = ( \".txt\" => \"text/plain\" )")
        .config("$HTTP[\"url\"] =^ \"/secret/\" { url.access-deny = ( \"\" ) }")
}

fn connect(server: &Server) -> Http2 {
    Http2::connect(server.address())
}

#[test]
fn files_are_sent_as_over_http1() {
    let server = site().start();
    let mut client = connect(&server);
    for target in ["/a.txt", "/empty", "/big", "/none", "/secret/a.txt", "/a.txt?q"] {
        for fields in [&[][..], &[("range", "bytes=1-3")], &[("if-none-match", "*")]] {
            let lines: String = fields.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
            let (one, two) = (server.get_with(target, &lines), client.get_with(target, fields));
            assert_eq!((one.status, one.body.len()), (two.status, two.body.len()), "{target}");
            if one.status < 400 {
                assert_eq!(one.body, two.body, "{target}");
            }
            for name in ["Content-Type", "Content-Length", "ETag", "Content-Range", "Server"] {
                let two = two.field(&name.to_ascii_lowercase());
                assert_eq!(one.field(name), two.as_deref(), "{target} {fields:?}: {name}");
            }
            assert!(two.field("date").is_some() && two.field("connection").is_none());
        }
    }
    let head = client.request("HEAD", "/big", &[], true);
    let head = client.answer(head);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.field("content-length"), Some(BIG.to_string()));
}

#[test]
fn many_streams_share_a_connection_and_small_windows() {
    let server = site().start();
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 3000)]);
    let streams: Vec<u32> =
        (0..50).map(|nth| client.request("GET", ["/big", "/a.txt"][nth % 2], &[], true)).collect();
    for (nth, stream) in streams.into_iter().enumerate() {
        let got = client.answer(stream);
        assert_eq!((got.status, got.reset), (200, None));
        let wanted = if nth % 2 == 0 { pattern(0, BIG) } else { b"hello\n".to_vec() };
        assert!(got.body == wanted, "stream {stream}: {} bytes", got.body.len());
    }
}

#[test]
fn a_response_that_waited_for_a_window_is_sent_and_logged_as_any_other() {
    let format = "%h %m %U %q %H %s %b %{x-own}i %{etag}o %{content-type}o %V";
    let server = site()
        .config("server.modules += ( \"mod_accesslog\" )")
        .config("accesslog.filename = \"@DIR@/access.log\"")
        .config(&format!("accesslog.format = \"{format}\""))
        .start();
    let ask = |client: &mut Http2, target| client.request("GET", target, &[("x-own", "o")], true);
    let targets = ["/big?q=1", "/a.txt", "/none", "/secret/a.txt"];
    let mut prompt = connect(&server);
    let sent = targets.map(|target| {
        let stream = ask(&mut prompt, target);
        prompt.answer(stream)
    });
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    client.credits = false;
    client.open_window(0, 1 << 30);
    let streams = targets.map(|target| ask(&mut client, target));
    for (stream, wanted) in streams.into_iter().zip(&sent) {
        let head = client.head(stream);
        assert_eq!((head.status, head.body.len()), (wanted.status, 0));
    }
    // Meanwhile other clients are served with the remaining capacity.
    assert_eq!(prompt.get("/a.txt").text(), "hello\n");
    for (stream, wanted) in streams.into_iter().zip(&sent) {
        // Twice the window opens a little and is used up.
        for part in 1..=2 {
            client.open_window(stream, 2);
            client.read_until(stream, |answer| answer.body.len() == 2 * part);
        }
        client.open_window(stream, 1 << 30);
        let answer = client.answer(stream);
        assert_eq!((answer.body.len(), answer.reset), (wanted.body.len(), None));
        // Error pages contain the request's id.
        assert!(answer.body == wanted.body || answer.status >= 400, "{}", answer.text());
    }
    let log = server.directory().join("access.log");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(SOON, || lines().lines().count() == 9), "{}", lines());
    let text = lines();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], lines[5..], "{text}");
}

#[test]
fn a_stream_without_a_window_is_cut_in_time_and_its_siblings_go_on() {
    let server = site().config("server.max-write-idle = 2").start();
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let (stuck, gone) = (client.request("GET", "/big", &[], true), 3);
    assert_eq!(client.request("GET", "/big", &[], true), gone);
    client.head(gone);
    client.reset(gone, CANCEL);
    assert_eq!(client.answer(stuck).reset, Some(CANCEL));
    let next = client.request("GET", "/a.txt", &[], true);
    client.open_window(next, 100);
    assert_eq!(client.answer(next).text(), "hello\n");
}

#[test]
fn refused_request_costs_only_its_own_stream() {
    let server = site().config("server.max-request-size = 1").start();
    let mut client = connect(&server);
    let long = "x".repeat(9000);
    for (method, target, fields, status) in [
        ("BREW", "/a.txt", vec![], 501),
        ("CONNECT", "", vec![], 405),
        ("TRACE", "/a.txt", vec![], 405),
        ("GET", "/%00", vec![], 400),
        ("GET", &*format!("/{long}"), vec![], 414),
        ("GET", "/a.txt", vec![("x-long", &*long)], 431),
        ("POST", "/a.txt", vec![("content-length", "2000000")], 413),
    ] {
        let mut all = client.request_fields(method, target);
        if method == "CONNECT" {
            all.retain(|(name, _)| name == ":method" || name == ":authority");
        }
        all.extend(fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let stream = client.open(&all, method != "POST");
        assert_eq!(client.answer(stream).status, status, "{method} {target:.20}");
    }
    assert_eq!(client.get("/a.txt").text(), "hello\n", "the connection goes on");
    assert!(client.goaways.is_empty());
}

#[test]
fn bodies_go_both_ways_through_a_backend() {
    let backend = Backend::replying(|seen| {
        answer("200 OK", "X-Own: b\r\nConnection: close\r\n", &seen.body.len().to_string())
    });
    let server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let got = client.post("/up", &[b'x'; 40_000]);
    assert_eq!((got.status, got.text().as_str()), (200, "40000"));
    assert_eq!((got.field("x-own").as_deref(), got.field("connection")), (Some("b"), None));
    let cookies = [("cookie", "a=1"), ("cookie", "b=2")];
    assert_eq!(client.get_with("/c", &cookies).status, 200);
    let seen = backend.requests_for("/c");
    assert_eq!(seen[0].field("Cookie"), Some("a=1; b=2"));
    assert_eq!(seen[0].field("Host"), Some(&*server.address().to_string()));
}

#[test]
fn an_upload_larger_than_any_window_is_taken_as_it_is_read() {
    let backend = Backend::replying(|seen| answer("200 OK", "", &seen.body.len().to_string()));
    let server = site().in_front_of(&backend.name()).start();
    let mut upload = vec![b'x'; 4 << 20];
    upload[0] = b'y';
    std::fs::write(server.directory().join("upload"), &upload).expect("a file");
    let output = std::process::Command::new("curl")
        .args(["-sS", "--http2-prior-knowledge", "--data-binary"])
        .arg(format!("@{}", server.directory().join("upload").display()))
        .arg(format!("http://{}/up", server.address()))
        .output()
        .expect("curl");
    assert_eq!(String::from_utf8_lossy(&output.stdout), (4 << 20).to_string(), "{output:?}");
}

#[test]
fn the_log_and_the_status_know_the_protocol() {
    let server = site()
        .config("server.modules += ( \"mod_accesslog\" )")
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%r %s %b\"")
        .config("http2.max-field-size = 4096")
        .start();
    let mut client = connect(&server);
    assert_eq!(client.get("/a.txt").status, 200);
    let log = server.directory().join("access.log");
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(SOON, || read() == "GET /a.txt HTTP/2.0 200 6\n"), "{}", read());
    // The log leaves the target of a request with an overlong path empty.
    assert_eq!(client.get(&format!("/{}", "x".repeat(5000))).status, 431);
    assert!(wait_until(SOON, || read().contains("\nGET  HTTP/2.0 431 ")), "{}", read());
}

#[test]
fn a_stream_that_is_reset_ends_its_backend_and_no_other_stream() {
    let backend = Backend::start(|peer| {
        if let Some(seen) = peer.request() {
            if seen.target() == "/hang" {
                peer.hang();
            } else {
                peer.answer("there");
            }
        }
    });
    let server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let hanging = client.request("GET", "/hang", &[], true);
    assert!(wait_until(SOON, || backend.open() == 1));
    client.reset(hanging, CANCEL);
    assert_eq!(client.get("/other").text(), "there");
    assert!(wait_until(SOON, || backend.open() == 0), "the backend is let go");
}

/// Returns once the server has handled all sent frames.
fn settle(client: &mut Http2) {
    client.send_frame(kind::PING, 0, 0, b"settled?");
    loop {
        let frame = client.next_frame().expect("the connection goes on");
        if frame.kind == kind::PING && frame.flags == 1 && frame.payload == b"settled?" {
            return;
        }
    }
}

#[test]
fn streams_that_a_client_cancels_make_room_for_others_at_once() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let mut open: Vec<u32> = (0..100).map(|_| client.request("GET", "/h", &[], true)).collect();
    settle(&mut client);
    for _ in 0..5 {
        // In one write, so that all of it is handled in one turn.
        let mut bytes = Vec::new();
        for stream in open.drain(..10) {
            bytes.extend(frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
        }
        client.client().send(bytes);
        let new: Vec<u32> = (0..10).map(|_| client.request("GET", "/h", &[], true)).collect();
        settle(&mut client);
        for &stream in &new {
            assert_eq!(client.so_far(stream).reset, None, "stream {stream}");
        }
        open.extend(new);
    }
    let refused = client.request("GET", "/a.txt", &[], true);
    assert_eq!(client.answer(refused).reset, Some(REFUSED_STREAM), "the hundred and first");
    assert!(client.goaways.is_empty());
}

#[test]
fn request_without_content_is_forwarded_once_it_has_ended() {
    let backend = Backend::replying(|seen| {
        answer("200 OK", "", seen.field("Content-Length").unwrap_or("none"))
    });
    let server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let begin =
        |client: &mut Http2| client.request("POST", "/up", &[("content-length", "0")], false);
    let stream = begin(&mut client);
    client.send_data(stream, b"hello", true);
    assert_eq!(client.answer(stream).reset, Some(PROTOCOL_ERROR));
    let stream = begin(&mut client);
    settle(&mut client);
    assert_eq!(backend.opened(), 0, "nothing was forwarded");
    client.send_data(stream, b"", true);
    assert_eq!(client.answer(stream).text(), "0");
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn request_that_does_not_end_is_cut_in_time() {
    let backend = Backend::replying(|_| answer("200 OK", "", "late"));
    let server = site().in_front_of(&backend.name()).config("server.max-read-idle = 1").start();
    let mut client = connect(&server);
    let stream = client.request("POST", "/up", &[("content-length", "0")], false);
    let answer = client.answer(stream);
    assert!(answer.reset.is_some() && answer.status == 0, "{answer:?}");
    assert_eq!(backend.opened(), 0, "nothing was forwarded");
    assert_eq!(client.get("/up").status, 200, "others go on");
}

#[test]
fn half_closed_client_gets_whole_responses_beside_an_incomplete_request() {
    let server = site().start();
    let window = 8 << 20;
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, window)]);
    client.open_window(0, window);
    let whole = client.request("GET", "/big", &[], true);
    // Its error page waits behind the file when the input ends.
    let incomplete = client.request("POST", "/secret/a.txt", &[], false);
    client.client().half_close();
    let answer = client.answer(whole);
    assert!(answer.body == pattern(0, BIG), "{} bytes", answer.body.len());
    let cut = client.answer(incomplete);
    assert!(cut.has_ended || cut.reset == Some(CANCEL), "{cut:?}");
}

/// Opens streams on twenty connections. Each names a field of 3 KB five times, and eight crumbs of
/// a cookie, encoded in a few bytes each. Returns the server's growth in KiB.
fn grow_by_fields(server: &Server, target: &str) -> u64 {
    let before = server.own_kib();
    let mut clients: Vec<Http2> = (0..20)
        .map(|_| Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]))
        .collect();
    for client in &mut clients {
        for nth in 0..100_u32 {
            let mut fields = block(&client.request_fields("GET", target));
            if nth == 0 {
                // Into the table: a value of 3,000 bytes.
                fields.extend([0x40, 1, b'x', 0x7F, 0xB9, 0x16]);
                fields.extend([b'v'; 3000]);
            }
            fields.extend([0xBE; 5]);
            fields.extend(block(&vec![("cookie".to_owned(), "a=b".to_owned()); 8]));
            let flags = END_HEADERS | END_STREAM;
            client.send_frame(kind::HEADERS, flags, nth * 2 + 1, &fields);
        }
        client.credits = false;
    }
    for _ in 0..5 {
        for client in &mut clients {
            for nth in 0..100 {
                let _ = client.try_send_frame(
                    kind::WINDOW_UPDATE,
                    0,
                    nth * 2 + 1,
                    &1_u32.to_be_bytes(),
                );
            }
            settle(client);
        }
    }
    server.own_kib().saturating_sub(before)
}

#[test]
fn requests_of_many_fields_that_wait_are_bounded() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config(&format!(
            "$HTTP[\"url\"] == \"/silent\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\" )\nproxy-core.max-pool-size = 3000 }}",
            backend.name()
        ))
        .start();
    assert_eq!(connect(&server).get("/big").status, 200);
    for target in ["/big", "/silent"] {
        let grown = grow_by_fields(&server, target);
        assert!(grown <= 20 << 10, "{target}: {grown} KiB for 2000 streams");
    }
}

#[test]
fn a_stop_lets_streams_end_and_says_so_twice() {
    let backend = Backend::start(|peer| {
        if peer.request().is_some() {
            std::thread::sleep(Duration::from_millis(300));
            peer.answer("late");
        }
    });
    let mut server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let stream = client.request("GET", "/x", &[], true);
    assert!(wait_until(SOON, || backend.opened() == 1));
    server.signal(rustix::process::Signal::INT);
    assert_eq!(client.answer(stream).text(), "late");
    client.read_to_end();
    let lasts: Vec<_> = client.goaways.iter().map(|(last, code, _)| (*last, *code)).collect();
    assert_eq!(lasts, [(0x7fff_ffff, NO_ERROR), (stream, NO_ERROR)]);
    server.await_exit(SOON);
}

/// Bytes in the kernel's buffers are read in any case, so the flood comes slowly.
#[test]
fn flood_is_hardly_read_behind_its_goaway() {
    let server = site().start();
    let mut client = connect(&server);
    for nth in 0..101 {
        let fields = client.request_fields("GET", "/a.txt");
        let block = lighty_testkit::http2::block(&fields);
        client.send_frame(kind::HEADERS, END_HEADERS | END_STREAM, 1 + 2 * nth, &block);
        client.send_frame(kind::RST_STREAM, 0, 1 + 2 * nth, &CANCEL.to_be_bytes());
    }
    let is_taken = |_: &u32| {
        std::thread::sleep(Duration::from_millis(10));
        client.client().try_send([0; 16 * 1024]).is_ok()
    };
    let taken = (0..256).take_while(is_taken).count();
    assert!(taken < 192, "{taken} times 16 KiB");
}

#[test]
fn floods_end_their_connection_and_no_other() {
    let server = site().start();
    let settled = |attack: &dyn Fn(&mut Http2) -> bool| {
        let mut client = connect(&server);
        client.get("/a.txt");
        while attack(&mut client) {}
        client.read_to_end();
        client.goaways.last().map(|(_, code, message)| (*code, message.clone()))
    };
    let ping = |client: &mut Http2| client.try_send_frame(kind::PING, 0, 0, &[0; 8]).is_ok();
    let settings = |client: &mut Http2| client.try_send_frame(kind::SETTINGS, 0, 0, &[]).is_ok();
    for attack in [&ping as &dyn Fn(&mut Http2) -> bool, &settings] {
        // A client that does not read may lose the GOAWAY with the connection.
        if let Some((code, message)) = settled(attack) {
            assert!(code == ENHANCE_YOUR_CALM && message.contains("http2."), "{message}");
        }
    }
    let mut bomb = connect(&server);
    bomb.send_frame(kind::HEADERS, 0, 1, &[]);
    for _ in 0..9 {
        let _ = bomb.try_send_frame(kind::CONTINUATION, 0, 1, &[0x82]);
    }
    bomb.read_to_end();
    assert!(bomb.goaways[0].2.contains("http2.max-continuations"), "{:?}", bomb.goaways);
    let mut resets = connect(&server);
    for nth in 0..200 {
        let mut fields = resets.request_fields("GET", "/none");
        fields.push(("te".into(), "gzip".into()));
        let block = lighty_testkit::http2::block(&fields);
        if resets.try_send_frame(kind::HEADERS, END_HEADERS | 1, 1 + 2 * nth, &block).is_err() {
            break;
        }
    }
    resets.read_to_end();
    assert!(resets.goaways[0].2.contains("http2.max-resets"), "{:?}", resets.goaways);
    assert_eq!(connect(&server).get("/a.txt").text(), "hello\n");
}

#[test]
fn streams_that_take_nothing_cost_next_to_nothing() {
    let server = site().start();
    assert_eq!(connect(&server).get("/big").status, 200);
    let before = server.own_kib();
    let wait = |_| {
        let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        let streams = [(); 100].map(|()| client.request("GET", "/big", &[], true));
        for stream in streams {
            assert_eq!(client.head(stream).status, 200);
        }
        client
    };
    let _clients: Vec<Http2> = (0..20).map(wait).collect();
    let grown = server.own_kib().saturating_sub(before);
    // bench/floods.py wants 5 MB; a debug build's futures are larger.
    assert!(grown <= 6 << 10, "{grown} KiB for 2000 streams");
}

#[test]
fn http2_is_a_switch_and_http1_goes_on_beside_it() {
    let server = site().start();
    let mut one = server.connect();
    one.send("PRI * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(one.response().status, 400);
    let mut pieces = server.connect();
    pieces.send_in_pieces(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 1);
    assert_eq!(pieces.read_exact(9).expect("SETTINGS")[3], kind::SETTINGS);
    let off = site().config("server.feature-flags = ( \"server.h2proto\" => \"disable\" )").start();
    let mut client: Client = off.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(client.response().status >= 400);
}

#[test]
fn the_limits_of_the_configuration_hold_on_both_sides() {
    let limited = |line: &str| site().config(line).start();
    let server = limited("http2.max-streams = 2\nhttp2.max-refused-streams = 1");
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    for _ in 0..2 {
        let stream = client.request("GET", "/big", &[], true);
        assert_eq!((client.head(stream).status, client.settings[&3]), (200, 2));
    }
    let streams = [(); 2].map(|()| client.request("GET", "/big", &[], true));
    assert_eq!(client.answer(streams[0]).reset, Some(REFUSED_STREAM));
    client.read_to_end();
    assert!(client.goaways[0].2.contains("http2.max-refused-streams"), "{:?}", client.goaways);

    let server = limited("http2.max-requests = 2");
    let mut client = connect(&server);
    assert_eq!((client.get("/a.txt").status, client.goaways.len()), (200, 0));
    assert_eq!(client.get("/a.txt").status, 200);
    client.read_to_end();
    assert_eq!(client.goaways.last(), Some(&(3, NO_ERROR, String::new())));

    let server = limited("http2.max-field-size = 4096\nhttp2.max-fields = 16");
    let mut client = connect(&server);
    for (length, status) in [(3000, 200), (5000, 431)] {
        assert_eq!(client.get_with("/a.txt", &[("x", &"x".repeat(length))]).status, status);
    }
    for (count, status) in [(12, 200), (13, 431)] {
        assert_eq!(client.get_with("/a.txt", &vec![("x", "y"); count]).status, status);
    }
    assert_eq!(client.settings[&6], 4096);
    let _ = client.get_with("/a.txt", &[]);
    let fields = client.request_fields("GET", &format!("/{}", "x".repeat(9000)));
    client.open(&fields, true);
    client.read_to_end();
    assert!(client.goaways[0].2.contains("http2.max-field-size"), "{:?}", client.goaways);

    let server = limited("http2.block-timeout = 1");
    let mut slow = connect(&server);
    slow.get("/a.txt");
    slow.client().send([0, 0, 9, kind::HEADERS]);
    slow.read_to_end();
    assert_eq!(slow.goaways[0].1, ENHANCE_YOUR_CALM);
    assert!(slow.goaways[0].2.contains("http2.block-timeout"), "{:?}", slow.goaways);
}

#[test]
fn a_slow_stream_is_cut_without_its_sibling() {
    let server = site().config("server.max-write-idle = 1").start();
    let mut client = Http2::connect_with(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let stalled = client.request("GET", "/big", &[], true);
    assert_eq!(client.answer(stalled).reset, Some(CANCEL));
    client.send_frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]);
    assert_eq!(client.get("/a.txt").text(), "hello\n", "the connection goes on");
    let backend = Backend::replying(|_| answer("200 OK", "", "x"));
    let server = site().config("server.max-read-idle = 1").in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let upload = client.request("POST", "/a.txt", &[("content-length", "5")], false);
    client.send_frame(kind::DATA, 0, upload, b"a");
    let got = client.answer(upload);
    assert_eq!(got.status, 408, "{}", got.text());
    assert_eq!(client.get("/empty").status, 200);
}

#[test]
fn hints_and_trailers_of_a_backend_come_through() {
    let backend = Backend::start(|peer| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n\
                 Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n",
            );
        }
    });
    let server = site().in_front_of(&backend.name()).start();
    let mut client = connect(&server);
    let got = client.get_with("/", &[("te", "trailers")]);
    assert_eq!((got.status, got.text().as_str()), (200, "hi"));
    let hint = vec![("link".to_owned(), "</a.css>".to_owned())];
    assert_eq!(got.interim, [(103, hint)]);
    assert_eq!(got.trailers, [("x-sum".to_owned(), "7".to_owned())]);
    assert!(client.get("/").trailers.is_empty(), "only to those who ask for them");
    let mut upload = connect(&server);
    let expecting = [("content-length", "2"), ("expect", "100-continue")];
    let stream = upload.request("POST", "/", &expecting, false);
    upload.read_until(stream, |answer| !answer.interim.is_empty());
    upload.send_data(stream, b"hi", true);
    let got = upload.answer(stream);
    assert_eq!((got.interim[0].0, got.status), (100, 200));
}
