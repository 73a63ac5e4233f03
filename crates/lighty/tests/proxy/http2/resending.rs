//! Requests that a backend did not process are sent again.

use super::*;

#[test]
fn body_that_is_sent_again_ends_its_stream() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut requests = 0;
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::HEADERS => requests += 1,
                _ => {}
            }
            let is_request = [kind::HEADERS, kind::DATA].contains(&got.kind);
            if !is_request || got.flags & END_STREAM == 0 {
                continue;
            }
            match requests % 2 {
                0 => far.respond(got.stream, "whole"),
                _ => far.send(kind::RST_STREAM, 0, got.stream, &REFUSED_STREAM),
            }
        }
    });
    let server = front(&backend.name()).config("proxy-core.read-timeout = 5").start();
    for body in ["hi", ""] {
        let length = format!("Content-Length: {}", body.len());
        let text = server.post("/", &length, body.as_bytes());
        assert_eq!(text, b"whole", "{length}: {}", server.log());
        let chunked = lighty_testkit::content::chunked(body.as_bytes(), 1);
        let text = server.post("/", "Transfer-Encoding: chunked", &chunked);
        assert_eq!(text, b"whole", "chunked {body:?}: {}", server.log());
    }
}

/// GOAWAY names a stream below the request's stream; the body was sent already.
#[test]
fn body_that_goaway_refuses_is_sent_again() {
    let backend = Backend::start(|peer| {
        let leaves = peer.number().is_multiple_of(2);
        let Some(mut far) = Far::new(peer) else { return };
        let mut counted = 0;
        while let Some(got) = far.frame() {
            match got.kind {
                kind::SETTINGS if got.flags == 0 => far.send(kind::SETTINGS, 1, 0, &[]),
                kind::DATA => counted += got.payload.len(),
                _ => {}
            }
            let is_request = [kind::HEADERS, kind::DATA].contains(&got.kind);
            if !is_request || got.flags & END_STREAM == 0 {
                continue;
            }
            if leaves {
                far.send(kind::GOAWAY, 0, 0, &[0; 8]);
                return;
            }
            far.respond(got.stream, &format!("whole {counted}"));
            // The next request comes on a connection of its own.
            far.send(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
            return;
        }
    });
    let server = front(&backend.name()).config("proxy-core.read-timeout = 5").start();
    for body in ["hi", ""] {
        let wanted = format!("whole {}", body.len()).into_bytes();
        let length = format!("Content-Length: {}", body.len());
        let text = server.post("/", &length, body.as_bytes());
        assert_eq!(text, wanted, "{length}: {}", server.log());
        let chunked = lighty_testkit::content::chunked(body.as_bytes(), 1);
        let text = server.post("/", "Transfer-Encoding: chunked", &chunked);
        assert_eq!(text, wanted, "chunked {body:?}: {}", server.log());
    }
}

#[test]
fn request_that_the_backend_did_not_process_is_sent_again() {
    let refusing = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        let mut has_refused = false;
        while let Some((stream, fields)) = far.request() {
            assert!(fields.contains(&(":scheme".into(), "http".into())), "{fields:?}");
            match std::mem::replace(&mut has_refused, true) {
                true => far.respond(stream, "at last"),
                false => far.send(kind::RST_STREAM, 0, stream, &REFUSED_STREAM),
            }
        }
    });
    let leaving = Backend::start(|peer| {
        let is_first = peer.number() == 0;
        let Some(mut far) = Far::new(peer) else { return };
        let Some((stream, _)) = far.request() else { return };
        if is_first {
            far.send(kind::GOAWAY, 0, 0, &[0; 8]);
        } else {
            far.respond(stream, "at last");
        }
        far.frame();
    });
    for backend in [&refusing, &leaving] {
        let server = front(&backend.name()).start();
        let text = server.post("/", "Content-Length: 2", b"hi");
        assert_eq!(text, b"at last", "{}", server.log());
    }
    assert_eq!((refusing.opened(), leaving.opened()), (1, 2));
}

#[test]
fn request_is_sent_to_a_backend_that_refuses_it_n_times_at_most() {
    /// Resends after refused streams, and further ones after connections without a response.
    const RESENDS_MAX: usize = 4 + 2;
    for refusals in [RESENDS_MAX, RESENDS_MAX + 1] {
        let refused = AtomicUsize::new(0);
        let backend = Backend::start(move |peer| {
            let Some(mut far) = Far::new(peer) else { return };
            while let Some((stream, _)) = far.request() {
                match refused.fetch_add(1, Ordering::SeqCst) < refusals {
                    true => far.send(kind::RST_STREAM, 0, stream, &REFUSED_STREAM),
                    false => far.respond(stream, "at last"),
                }
            }
        });
        let server = front(&backend.name()).start();
        let got = server.get("/");
        if refusals == RESENDS_MAX {
            assert_eq!((got.status, got.text()), (200, "at last"), "{}", server.log());
        } else {
            assert_eq!(got.status, 502, "{}", server.log());
            server.await_log(&format!("backend {}: REFUSED_STREAM", backend.address()));
        }
    }
}
