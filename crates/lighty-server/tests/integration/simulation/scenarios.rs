//! Scenarios that random runs have found, each as a test of its own.

use std::rc::Rc;
use std::time::Duration;

use lighty_http::Fields;
use lighty_io::log_writer::LogHandle;
use lighty_io::simulated;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_io::transport::{Peer, Stream};
use lighty_server::simulated::Simulated;
use lighty_wire::http2::{Connection, Limits, RequestParts, StreamKey};
use tokio::time::sleep;

use super::Site;
use super::h2_end::{H2End, News};
use super::raw;
use super::rng::body_of;
use super::run::{in_paused_time, start};
use super::sim::{BackendBehavior, BackendTask, Sim, now_ms};
use super::site::{self, CHANGING_PORT, CLEAR_PORT, FILES, IDLE_S, RAW_PORTS, TLS_PORT};
use super::site::{tls_client, upload};
use super::wire::Wire;
use super::world::Machine;

/// Runs a scenario with a server that takes `connections_max` connections.
fn scenario(connections_max: usize, play: impl AsyncFnOnce(Rc<Simulated>, Rc<Sim>)) {
    let site = Site::new();
    let sim = Sim::calm(site.path());
    in_paused_time(async {
        let _inside = simulated::enter(Machine::new(&sim));
        let server = start(&sim, &LogHandle::in_memory(), connections_max);
        play(server, Rc::clone(&sim)).await;
    });
    assert_eq!(sim.take_wrong(), Vec::<String>::new());
}

/// Connects a client in clear text, with a response buffer of `room` bytes.
fn connect(server: &Rc<Simulated>, room: usize) -> MemoryEnd {
    connect_to(server, room, CLEAR_PORT)
}

fn connect_to(server: &Rc<Simulated>, room: usize, port: u16) -> MemoryEnd {
    let address = ([10, 0, 2, 1], 40_000).into();
    let (ours, theirs) = memory::pair(([10, 0, 0, 1], port).into(), address, room);
    let server = Rc::clone(server);
    tokio::task::spawn_local(async move {
        server.accept(Stream::from_memory(ours), Peer::Inet(address), port).await;
    });
    theirs
}

#[test]
fn a_refused_client_that_reads_nothing_does_not_stay() {
    scenario(10, async |server, _sim| {
        let client = connect(&server, 100);
        client.write_all(b"\x01 garbage\r\n\r\n").await.expect("written");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(server.worker.conns.open(), 0);
        assert_eq!(server.worker.machine.counters.cut.get(), 1);
        drop(client);
    });
}

/// The last bytes fill the socket's buffer in one of the runs, so that close_notify has to wait.
#[test]
fn raw_connection_over_tls_ends_with_close_notify() {
    scenario(10, async |server, sim| {
        for length in (400..600).step_by(10) {
            let number = raw::prepare(&sim, length);
            let end = connect_to(&server, 600, RAW_PORTS[1]);
            let client = Wire::secure(end, &tls_client(&sim.root, &[]));
            client.write_all(&number.to_be_bytes()).await.expect("written");
            client.shutdown_write().await;
            sleep(Duration::from_secs(2)).await;
            let mut piece = [0; 1_000];
            while client.read(&mut piece).await.expect("bytes") > 0 {}
            assert!(!client.is_truncated(), "after {length} bytes");
        }
    });
}

/// Some listener expects a PROXY header, so every connection waits for bytes first.
#[test]
fn silent_connection_keeps_the_protocol_of_its_listener_over_a_reload() {
    scenario(10, async |server, sim| {
        let client =
            Wire::secure(connect_to(&server, 10_000, CHANGING_PORT), &tls_client(&sim.root, &[]));
        sleep(Duration::from_millis(10)).await;
        server.swap(&site::config(&sim, 1)).expect("a swap");
        assert!(!server.speaks_tls(CHANGING_PORT));
        let request = b"GET /s/2 HTTP/1.1\r\nHost: simulated\r\n\r\n";
        client.write_all(request).await.expect("written");
        let response = read_response(&client).await;
        let text = String::from_utf8_lossy(&response);
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    });
}

/// Connects a client of HTTP/2 with this window for each stream.
fn connect_h2(server: &Rc<Simulated>, room: usize, window_bytes: u32) -> H2End {
    let limits = Limits {
        stream_window_bytes: window_bytes,
        stream_window_bytes_max: window_bytes,
        conn_window_bytes: 65_535,
        ..Limits::default()
    };
    H2End::new(Connection::client(limits, now_ms()), Wire::plain(connect(server, room)))
}

/// Requests the file of this number.
fn request(end: &mut H2End, index: usize) -> StreamKey {
    request_of(end, "simulated", index)
}

fn request_of(end: &mut H2End, host: &str, index: usize) -> StreamKey {
    let path = format!("/s/{index}");
    let parts = RequestParts {
        method: b"GET",
        scheme: b"http",
        authority: host.as_bytes(),
        path: path.as_bytes(),
        protocol: None,
    };
    end.machine.open(&parts, &Fields::new(), true).expect("a stream")
}

/// Requests files on one connection of HTTP/2, which takes 4 KB in a second. Returns the number of
/// bytes received of each.
async fn read_slowly(server: &Rc<Simulated>, files: &[usize], window_bytes: u32) -> Vec<usize> {
    let mut end = connect_h2(server, 300, window_bytes);
    let keys: Vec<_> = files.iter().map(|index| request(&mut end, *index)).collect();
    read_slowly_from(&mut end, &keys).await.unwrap_or_else(|cut| panic!("{cut}"))
}

/// Reads 4 KB in a second. Returns the number of bytes received of each stream, or an error if one
/// is cut.
async fn read_slowly_from(end: &mut H2End, keys: &[StreamKey]) -> Result<Vec<usize>, String> {
    let mut received = vec![0; keys.len()];
    let mut left = keys.len();
    while left > 0 && end.ended.is_none() {
        for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
            match news {
                News::Data { key, bytes, ends } => {
                    let nth = keys.iter().position(|known| *known == key).expect("a stream");
                    received[nth] += bytes.len();
                    end.machine.credit(key, bytes.len());
                    left -= usize::from(ends);
                }
                News::Reset { code, .. } => return Err(format!("reset with {}", code.name())),
                _ => {}
            }
        }
        sleep(Duration::from_millis(70)).await;
    }
    if left == 0 { Ok(received) } else { Err(format!("the end after {received:?}")) }
}

/// `server.max-write-idle` is 6 seconds. Streams are sent one after the other, and each waits for
/// much longer while the client takes the bytes of the others, or those already written.
#[test]
fn streams_of_a_slow_connection_are_not_timed_out_while_others_are_sent() {
    for (files, window_bytes) in [(&[5, 4][..], 65_535), (&[5, 5, 5], 16_000), (&[6], 300_000)] {
        scenario(10, async |server, _sim| {
            let received = read_slowly(&server, files, window_bytes).await;
            let lengths: Vec<_> = files.iter().map(|index| FILES[*index] as usize).collect();
            assert_eq!(received, lengths, "windows of {window_bytes} bytes");
            assert_eq!(server.worker.machine.counters.cut.get(), 0);
        });
    }
}

/// The client takes 4 KB in a second, of one stream or of several together.
#[test]
fn minimum_rate_applies_to_the_link_that_streams_share() {
    for (host, is_enough) in [("at-least-2500", true), ("at-least-6000", false)] {
        for (files, window_bytes) in
            [(&[6][..], 300_000), (&[6], 65_535), (&[6, 6], 300_000), (&[6, 6, 6, 6], 16_000)]
        {
            scenario(10, async |server, _sim| {
                let mut end = connect_h2(&server, 300, window_bytes);
                let request = |index: &usize| request_of(&mut end, host, *index);
                let keys: Vec<_> = files.iter().map(request).collect();
                let begun_ms = now_ms();
                let received = read_slowly_from(&mut end, &keys).await;
                let span_ms = now_ms() - begun_ms;
                let about = (host, files, window_bytes, &received, span_ms);
                assert_eq!(received.is_ok(), is_enough, "{about:?}");
                assert!(is_enough || (10_000..30_000).contains(&span_ms), "{about:?}");
            });
        }
    }
}

/// Its limits are the global ones until its head is taken. The request before it had the host's
/// limits, which the pooled exchange remembers.
#[test]
fn get_without_end_stream_has_the_limits_of_its_host() {
    scenario(10, async |server, _sim| {
        let mut end = connect_h2(&server, 300, 300_000);
        let first = request_of(&mut end, "at-least-6000", 2);
        assert_eq!(read_slowly_from(&mut end, &[first]).await, Ok(vec![44]));
        let parts = RequestParts {
            method: b"GET",
            scheme: b"http",
            authority: b"at-least-6000",
            path: b"/s/6",
            protocol: None,
        };
        let key = end.machine.open(&parts, &Fields::new(), false).expect("a stream");
        end.turn(Duration::from_millis(10), true).await.expect("frames");
        end.machine.queue_data(key, 0, true).expect("an empty frame");
        let begun_ms = now_ms();
        let received = read_slowly_from(&mut end, &[key]).await;
        let span_ms = now_ms() - begun_ms;
        assert!(received.is_err() && (10_000..30_000).contains(&span_ms), "{received:?} {span_ms}");
    });
}

/// The end of its request arrives after `server.max-keep-alive-idle`, counted from the request
/// before.
#[test]
fn connection_is_not_idle_before_the_end_of_a_get() {
    scenario(10, async |server, _sim| {
        let mut end = connect_h2(&server, 100_000, 65_535);
        let first = request(&mut end, 2);
        assert_eq!(read_slowly_from(&mut end, &[first]).await, Ok(vec![44]));
        sleep(Duration::from_secs(IDLE_S - 2)).await;
        let parts = RequestParts {
            method: b"GET",
            scheme: b"http",
            authority: b"simulated",
            path: b"/s/2",
            protocol: None,
        };
        let key = end.machine.open(&parts, &Fields::new(), false).expect("a stream");
        end.turn(Duration::from_millis(10), true).await.expect("frames");
        sleep(Duration::from_secs(4)).await;
        end.machine.queue_data(key, 0, true).expect("an empty frame");
        assert_eq!(read_slowly_from(&mut end, &[key]).await, Ok(vec![44]));
    });
}

#[test]
fn end_of_an_idle_client_is_not_answered() {
    scenario(10, async |server, _sim| {
        let mut end = connect_h2(&server, 100_000, 65_535);
        request(&mut end, 2);
        while end.turn(Duration::from_secs(1), false).await.expect("frames").is_empty() {}
        sleep(Duration::from_secs(1)).await;
        end.turn(Duration::from_secs(1), false).await.expect("frames");
        end.wire.shutdown_write().await;
        assert_eq!(end.wire.read(&mut [0; 100]).await.expect("the end"), 0);
    });
}

/// Time in which others are sent is no excuse for a client that opens no window.
#[test]
fn stream_without_a_window_is_timed_out_beside_others() {
    scenario(10, async |server, _sim| {
        let mut end = connect_h2(&server, 300, 20_000);
        let (kept, starved) = (request(&mut end, 6), request(&mut end, 5));
        let begun_ms = now_ms();
        let cut_ms = 'cut: loop {
            for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
                match news {
                    News::Data { key, bytes, .. } if key == kept => {
                        end.machine.credit(key, bytes.len());
                    }
                    News::Reset { key, .. } => {
                        assert_eq!(key, starved);
                        break 'cut now_ms() - begun_ms;
                    }
                    _ => {}
                }
            }
            sleep(Duration::from_millis(20)).await;
        };
        assert!((6_000..16_000).contains(&cut_ms), "{cut_ms} ms");
    });
}

/// The first response uses the connection's window up while the second one, of one byte, waits for
/// its turn: it is complete, and needs a window that a half-closed client cannot open.
#[test]
fn half_closed_client_without_a_window_does_not_stay() {
    for taken_bytes in [2_000, 18_000, 34_000, 50_000] {
        scenario(10, async |server, _sim| {
            let mut end = connect_h2(&server, 300, 300_000);
            request(&mut end, 6);
            let mut received = 0;
            while received < taken_bytes {
                for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
                    if let News::Data { bytes, .. } = news {
                        received += bytes.len();
                    }
                }
            }
            request(&mut end, 1);
            end.turn(Duration::from_millis(10), true).await.expect("frames");
            end.wire.shutdown_write().await;
            let limit_ms = now_ms() + 30_000;
            while end.ended.is_none() && now_ms() < limit_ms {
                end.turn(Duration::from_secs(1), false).await.expect("frames");
            }
            assert!(end.ended.is_some(), "still open, after {taken_bytes} bytes");
        });
    }
}

/// The whole response has been framed, and most of it waits for the socket.
#[test]
fn half_closed_client_gets_the_end_of_a_framed_response() {
    for (file, taken_bytes) in [(3, 1), (4, 1), (4, 20_000)] {
        scenario(10, async |server, _sim| {
            let mut end = connect_h2(&server, 300, 65_535);
            request(&mut end, file);
            let (mut received, mut has_shut_down, mut has_whole) = (0, false, false);
            while end.ended.is_none() {
                for news in end.turn(Duration::from_secs(1), false).await.expect("frames") {
                    if let News::Data { bytes, ends, .. } = news {
                        received += bytes.len();
                        has_whole |= ends;
                    }
                }
                if received >= taken_bytes && !std::mem::replace(&mut has_shut_down, true) {
                    end.wire.shutdown_write().await;
                }
            }
            assert_eq!((received as u64, has_whole), (FILES[file], true), "file {file}");
        });
    }
}

/// The response and its record's overhead fill the connection's buffer to its last bytes.
#[test]
fn response_that_fills_the_connection_is_followed_by_close_notify() {
    for room in (200..400).step_by(10) {
        scenario(10, async |server, sim| {
            let end = connect_to(&server, room, TLS_PORT);
            let wire = Wire::secure(end, &tls_client(&sim.root, &[]));
            let request = b"GET /s/2 HTTP/1.0\r\nHost: simulated\r\n\r\n";
            wire.write_all(request).await.expect("written");
            let (mut piece, mut count) = ([0; 1_000], 1);
            while count > 0 {
                // The server writes what there is room for.
                sleep(Duration::from_millis(10)).await;
                count = wire.read(&mut piece).await.expect("no reset");
            }
            assert!(!wire.is_truncated(), "room for {room} bytes");
        });
    }
}

/// The client sends its whole upload before it reads, so the server has to read on while the last
/// record of its response waits.
#[test]
fn response_to_a_client_that_still_sends_is_followed_by_close_notify() {
    for room in (200..500).step_by(10) {
        scenario(10, async |server, sim| {
            let wire =
                Wire::secure(connect_to(&server, room, TLS_PORT), &tls_client(&sim.root, &[]));
            let head = "POST /s/2 HTTP/1.1\r\nHost: simulated\r\nConnection: close\r\n\
                        Content-Length: 100000\r\n\r\n";
            let begun_ms = now_ms();
            wire.write_all(head.as_bytes()).await.expect("written");
            wire.write_all(&[b'x'; 100_000]).await.expect("no reset");
            wire.settle().await;
            let (mut piece, mut count) = ([0; 1_000], 1);
            while count > 0 {
                count = wire.read(&mut piece).await.expect("no reset");
            }
            let span_ms = now_ms() - begun_ms;
            assert!(!wire.is_truncated() && span_ms < 2_000, "room for {room} bytes: {span_ms} ms");
        });
    }
}

/// Connects a client whose bytes arrive in pieces, one in 40 ms.
fn connect_in_pieces(server: &Rc<Simulated>, piece_bytes: usize, port: u16) -> MemoryEnd {
    let far = Rc::new(connect_to(server, 20_000, port));
    let address = ([10, 0, 2, 1], 40_001).into();
    let (near, client) = memory::pair(address, ([10, 0, 0, 1], port).into(), 20_000);
    let near = Rc::new(near);
    let (from, to) = (Rc::clone(&near), Rc::clone(&far));
    tokio::task::spawn_local(async move {
        let mut piece = vec![0; piece_bytes];
        while let Ok(count @ 1..) = from.read(&mut piece).await
            && to.write_all(&piece[..count]).await.is_ok()
        {
            sleep(Duration::from_millis(40)).await;
        }
    });
    tokio::task::spawn_local(async move {
        let mut piece = [0; 1_000];
        while let Ok(count @ 1..) = far.read(&mut piece).await
            && near.write_all(&piece[..count]).await.is_ok()
        {}
        // An error means that the client is gone.
        let _ = near.shutdown_write();
    });
    client
}

/// Reads a response of HTTP/1 with 44 bytes of content. Returns the bytes received before the end.
async fn read_response(wire: &Wire) -> Vec<u8> {
    let (mut received, mut piece) = (Vec::new(), [0; 1_000]);
    let is_whole = |received: &[u8]| {
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        end.is_some_and(|at| received.len() >= at + 4 + 44)
    };
    while !is_whole(&received) {
        match wire.read(&mut piece).await {
            Ok(count @ 1..) => received.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    received
}

/// The next request's record has arrived in part when the server stops, or needs room.
#[test]
fn kept_connection_is_not_closed_amid_a_record() {
    for is_stop in [true, false] {
        scenario(if is_stop { 10 } else { 1 }, async |server, sim| {
            let wire =
                Wire::secure(connect_in_pieces(&server, 50, TLS_PORT), &tls_client(&sim.root, &[]));
            let request = b"GET /s/2 HTTP/1.1\r\nHost: simulated\r\nX-Name: a longer value\r\n\r\n";
            wire.write_all(request).await.expect("written");
            assert!(read_response(&wire).await.starts_with(b"HTTP/1.1 200"));
            sleep(Duration::from_secs(1)).await;
            wire.write_all(request).await.expect("written");
            sleep(Duration::from_millis(20)).await;
            let other = (!is_stop).then(|| connect(&server, 1_000));
            if is_stop {
                server.worker.stop();
            }
            let response = read_response(&wire).await;
            let head = String::from_utf8_lossy(&response);
            assert!(head.starts_with("HTTP/1.1 200"), "stop {is_stop}: {head:?}");
            drop(other);
        });
    }
}

/// Sends a request of HTTP/1. Returns the status of the response.
async fn status_of(server: &Rc<Simulated>, request: &str) -> String {
    let wire = Wire::plain(connect(server, 10_000));
    wire.write_all(request.as_bytes()).await.expect("written");
    let mut piece = [0; 1_000];
    let count = wire.read(&mut piece).await.expect("a response");
    String::from_utf8_lossy(&piece[..count]).split(' ').nth(1).unwrap_or_default().to_owned()
}

/// The script of `/w/` moves the request to `/d/`, where uploads are stored.
#[test]
fn settings_of_a_new_url_apply_after_an_interim_response_of_its_script() {
    scenario(10, async |server, sim| {
        let request = "PUT /w/d/901?id=0&hint=1 HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(status_of(&server, request).await, "201");
        assert_eq!(std::fs::read(upload(&sim.root, 901)).expect("a file"), b"hello");
    });
}

/// The script goes on although the body that it has asked for is malformed.
#[test]
fn upload_that_breaks_off_while_a_script_receives_it_is_not_stored() {
    scenario(10, async |server, sim| {
        let head = "HTTP/1.1\r\nHost: simulated\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "5\r\nhello\r\nno length\r\n";
        let request = format!("PUT /w/d/902?id=0&collect=first {head}{body}");
        assert_eq!(status_of(&server, &request).await, "400");
        assert!(!upload(&sim.root, 902).exists());
    });
}

/// The beginning of the upload is there, and fills some of the backends' connections: the server
/// reads on from the client when they have begun to respond.
#[test]
fn response_that_has_begun_has_no_interim_response_in_it() {
    for path in ["/h/x", "/f/x", "/2/x", "/3/x", "/4/x", "/p/x.cgi"] {
        scenario(10, async |server, sim| {
            for number in 1..60 {
                let behavior = BackendBehavior::AnswerEarly;
                let (upload_bytes, response_bytes) = (66_000, 8_000);
                let task = BackendTask { is_post: true, upload_bytes, response_bytes, behavior };
                sim.tasks.borrow_mut().insert(number, task);
                let received = post_slowly(&server, &format!("{path}?id={number}"), number).await;
                let text = String::from_utf8_lossy(&received);
                let (_, response) = text.split_once("HTTP/1.1 200").expect("a response");
                assert!(!response.contains("HTTP/1.1 100"), "{path} {number}");
            }
        });
    }
}

/// Sends the beginning of an upload with its head, and the rest later. Returns all bytes received.
async fn post_slowly(server: &Rc<Simulated>, target: &str, number: u64) -> Vec<u8> {
    let wire = Wire::plain(connect(server, 30_000));
    let fields = "Host: simulated\r\nContent-Length: 66000\r\nExpect: 100-continue\r\n\r\n";
    let sending = async {
        let body = body_of(!number, 0, 66_000);
        let head = format!("POST {target} HTTP/1.1\r\n{fields}");
        let start = [head.as_bytes(), &body[..20_000]].concat();
        wire.write_all(&start).await.expect("written");
        sleep(Duration::from_millis(900)).await;
        // The server may read no more after its response.
        let _ = wire.write_all(&body[20_000..]).await;
    };
    let reading = async {
        let (mut received, mut piece) = (Vec::new(), [0; 1_000]);
        while let Ok(count @ 1..) = wire.read(&mut piece).await {
            received.extend_from_slice(&piece[..count]);
            sleep(Duration::from_millis(20)).await;
        }
        received
    };
    tokio::join!(biased; sending, reading).1
}

#[test]
fn service_that_gives_no_verdict_admits_nothing() {
    use super::auth_service::{GUARDED, ServiceBehavior};
    let late = |seconds| ServiceBehavior::AllowLate(Duration::from_secs(seconds));
    for (behavior, wanted) in [
        (ServiceBehavior::Allow, "200"),
        (late(3), "200"),
        (late(5), "503"),
        (ServiceBehavior::Deny(401), "401"),
        (ServiceBehavior::DenyAndDie, "503"),
        (ServiceBehavior::Fail, "503"),
        (ServiceBehavior::DieBeforeHead, "503"),
        (ServiceBehavior::DieInHead, "503"),
        (ServiceBehavior::Reset, "503"),
        (ServiceBehavior::Hang, "503"),
        (ServiceBehavior::Garbage, "503"),
    ] {
        scenario(10, async |server, sim| {
            let task = BackendTask {
                is_post: true,
                upload_bytes: 5,
                response_bytes: 10,
                behavior: BackendBehavior::Response,
            };
            sim.tasks.borrow_mut().insert(1, task);
            sim.services.borrow_mut().insert(1, behavior);
            let begun_ms = now_ms();
            let mut request =
                format!("POST {GUARDED}?id=1 HTTP/1.0\r\nContent-Length: 5\r\n\r\n").into_bytes();
            request.extend(body_of(!1, 0, 5));
            let wire = Wire::plain(connect(&server, 10_000));
            wire.write_all(&request).await.expect("written");
            let mut piece = [0; 1_000];
            let count = wire.read(&mut piece).await.expect("a response");
            let status = String::from_utf8_lossy(&piece[..count]);
            assert_eq!(status.split(' ').nth(1), Some(wanted), "{behavior:?}");
            assert!(now_ms() - begun_ms < 5_000, "{behavior:?}");
        });
    }
}
