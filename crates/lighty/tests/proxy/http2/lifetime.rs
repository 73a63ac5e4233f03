//! Life of a connection: settings, heads that do not end, PING, idle connections.

use super::*;

/// Lifetime of the connection to a backend with this behaviour, from the request on.
fn lifetime(config: &str, act: impl Fn(&mut Far<'_>, u32) + Send + Sync + 'static) -> Duration {
    let (tell, reported) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let begun = std::time::Instant::now();
        while let Some(got) = far.frame() {
            if got.kind == kind::HEADERS {
                act(&mut far, got.stream);
            }
        }
        let _ = tell.lock().expect("the sender").send(begun.elapsed());
    });
    let server = front(&backend.name()).config(config).start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    reported.recv_timeout(2 * PATIENCE).expect("the connection ends")
}

#[test]
fn backend_that_does_not_acknowledge_settings_is_given_up() {
    // `Far` acknowledges no SETTINGS by itself.
    let lived = lifetime("", |far, stream| far.respond(stream, "fine"));
    assert!(lived >= Duration::from_secs(9) && lived < Duration::from_secs(25), "{lived:?}");
}

#[test]
fn backend_that_does_not_end_its_head_is_given_up() {
    let config = "proxy-core.ping-interval = 3600\nproxy-core.read-timeout = 3600";
    let lived = lifetime(config, |far, stream| {
        far.send(kind::SETTINGS, 1, 0, &[]);
        far.send(kind::HEADERS, 0, stream, &block(&[(":status".into(), "200".into())]));
    });
    assert!(lived >= Duration::from_secs(29) && lived < Duration::from_secs(50), "{lived:?}");
}

#[test]
fn idle_connections_are_kept_up_to_the_limit() {
    for (config, connections) in [("proxy-core.max-idle-connections = 0", 3), ("", 1)] {
        let backend = Backend::start(|peer| {
            let Some(mut far) = Far::new(peer) else { return };
            while let Some((stream, _)) = far.request() {
                far.respond(stream, "one");
            }
        });
        let server = front(&backend.name()).config(config).start();
        for nth in 0..3 {
            assert_eq!(server.get("/").text(), "one", "{}", server.log());
            let wanted = if config.is_empty() { 1 } else { 0 };
            assert!(wait_until(PATIENCE, || backend.open() == wanted), "{config} {nth}");
        }
        assert_eq!(backend.opened(), connections, "{config}");
    }
}

/// The kinds of the frames of interest that come until this many streams are begun.
fn kinds_until(far: &mut Far<'_>, streams: usize, log: &mut Vec<u8>) -> Option<u32> {
    let mut begun = 0;
    loop {
        let frame = far.frame()?;
        match frame.kind {
            kind::SETTINGS if frame.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
            kind::PING => far.send(kind::PING, 1, 0, &frame.payload),
            _ => {}
        }
        if [kind::PING, kind::HEADERS].contains(&frame.kind) {
            log.push(frame.kind);
        }
        begun += usize::from(frame.kind == kind::HEADERS);
        if begun == streams {
            return Some(frame.stream);
        }
    }
}

#[test]
fn a_backend_that_is_silent_is_asked_whether_it_is_there() {
    let (tell, reported) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut log = Vec::new();
        let Some(stream) = kinds_until(&mut far, 1, &mut log) else { return };
        // Busy until the first PING arrives.
        while let Some(frame) = far.frame() {
            if frame.kind == kind::PING {
                log.push(kind::PING);
                far.send(kind::PING, 1, 0, &frame.payload);
                break;
            }
        }
        far.respond(stream, "slowly");
        let Some(stream) = kinds_until(&mut far, 1, &mut log) else { return };
        far.respond(stream, "after a rest");
        tell.lock().expect("the sender").send(log).expect("a test");
        peer.hang();
    });
    let interval = Duration::from_millis(200);
    let server = front(&backend.name()).config("proxy-core.ping-interval = \"200ms\"").start();
    assert_eq!(server.get("/").text(), "slowly", "{}", server.log());
    // Longer than the interval, and shorter than the idle timeout.
    std::thread::sleep(2 * interval);
    assert_eq!(server.post("/", "Content-Length: 2", b"hi"), b"after a rest", "{}", server.log());
    let log = reported.recv_timeout(PATIENCE).expect("what came");
    assert_eq!(log[..2], [kind::HEADERS, kind::PING], "while it worked");
    assert_eq!(log[log.len() - 2..], [kind::PING, kind::HEADERS], "before the second request");
    assert_eq!(backend.opened(), 1);
}

/// PING settings for detecting a dead backend.
const PINGS: &str = "proxy-core.ping-interval = \"200ms\"\nproxy-core.ping-timeout = \"2s\"";

const GIVEN_UP: &str = "no reply to PING for 2000 ms, proxy-core.ping-timeout";

/// Backend that cuts off its first connection behind this many responses, plus a head and a part of
/// another one if `begins` is set. Later connections work.
fn vanishing(responses: usize, begins: bool) -> Backend {
    Backend::start(move |peer| {
        let is_first = peer.number() == 0;
        let Some(mut far) = Far::new(peer) else { return };
        let mut answered = 0;
        while let Some((stream, _)) = far.request() {
            if is_first && answered == responses {
                if begins {
                    let head = block(&[(":status".into(), "200".into())]);
                    far.send(kind::HEADERS, END_HEADERS, stream, &head);
                    far.send(kind::DATA, 0, stream, b"part");
                }
                peer.hang();
                return;
            }
            far.respond(stream, "answered");
            answered += 1;
            if is_first && answered == responses {
                peer.hang();
                return;
            }
        }
    })
}

#[test]
fn a_backend_that_is_gone_while_it_works_is_given_up() {
    let backend = vanishing(0, false);
    let server = front(&backend.name()).config(PINGS).start();
    // An idempotent request is retried on another connection.
    assert_eq!(server.get("/").text(), "answered", "{}", server.log());
    assert_eq!(backend.opened(), 2);
    let backend = vanishing(0, false);
    let server = front(&backend.name()).config(PINGS).start();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 502, "{}", server.log());
    server.await_log(GIVEN_UP);
    assert_eq!(backend.opened(), 1);
    let backend = vanishing(0, true);
    let server = front(&backend.name()).config(PINGS).start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    server.await_log(GIVEN_UP);
}

#[test]
fn no_request_is_lost_to_a_backend_that_went_while_the_connection_rested() {
    let backend = vanishing(1, false);
    let server = front(&backend.name()).config(PINGS).start();
    assert_eq!(server.get("/").text(), "answered");
    std::thread::sleep(Duration::from_millis(400));
    // The backend cannot have seen it: it may be sent again, whatever its method.
    assert_eq!(server.post("/", "Content-Length: 2", b"hi"), b"answered", "{}", server.log());
    assert_eq!(backend.opened(), 2);
}

#[test]
fn a_backend_is_not_asked_where_that_is_not_wanted() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let Some((stream, _)) = far.request() else { return };
        std::thread::sleep(Duration::from_secs(1));
        far.respond(stream, "late");
        // The reply to the PING that was not sent would be lost.
        while let Some(frame) = far.frame() {
            assert_ne!(frame.kind, kind::PING);
        }
    });
    let pings = "proxy-core.ping-interval = 0\nproxy-core.ping-timeout = \"100ms\"";
    let server = front(&backend.name()).config(pings).start();
    assert_eq!(server.get("/").text(), "late", "{}", server.log());
    drop(server);
}
