//! Replays `testdata/peers`: messages of proxies and backends. The format is described in
//! `testdata/peers/README.md`.

use std::collections::HashSet;
use std::fmt::Write;
use std::net::IpAddr;

use crate::case_files::{Case, load_all};
use lighty_http::forwarded::{ForwardedOrigin, by_forwarded, by_x_forwarded_for};
use lighty_http::hop_by_hop::end_to_end;
use lighty_http::{Fields, Known};
use lighty_testkit::shredder::shred;
use lighty_wire::ajp13::{AjpEvent, FIELDS_MAX, PacketSize, ResponseDecoder};
use lighty_wire::proxy_protocol::{Command, Endpoints, Header, Parsed, V2_BYTES_MAX, parse};

const CASES_MIN: usize = 70;

#[test]
fn every_case() {
    let mut names = HashSet::new();
    let mut failures = String::new();
    for (extension, run) in [
        ("ajp13", ajp13 as fn(&Case) -> String),
        ("proxy", proxy_protocol),
        ("forwarded", forwarded),
        ("hops", hops),
    ] {
        for case in load_all("peers", extension) {
            assert!(names.insert(case.name.clone()), "two cases are called {}", case.name);
            let actual = run(&case);
            if actual != case.expected {
                let expected = &case.expected;
                writeln!(failures, "{}: expected {expected}, got {actual}", case.name)
                    .expect("a String takes all");
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(names.len() >= CASES_MIN, "only {} cases were found", names.len());
}

/// Events in order; the same in every cut.
fn ajp13(case: &Case) -> String {
    let mut first = None;
    shred(&case.input, |pieces| {
        let outcome = ajp13_pieces(pieces, case.options.iter().any(|option| option == "ping"));
        assert_eq!(first.get_or_insert_with(|| outcome.clone()), &outcome, "{}", case.name);
    });
    first.expect("at least one run")
}

fn ajp13_pieces(pieces: &[&[u8]], ping: bool) -> String {
    let mut decoder = ResponseDecoder::new(PacketSize::DEFAULT, FIELDS_MAX);
    if ping {
        decoder.begin_ping()
    } else {
        decoder.begin_request()
    }
    let (mut parts, mut body) = (Vec::new(), String::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let step = match decoder.feed(rest) {
                Ok(step) => step,
                Err(fault) => {
                    push_body(&mut body, &mut parts);
                    parts.push(format!("refuse={}", fault.slug()));
                    return parts.join(" ");
                }
            };
            match step.event {
                Some(AjpEvent::Body(range)) => body += &String::from_utf8_lossy(&rest[range]),
                Some(event) => {
                    push_body(&mut body, &mut parts);
                    parts.push(describe_event(&decoder, &event));
                }
                None => {}
            }
            rest = &rest[step.consumed..];
        }
    }
    push_body(&mut body, &mut parts);
    if !decoder.is_between_packets() {
        parts.push("partial".into());
    }
    parts.join(" ")
}

fn push_body(body: &mut String, parts: &mut Vec<String>) {
    if !body.is_empty() {
        parts.push(format!("body={}", std::mem::take(body)));
    }
}

fn describe_event(decoder: &ResponseDecoder, event: &AjpEvent) -> String {
    match event {
        AjpEvent::Headers => {
            let mut text = format!("headers={}", decoder.status().code());
            for (name, value) in decoder.fields().iter() {
                let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                write!(text, ",{name}:{value}").expect("a String takes all");
            }
            text
        }
        AjpEvent::Flush => "flush".into(),
        AjpEvent::GetBody { len } => format!("get-body={len}"),
        AjpEvent::End { reuse: true } => "end=reuse".into(),
        AjpEvent::End { reuse: false } => "end=close".into(),
        AjpEvent::Pong => "pong".into(),
        AjpEvent::Body(_) => unreachable!("bodies are joined"),
    }
}

/// Endpoints, extensions, and the number of bytes that follow; the same for every beginning that is
/// long enough.
fn proxy_protocol(case: &Case) -> String {
    let describe = |len: usize| match parse(&case.input[..len], V2_BYTES_MAX) {
        Ok(Parsed::Partial) => "partial".into(),
        Ok(Parsed::Complete { consumed, header }) => {
            format!("{} rest={}", describe_header(&header), case.input.len() - consumed)
        }
        Err(fault) => format!("refuse={}", fault.slug()),
    };
    let whole = describe(case.input.len());
    for len in 0..case.input.len() {
        let part = describe(len);
        assert!(part == "partial" || part == whole, "{} after {len} bytes: {part}", case.name);
    }
    whole
}

fn describe_header(header: &Header<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut parts = vec![match header.endpoints {
        Endpoints::Own if header.command == Command::Local => "local".into(),
        Endpoints::Own => "own".into(),
        Endpoints::Inet { source, destination } => format!("{source} {destination}"),
        Endpoints::Unix { source, destination } => {
            format!("unix:{} unix:{}", text(source), text(destination))
        }
    }];
    let extensions = &header.extensions;
    for (name, value) in [
        ("alpn", extensions.alpn),
        ("authority", extensions.authority),
        ("id", extensions.unique_id),
        ("tls", extensions.tls.and_then(|tls| tls.version)),
        ("cn", extensions.tls.and_then(|tls| tls.common_name)),
        ("verified", extensions.tls.filter(|tls| tls.is_verified()).map(|_| &b"yes"[..])),
        ("checksum", extensions.checksum.then_some(b"yes")),
    ] {
        parts.extend(value.map(|value| format!("{name}={}", text(value))));
    }
    parts.join(" ")
}

/// The client of the request. Proxies are all in 10.0.0.0/8; the neighbour is the first option.
fn forwarded(case: &Case) -> String {
    let fields = read_fields(&case.input);
    let peer: IpAddr = case.options[0].parse().expect("the neighbour's address");
    let ours = |ip: IpAddr| matches!(ip, IpAddr::V4(v4) if v4.octets()[0] == 10);
    let origin = match fields.contains(Known::Forwarded) {
        true => by_forwarded(peer, &fields, ours),
        false => by_x_forwarded_for(peer, &fields, ours),
    };
    describe_origin(&origin)
}

fn describe_origin(origin: &ForwardedOrigin) -> String {
    let port = origin.port.map_or(String::new(), |port| format!(" port={port}"));
    let end = format!("{:?}", origin.end).to_lowercase();
    format!("{}{port} hops={} {end}", origin.addr, origin.hops)
}

/// The names of the fields that are forwarded.
fn hops(case: &Case) -> String {
    let fields = read_fields(&case.input);
    let kept = end_to_end(&fields).map(|(_, name, _)| String::from_utf8_lossy(name).into_owned());
    let names: Vec<String> = kept.collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

fn read_fields(input: &[u8]) -> Fields {
    let mut fields = Fields::new();
    for line in input.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':').expect("a field");
        fields.push(&line[..colon], lighty_http::fields::trim(&line[colon + 1..]));
    }
    fields
}
