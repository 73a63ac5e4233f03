use std::vec::Vec;

use super::*;

/// A block of these fields, read as `kind`.
fn read(kind: BlockKind, fields: &[(&str, &str)]) -> Result<MessageHead, StreamFault> {
    let mut head = MessageHead::default();
    let limits = Limits::default();
    let mut collector = Collector::new(&mut head, kind, &limits, true);
    for (name, value) in fields {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        collector.field(Field { known: Known::from_bytes(name), name, value, fault: None });
    }
    collector.finish().map(|_| head)
}

type List<'a> = &'a [(&'a str, &'a str)];

const LINE: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/x?y")];

fn request(more: &[(&str, &str)]) -> Result<MessageHead, StreamFault> {
    read(BlockKind::Request, &[LINE, more].concat())
}

#[test]
fn a_request_is_its_parts() {
    let head = request(&[("accept", "*/*"), ("x-y", "z")]).expect("a request");
    assert_eq!(head.method(), b"GET");
    assert_eq!(head.scheme(), b"https");
    assert_eq!(head.authority(), Some(&b"a.example"[..]));
    assert_eq!(head.path(), b"/x?y");
    assert_eq!(head.protocol(), None);
    let fields: Vec<_> = head.fields.iter().collect();
    assert_eq!(fields[0], (&b"Host"[..], &b"a.example"[..]));
    assert_eq!(fields[1], (&b"Accept"[..], &b"*/*"[..]));
    assert_eq!(fields[2], (&b"x-y"[..], &b"z"[..]));
    let counted: usize =
        LINE.iter().map(|(n, v)| n.len() + v.len() + 32).sum::<usize>() + 6 + 3 + 32 + 3 + 1 + 32;
    assert_eq!(head.bytes, counted);
}

#[test]
fn fields_that_break_a_rule() {
    use StreamFault as F;
    for (name, value, fault) in [
        ("connection", "close", Some(F::ConnectionField)),
        ("proxy-connection", "close", Some(F::ConnectionField)),
        ("keep-alive", "timeout=5", Some(F::ConnectionField)),
        ("transfer-encoding", "chunked", Some(F::ConnectionField)),
        ("upgrade", "h2c", Some(F::ConnectionField)),
        ("te", "trailers", None),
        ("te", "trailers, gzip", Some(F::Te)),
        ("host", "a.example", None),
        ("host", "A.EXAMPLE", None),
        ("host", "b.example", Some(F::HostConflict)),
        ("host", "a.example:443", None),
        ("host", "A.example:", None),
        ("host", "a.example:80", Some(F::HostConflict)),
        ("host", "a.example:4430", Some(F::HostConflict)),
        ("host", "a.example443", Some(F::HostConflict)),
        (":path", "/", Some(F::PseudoLate)),
        ("content-length", "12", None),
        ("content-length", "+12", Some(F::ContentLength)),
        ("content-length", "", Some(F::ContentLength)),
        ("content-length", "12, 12", Some(F::ContentLength)),
    ] {
        let result = request(&[("accept", "*/*"), (name, value)]);
        assert_eq!(result.err(), fault, "{name}: {value}");
    }
}

#[test]
fn hosts_are_compared_with_the_port_of_the_scheme() {
    for (scheme, authority, host, is_same) in [
        ("http", "a.test", "a.test:80", true),
        ("http", "a.test:80", "A.TEST", true),
        ("https", "a.test:443", "a.test", true),
        ("https", "a.test:80", "a.test", false),
        ("HTTPS", "a.test", "a.test:443", true),
        ("https", "[::1]", "[::1]:443", true),
        ("https", "[::1]:443", "[::1]", true),
        ("https", "[::1]", "[::1]:80", false),
        ("https", "[1::443]", "[1:]", false),
        ("gopher", "a.test", "a.test:80", false),
        ("https", "a.test:443:443", "a.test", false),
    ] {
        let fields =
            [(":method", "GET"), (":scheme", scheme), (":authority", authority), (":path", "/")];
        let got = read(BlockKind::Request, &[&fields[..], &[("host", host)]].concat());
        assert_eq!(got.is_ok(), is_same, "{scheme}: {authority} {host}");
        if let Ok(head) = got {
            let hosts: Vec<_> = head.fields.get_all(Known::Host).collect();
            assert_eq!(hosts, [authority.as_bytes()], "the authority is what counts");
        }
    }
}

#[test]
fn schemes_have_a_grammar() {
    for (scheme, is_scheme) in [
        ("http", true),
        ("https", true),
        ("HTTP", true),
        ("coap+tcp", true),
        ("x-1.y", true),
        ("", false),
        ("http://b.test/x?", false),
        ("ht tp", false),
        ("1http", false),
        ("h\u{e9}", false),
        ("http:", false),
        ("//", false),
    ] {
        let fields = [(":method", "GET"), (":scheme", scheme), (":authority", "a"), (":path", "/")];
        let fault = read(BlockKind::Request, &fields).err();
        assert_eq!(fault, (!is_scheme).then_some(StreamFault::Scheme), "{scheme:?}");
    }
}

#[test]
fn lengths_that_are_repeated_must_agree() {
    let head = request(&[("content-length", "7"), ("content-length", "07")]).expect("the same");
    assert_eq!(head.content_length, Some(7));
    assert_eq!(head.fields.get_all(Known::ContentLength).collect::<Vec<_>>(), [b"7"]);
    let differing = request(&[("content-length", "7"), ("content-length", "8")]);
    assert_eq!(differing.err(), Some(StreamFault::ContentLength));
}

#[test]
fn pseudo_fields_that_break_a_rule() {
    use StreamFault as F;
    let method = (":method", "GET");
    let (scheme, path) = ((":scheme", "http"), (":path", "/"));
    let rows: &[(List, Option<StreamFault>)] = &[
        (&[method, scheme, path], None),
        (&[scheme, path], Some(F::PseudoMissing)),
        (&[method, path], Some(F::PseudoMissing)),
        (&[method, scheme], Some(F::PseudoMissing)),
        (&[method, scheme, path, path], Some(F::PseudoRepeated)),
        (&[method, scheme, path, (":status", "200")], Some(F::PseudoUnknown)),
        (&[method, scheme, path, (":test", "x")], Some(F::PseudoUnknown)),
        (&[method, scheme, ("accept", "x"), path], Some(F::PseudoLate)),
        (&[method, scheme, (":path", "")], Some(F::Path)),
        (&[method, scheme, (":path", "x")], Some(F::Path)),
        (&[method, scheme, (":path", "/a b")], Some(F::Path)),
        (&[method, scheme, (":path", "/a#b")], Some(F::Path)),
        (&[method, scheme, (":path", "*")], Some(F::Path)),
        (&[(":method", "OPTIONS"), scheme, (":path", "*")], None),
        (&[(":method", "G T"), scheme, path], Some(F::Method)),
        (&[(":method", ""), scheme, path], Some(F::Method)),
        (&[method, scheme, path, (":authority", "u@a")], Some(F::Authority)),
        (&[method, scheme, path, (":protocol", "websocket")], Some(F::PseudoUnknown)),
    ];
    for (fields, fault) in rows {
        assert_eq!(read(BlockKind::Request, fields).err(), *fault, "{fields:?}");
    }
}

#[test]
fn a_tunnel_names_its_end_and_nothing_else() {
    use StreamFault as F;
    let (connect, end) = ((":method", "CONNECT"), (":authority", "a:443"));
    let (scheme, path) = ((":scheme", "https"), (":path", "/"));
    let websocket = (":protocol", "websocket");
    let rows: &[(List, Option<StreamFault>)] = &[
        (&[connect, end], None),
        (&[connect], Some(F::PseudoMissing)),
        (&[connect, end, scheme], Some(F::PseudoUnknown)),
        (&[connect, end, path], Some(F::PseudoUnknown)),
        (&[connect, websocket, scheme, path, end], None),
        (&[connect, websocket, end], Some(F::PseudoMissing)),
    ];
    for (fields, fault) in rows {
        assert_eq!(read(BlockKind::Request, fields).err(), *fault, "{fields:?}");
    }
}

#[test]
fn hosts_where_there_is_no_authority() {
    let line = &[(":method", "GET"), (":scheme", "http"), (":path", "/")][..];
    let with = |more: &[(&str, &str)]| read(BlockKind::Request, &[line, more].concat());
    let head = with(&[("host", "a")]).expect("a request");
    assert_eq!(head.fields.get(Known::Host), Some(&b"a"[..]));
    assert_eq!(with(&[("host", "a"), ("host", "b")]).err(), Some(StreamFault::HostConflict));
    assert!(!with(&[(":authority", "")]).expect("a request").fields.contains(Known::Host));
}

#[test]
fn crumbs_of_a_cookie_are_joined() {
    let head = request(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c")]);
    let head = head.expect("a request");
    assert_eq!(head.fields.get_all(Known::Cookie).collect::<Vec<_>>(), [b"a=1; b=2; c"]);
    assert_eq!(head.fields.len(), 3);
}

#[test]
fn responses_and_trailers() {
    use StreamFault as F;
    let rows: &[(BlockKind, List, Option<StreamFault>)] = &[
        (BlockKind::Response, &[(":status", "200")], None),
        (BlockKind::Response, &[], Some(F::PseudoMissing)),
        (BlockKind::Response, &[(":status", "200"), (":status", "200")], Some(F::PseudoRepeated)),
        (BlockKind::Response, &[(":status", "20")], Some(F::Status)),
        (BlockKind::Response, &[(":status", "0200")], Some(F::Status)),
        (BlockKind::Response, &[(":status", "101")], Some(F::Status)),
        (BlockKind::Response, &[(":path", "/")], Some(F::PseudoUnknown)),
        (BlockKind::Response, &[(":status", "200"), ("connection", "x")], Some(F::ConnectionField)),
        (BlockKind::Trailers, &[("x-sum", "1")], None),
        (BlockKind::Trailers, &[(":status", "200")], Some(F::PseudoUnknown)),
        (BlockKind::Trailers, &[(":method", "GET")], Some(F::PseudoUnknown)),
    ];
    for (kind, fields, fault) in rows {
        assert_eq!(read(*kind, fields).err(), *fault, "{fields:?}");
    }
}

#[test]
fn a_message_beyond_its_limits_is_read_and_not_stored() {
    let limits = Limits { fields_max: 5, ..Limits::default() };
    for (count, expected) in [(1, Collected::Whole), (2, Collected::Oversized)] {
        let mut head = MessageHead::default();
        let mut collector = Collector::new(&mut head, BlockKind::Request, &limits, false);
        for (name, value) in LINE.iter().copied().chain(std::iter::repeat_n(("x", "y"), count)) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            collector.field(Field { known: None, name, value, fault: None });
        }
        assert_eq!(collector.finish(), Ok(expected));
        assert_eq!(head.fields.len(), 2, "Host and one more");
    }
    let line_bytes = request(&[]).expect("a request").bytes;
    for (spare, expected) in [(0, Collected::Whole), (1, Collected::Oversized)] {
        let limits = Limits { field_bytes_max: line_bytes + 40 - spare, ..Limits::default() };
        let mut head = MessageHead::default();
        let mut collector = Collector::new(&mut head, BlockKind::Request, &limits, false);
        for (name, value) in LINE.iter().chain(&[("x", "1234567")]) {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            collector.field(Field { known: None, name, value, fault: None });
        }
        assert_eq!(collector.finish(), Ok(expected));
    }
}
