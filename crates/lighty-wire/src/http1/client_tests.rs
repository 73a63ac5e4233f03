//! Tests of `client`: rejections, and that a request is forwarded to a backend unchanged.

use std::string::String;

use lighty_http::uri::ParseOpts;
use proptest::prelude::*;

use super::super::request::{Head, Http1Limits, RequestHead, parse_request};
use super::*;

const LINE: RequestLine<'_> = RequestLine {
    method: b"GET",
    target: b"/a?b",
    version: Version::Http11,
    host: b"example.org",
    framing: BodyFraming::None,
};

fn encode(line: &RequestLine<'_>, fields: &Fields) -> Result<Vec<u8>, EncodeFault> {
    let (mut one, mut other) = (b"before".to_vec(), Vec::new());
    let result = encode_request(line, fields.iter_known(), &mut one);
    assert_eq!(encode_request_fields(line, fields, &mut other), result, "both ways agree");
    assert_eq!(one.strip_prefix(b"before"), Some(&*other), "nothing stays after a fault");
    let (mut third, none) = (Vec::new(), || core::iter::empty());
    let passed_on = encode_passed_on(line, none(), fields, none(), &mut third);
    assert_eq!((passed_on, &third), (result, &other), "whoever adds the fields");
    result.map(|()| other)
}

#[track_caller]
fn expect(line: &RequestLine<'_>, fields: &[(&str, &str)], expected: &str) {
    let fields = list(fields);
    let head = encode(line, &fields).expect("legal");
    assert_eq!(String::from_utf8_lossy(&head), expected);
}

fn list(pairs: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    pairs.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

#[test]
fn a_head_is_written() {
    expect(&LINE, &[], "GET /a?b HTTP/1.1\r\nHost: example.org\r\n\r\n");
    let known = [("accept", "*/*"), ("User-Agent", "x")];
    expect(
        &LINE,
        &known,
        "GET /a?b HTTP/1.1\r\nHost: example.org\r\naccept: */*\r\nUser-Agent: x\r\n\r\n",
    );
    let put = RequestLine { method: b"PUT", framing: BodyFraming::Length(12), ..LINE };
    expect(
        &put,
        &[("X-a", "b\tc")],
        "PUT /a?b HTTP/1.1\r\nHost: example.org\r\nX-a: b\tc\r\nContent-Length: 12\r\n\r\n",
    );
    let chunked = RequestLine { framing: BodyFraming::Chunked, ..put };
    expect(
        &chunked,
        &[],
        "PUT /a?b HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
}

#[test]
fn ours_come_between_the_clients_and_the_connections() {
    let client = list(&[("Accept", "*/*"), ("Host", "evil")]);
    let ours = list(&[("X-Host", "a"), ("X-Forwarded-For", "127.0.0.1")]);
    let hop = list(&[("Connection", "close")]);
    let mut out = Vec::new();
    encode_passed_on(&LINE, client.iter_known(), &ours, hop.iter_known(), &mut out).expect("legal");
    let expected = "GET /a?b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\nX-Host: a\r\n\
                    X-Forwarded-For: 127.0.0.1\r\nConnection: close\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn host_may_be_unknown() {
    let old = RequestLine { version: Version::Http10, host: b"", ..LINE };
    expect(&old, &[("A", "b")], "GET /a?b HTTP/1.0\r\nA: b\r\n\r\n");
    let new = RequestLine { host: b"", ..LINE };
    expect(&new, &[], "GET /a?b HTTP/1.1\r\nHost: \r\n\r\n");
    let named = RequestLine { version: Version::Http10, ..LINE };
    expect(&named, &[], "GET /a?b HTTP/1.0\r\nHost: example.org\r\n\r\n");
    let later = RequestLine { version: Version::Http2, ..LINE };
    expect(&later, &[], "GET /a?b HTTP/1.1\r\nHost: example.org\r\n\r\n");
}

#[test]
fn fields_stated_by_the_request_line_are_sent_once() {
    let line = RequestLine { framing: BodyFraming::Length(0), ..LINE };
    let fields =
        [("HOST", "b"), ("content-length", "7"), ("Transfer-encoding", "chunked"), ("Via", "c")];
    let expected = "GET /a?b HTTP/1.1\r\nHost: example.org\r\nVia: c\r\nContent-Length: 0\r\n\r\n";
    expect(&line, &fields, expected);
    // A caller that passes names without their `Known` cannot smuggle in a second one.
    let mut out = Vec::new();
    let spelled = [(None, &b"Content-Length"[..], &b"9"[..]), (None, b"via", b"c")];
    encode_request(&LINE, spelled, &mut out).expect("legal");
    assert_eq!(out, b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nvia: c\r\n\r\n");
}

#[test]
fn requests_cannot_be_split() {
    let refused = |line: RequestLine<'_>, fault| {
        assert_eq!(encode(&line, &Fields::new()), Err(fault), "{line:?}");
    };
    for method in [&b""[..], b"GET ", b"G\r\nT", b"GET /x HTTP/1.1\r\nA:", b"G\0T", b"(GET)"] {
        refused(RequestLine { method, ..LINE }, EncodeFault::Method);
    }
    for target in [&b""[..], b"/a b", b"/\r\n", b"/\n", b"/\t", b"/\0", b"/\x7f", b"/a#b", b" /"] {
        refused(RequestLine { target, ..LINE }, EncodeFault::Target);
    }
    for host in [&b"a b"[..], b"a\r\nX: y", b"a\nb", b"\0", b" ", b"a,b", b"a\t"] {
        refused(RequestLine { host, ..LINE }, EncodeFault::Host);
    }
    let old = RequestLine { version: Version::Http10, framing: BodyFraming::Chunked, ..LINE };
    refused(old, EncodeFault::Framing);
}

#[test]
fn fields_cannot_split_requests() {
    for (name, value, fault) in [
        ("A", "b\r\nHost: evil", EncodeFault::Value),
        ("A", "b\rc", EncodeFault::Value),
        ("Via", "b\nc", EncodeFault::Value),
        ("Cookie", "\0", EncodeFault::Value),
        ("Cookie", "a\t\n", EncodeFault::Value),
        ("", "b", EncodeFault::Name),
        ("A B", "c", EncodeFault::Name),
        ("A:", "c", EncodeFault::Name),
        ("A\r\nB", "c", EncodeFault::Name),
        ("Content-Length ", "5", EncodeFault::Name),
    ] {
        let fields = list(&[("Accept", "x"), (name, value), ("From", "y")]);
        assert_eq!(encode(&LINE, &fields), Err(fault), "{name:?}: {value:?}");
    }
}

/// Parses a head as a server, encodes it as a client, and parses the result.
fn relay(text: &[u8]) -> (RequestHead, RequestHead) {
    let (limits, opts) = (Http1Limits::default(), ParseOpts::default());
    let (mut came, mut went, mut wire) = (RequestHead::new(), RequestHead::new(), Vec::new());
    let result = parse_request(text, &limits, &opts, &mut came);
    assert_eq!(result, Ok(Head::Complete { consumed: text.len() }));
    let line = RequestLine {
        method: came.method_raw(),
        target: &came.target,
        version: came.version,
        host: came.fields.get(Known::Host).unwrap_or_default(),
        framing: came.framing,
    };
    encode_request_fields(&line, &came.fields, &mut wire).expect("what was parsed can be sent");
    let result = parse_request(&wire, &limits, &opts, &mut went);
    assert_eq!(result, Ok(Head::Complete { consumed: wire.len() }));
    (came, went)
}

proptest! {
    #[test]
    fn client_request_reaches_the_backend_unchanged(
        method in "(GET|HEAD|PUT|DELETE|X-Y)",
        target in "(/|http://b[.]example:81/)[a-z./%&=?+~-]{0,20}",
        minor in 0..2_u8,
        host in "[a-z]{1,6}(:[1-9][0-9]{0,3})?",
        fields in "((X-[a-z]{1,5}|Accept|Cookie|Via|Connection): [a-zA-Z0-9/;,= -]{0,20}\r\n){0,6}",
        framing in "(Content-Length: 0\r\n)?",
    ) {
        let fields: String = fields;
        let target = target.replace('%', "%41");
        let text = std::format!(
            "{method} {target} HTTP/1.{minor}\r\n{fields}Host: {host}\r\n{framing}\r\n"
        );
        let dotted = target.contains("..") || target.contains("./");
        prop_assume!(!dotted);
        let (came, went) = relay(text.as_bytes());
        prop_assert_eq!(came.method_raw(), went.method_raw());
        prop_assert_eq!((&came.target, came.query()), (&went.target, went.query()));
        prop_assert_eq!((came.host(), came.port), (went.host(), went.port));
        prop_assert_eq!(came.framing, went.framing);
        prop_assert_eq!(
            (came.version, came.keep_alive, came.upgrade),
            (went.version, went.keep_alive, went.upgrade)
        );
        let others = |head: &RequestHead| -> Vec<(Vec<u8>, Vec<u8>)> {
            let stated = |known: Option<Known>| known.is_some_and(|known| STATED.contains(&known));
            let others = head.fields.iter_known().filter(|(known, ..)| !stated(*known));
            others.map(|(_, name, value)| (name.to_vec(), value.to_vec())).collect()
        };
        prop_assert_eq!(others(&came), others(&went));
    }
}
