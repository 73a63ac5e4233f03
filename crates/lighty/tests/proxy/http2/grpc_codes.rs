//! Calls of gRPC, and codes of resets.

use super::*;

/// Messages between a gRPC client and its server: framed messages, trailers, and errors in a head.
#[test]
fn grpc_passes() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            let has = |name: &str, value: &str| fields.contains(&(name.into(), value.into()));
            assert!(has("te", "trailers") && has("grpc-timeout", "5S"), "{fields:?}");
            let mut head = vec![
                (":status".to_owned(), "200".to_owned()),
                ("content-type".to_owned(), "application/grpc".to_owned()),
            ];
            if has(":path", "/greeter/Missing") {
                head.push(("grpc-status".into(), "12".into()));
                let ends = END_HEADERS | END_STREAM;
                far.send(kind::HEADERS, ends, stream, &block(&head));
                continue;
            }
            far.send(kind::HEADERS, END_HEADERS, stream, &block(&head));
            far.send(kind::DATA, 0, stream, b"\0\0\0\0\x02hi");
            let trailers = block(&[("grpc-status".into(), "0".into())]);
            far.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailers);
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let call = |client: &mut Http2, target: &str| {
        let mut fields = client.request_fields("POST", target);
        for (name, value) in
            [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "5S")]
        {
            fields.push((name.into(), value.into()));
        }
        let stream = client.open(&fields, false);
        client.send_data(stream, b"\0\0\0\0\x01x", true);
        client.answer(stream)
    };
    let output = call(&mut client, "/greeter/Hello");
    assert_eq!(
        (output.status, &output.body[..]),
        (200, &b"\0\0\0\0\x02hi"[..]),
        "{}",
        server.log()
    );
    assert_eq!(output.trailers, [("grpc-status".into(), "0".into())]);
    let missing = call(&mut client, "/greeter/Missing");
    assert_eq!((missing.field("grpc-status").as_deref(), missing.body.len()), (Some("12"), 0));
    assert!(missing.has_ended && missing.trailers.is_empty(), "{missing:?}");
    // Responses of the server itself have the form that the client expects.
    drop(backend);
    let gone = call(&mut client, "/greeter/Hello");
    assert_eq!((gone.status, gone.field("grpc-status").as_deref()), (200, Some("14")), "{gone:?}");
    assert_eq!(gone.field("content-type").as_deref(), Some("application/grpc"));
    assert!(gone.has_ended && gone.body.is_empty() && gone.trailers.is_empty(), "{gone:?}");
}

const INTERNAL_ERROR: u32 = 2;

const ENHANCE_YOUR_CALM: u32 = 11;

/// Codes as gRPC libraries understand them: they retry UNAVAILABLE (14).
#[test]
fn codes_of_the_backend_mean_the_same_to_the_client() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            let path = fields.iter().find(|(name, _)| name == ":path").map(|(_, path)| path);
            let (place, code) = path.and_then(|path| path[1..].split_once('/')).expect("a code");
            if place == "begun" {
                let head = block(&[(":status".into(), "200".into())]);
                far.send(kind::HEADERS, END_HEADERS, stream, &head);
                far.send(kind::DATA, 0, stream, b"part");
            }
            let code: u32 = code.parse().expect("a code");
            far.send(kind::RST_STREAM, 0, stream, &code.to_be_bytes());
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    let mut ask = |target: &str, content_type: &str| {
        let mut fields = client.request_fields("POST", target);
        fields.push(("content-type".into(), content_type.into()));
        let stream = client.open(&fields, true);
        client.answer(stream)
    };
    for (code, status, grpc, begun) in [
        (0, 502, "13", INTERNAL_ERROR),
        (1, 502, "13", INTERNAL_ERROR),
        (2, 502, "13", INTERNAL_ERROR),
        (7, 502, "14", INTERNAL_ERROR),
        (8, 502, "1", CANCEL),
        (11, 503, "8", ENHANCE_YOUR_CALM),
        (12, 502, "13", INTERNAL_ERROR),
        (13, 502, "13", INTERNAL_ERROR),
    ] {
        assert_eq!(ask(&format!("/new/{code}"), "text/plain").status, status, "{code}");
        let got = ask(&format!("/new/{code}"), "application/grpc");
        assert_eq!(got.field("grpc-status").as_deref(), Some(grpc), "{code}: {got:?}");
        let got = ask(&format!("/begun/{code}"), "application/grpc");
        assert_eq!((got.status, got.reset), (200, Some(begun)), "{code}: {got:?}");
    }
    server.await_log("HTTP_1_1_REQUIRED");
}

/// RFC 9113 section 8.1: the client may stop sending, the response is whole.
#[test]
fn a_response_is_whole_whose_request_is_stopped_behind_it() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, _)) = far.request() {
            far.respond(stream, "enough");
            far.send(kind::RST_STREAM, 0, stream, &[0; 4]);
        }
    });
    let server = front(&backend.name()).start();
    let body = vec![b'x'; 1 << 20];
    assert_eq!(server.post("/", &format!("Content-Length: {}", body.len()), &body), b"enough");
    let mut client = Http2::connect(server.address());
    let fields = client.request_fields("POST", "/");
    let stream = client.open(&fields, false);
    client.send_data(stream, &body[..60_000], false);
    let got = client.answer(stream);
    assert_eq!((got.status, got.text().as_str()), (200, "enough"), "{got:?}\n{}", server.log());
    assert!(!server.log().contains("[error]"), "{}", server.log());
}

/// gRPC services cancel calls past their deadline; clients derive the status themselves.
#[test]
fn cancellation_by_the_backend_is_passed_to_the_client() {
    let backend = Backend::start(|peer| {
        let Some(mut far) = Far::new(peer) else { return };
        while let Some((stream, fields)) = far.request() {
            if fields.contains(&(":path".into(), "/begun".into())) {
                let head = block(&[(":status".into(), "200".into())]);
                far.send(kind::HEADERS, END_HEADERS, stream, &head);
                far.send(kind::DATA, 0, stream, b"part");
            }
            far.send(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        }
    });
    let server = front(&backend.name()).start();
    let mut client = Http2::connect(server.address());
    for (timeout, status) in [("1n", "4"), ("1H", "1")] {
        let mut fields = client.request_fields("POST", "/");
        for (name, value) in [("content-type", "application/grpc"), ("grpc-timeout", timeout)] {
            fields.push((name.into(), value.into()));
        }
        let stream = client.open(&fields, true);
        let got = client.answer(stream);
        assert_eq!(got.field("grpc-status").as_deref(), Some(status), "{timeout}: {got:?}");
    }
    let fields = client.request_fields("POST", "/");
    let stream = client.open(&fields, true);
    assert_eq!(client.answer(stream).status, 502);
    let fields = client.request_fields("POST", "/begun");
    let stream = client.open(&fields, true);
    let got = client.answer(stream);
    assert_eq!((got.status, got.reset), (200, Some(CANCEL)), "{got:?}");
    assert_eq!(backend.opened(), 1);
    let log = server.log();
    assert!(!log.contains("[error]"), "the backend has made no mistake: {log}");
}
