//! Windows of a backend, and the limits of time while they are closed.

use super::*;

/// A backend that announces a window of its own and gives credit once as many bytes as `credits_at`
/// have come. It responds with how many there were.
fn counting(settings: &'static [u8], credits_at: usize) -> Backend {
    Backend::start(move |peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, settings));
        let mut far = Far { peer, decoder: Decoder::default() };
        let (mut counted, mut uncredited) = (0, 0);
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::HEADERS => (counted, uncredited) = (0, 0),
                kind::DATA => {
                    counted += got.payload.len();
                    uncredited += got.payload.len();
                    if got.flags & END_STREAM != 0 {
                        far.respond(got.stream, &counted.to_string());
                    } else if uncredited >= credits_at {
                        let credit = (uncredited as u32).to_be_bytes();
                        far.send(kind::WINDOW_UPDATE, 0, 0, &credit);
                        far.send(kind::WINDOW_UPDATE, 0, got.stream, &credit);
                        uncredited = 0;
                    }
                }
                _ => {}
            }
        }
    })
}

#[test]
fn upload_goes_on_where_the_window_of_the_stream_is_small() {
    // SETTINGS_INITIAL_WINDOW_SIZE of 100, and credit as content comes.
    let backend = counting(&[0, 4, 0, 0, 0, 100], 1);
    let server = front(&backend.name()).start();
    for bytes in [100, 101, 1000] {
        let got = server.post("/", &format!("Content-Length: {bytes}"), &pattern(1, bytes));
        assert_eq!(got, bytes.to_string().into_bytes(), "{}", server.log());
    }
}

#[test]
fn upload_goes_on_where_the_window_of_the_connection_is_used_up() {
    let backend = counting(&[0, 4, 0, 1, 0, 0], 65_535);
    let server = front(&backend.name()).start();
    let body = pattern(1, 65_550);
    let got = server.post("/", "Content-Length: 65550", &body);
    assert_eq!(got, b"65550", "{}", server.log());
}

/// All of the request is at hand, and the backend's window lets none of its content go.
#[test]
fn backend_without_a_window_is_timed_by_the_write_timeout() {
    let backend = counting(&[0, 4, 0, 0, 0, 0], usize::MAX);
    let timeouts = "proxy-core.write-timeout = 1\nproxy-core.read-timeout = 60";
    let server = front(&backend.name()).config(timeouts).start();
    for (bytes, is_chunked) in [(5, false), (300_000, false), (5, true), (300_000, true)] {
        let body = pattern(1, bytes);
        let mut client = server.connect();
        client.set_deadline(PATIENCE);
        if is_chunked {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.send(lighty_testkit::content::chunked(&body, 70_000));
        } else {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
            client.send(head);
            client.send(&body);
        }
        assert_eq!(client.response().status, 504, "{bytes}, chunked: {is_chunked}");
    }
    let lines = || server.log().matches("proxy-core.write-timeout ran out").count();
    assert!(wait_until(PATIENCE, || lines() >= 4), "{}", server.log());
    assert_eq!(lines(), 4, "{}", server.log());
}

/// Backend that opens its windows by one byte every 400 ms, `bytes` times. Then it responds if
/// `responds` is set.
fn trickling(bytes: u32, responds: bool) -> Backend {
    Backend::start(move |peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let mut far = Far { peer, decoder: Decoder::default() };
        let Some((stream, _)) = far.request() else { return };
        for _ in 0..bytes {
            std::thread::sleep(Duration::from_millis(400));
            far.send(kind::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
        }
        while let Some(got) = far.frame() {
            if got.kind == kind::DATA && got.flags & END_STREAM != 0 && responds {
                far.respond(stream, "done");
            }
        }
    })
}

#[test]
fn write_timeout_starts_over_with_each_byte_that_the_backend_takes() {
    let backend = trickling(5, true);
    // The read timeout begins when the backend has the request.
    for timeouts in ["write-timeout = 1\nproxy-core.read-timeout = 60", "read-timeout = 1"] {
        let server = front(&backend.name()).config(&format!("proxy-core.{timeouts}")).start();
        let got = server.post("/", "Content-Length: 5", b"hello");
        assert_eq!(got, b"done", "{timeouts}: {}", server.log());
    }
}

#[test]
fn read_timeout_begins_when_the_window_has_opened() {
    let backend = trickling(5, false);
    let timeouts = "proxy-core.write-timeout = 60\nproxy-core.read-timeout = 1";
    let server = front(&backend.name()).config(timeouts).start();
    let watch = std::time::Instant::now();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 504);
    let took = watch.elapsed();
    assert!(took > Duration::from_secs(3) && took < PATIENCE, "{took:?}");
    server.await_log("proxy-core.read-timeout ran out");
}

/// The same behind the head of a response, which an upload may go on beside.
#[test]
fn write_timeout_holds_behind_the_head_of_a_response() {
    let backend = Backend::start(|peer| {
        if peer.read_exact(24).is_none() {
            return;
        }
        peer.send(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        let mut far = Far { peer, decoder: Decoder::default() };
        let Some((stream, _)) = far.request() else { return };
        far.send(kind::HEADERS, END_HEADERS, stream, &block(&[(":status".into(), "200".into())]));
        while far.frame().is_some() {}
    });
    let timeouts = "proxy-core.write-timeout = 1\nproxy-core.read-timeout = 60";
    let server = front(&backend.name()).config(timeouts).start();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response_head().status, 200);
    server.await_log("proxy-core.write-timeout");
}
