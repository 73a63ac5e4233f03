//! Tests of `upstream_response` that inspect the structure. Accepted and rejected heads are a
//! corpus of data (`testdata/http1-responses`), replayed by `tests/upstream_responses.rs`.

use std::format;
use std::string::String;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::super::response::encode_head;
use super::*;

/// Result of a head in pieces: the fault, or length, status, reason and fields as one text, and
/// framing.
type HeadOutcome = Result<Option<(usize, Status, Vec<u8>, ResponseFraming)>, ResponseFault>;

fn outcome(pieces: &[&[u8]], limits: &ResponseLimits, head: &mut ResponseHead) -> HeadOutcome {
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Head::Complete { consumed } = parse_response(&buf, None, limits, head)? {
            let mut text = head.reason().to_vec();
            for (name, value) in head.fields.iter() {
                text.extend([b"\n", name, b": ", value].concat());
            }
            return Ok(Some((consumed, head.status, text, head.framing)));
        }
    }
    Ok(None)
}

fn limits(head_bytes_max: usize, fields_max: u32) -> ResponseLimits {
    ResponseLimits { head_bytes_max, fields_max, ..ResponseLimits::default() }
}

fn in_all_cuts(input: &[u8], limits: &ResponseLimits) -> HeadOutcome {
    let whole = outcome(&[input], limits, &mut ResponseHead::new());
    let mut reused = ResponseHead::new();
    shred(input, |pieces| {
        reused.clear();
        assert_eq!(outcome(pieces, limits, &mut reused), whole, "{pieces:?}");
    });
    whole
}

#[test]
fn another_protocol_is_named() {
    for (answer, word) in [
        (&b"\x15\x03\x01\0\x02\x02\x46"[..], Some("TLS")),
        (b"\x16\x03\x03\0\x7a", Some("TLS")),
        (b"\0\0\x12\x04\0\0\0\0\0\0\x03", Some("HTTP/2")),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some("HTTP/2")),
        (b"\0\0\x12\x05\0\0\0\0\0\0\x03", None),
        (b"\x15\x04", None),
        (b"SSH-2.0-x\r\n", None),
        (b"", None),
    ] {
        let named = other_protocol(answer);
        assert_eq!(named.is_some(), word.is_some(), "{}", answer.escape_ascii());
        assert!(named.zip(word).is_none_or(|(named, word)| named.contains(word)), "{named:?}");
    }
}

#[test]
fn parts_of_a_response_head_are_found() {
    let text = b"HTTP/1.0 207 Many  Things\r\nsERVER: a\r\nX-Z: \t1 \r\nServer: b\r\n\
                 connection: keep-alive\r\ncontent-length: 7\r\n\r\nbody";
    let mut head = ResponseHead::new();
    let result = parse_response(text, Some(Method::Get), &ResponseLimits::default(), &mut head);
    assert_eq!(result, Ok(Head::Complete { consumed: text.len() - 4 }));
    assert_eq!((head.version, head.status.code()), (Version::Http10, 207));
    assert_eq!(head.reason(), b"Many  Things");
    let fields: Vec<_> = head.fields.iter().take(3).collect();
    assert_eq!(fields, [(&b"sERVER"[..], &b"a"[..]), (b"X-Z", b"1"), (b"Server", b"b")]);
    assert_eq!(head.framing, ResponseFraming::Length(7));
    assert!(head.keep_alive && !head.upgrade && !head.is_interim());
}

#[test]
fn forwarded_fields_are_checked_while_they_are_read() {
    let limits = ResponseLimits::default();
    for (text, is_clean) in [
        (&b"HTTP/1.1 200 OK\r\nX-Own: a\r\nServer: b\r\n\r\n"[..], true),
        (b"HTTP/1.1 200 OK\r\nX-Own: a\tb\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\n\r\n", true),
    ] {
        assert!(matches!(in_all_cuts(text, &limits), Ok(Some(_))));
        let mut head = ResponseHead::new();
        assert!(parse_response(text, None, &limits, &mut head).is_ok());
        assert!(head.fields.names_are_tokens() && head.fields.as_wire().is_some());
        assert_eq!(head.fields.values_are_clean(), is_clean);
    }
}

#[test]
fn unusual_heads_are_left_to_the_exact_reader() {
    let limits = ResponseLimits::default();
    for text in [
        &b"HTTP/1.1 200\r\nA: b\r\n\r\n"[..],
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200 OK\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n\r",
        b"",
    ] {
        let mut head = ResponseHead::new();
        assert_eq!(head.take_whole(text, &limits), None, "{:?}", text.escape_ascii());
        assert!(head.fields.is_empty() && head.reason().is_empty());
        // The result need not be known, but must be the same for all cuts.
        let _ = in_all_cuts(text, &limits);
    }
}

#[test]
fn heads_come_one_by_one() {
    let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let text = [interim.as_slice(), b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"].concat();
    let (limits, mut head) = (ResponseLimits::default(), ResponseHead::new());
    let first = parse_response(&text, None, &limits, &mut head);
    assert_eq!(first, Ok(Head::Complete { consumed: interim.len() }));
    assert!(head.is_interim() && head.fields.contains(Known::Link));
    let rest = &text[interim.len()..];
    let second = parse_response(rest, None, &limits, &mut head);
    assert_eq!(second, Ok(Head::Complete { consumed: rest.len() - 1 }));
    assert!(!head.is_interim() && !head.fields.contains(Known::Link));
    assert_eq!(head.framing, ResponseFraming::Length(1));
}

#[test]
fn a_fault_leaves_nothing_behind() {
    let (limits, mut head) = (ResponseLimits::default(), ResponseHead::new());
    let torn = b"HTTP/1.1 200 OK\r\nA: b\r\nB\r\n";
    assert_eq!(parse_response(torn, None, &limits, &mut head), Err(ResponseFault::NoColon));
    let good = b"HTTP/1.1 200 OK\r\n\r\n";
    let result = parse_response(good, None, &limits, &mut head);
    assert_eq!(result, Ok(Head::Complete { consumed: good.len() }));
    assert!(head.fields.is_empty());
}

#[test]
fn memory_is_reused() {
    let text = b"HTTP/1.1 200 OK\r\nServer: a\r\nContent-Length: 5\r\n\r\n";
    let (limits, mut head) = (ResponseLimits::default(), ResponseHead::new());
    let mut capacities = Vec::new();
    for _ in 0..3 {
        assert!(parse_response(text, None, &limits, &mut head).is_ok());
        capacities.push(head.capacity());
    }
    assert_eq!(capacities[0], capacities[2]);
}

/// Runs a head built for `n` and one for `n + 1`, and expects only the second to be rejected.
#[track_caller]
fn at_the_limit(
    n: usize,
    fault: ResponseFault,
    limits: &ResponseLimits,
    head: impl Fn(usize) -> String,
) {
    assert!(matches!(in_all_cuts(head(n).as_bytes(), limits), Ok(Some(_))), "{n}");
    assert_eq!(in_all_cuts(head(n + 1).as_bytes(), limits), Err(fault), "{n} + 1");
}

#[test]
fn limits_at_n_and_one_more() {
    let limits = limits(100, 5);
    at_the_limit(100, ResponseFault::HeadTooLarge, &limits, |n| {
        format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\nbody", "b".repeat(n - 17 - 5))
    });
    at_the_limit(100, ResponseFault::HeadTooLarge, &limits, |n| {
        format!("HTTP/1.1 200 {}\r\n\r\n", "b".repeat(n - 15))
    });
    at_the_limit(5, ResponseFault::TooManyFields, &limits, |n| {
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(n))
    });
}

#[test]
fn first_fault_is_the_same_however_the_head_is_cut() {
    for max in 0..20 {
        let limits = limits(max, 0);
        for text in ["garbage", "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1 200 OK\r\nA\r\n", "HTTP/1.3"] {
            assert!(in_all_cuts(text.as_bytes(), &limits).is_err() || max >= text.len());
        }
    }
}

#[test]
fn an_endless_head_is_refused_before_it_ends() {
    let limits = limits(100, 5);
    let text = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(81));
    assert_eq!(in_all_cuts(text.as_bytes(), &limits), Err(ResponseFault::HeadTooLarge));
    assert_eq!(in_all_cuts(&text.as_bytes()[..100], &limits), Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_pieces_do_not_matter(
        line in "(HTTP/1.[0-2]|X) [0-9]{2,4}( [a-z\t\r]{0,8})?\r?\n",
        fields in "((Content-Length: [0-9]{0,3}|[A-Za-z :\t]{0,20}|\
                   Transfer-Encoding: chunked)\r?\n){0,6}",
        end in "(\r?\n)?[a-z]{0,4}",
    ) {
        let head: String = [line, fields, end].concat();
        let limits = limits(100, 4);
        in_all_cuts(head.as_bytes(), &limits).ok();
    }

    /// The output of this server's encoder is parsed with the same meaning.
    #[test]
    fn encoded_response_is_parsed(
        code in 200..1000_u16,
        names in proptest::collection::vec("(X-)?[A-Za-z!#-]{1,9}", 0..6),
        value in "[!-~]([ -~\t]{0,20}[!-~])?",
        length in any::<u64>(),
    ) {
        let mut fields = Fields::new();
        names.iter().for_each(|name| fields.push(name.as_bytes(), value.as_bytes()));
        fields.remove(Known::TransferEncoding);
        fields.remove(Known::ContentLength);
        fields.push_known(Known::ContentLength, format!("{length}"));
        let status = Status::new(code).expect("three digits");
        let mut wire = Vec::new();
        encode_head(Version::Http11, status, &fields, None, &mut wire).expect("legal");
        let mut head = ResponseHead::new();
        let result = parse_response(&wire, None, &ResponseLimits::default(), &mut head);
        prop_assert_eq!(result, Ok(Head::Complete { consumed: wire.len() }));
        prop_assert!(fields.iter().eq(head.fields.iter()));
        prop_assert_eq!((head.status, head.reason()), (status, status.reason().as_bytes()));
        if status.allows_content() {
            prop_assert_eq!(head.framing, ResponseFraming::Length(length));
        }
    }
}

#[test]
fn a_line_feed_alone_ends_a_line_unless_that_is_forbidden() {
    let strict = ResponseLimits { strict_lines: true, ..ResponseLimits::default() };
    let plain = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\n\r\n";
    let expected = in_all_cuts(plain, &strict).expect("a plain head").expect("a whole one");
    let text = core::str::from_utf8(plain).expect("text");
    let lines: Vec<&str> = text.split_inclusive("\r\n").collect();
    for bare in 1..1 << lines.len() {
        let end = |at: usize| if bare >> at & 1 == 1 { "\n" } else { "\r\n" };
        let lines = lines.iter().enumerate();
        let head: String =
            lines.map(|(at, line)| format!("{}{}", line.trim_end(), end(at))).collect();
        let lenient = in_all_cuts(head.as_bytes(), &ResponseLimits::default());
        let found = lenient.expect("accepted").expect("whole");
        assert_eq!(found.0, head.len(), "{head:?}");
        assert_eq!((found.1, found.2, found.3), (expected.1, expected.2.clone(), expected.3));
        assert_eq!(in_all_cuts(head.as_bytes(), &strict), Err(ResponseFault::BareLf), "{head:?}");
    }
}
