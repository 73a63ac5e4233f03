//! Tests of `request` that inspect the structure. Accepted and rejected heads are a corpus of data
//! (`testdata/http1`), replayed by `tests/corpus.rs`.

use std::string::String;
use std::vec::Vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;

fn parse(head: &str) -> RequestHead {
    let mut out = RequestHead::new();
    let result =
        parse_request(head.as_bytes(), &Http1Limits::default(), &ParseOpts::default(), &mut out);
    assert_eq!(result, Ok(Head::Complete { consumed: head.len() }));
    out
}

#[test]
fn parts_of_a_request_head_are_found() {
    let head = parse(
        "PUT /a/../b%41?c=d HTTP/1.1\r\nhOST: Example.ORG:8080\r\nContent-Length: 12\r\n\
         Expect: 100-Continue\r\nConnection: Upgrade, x\r\nUpgrade: y\r\nX-Z:  1 \r\n\r\n",
    );
    assert_eq!(head.line(), b"PUT /a/../b%41?c=d HTTP/1.1");
    assert_eq!((head.method, head.method_raw()), (Some(Method::Put), &b"PUT"[..]));
    assert_eq!(head.target_raw(), b"/a/../b%41?c=d");
    assert_eq!((head.path(), head.query()), (&b"/bA"[..], Some(&b"c=d"[..])));
    assert_eq!((head.host(), head.port), (&b"example.org"[..], Some(8080)));
    assert_eq!(head.framing, BodyFraming::Length(12));
    assert!(head.keep_alive && head.expect_continue && head.upgrade);
    assert_eq!(head.fields.get_named(b"x-z"), Some(&b"1"[..]));
    assert_eq!(head.fields.iter().next(), Some((&b"hOST"[..], &b"Example.ORG:8080"[..])));
}

#[test]
fn the_authority_of_the_target_replaces_host() {
    let head = parse("GET http://B.example:81/x HTTP/1.1\r\nHost: a.example\r\nA: b\r\n\r\n");
    assert_eq!(head.form, TargetForm::Absolute { secure: false });
    assert_eq!((head.host(), head.port), (&b"b.example"[..], Some(81)));
    assert_eq!(head.fields.iter().next(), Some((&b"Host"[..], &b"B.example:81"[..])));
    assert_eq!((head.fields.len(), head.path()), (2, &b"/x"[..]));
}

#[test]
fn pipelined_heads_come_one_by_one() {
    let one = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    let two = b"GET /22 HTTP/1.1\r\nHost: a\r\n\r\n";
    let both = [one.as_slice(), two].concat();
    let mut out = RequestHead::new();
    let (limits, opts) = (Http1Limits::default(), ParseOpts::default());
    let first = parse_request(&both, &limits, &opts, &mut out);
    assert_eq!(first, Ok(Head::Complete { consumed: one.len() }));
    assert_eq!(out.path(), b"/1");
    let second = parse_request(&both[one.len()..], &limits, &opts, &mut out);
    assert_eq!(second, Ok(Head::Complete { consumed: two.len() }));
    assert_eq!(out.path(), b"/22");
}

#[test]
fn fields_of_one_value_may_be_repeated_and_not_differ() {
    let run = |method: &str, name: &str, values: &[&str]| {
        let lines: String = values.iter().flat_map(|value| [name, ": ", value, "\r\n"]).collect();
        let head = [method, " / HTTP/1.1\r\nHost: a\r\n", &lines, "\r\n"].concat();
        let mut out = RequestHead::new();
        parse_request(head.as_bytes(), &Http1Limits::default(), &ParseOpts::default(), &mut out)
    };
    for (name, fault) in [
        ("content-type", RequestFault::ContentTypeConflict),
        ("If-Modified-Since", RequestFault::IfModifiedSinceConflict),
    ] {
        for equal in [&["a", "a"][..], &["a", "A "], &["", "a"], &["a", "", "a"], &["", ""]] {
            assert!(run("GET", name, equal).is_ok(), "{name} {equal:?}");
        }
        for method in ["GET", "HEAD", "PUT"] {
            for values in [&["a", "b"][..], &["a", "a", "b"], &["", "a", "b"]] {
                assert_eq!(run(method, name, values), Err(fault), "{method} {values:?}");
            }
        }
    }
    assert!(run("GET", "If-None-Match", &["a", "b"]).is_ok());
}

#[test]
fn bytes_of_a_target_are_judged_one_by_one() {
    let run = |target: &[u8], opts: &ParseOpts| {
        let head = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let mut out = RequestHead::new();
        parse_request(&head, &Http1Limits::default(), opts, &mut out)
            .map(|_| (out.target_raw().to_vec(), out.target.clone()))
    };
    let strict = ParseOpts::default();
    let lenient = ParseOpts { url_invalid_utf8_reject: false, ..strict };
    let taken = |raw: &[u8], target: &str| Ok((raw.to_vec(), target.as_bytes().to_vec()));
    assert_eq!(run(b"/\xFF?\xC0", &lenient), taken(b"/\xFF?\xC0", "/%FF?%C0"));
    assert_eq!(run(b"/\x80", &strict), taken(b"/\x80", "/%80"));
    for target in [&b"/\xFF"[..], b"/\x80?\xC0", b"http://a/\xF5"] {
        let fault = lighty_http::uri::UriFault::InvalidUtf8;
        assert_eq!(run(target, &strict), Err(RequestFault::Target(fault)), "{target:?}");
    }
    let raw = ParseOpts { url_normalize: false, ..strict };
    assert_eq!(run(b"/\xFF", &raw), Err(RequestFault::RequestLine));
    for target in [&b"/\xFF\x7F"[..], b"/\xFF x"] {
        assert!(run(target, &lenient).is_err(), "{target:?}");
    }
    assert_eq!(run(b"http://\xFF/", &lenient), Err(RequestFault::HostMalformed));
}

#[test]
fn a_refused_line_is_there_for_the_log() {
    let mut out = RequestHead::new();
    let head = b"GET / HTTP/1.1\r\nBad name: x\r\n\r\n";
    let result = parse_request(head, &Http1Limits::default(), &ParseOpts::default(), &mut out);
    assert_eq!(result, Err(RequestFault::FieldName));
    assert_eq!(out.line(), b"GET / HTTP/1.1");
    let head = b"\r\nGET /b HTTP/1.1\nHost: a\n\n";
    let result = parse_request(head, &Http1Limits::default(), &ParseOpts::default(), &mut out);
    assert_eq!(result, Err(RequestFault::BareLf));
    assert_eq!((out.line(), out.method_raw()), (&b"GET /b HTTP/1.1"[..], &b"GET"[..]));
    assert_eq!(out.target_raw(), b"/b");
}

#[test]
fn the_number_of_fields_is_bounded_by_the_table_too() {
    let head = |count: usize| {
        ["GET / HTTP/1.1\r\nHost: a\r\n", &"A: b\r\n".repeat(count - 1), "\r\n"].concat()
    };
    let limits = Http1Limits { fields_max: u32::MAX, ..Http1Limits::default() };
    let run = |count| {
        let mut out = RequestHead::new();
        parse_request(head(count).as_bytes(), &limits, &ParseOpts::default(), &mut out)
    };
    assert!(run(FIELDS_CAP).is_ok());
    assert_eq!(run(FIELDS_CAP + 1), Err(RequestFault::TooManyFields));
}

#[test]
fn a_warm_parse_keeps_its_memory() {
    let head = b"GET /some/path?with=query HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
    let mut out = RequestHead::new();
    let mut capacities = Vec::new();
    for _ in 0..3 {
        out.clear();
        let result = parse_request(head, &Http1Limits::default(), &ParseOpts::default(), &mut out);
        assert!(result.is_ok());
        capacities.push(out.capacity());
    }
    assert_eq!(capacities[0], capacities[2]);
}

/// Result of a head in pieces: the fault, or its length, target and framing.
fn outcome(pieces: &[&[u8]]) -> Result<Option<(usize, Vec<u8>, BodyFraming)>, RequestFault> {
    let limits = Http1Limits { field_bytes_max: 60, fields_max: 4, target_bytes_max: 20, ..LIMITS };
    let (mut buf, mut head) = (Vec::new(), RequestHead::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        let result = parse_request(&buf, &limits, &ParseOpts::default(), &mut head)?;
        if let Head::Complete { consumed } = result {
            return Ok(Some((consumed, head.target.clone(), head.framing)));
        }
    }
    Ok(None)
}

const LIMITS: Http1Limits =
    Http1Limits { head_bytes_max: 100, field_bytes_max: 0, fields_max: 0, target_bytes_max: 0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_pieces_do_not_matter(
        line in "(\r?\n){0,2}(GET|POST|X\x00| )? ?(/[a-z%/.]{0,24}|\\*)( HTTP/1.[01])?\r?\n",
        fields in "((Host: a|Content-Length: [0-9]{0,3}|[A-Za-z :]{0,20}|\
                   Transfer-Encoding: chunked)\r?\n){0,6}",
        end in "(\r?\n)?[a-z]{0,4}",
    ) {
        let head: String = [line, fields, end].concat();
        let whole = outcome(&[head.as_bytes()]);
        shred(head.as_bytes(), |pieces| assert_eq!(outcome(pieces), whole));
    }

    #[test]
    fn well_formed_heads_too(
        target in "/[a-z]{0,10}",
        fields in "([A-Z][a-z]{0,4}: [a-z]{0,6}\r\n){0,3}",
    ) {
        let fields: String = fields;
        let head = ["PUT ", &target, " HTTP/1.1\r\nHost: a\r\n", &fields, "\r\n"].concat();
        let whole = outcome(&[head.as_bytes()]);
        if !fields.contains("Host") {
            let expected = (head.len(), target.into_bytes(), BodyFraming::None);
            prop_assert_eq!(&whole, &Ok(Some(expected)));
        }
        shred(head.as_bytes(), |pieces| assert_eq!(outcome(pieces), whole));
    }
}
