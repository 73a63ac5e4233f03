use alloc::vec;
use std::string::ToString;

use lighty_http::Fields;
use lighty_http::hop_by_hop::end_to_end;
use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;
use crate::ajp13::container::{AjpRequestDecoder, Attribute, Message, Received};
use crate::ajp13::{AjpFault, CPING};

fn sample() -> AjpRequest<'static> {
    AjpRequest {
        method: b"GET",
        path: b"/a%20b",
        remote_addr: b"192.0.2.1",
        server_name: b"a.example",
        server_port: 80,
        ..AjpRequest::default()
    }
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

fn encode(request: &AjpRequest<'_>, fields: &Fields) -> Result<Vec<u8>, EncodeFault> {
    let mut out = b"before".to_vec();
    let result = encode_request(request, end_to_end(fields), PacketSize::DEFAULT, &mut out);
    assert!(result.is_ok() || out == b"before", "a fault leaves nothing behind");
    result.map(|()| out.split_off(6))
}

/// Decodes every message, cut at every position; the result must always be the same.
fn decode(wire: &[u8], size: PacketSize) -> (Vec<Message>, Option<AjpFault>) {
    let mut first = None;
    shred(wire, |pieces| {
        let mut decoder = AjpRequestDecoder::new(size);
        let (mut messages, mut fault) = (Vec::new(), None);
        'all: for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match decoder.feed(rest) {
                    Ok((consumed, message)) => {
                        messages.extend(message);
                        rest = &rest[consumed..];
                    }
                    Err(stop) => {
                        assert_eq!(decoder.feed(b"\x12\x34"), Err(stop));
                        fault = Some(stop);
                        break 'all;
                    }
                }
            }
        }
        let run = (messages, fault);
        assert_eq!(first.get_or_insert_with(|| run.clone()), &run, "{pieces:?}");
    });
    first.expect("at least one run")
}

fn received(request: &AjpRequest<'_>, fields: &Fields) -> Received {
    let wire = encode(request, fields).expect("legal");
    match decode(&wire, PacketSize::DEFAULT) {
        (messages, None) => match &messages[..] {
            [Message::Request(request)] => request.clone(),
            other => panic!("{other:?}"),
        },
        (_, fault) => panic!("{fault:?}"),
    }
}

/// Compares with the document, byte by byte.
#[test]
fn the_bytes_of_a_request() {
    let request = AjpRequest { query: Some(b"x=1"), secret: Some(b"s"), ..sample() };
    let mut expected = b"\x12\x34\0\x00\x02\x02".to_vec();
    expected.extend_from_slice(b"\0\x08HTTP/1.1\0\0\x06/a%20b\0\0\x09192.0.2.1\0\xFF\xFF");
    expected.extend_from_slice(b"\0\x09a.example\0\0\x50\0\0\x02");
    expected.extend_from_slice(b"\xA0\x0B\0\x09a.example\0\0\x03X-A\0\0\0\0");
    expected.extend_from_slice(b"\x0C\0\x01s\0\x05\0\x03x=1\0\xFF");
    expected[3] = expected.len() as u8 - 4;
    let fields = fields(&[("Host", "a.example"), ("X-A", "")]);
    assert_eq!(encode(&request, &fields).expect("legal"), expected);
}

#[test]
fn all_facts_arrive() {
    let request = AjpRequest {
        method: b"PURGE",
        version: Version::Http10,
        query: Some(b""),
        remote_port: Some(54321),
        remote_host: Some(b"client.example"),
        local_addr: Some(b"192.0.2.2"),
        server_port: 443,
        is_tls: true,
        tls_protocol: Some(b"TLSv1.3"),
        tls_cipher: Some(b"TLS_AES_128_GCM_SHA256"),
        tls_key_bits: Some(128),
        tls_certificate: Some(b"-----BEGIN\nEND-----\n"),
        remote_user: Some(b"alice"),
        auth_type: Some(b"Basic"),
        jvm_route: Some(b"node1"),
        secret: Some(b"s3cret"),
        attributes: &[(b"X", b"y")],
        body: Body::Length(0),
        ..sample()
    };
    let got = received(&request, &fields(&[("cookie", "a=b"), ("X-B", "c")]));
    assert_eq!((&got.method[..], &got.protocol[..]), (&b"PURGE"[..], &b"HTTP/1.0"[..]));
    assert_eq!(got.remote_host.as_deref(), Some(&b"client.example"[..]));
    assert_eq!((got.server_port, got.is_tls, got.content_length), (443, true, Some(0)));
    let text = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(got.fields, [text("content-length", "0"), text("cookie", "a=b"), text("X-B", "c")]);
    let coded = |code, value: &[u8]| Attribute::Coded(code, value.to_vec());
    let named = |name: &[u8], value: &[u8]| Attribute::Named(name.to_vec(), value.to_vec());
    assert_eq!(
        got.attributes,
        [
            coded(0x0C, b"s3cret"),
            coded(0x03, b"alice"),
            coded(0x04, b"Basic"),
            coded(0x05, b""),
            coded(0x06, b"node1"),
            coded(0x07, b"-----BEGIN\nEND-----\n"),
            coded(0x08, b"TLS_AES_128_GCM_SHA256"),
            Attribute::KeyBits(128),
            named(b"AJP_REMOTE_PORT", b"54321"),
            named(b"AJP_LOCAL_ADDR", b"192.0.2.2"),
            named(b"AJP_SSL_PROTOCOL", b"TLSv1.3"),
            named(b"X", b"y"),
        ]
    );
}

#[test]
fn content_length_comes_from_the_body_alone() {
    let lines = [
        ("Content-Length", "7"),
        ("content-length", "8"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("X-A", "1"),
    ];
    for (body, expected) in [(Body::None, None), (Body::Unknown, None), (Body::Length(5), Some(5))]
    {
        let got = received(&AjpRequest { body, ..sample() }, &fields(&lines));
        assert_eq!(got.content_length, expected);
        assert_eq!(got.fields.len(), 1 + usize::from(expected.is_some()));
        // Hop-by-hop fields are dropped even if the caller has not filtered them.
        let (lines, mut out) = (fields(&lines), Vec::new());
        let request = AjpRequest { body, ..sample() };
        encode_request(&request, lines.iter_known(), PacketSize::MAX, &mut out).expect("legal");
        assert_eq!(out, encode(&request, &lines).expect("legal"));
    }
}

#[test]
fn a_head_fits_into_a_packet_or_is_refused() {
    let empty = encode(&sample(), &fields(&[("X-A", "")])).expect("legal").len();
    let value = |len: usize| fields(&[("X-A", &"a".repeat(len))]);
    let room = 8192 - empty;
    assert_eq!(encode(&sample(), &value(room)).map(|wire| wire.len()), Ok(8192));
    assert_eq!(encode(&sample(), &value(room + 1)), Err(EncodeFault::HeadTooLarge));
    let larger = |len: usize| {
        let mut out = Vec::new();
        encode_request(&sample(), value(len).iter_known(), PacketSize::MAX, &mut out)
            .map(|()| out.len())
    };
    assert_eq!(larger(65536 - empty), Ok(65536));
    assert_eq!(larger(65537 - empty), Err(EncodeFault::HeadTooLarge));
    assert_eq!(larger(1_000_000), Err(EncodeFault::HeadTooLarge));
    for len in [0, room, room + 1, 65_534, 65_535, 1_000_000] {
        assert_eq!(needed_bytes(&sample(), value(len).iter_known()), empty + len);
    }
}

#[test]
fn control_bytes_in_text_are_refused() {
    for bad in [&b"a\r\nX: y"[..], b"\0", b"\n"] {
        for request in [
            AjpRequest { path: bad, ..sample() },
            AjpRequest { query: Some(bad), ..sample() },
            AjpRequest { remote_user: Some(bad), ..sample() },
            AjpRequest { method: bad, ..sample() },
            AjpRequest { attributes: &[(b"a", b"\r")], ..sample() },
        ] {
            assert_eq!(encode(&request, &Fields::new()), Err(EncodeFault::Value));
        }
        let mut lines = Fields::new();
        lines.push(b"X", bad);
        assert_eq!(encode(&sample(), &lines), Err(EncodeFault::Value));
    }
    assert_eq!(encode(&sample(), &fields(&[("a b", "")])), Err(EncodeFault::FieldName));
}

#[test]
fn a_conversation_of_packets() {
    let mut wire = CPING.to_vec();
    wire.extend(
        encode(&AjpRequest { body: Body::Length(3), ..sample() }, &Fields::new()).expect("legal"),
    );
    wire.extend_from_slice(b"\x12\x34\0\x05\0\x03abc");
    wire.extend_from_slice(&CPING);
    let (messages, fault) = decode(&wire, PacketSize::DEFAULT);
    assert_eq!((messages.len(), fault), (4, None));
    assert_eq!(messages[0], Message::Ping);
    assert_eq!(messages[2..], [Message::Body(b"abc".to_vec()), Message::Ping]);
}

#[test]
fn malformed_request_packets_are_refused() {
    let refuse = |wire: &[u8], fault| {
        assert_eq!(decode(wire, PacketSize::DEFAULT).1, Some(fault), "{wire:?}");
    };
    refuse(b"\x12\x35", AjpFault::Magic);
    refuse(b"AB", AjpFault::Magic);
    refuse(b"\x12\x34\0\0", AjpFault::PacketEmpty);
    refuse(b"\x12\x34\0\x01\x07", AjpFault::Code);
    refuse(b"\x12\x34\0\x02\x0A\0", AjpFault::Trailing);
    refuse(b"\x12\x34\x1F\xFD", AjpFault::PacketTooLarge);
    refuse(b"\x12\x34\0\x02\x02\x1C", AjpFault::Method);
    refuse(b"\x12\x34\0\x03\x02\x02\0", AjpFault::Truncated);
    assert_eq!(decode(b"\x12\x34\x1F\xFC", PacketSize::DEFAULT), (vec![], None));
    // A body packet that is due, with wrong lengths.
    let head =
        encode(&AjpRequest { body: Body::Length(3), ..sample() }, &Fields::new()).expect("legal");
    for (body, fault) in [
        (&b"\x12\x34\0\x01\0"[..], AjpFault::Truncated),
        (b"\x12\x34\0\x04\0\x03ab", AjpFault::ChunkLength),
        (b"\x12\x34\0\x04\0\x01ab", AjpFault::Trailing),
    ] {
        refuse(&[&head[..], body].concat(), fault);
    }
    let mut torn = encode(&sample(), &Fields::new()).expect("legal");
    let last = torn.len() - 1;
    torn[last] = 0x0E;
    refuse(&torn, AjpFault::Attribute);
}

proptest! {
    // Each case is cut at every position.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn encoded_request_is_decoded(
        method in "(GET|POST|PATCH|LOCK|X-[A-Z]{1,5})",
        path in "/[!-~]{0,30}",
        query in proptest::option::of("[!-~]{0,30}"),
        lines in proptest::collection::vec(("[A-Za-z-]{1,12}", "([!-~]([ -~]{0,10}[!-~])?)?"), 0..8),
        user in proptest::option::of("[ -~]{0,10}"),
        len in proptest::option::of(any::<u64>()),
    ) {
        let mut sent = Fields::new();
        for (name, value) in &lines {
            sent.push(name.as_bytes(), value.as_bytes());
        }
        let request = AjpRequest {
            method: method.as_bytes(),
            path: path.as_bytes(),
            query: query.as_deref().map(str::as_bytes),
            remote_user: user.as_deref().map(str::as_bytes),
            body: len.map_or(Body::Unknown, Body::Length),
            ..sample()
        };
        let got = received(&request, &sent);
        prop_assert_eq!(&got.method, method.as_bytes());
        prop_assert_eq!(&got.path, path.as_bytes());
        prop_assert_eq!(got.attribute(codes::QUERY_STRING), request.query);
        prop_assert_eq!(got.attribute(codes::REMOTE_USER), request.remote_user);
        prop_assert_eq!(got.content_length, len);
        let length = len.map(|len| ("content-length".to_string(), len.to_string()));
        let kept = end_to_end(&sent)
            .filter(|(known, ..)| *known != Some(Known::ContentLength))
            .map(|(_, name, value)| (name.to_ascii_lowercase(), value.to_vec()));
        let expected: Vec<_> =
            length.map(|(n, v)| (n.into_bytes(), v.into_bytes())).into_iter().chain(kept).collect();
        let lower = got.fields.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        prop_assert_eq!(lower.collect::<Vec<_>>(), expected);
    }
}
