//! Backends that do not send what a slice needs.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A backend with these responses by the number of the request, from 0.
fn numbered(respond: impl Fn(usize, &RequestSeen) -> Vec<u8> + Send + Sync + 'static) -> Backend {
    let count = AtomicUsize::new(0);
    Backend::replying(move |seen| respond(count.fetch_add(1, Ordering::SeqCst), seen))
}

fn get_range(server: &Server) -> Response {
    server.get_with("/200000/a", "Range: bytes=70000-70009\r\n")
}

/// The response to the client's own range.
const OWN: &str = "bytes=70000-70009";

#[test]
fn whole_response_of_a_backend_without_ranges_is_stored() {
    let backend = Backend::replying(|seen| {
        respond("200 OK", &format!("{FRESH}ETag: \"1\"\r\n"), &content(seen.target(), 1))
    });
    let server = slicing(&backend, "");
    let page = get_range(&server);
    assert_eq!((page.status, page.body.len()), (200, 200_000));
    assert_eq!(page.field("Cache-Status"), Some("lighty; fwd=uri-miss; stored"));
    get(&server, "/200000/a", "70000-70009", 70_000, 70_010);
    assert!(is_hit(&server.get("/200000/a")));
    assert_eq!(ranges(&backend), ["bytes=65536-131071"]);
}

#[test]
fn requests_for_a_range_share_the_whole_of_a_backend_without_ranges() {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = numbered(move |number, seen| {
        // Another request is an error, and not to wait forever.
        if number == 0 {
            own.wait();
        }
        respond("200 OK", &format!("{FRESH}ETag: \"1\"\r\n"), &content(seen.target(), 1))
    });
    let server = slicing(&backend, "server.max-worker := 2\ncache.lock-timeout = \"1min\"");
    let mut clients: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=70000-\r\n\r\n");
            client
        })
        .collect();
    assert!(wait_until(SOON, || figure(&server, "lighty_cache_waiting_requests") == 50));
    gate.wait();
    let body = content("/200000/a", 1);
    for client in &mut clients {
        let page = client.response();
        let expected = if page.status == 206 { &body[70_000..] } else { &body[..] };
        assert!(page.body == expected, "{}", page.status);
    }
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn request_that_has_left_does_not_hold_up_the_whole_for_others() {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let own = Arc::clone(&gate);
    let backend = numbered(move |number, seen| {
        if number == 0 {
            own.wait();
        }
        // Only the body shows that it is too large to be stored.
        let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n");
        let body = content(seen.target(), 1);
        let size = format!("{:x}\r\n", body.len());
        [head.as_bytes(), size.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
    });
    let server = slicing(&backend, "server.max-worker := 1\ncache.lock-timeout = \"1min\"");
    let waiting =
        |count| wait_until(SOON, || figure(&server, "lighty_cache_waiting_requests") == count);
    let [first, mut second] = [1, 2].map(|count| {
        let mut client = server.connect();
        client.send("GET /20000000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=5-\r\n\r\n");
        assert!(waiting(count));
        client
    });
    first.reset();
    assert!(waiting(1));
    gate.wait();
    // Its slowest reader decides.
    assert!(second.response().body == content("/20000000/a", 1));
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn response_that_cannot_be_sliced_goes_to_the_client_that_wants_it() {
    const RANGE: &str = "Content-Range: bytes 65536-131071/200000\r\n";
    let slice = |fields: &str| {
        respond("206 Partial Content", fields, &content("/200000/a", 1)[65_536..131_072])
    };
    let fields = |more: &str| format!("{FRESH}{RANGE}{more}");
    let strong = "ETag: \"1\"\r\n";
    for (name, response) in [
        ("no ETag", slice(&fields(""))),
        ("weak ETag", slice(&fields("ETag: W/\"1\"\r\n"))),
        ("no range", slice(&format!("{FRESH}{strong}"))),
        ("two ranges", slice(&fields(&format!("{strong}{RANGE}")))),
        ("no length", slice(&format!("{FRESH}{strong}Content-Range: bytes 65536-131071/*\r\n"))),
        ("no-store", slice(&format!("{RANGE}{strong}Cache-Control: no-store\r\n"))),
        ("cookie", slice(&fields(&format!("{strong}Set-Cookie: a=1\r\n")))),
        ("stale", slice(&format!("{RANGE}{strong}Cache-Control: max-age=0\r\n"))),
        ("no-cache", slice(&format!("{RANGE}{strong}Cache-Control: no-cache\r\n"))),
        ("no lifetime", slice(&format!("{RANGE}{strong}"))),
        ("coded", slice(&fields(&format!("{strong}Content-Encoding: gzip\r\n")))),
        ("varying", slice(&fields(&format!("{strong}Vary: *\r\n")))),
        (
            "short",
            respond(
                "206 Partial Content",
                &format!("{FRESH}{strong}Content-Range: bytes 65536-65545/200000\r\n"),
                &content("/200000/a", 1)[65_536..65_546],
            ),
        ),
        (
            "other",
            respond(
                "206 Partial Content",
                &format!("{FRESH}{strong}Content-Range: bytes 0-65535/200000\r\n"),
                &content("/200000/a", 1)[..65_536],
            ),
        ),
        ("wrong length", respond("206 Partial Content", &fields(strong), b"short")),
        (
            "several parts",
            respond(
                "206 Partial Content",
                &format!("{FRESH}{strong}Content-Type: multipart/byteranges; boundary=a\r\n"),
                b"--a\r\n",
            ),
        ),
        ("not modified", b"HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n".to_vec()),
    ] {
        let backend = Backend::replying(move |seen| match seen.field("Range") {
            Some("bytes=65536-131071") => response.clone(),
            Some(OWN) => answer(
                "206 Partial Content",
                "Content-Range: bytes 70000-70009/200000\r\n",
                "its own   ",
            ),
            _ => answer("500 Internal Server Error", "", "another range"),
        });
        let server = slicing(&backend, "cache.debug = 1");
        for _ in 0..2 {
            let page = get_range(&server);
            assert_eq!((page.status, page.text()), (206, "its own   "), "{name}");
            assert_eq!(
                page.field("Cache-Status"),
                Some("lighty; fwd=partial; fwd-status=206"),
                "{name}"
            );
        }
        // For `cache.pass-time`, the backend gets the range at once.
        let expected: &[&str] = match name {
            "not modified" => &["bytes=65536-131071", OWN, "bytes=65536-131071", OWN],
            _ => &["bytes=65536-131071", OWN, OWN],
        };
        assert_eq!(ranges(&backend), expected, "{name}");
    }
}

#[test]
fn error_in_place_of_the_first_slice_goes_to_the_client() {
    for (status, requests) in
        [("404 Not Found", 2), ("403 Forbidden", 2), ("503 Service Unavailable", 2)]
    {
        let backend = Backend::replying(move |_| answer(status, "", "an error"));
        let server = slicing(&backend, "");
        for _ in 0..2 {
            let page = get_range(&server);
            assert_eq!(
                (page.status.to_string(), page.text()),
                (status[..3].to_owned(), "an error")
            );
        }
        assert_eq!(backend.requests().len(), requests, "{status}");
    }
    // Only if the client's offset has nothing to do with it, it is an error about the whole.
    for (range, requests) in [("70000-", 2), ("5-9", 1)] {
        let backend = Backend::replying(move |_| answer("404 Not Found", FRESH, "an error"));
        let server = slicing(&backend, "");
        for _ in 0..2 {
            let page = server.get_with("/200000/a", &format!("Range: bytes={range}\r\n"));
            assert_eq!(page.status, 404);
        }
        assert_eq!(backend.requests().len(), requests, "{range}");
    }
}

#[test]
fn whole_that_ends_before_the_slice_says_nothing_about_ranges() {
    let resource = Resource::new(FRESH);
    let backend = Backend::replying(move |seen| match seen.field("Range") {
        Some(range) if range.starts_with("bytes=262144-") => {
            respond("200 OK", &format!("{FRESH}ETag: \"1\"\r\n"), &content(seen.target(), 1))
        }
        _ => resource.respond(seen),
    });
    let server = slicing(&backend, "");
    let page = server.get_with("/200000/a", "Range: bytes=300000-\r\n");
    assert_eq!((page.status, page.body.len()), (200, 200_000));
    get(&server, "/200000/a", "5-9", 5, 10);
    assert_eq!(ranges(&backend)[1..], ["bytes=0-65535"]);
}

#[test]
fn dead_backend_is_an_error() {
    let backend = Backend::after_request(|peer| peer.reset());
    let server = slicing(&backend, "proxy-core.status-header = \"enable\"");
    let mut clients: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET /1/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-0\r\n\r\n");
            client
        })
        .collect();
    for client in &mut clients {
        let page = client.response();
        let field = page.field("Proxy-Status");
        assert_eq!((page.status, field), (502, Some("lighty; error=connection_terminated")));
    }
    assert!(backend.requests().len() < 10, "{}", backend.requests().len());
}

/// A backend that ends its connection in the middle of some responses, chosen by their numbers.
fn breaking(breaks: impl Fn(usize) -> bool + Send + Sync + 'static) -> Backend {
    let (resource, count) = (Resource::new(FRESH), AtomicUsize::new(0));
    Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            let response = resource.respond(&seen);
            if breaks(count.fetch_add(1, Ordering::SeqCst)) {
                peer.send(&response[..30_000]);
                return;
            }
            peer.send(response);
        }
    })
}

#[test]
fn slice_that_breaks_off_is_fetched_once_more() {
    let backend = breaking(|number| number == 1);
    let server = slicing(&backend, "");
    get(&server, "/200000/a", "1-", 1, 200_000);
    let mut seen = slices(&backend);
    assert_eq!(seen.iter().filter(|index| **index == 1).count(), 2, "{seen:?}");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn failed_request_for_a_later_slice_is_repeated() {
    let resource = Resource::new(FRESH);
    let backend = numbered(move |number, seen| match number {
        1 => answer("503 Service Unavailable", "", "busy"),
        _ => resource.respond(seen),
    });
    let server = slicing(&backend, "");
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(slices(&backend), [0, 1, 1, 2, 3]);
}

#[test]
fn response_breaks_off_with_its_slice() {
    let backend = breaking(|number| number > 0);
    let server = slicing(&backend, "");
    let mut client = server.connect();
    client.send("GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    let head = client.response_head();
    assert_eq!((head.status, head.field("Content-Length")), (206, Some("199999")));
    let (body, _) = client.read_to_end();
    assert!((65_535..100_000).contains(&body.len()), "{}", body.len());
    assert!(body == content("/200000/a", 1)[1..=body.len()]);
    server.await_log("the backend's response ended early");
}

#[test]
fn error_in_place_of_a_later_slice_breaks_the_response_off() {
    for status in ["404 Not Found", "503 Service Unavailable", "416 Range Not Satisfiable"] {
        let resource = Resource::new(FRESH);
        let backend = numbered(move |number, seen| match number {
            0 => resource.respond(seen),
            _ => answer(status, "", "an error"),
        });
        let server = slicing(&backend, "");
        let mut client = server.connect();
        client.send("GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
        assert_eq!(client.response_head().status, 206);
        let (body, _) = client.read_to_end();
        assert!(body == content("/200000/a", 1)[1..65_536], "{status}: {}", body.len());
    }
}

#[test]
fn body_longer_than_its_slice_is_not_stored() {
    let backend = Backend::after_request(|peer| {
        let fields = format!("{FRESH}ETag: \"1\"\r\nContent-Range: bytes 65536-131071/200000\r\n");
        peer.send(format!(
            "HTTP/1.1 206 Partial Content\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"
        ));
        let body = content("/200000/a", 1);
        for piece in [&body[65_536..131_072], &body[131_072..131_082]] {
            peer.send(format!("{:x}\r\n", piece.len()));
            peer.send(piece);
            peer.send("\r\n");
        }
        peer.send("0\r\n\r\n");
    });
    let server = slicing(&backend, "");
    for requests in 1..3 {
        get(&server, "/200000/a", "70000-70009", 70_000, 70_010);
        assert!(wait_until(SOON, || figure(&server, "lighty_cache_flights") == 0));
        assert_eq!(backend.requests().len(), requests);
    }
}

#[test]
fn early_hints_reach_the_client_that_waits_for_its_first_slice() {
    let resource = Resource::new(FRESH);
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            if !peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n") {
                return;
            }
            peer.send(resource.respond(&seen));
        }
    });
    let server = slicing(&backend, "");
    for hints in [1, 0] {
        let page = server.get_with("/200000/a", "Range: bytes=1-\r\n");
        assert!(page.status == 206 && page.body == content("/200000/a", 1)[1..]);
        assert_eq!(page.interim.len(), hints);
    }
    assert_eq!(slices(&backend), [0, 1, 2, 3]);
}
