//! Tests of `head`: every vector in every cut. More of them are in `testdata/cgi`.

use std::format;
use std::string::String;
use std::vec::Vec;

use lighty_testkit::shredder::shred;
use proptest::prelude::*;

use super::*;

fn run(pieces: &[&[u8]], limits: &HeadLimits, head: &mut CgiHead) -> Result<Head, CgiFault> {
    head.clear();
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        let result = parse_head(&buf, limits, head);
        if result != Ok(Head::Partial) {
            return result;
        }
    }
    Ok(Head::Partial)
}

fn parse_with(input: &[u8], limits: &HeadLimits) -> Result<(Head, CgiHead), CgiFault> {
    let mut head = CgiHead::new();
    let whole = run(&[input], limits, &mut head);
    let mut other = CgiHead::new();
    shred(input, |pieces| {
        assert_eq!(run(pieces, limits, &mut other), whole, "{pieces:?}");
        if matches!(whole, Ok(Head::Complete { .. })) {
            assert_eq!(other.fields.as_wire(), head.fields.as_wire());
            assert_eq!((other.status, other.content_length), (head.status, head.content_length));
        }
    });
    whole.map(|result| (result, head))
}

#[track_caller]
fn accept(input: &str) -> CgiHead {
    let (result, head) = parse_with(input.as_bytes(), &HeadLimits::default()).expect("a head");
    assert_eq!(result, Head::Complete { consumed: input.len() }, "{input:?}");
    head
}

#[track_caller]
fn refuse(fault: CgiFault, inputs: &[&str]) {
    for input in inputs {
        let outcome = parse_with(input.as_bytes(), &HeadLimits::default());
        assert_eq!(outcome.map(|_| ()), Err(fault), "{input:?}");
    }
}

fn fields(head: &CgiHead) -> String {
    let lines = head.fields.iter().map(|(name, value)| {
        format!("{}={} ", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    });
    lines.collect()
}

#[test]
fn line_ends_may_be_mixed() {
    let head = accept("Content-Type: text/html\r\nX-A:b\nStatus: 404 Not Found\n\r\n");
    assert_eq!(head.status, Status::NOT_FOUND);
    assert_eq!(fields(&head), "Content-Type=text/html X-A=b ");
    assert_eq!(accept("X: \n\n").status, Status::OK);
}

#[test]
fn the_body_begins_where_the_head_ends() {
    let input = b"X: y\n\nX: z\n\n";
    let mut head = CgiHead::new();
    let limits = HeadLimits::default();
    assert_eq!(parse_head(input, &limits, &mut head), Ok(Head::Complete { consumed: 6 }));
    assert_eq!(parse_head(&input[6..], &limits, &mut head), Ok(Head::Complete { consumed: 6 }));
    assert_eq!(fields(&head), "X=z ", "the next call forgets the first head");
}

#[test]
fn location_without_status_redirects() {
    for (input, status, is_local) in [
        ("Location: http://a/b\n\n", 302, false),
        ("Location: /b?c\n\n", 302, true),
        ("Location: //a/b\n\n", 302, true),
        ("Location: /b\nContent-Type: text/html\n\n", 302, false),
        ("Location: /b\nContent-Length: 0\n\n", 302, false),
        ("Location: /b\nLocation: /b\n\n", 302, false),
        ("Location:\n\n", 200, false),
        ("Location: /b\nStatus: 301\n\n", 301, false),
        ("Status: 200 OK\nLocation: /b\n\n", 200, false),
        ("HTTP/1.1 303 See Other\nLocation: /b\n\n", 303, false),
    ] {
        let head = accept(input);
        assert_eq!((head.status.code(), head.is_local_redirect), (status, is_local), "{input:?}");
        assert!(head.fields.contains(Known::Location));
    }
}

#[test]
fn status_lines_are_tolerated() {
    for (input, status) in [
        ("HTTP/1.1 200 OK\r\nX: y\r\n\r\n", 200),
        ("HTTP/1.0 404\nX: y\n\n", 404),
        ("HTTP/1.1 500 \nX: y\n\n", 500),
        ("HTTP/1.1 404 Not Found\nStatus: 404\n\n", 404),
    ] {
        assert_eq!(accept(input).status.code(), status, "{input:?}");
    }
    refuse(
        CgiFault::StatusLine,
        &[
            "HTTP/2.0 200 OK\n\n",
            "HTTP/1.1\n\n",
            "HTTP/1.1 20\n\n",
            "HTTP/1.1 2000 OK\n\n",
            "HTTP/1.1  200 OK\n\n",
            "HTTP/1.1 099 Low\n\n",
            "HTTP/1.a 200 OK\n\n",
        ],
    );
    refuse(CgiFault::BareCr, &["HTTP/1.1 200 O\rK\n\n"]);
    // A status line is only accepted as the first line.
    refuse(CgiFault::FieldName, &["X: y\nHTTP/1.1 200 OK: no\n\n"]);
}

#[test]
fn statuses() {
    for (value, code) in [("200", 200), ("404 Not Found", 404), ("999\tx", 999), ("200 ", 200)] {
        assert_eq!(accept(&format!("Status: {value}\n\n")).status.code(), code);
    }
    for value in ["", "20", "2000", "99 x", "099", "+20", "OK", "200OK", "-1"] {
        refuse(CgiFault::Status, &[&format!("Status: {value}\n\n")]);
    }
    assert_eq!(accept("Status: 404\nstatus: 404 Gone?\n\n").status.code(), 404);
    refuse(
        CgiFault::StatusConflict,
        &["Status: 404\nStatus: 200\n\n", "HTTP/1.1 200 OK\nStatus: 404\n\n"],
    );
}

#[test]
fn interim_heads_have_another_behind_them() {
    let buf = b"Status: 103 Early\nLink: </a>\n\nStatus: 200\nX: y\n\nbody";
    let (limits, mut head) = (HeadLimits::default(), CgiHead::new());
    let parsed = parse_head(buf, &limits, &mut head);
    let Ok(Head::Complete { consumed }) = parsed else { panic!("{parsed:?}") };
    assert!(head.is_interim() && head.status.code() == 103);
    assert_eq!(fields(&head), "Link=</a> ");
    let parsed = parse_head(&buf[consumed..], &limits, &mut head);
    assert_eq!(parsed, Ok(Head::Complete { consumed: buf.len() - consumed - 4 }));
    assert!(!head.is_interim() && head.status.code() == 200);
    assert_eq!(fields(&head), "X=y ");
    for (text, is_interim) in [
        ("Status: 100\n\n", true),
        ("Status: 101\n\n", false),
        ("HTTP/1.1 199 ?\n\n", true),
        ("X: y\n\n", false),
    ] {
        assert_eq!(accept(text).is_interim(), is_interim, "{text:?}");
    }
}

#[test]
fn lengths() {
    let head = accept("Content-Length: 0012\nContent-length: 12\nX: y\n\n");
    assert_eq!(head.content_length, Some(12));
    assert_eq!(fields(&head), "X=y ", "the server frames its answers itself");
    assert_eq!(accept("X: y\n\n").content_length, None);
    let most = accept("Content-Length: 18446744073709551615\n\n");
    assert_eq!(most.content_length, Some(u64::MAX));
    for bad in ["", "+5", "-1", "5, 5", "0x5", "5 5", "18446744073709551616"] {
        refuse(CgiFault::ContentLength, &[&format!("Content-Length: {bad}\n\n")]);
    }
    refuse(CgiFault::ContentLengthConflict, &["Content-Length: 5\nContent-Length: 6\n\n"]);
}

#[test]
fn fields_of_the_connection_do_not_come_through() {
    let head = accept(
        "Connection: close, X-Kept\nKeep-Alive: 5\nProxy-Connection: x\nTE: x\nTrailer: x\n\
         transfer-encoding: chunked\nUpgrade: h2c\nX-Kept: 1\n\n",
    );
    assert_eq!(fields(&head), "X-Kept=1 ");
}

#[test]
fn an_upgrade_is_told_beside_the_fields() {
    let head = accept("Status: 101\nUpgrade: a\nUpgrade: b/1\n\n");
    assert_eq!(head.upgrade.as_deref(), Some(&b"a, b/1"[..]));
    assert_eq!(accept("X: y\n\n").upgrade, None);
}

#[test]
fn chunks_go_before_a_length() {
    for text in [
        "transfer-encoding: Chunked\nContent-Length: 5\n\n",
        "Transfer-Encoding: identity, chunked\n\n",
    ] {
        let head = accept(text);
        assert!(head.is_chunked && head.content_length.is_none(), "{text}");
    }
    assert!(!accept("Transfer-Encoding: identity\n\n").is_chunked);
    for bad in ["gzip", "gzip, chunked", "chunked, chunked", "chunked;q=1"] {
        refuse(CgiFault::TransferCoding, &[&format!("Transfer-Encoding: {bad}\n\n")]);
    }
}

#[test]
fn malformed_fields_are_refused() {
    refuse(CgiFault::NoColon, &["X\n\n", "X: y\nwords\n\n", "\x7fELF\n\n"]);
    refuse(CgiFault::FieldName, &[": y\n\n", "X\0: y\n\n", "a b: c\n\n", "X\r: y\n\n"]);
    refuse(CgiFault::ObsoleteFolding, &[" X: y\n\n", "X: y\n z\n\n", "X: y\n\tz: a\n\n"]);
    refuse(CgiFault::BareCr, &["X: a\rb\n\n", "X: a\r\r\n\n", "Status: 200\rX: y\n\n"]);
    refuse(CgiFault::FieldValue, &["X: a\0b\n\n", "X: \x01\n\n", "X: a\x7f\n\n", "X: \x1b[0m\n\n"]);
    refuse(CgiFault::Empty, &["\n", "\r\n", "\nX: y\n\n"]);
    refuse(CgiFault::NoColon, &["\r\r\n\n"]);
    assert_eq!(fields(&accept("X: \ta\tb \r\n\n")), "X=a\tb ");
}

#[test]
fn heads_have_a_limit_of_bytes() {
    let limits = HeadLimits { head_bytes_max: 20, fields_max: 9 };
    let long = |len: usize| format!("A: 1\nB: {}\n", "v".repeat(len - 9));
    for end in ["\n", "\r\n"] {
        let fits = long(20) + end;
        let consumed = fits.len();
        let (result, _) = parse_with(fits.as_bytes(), &limits).expect("fits");
        assert_eq!(result, Head::Complete { consumed });
        let large = long(21) + end;
        let outcome = parse_with(large.as_bytes(), &limits);
        assert_eq!(outcome.map(|_| ()), Err(CgiFault::HeadTooLarge));
    }
    let endless = "x".repeat(21);
    assert_eq!(
        parse_with(&endless.as_bytes()[..20], &limits).map(|(head, _)| head),
        Ok(Head::Partial)
    );
    let outcome = parse_with(endless.as_bytes(), &limits);
    assert_eq!(outcome.map(|_| ()), Err(CgiFault::HeadTooLarge));
}

#[test]
fn heads_have_a_limit_of_fields() {
    let limits = HeadLimits { fields_max: 3, ..HeadLimits::default() };
    let three = parse_with(b"A: 1\nB: 2\nC: 3\n\n", &limits);
    assert_eq!(three.map(|(_, head)| head.fields.len()), Ok(3));
    let four = parse_with(b"A: 1\nB: 2\nC: 3\nD: 4\n\n", &limits);
    assert_eq!(four.map(|_| ()), Err(CgiFault::TooManyFields));
}

#[test]
fn the_defaults_are_reached_too() {
    let limits = HeadLimits::default();
    let mut many = "A: 1\n".repeat(256);
    let mut head = CgiHead::new();
    many.push('\n');
    let consumed = many.len();
    assert_eq!(parse_head(many.as_bytes(), &limits, &mut head), Ok(Head::Complete { consumed }));
    let long = |len: usize| format!("A: {}\n\n", "v".repeat(len - 4));
    head.clear();
    let parsed = parse_head(long(64 * 1024).as_bytes(), &limits, &mut head);
    assert_eq!(parsed, Ok(Head::Complete { consumed: 64 * 1024 + 1 }));
    head.clear();
    let parsed = parse_head(long(64 * 1024 + 1).as_bytes(), &limits, &mut head);
    assert_eq!(parsed, Err(CgiFault::HeadTooLarge));
}

#[test]
fn an_authorizer_sets_variables() {
    let head = accept("Status: 200\nVariable-AUTH_TYPE: x\nvariable-A: b\nVariable-: c\nV: d\n\n");
    let variables: Vec<_> = head.variables().collect();
    assert_eq!(variables, [(&b"AUTH_TYPE"[..], &b"x"[..]), (b"A", b"b")]);
}

proptest! {
    #[test]
    fn no_bytes_are_read_two_ways(input in proptest::collection::vec(any_byte(), 0..120)) {
        let limits = HeadLimits { head_bytes_max: 60, fields_max: 5 };
        if let Ok((Head::Complete { .. }, head)) = parse_with(&input, &limits) {
            for (name, value) in head.fields.iter() {
                prop_assert!(!name.is_empty() && name.iter().all(|byte| is_token_byte(*byte)));
                prop_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
            }
        }
    }
}

fn any_byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        6 => proptest::sample::select(b"ABab01".to_vec()),
        2 => Just(b':'), 2 => Just(b'\n'), 1 => Just(b'\r'), 1 => Just(b' '), 1 => any::<u8>(),
    ]
}
