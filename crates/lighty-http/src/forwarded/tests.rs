use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use std::format;

use proptest::prelude::*;

use super::list::{Torn, from_right};
use super::walk::{HOPS_MAX, Hop, walk};
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Addresses in 10.0.0.0/8 and the loopback are trusted proxies.
fn ours(addr: IpAddr) -> bool {
    assert!(!matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()), "mapped: {addr}");
    addr.is_loopback() || matches!(addr, IpAddr::V4(v4) if v4.octets()[0] == 10)
}

fn fields(name: Known, lines: &[&str]) -> Fields {
    let mut fields = Fields::new();
    fields.push_known(Known::Host, "a");
    lines.iter().for_each(|line| fields.push_known(name, line));
    fields
}

fn text(value: Option<ForwardedValue<'_>>) -> Option<Vec<u8>> {
    value.map(|value| value.text().into_owned())
}

#[test]
fn nodes() {
    let node = |name, port| Some(Node { name, port });
    let v4 = NodeName::Ip(ip("192.0.2.1"));
    let v6 = NodeName::Ip(ip("2001:db8::1"));
    for (text, expected) in [
        ("192.0.2.1", node(v4, None)),
        ("192.0.2.1:80", node(v4, Some(NodePort::Number(80)))),
        ("192.0.2.1:00080", node(v4, Some(NodePort::Number(80)))),
        ("192.0.2.1:_p", node(v4, Some(NodePort::Obfuscated(b"_p")))),
        ("[2001:DB8::1]", node(v6, None)),
        ("[2001:db8::1]:65535", node(v6, Some(NodePort::Number(65535)))),
        ("[::ffff:192.0.2.1]", node(v4, None)),
        ("unknown", node(NodeName::Unknown, None)),
        ("UNKNOWN:_x", node(NodeName::Unknown, Some(NodePort::Obfuscated(b"_x")))),
        ("_hidden", node(NodeName::Obfuscated(b"_hidden"), None)),
        ("_S-1.2_", node(NodeName::Obfuscated(b"_S-1.2_"), None)),
    ] {
        assert_eq!(Node::parse(text.as_bytes()), expected, "{text}");
        assert_eq!(Node::parse_lenient(text.as_bytes()), expected, "{text}");
    }
    for bad in [
        "",
        "_",
        "_a b",
        "a",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:65536",
        "1.2.3.4:000080",
        "1.2.3.4:+1",
        "1.2.3.4:80:80",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[]",
        "[1.2.3.4]",
        "[fe80::1%eth0]",
        ":80",
        "unknown:",
        "_:1",
        "1.2.3.4 ",
        "[[::1]]",
    ] {
        assert_eq!(Node::parse(bad.as_bytes()), None, "{bad}");
        assert_eq!(Node::parse_lenient(bad.as_bytes()), None, "{bad}");
    }
    assert_eq!(Node::parse(b"2001:db8::1"), None);
    assert_eq!(Node::parse_lenient(b"2001:db8::1"), node(v6, None));
}

#[test]
fn elements_of_the_document() {
    let parse = |element: &'static str| Element::parse(element.as_bytes());
    let element = parse("For=\"[2001:db8:cafe::17]:4711\"").expect("section 4");
    assert_eq!(text(element.for_node), Some(b"[2001:db8:cafe::17]:4711".to_vec()));
    let element = parse("for=192.0.2.60;proto=http;by=203.0.113.43").expect("section 4");
    assert_eq!(text(element.for_node), Some(b"192.0.2.60".to_vec()));
    assert_eq!(text(element.by), Some(b"203.0.113.43".to_vec()));
    assert_eq!((text(element.proto), element.host), (Some(b"http".to_vec()), None));
    let element = parse(";;for=_x ; HOST=\"a\\\"b\\\\,;c\";secret=ruewiu;").expect("legal");
    assert_eq!(text(element.host), Some(b"a\"b\\,;c".to_vec()));
    assert_eq!(parse(""), Some(Element::default()));
    for bad in [
        "for",
        "for=",
        "=a",
        "for =a",
        "for= a",
        "for=a b",
        "for=\"a",
        "for=\"a\\\"",
        "for=a;for=b",
        "for=a;FOR=a",
        "for=1.2.3.4:80",
        "for=[::1]",
        "for=\"a\"b",
        "x=\"\n\"",
        "x=\"\\\n\"",
        "for=a,",
    ] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}

#[test]
fn lines_are_cut_from_the_right() {
    let cut = |line: &'static str| {
        let members = from_right(line.as_bytes());
        members.map(|member| member.map(|m| core::str::from_utf8(m).expect("ASCII"))).collect()
    };
    let cut = |line| -> Vec<Result<&str, Torn>> { cut(line) };
    assert_eq!(cut(""), []);
    assert_eq!(cut(" , ,"), []);
    assert_eq!(cut("for=a, for=b ,,for=c"), [Ok("for=c"), Ok("for=b"), Ok("for=a")]);
    assert_eq!(cut(r#"x="a,b", y="c\",d""#), [Ok(r#"y="c\",d""#), Ok(r#"x="a,b""#)]);
    assert_eq!(cut(r#"x="a\\", y="=\"=""#), [Ok(r#"y="=\"=""#), Ok(r#"x="a\\""#)]);
    // An unclosed quote of a client does not affect a proxy's entry.
    assert_eq!(cut(r#"for=", for=1.2.3.4"#), [Ok("for=1.2.3.4"), Err(Torn)]);
    assert_eq!(cut(r#"for="a, for=b, for=c"#), [Ok("for=c"), Ok("for=b"), Err(Torn)]);
    assert_eq!(cut(r#"a", for=1.2.3.4"#), [Ok("for=1.2.3.4"), Err(Torn)]);
    assert_eq!(cut(r#"\", for="[::1]""#), [Ok(r#"for="[::1]""#), Err(Torn)]);
}

#[test]
fn x_forwarded_for_is_believed_as_far_as_proxies_are_trusted() {
    let run = |peer: &str, lines: &[&str]| {
        let origin = by_x_forwarded_for(ip(peer), &fields(Known::XForwardedFor, lines), ours);
        (format!("{}", origin.addr), origin.port, origin.hops, origin.end)
    };
    let at = |addr: &str, port, hops, end| (String::from(addr), port, hops, end);
    assert_eq!(run("192.0.2.9", &["1.2.3.4"]), at("192.0.2.9", None, 0, WalkEnd::Client));
    assert_eq!(run("10.0.0.1", &[]), at("10.0.0.1", None, 0, WalkEnd::Exhausted));
    assert_eq!(run("10.0.0.1", &["", " , "]), at("10.0.0.1", None, 0, WalkEnd::Exhausted));
    assert_eq!(run("10.0.0.1", &["1.2.3.4"]), at("1.2.3.4", None, 1, WalkEnd::Client));
    assert_eq!(
        run("::ffff:10.0.0.1", &["6.6.6.6, 1.2.3.4", "10.0.0.3 ,10.0.0.2"]),
        at("1.2.3.4", None, 3, WalkEnd::Client)
    );
    assert_eq!(run("10.0.0.1", &["1.2.3.4:99"]), at("1.2.3.4", Some(99), 1, WalkEnd::Client));
    assert_eq!(run("10.0.0.1", &["2001:db8::1"]), at("2001:db8::1", None, 1, WalkEnd::Client));
    assert_eq!(run("::1", &["[2001:db8::1]:9"]), at("2001:db8::1", Some(9), 1, WalkEnd::Client));
    assert_eq!(run("10.0.0.1", &["::ffff:10.0.0.2"]), at("10.0.0.2", None, 1, WalkEnd::Exhausted));
    assert_eq!(run("10.0.0.1", &["1.2.3.4, unknown"]), at("10.0.0.1", None, 1, WalkEnd::Hidden));
    assert_eq!(run("10.0.0.1", &["1.2.3.4, \"x"]), at("10.0.0.1", None, 0, WalkEnd::Malformed));
    assert_eq!(run("10.0.0.1", &["x, 1.2.3.4"]), at("1.2.3.4", None, 1, WalkEnd::Client));
    assert_eq!(run("10.0.0.1", &["x, 10.0.0.2:5"]), at("10.0.0.2", Some(5), 1, WalkEnd::Malformed));
}

#[test]
fn forwarded_is_believed_as_far_as_proxies_are_trusted() {
    let run = |peer: &str, lines: &[&str]| {
        let origin = by_forwarded(ip(peer), &fields(Known::Forwarded, lines), ours);
        (format!("{}", origin.addr), origin.port, origin.hops, origin.end)
    };
    let at = |addr: &str, port, hops, end| (String::from(addr), port, hops, end);
    assert_eq!(run("192.0.2.9", &["for=1.2.3.4"]), at("192.0.2.9", None, 0, WalkEnd::Client));
    assert_eq!(
        run("10.0.0.1", &["for=6.6.6.6", "for=\"1.2.3.4:99\";proto=https, for=10.0.0.2"]),
        at("1.2.3.4", Some(99), 2, WalkEnd::Client)
    );
    assert_eq!(
        run("10.0.0.1", &["for=\"[2001:db8::1]\""]),
        at("2001:db8::1", None, 1, WalkEnd::Client)
    );
    assert_eq!(run("10.0.0.1", &["for=\"\\1.2.3.4\""]), at("1.2.3.4", None, 1, WalkEnd::Client));
    assert_eq!(
        run("10.0.0.1", &["for=_a, for=10.0.0.2"]),
        at("10.0.0.2", None, 2, WalkEnd::Hidden)
    );
    assert_eq!(run("10.0.0.1", &["proto=https"]), at("10.0.0.1", None, 1, WalkEnd::Hidden));
    assert_eq!(run("10.0.0.1", &["for=2001:db8::1"]), at("10.0.0.1", None, 0, WalkEnd::Malformed));
    assert_eq!(run("10.0.0.1", &["for=\", for=1.2.3.4"]), at("1.2.3.4", None, 1, WalkEnd::Client));
    assert_eq!(
        run("10.0.0.1", &["for=\", for=10.0.0.2"]),
        at("10.0.0.2", None, 1, WalkEnd::Malformed)
    );
}

#[test]
fn outermost_trusted_proxy_states_protocol_and_host() {
    let lines =
        ["for=6.6.6.6;proto=evil", "for=1.2.3.4;proto=https;host=a, for=10.0.0.2;proto=http"];
    let fields = fields(Known::Forwarded, &lines);
    let origin = by_forwarded(ip("10.0.0.1"), &fields, ours);
    let element = element_from_right(&fields, origin.hops - 1).expect("the element");
    assert_eq!(
        (text(element.proto), text(element.host)),
        (Some(b"https".to_vec()), Some(b"a".to_vec()))
    );
    assert_eq!(element_from_right(&fields, 3), None);
}

#[test]
fn a_walk_has_a_bound() {
    let end = |len: usize| {
        let hops = core::iter::repeat_n(Hop::From(ip("10.0.0.2"), None), len);
        let origin = walk(ip("10.0.0.1"), hops, ours);
        (origin.end, origin.hops)
    };
    assert_eq!(end(HOPS_MAX - 1), (WalkEnd::Exhausted, HOPS_MAX - 1));
    assert_eq!(end(HOPS_MAX), (WalkEnd::TooMany, HOPS_MAX));
    assert_eq!(end(HOPS_MAX + 1), (WalkEnd::TooMany, HOPS_MAX));
}

#[test]
fn elements_are_written() {
    let written = |element: &NewElement<'_>| {
        let mut out = b"before".to_vec();
        let result = push_element(element, &mut out);
        result.map(|()| String::from_utf8(out.clone()).expect("ASCII")).inspect_err(|_| {
            assert_eq!(out, b"before");
        })
    };
    let node = |text: &'static str| Node::parse(text.as_bytes());
    let full = NewElement {
        for_node: node("192.0.2.1"),
        by: node("[2001:db8::1]:80"),
        host: Some(b"a.example:81"),
        proto: Some(b"https"),
    };
    assert_eq!(
        written(&full).as_deref(),
        Ok("beforefor=192.0.2.1;by=\"[2001:db8::1]:80\";host=\"a.example:81\";proto=https")
    );
    let only_host = |host| NewElement { host: Some(host), ..NewElement::default() };
    assert_eq!(written(&only_host(b"")).as_deref(), Ok("beforehost=\"\""));
    assert_eq!(written(&only_host(b"a\"\\")).as_deref(), Ok(r#"beforehost="a\"\\""#));
    assert_eq!(written(&only_host(b"a\r\nb")), Err(WriteFault::Control));
    let only_for =
        |name, port| NewElement { for_node: Some(Node { name, port }), ..NewElement::default() };
    let hidden = only_for(NodeName::Obfuscated(b"_h"), Some(NodePort::Obfuscated(b"_p")));
    assert_eq!(written(&hidden).as_deref(), Ok("beforefor=\"_h:_p\""));
    assert_eq!(written(&only_for(NodeName::Unknown, None)).as_deref(), Ok("beforefor=unknown"));
    let mapped = only_for(NodeName::Ip(ip("::ffff:192.0.2.1")), None);
    assert_eq!(written(&mapped).as_deref(), Ok("beforefor=192.0.2.1"));
    for bad in [&b"h"[..], b"_", b"_a;b", b""] {
        assert_eq!(
            written(&only_for(NodeName::Obfuscated(bad), None)),
            Err(WriteFault::Obfuscated)
        );
    }
    assert_eq!(written(&NewElement::default()).as_deref(), Ok("before"));
}

#[test]
fn proxies_append() {
    let mut both = fields(Known::XForwardedFor, &["1.2.3.4", "", "10.0.0.2"]);
    append_x_forwarded_for(&mut both, ip("::ffff:10.0.0.1"));
    append_x_forwarded_for(&mut both, ip("2001:db8::1"));
    let value = both.get_all(Known::XForwardedFor).collect::<Vec<_>>();
    assert_eq!(value, [b"1.2.3.4, 10.0.0.2, 10.0.0.1, 2001:db8::1"]);
    let element = NewElement { for_node: Some(Node::from_ip(ip("::1"))), ..NewElement::default() };
    append_forwarded(&mut both, &element).expect("legal");
    append_forwarded(&mut both, &element).expect("legal");
    assert_eq!(both.get(Known::Forwarded), Some(&b"for=\"[::1]\", for=\"[::1]\""[..]));
    let bad = NewElement { proto: Some(b"\0"), ..NewElement::default() };
    assert_eq!(append_forwarded(&mut both, &bad), Err(WriteFault::Control));
    assert_eq!(both.get(Known::Forwarded).map(<[u8]>::len), Some(24));
}

proptest! {
    /// Written entries can be read from the right, whatever a client wrote to the left.
    #[test]
    fn appended_elements_are_read_behind_any_client_text(
        junk in "[ -~]{0,20}",
        hosts in proptest::collection::vec("[ -~\t]{0,8}", 1..4),
        v6 in any::<u128>(),
        port in any::<Option<u16>>(),
    ) {
        let name = NodeName::Ip(IpAddr::V6(v6.into()).to_canonical());
        let for_node = Some(Node { name, port: port.map(NodePort::Number) });
        let mut list = fields(Known::Forwarded, &[&junk]);
        for host in &hosts {
            let host = Some(host.as_bytes());
            append_forwarded(&mut list, &NewElement { for_node, host, ..NewElement::default() })
                .expect("legal");
        }
        for (nth, host) in hosts.iter().rev().enumerate() {
            let element = element_from_right(&list, nth).expect("what was written");
            prop_assert_eq!(text(element.host).expect("a host"), host.as_bytes());
            let node = text(element.for_node).expect("a node");
            prop_assert_eq!(Node::parse(&node), for_node);
        }
    }

    /// Splitting valid lists from the right gives the same members as from the left.
    #[test]
    fn right_is_left_backwards(
        members in proptest::collection::vec("[a-z]{1,3}=(\"([a-z=,;]|\\\\[\"\\\\a])*\"|[a-z]{1,3})", 0..5),
    ) {
        let line = members.join(",");
        let mut cut: Vec<_> = from_right(line.as_bytes()).collect();
        cut.reverse();
        let expected: Vec<_> = members.iter().map(|member| Ok(member.as_bytes())).collect();
        prop_assert_eq!(cut, expected);
    }
}
