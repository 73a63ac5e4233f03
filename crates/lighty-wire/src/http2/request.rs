//! Converts HTTP/2 requests to the type that HTTP/1 produces, so that later code knows only one.

use lighty_http::fields::is_token;
use lighty_http::uri::ParseOpts;
use lighty_http::{Fields, Known, Version};

use super::message::MessageHead;
use crate::http1::request::SplitRequest;
use crate::http1::{BodyFraming, Http1Limits, RequestFault, RequestHead};

/// Reads `message` into `out`, which takes its fields. `ends` is true if there is no content.
/// Content of unknown length is [`BodyFraming::Chunked`]. A GET or HEAD that may not have content
/// but has not ended gets a length of 0: the caller waits for its end, and rejects content.
///
/// An extended CONNECT (RFC 8441) is converted to the equivalent GET with `Upgrade`, so that the
/// same rules, handlers and backends serve both.
///
/// # Errors
/// [`RequestFault`], as for HTTP/1: the message is well-formed, so the response has the fault's
/// status.
pub fn read_request(
    message: &mut MessageHead,
    ends: bool,
    limits: &Http1Limits,
    opts: &ParseOpts,
    out: &mut RequestHead,
) -> Result<(), RequestFault> {
    // Some clients end such requests with an empty DATA frame.
    let is_read = matches!(message.method(), b"GET" | b"HEAD");
    let framing = match message.content_length {
        _ if ends => BodyFraming::Length(0),
        Some(bytes) => BodyFraming::Length(bytes),
        None if is_read && !opts.method_get_body => BodyFraming::Length(0),
        None => BodyFraming::Chunked,
    };
    if let Some(protocol) = message.protocol() {
        let protocol = protocol.to_vec();
        return read_upgrade(message, &protocol, limits, opts, out);
    }
    let mut fields = core::mem::take(&mut message.fields);
    // A missing path of another method means that it was too long to be stored.
    let target = match message.method() {
        b"CONNECT" => message.authority().unwrap_or_default(),
        _ => message.path(),
    };
    let parts = SplitRequest { version: Version::Http2, method: message.method(), target, framing };
    let result = out.read_parts(&parts, &mut fields, limits, opts);
    message.fields = fields;
    if ends && result.is_ok() {
        out.framing = BodyFraming::None;
    }
    result
}

/// Converts an extended CONNECT. The stream carries the tunnel's bytes from then on.
#[cold]
fn read_upgrade(
    message: &mut MessageHead,
    protocol: &[u8],
    limits: &Http1Limits,
    opts: &ParseOpts,
    out: &mut RequestHead,
) -> Result<(), RequestFault> {
    let mut fields: Fields = core::mem::take(&mut message.fields);
    fields.push_known(Known::Connection, "upgrade");
    fields.push_known(Known::Upgrade, protocol);
    let parts = SplitRequest {
        version: Version::Http2,
        method: b"GET",
        target: message.path(),
        framing: BodyFraming::None,
    };
    let result = out.read_parts(&parts, &mut fields, limits, opts);
    message.fields = fields;
    result?;
    if !is_token(protocol) {
        return Err(RequestFault::ProtocolMalformed);
    }
    out.upgrade = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    use lighty_http::{Known, Method};

    use super::super::frame::{self, PREFACE, flag, kind};
    use super::super::{Connection, Event};
    use super::*;
    use crate::http1::parse_request;
    use crate::http1::request::TargetForm;

    type Fields<'a> = &'a [(&'a str, &'a str)];

    /// Sends a request through a connection.
    fn read(fields: Fields, ends: bool) -> Result<RequestHead, RequestFault> {
        let mut input = PREFACE.to_vec();
        frame::push(kind::SETTINGS, 0, 0, &[], &mut input);
        let mut block = Vec::new();
        for (name, value) in fields {
            block.extend([0, name.len() as u8]);
            block.extend(name.bytes().chain([value.len() as u8]).chain(value.bytes()));
        }
        let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
        frame::push(kind::HEADERS, flags, 1, &block, &mut input);
        let limits = super::super::Limits::default();
        let mut conn = Connection::server_with_extended_connect(limits, 0);
        let handled = conn.handle_input(&input, 0).expect("no fault");
        assert!(matches!(handled.event, Some(Event::Request { .. })), "{fields:?}");
        let mut out = RequestHead::new();
        let (limits, opts) = (Http1Limits::default(), ParseOpts::default());
        read_request(conn.head(), ends, &limits, &opts, &mut out).map(|()| out)
    }

    fn line<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
        [(":method", method), (":scheme", "http"), (":authority", "A.example:81"), (":path", path)]
    }

    /// The same request in HTTP/1.
    fn in_lines(method: &str, path: &str, more: Fields) -> Result<RequestHead, RequestFault> {
        let fields: String = more.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
        let text = format!("{method} {path} HTTP/1.1\r\nHost: A.example:81\r\n{fields}\r\n");
        let mut out = RequestHead::new();
        let opts = ParseOpts::default();
        parse_request(text.as_bytes(), &Http1Limits::default(), &opts, &mut out).map(|_| out)
    }

    #[test]
    fn a_request_means_the_same_in_lines_and_in_frames() {
        let rows: [(&str, &str, Fields); 10] = [
            ("GET", "/", &[]),
            ("GET", "/a/../b%41?q=%20x", &[("accept", "*/*")]),
            ("HEAD", "/%2e%2e/x", &[]),
            ("OPTIONS", "*", &[]),
            ("BREW", "/pot", &[]),
            ("GET", "/%zz", &[]),
            ("GET", "/", &[("content-type", "a"), ("content-type", "b")]),
            ("GET", "/", &[("expect", "something")]),
            ("DELETE", "/x", &[("if-match", "\"a\"")]),
            ("GET", "//x", &[("range", "bytes=0-1"), ("x-own", "v")]),
        ];
        for (method, path, more) in rows {
            let frames = read(&[&line(method, path)[..], more].concat(), true);
            let lines = in_lines(method, path, more);
            let (frames, lines) = match (frames, lines) {
                (Ok(frames), Ok(lines)) => (frames, lines),
                (frames, lines) => {
                    assert_eq!(frames.err(), lines.err(), "{method} {path}");
                    continue;
                }
            };
            assert_eq!((frames.method, frames.form), (lines.method, lines.form));
            assert_eq!((&frames.target, frames.path()), (&lines.target, lines.path()));
            assert_eq!((frames.host(), frames.port), (lines.host(), lines.port));
            assert_eq!((frames.framing, frames.keep_alive), (lines.framing, lines.keep_alive));
            let all = |head: &RequestHead| -> Vec<_> {
                let lower = |(n, v): (&[u8], &[u8])| (n.to_ascii_lowercase(), v.to_vec());
                head.fields.iter().map(lower).collect()
            };
            assert_eq!(all(&frames), all(&lines));
            assert_eq!(frames.line(), format!("{method} {path} HTTP/2.0").as_bytes());
        }
    }

    #[test]
    fn content_is_framed_by_its_length_or_by_the_end_of_the_stream() {
        let with =
            |length: &'static str| [&line("POST", "/")[..], &[("content-length", length)]].concat();
        for (fields, ends, framing) in [
            (line("POST", "/").to_vec(), true, BodyFraming::None),
            (line("POST", "/").to_vec(), false, BodyFraming::Chunked),
            (with("7"), false, BodyFraming::Length(7)),
            (with("0"), true, BodyFraming::None),
        ] {
            assert_eq!(read(&fields, ends).expect("a request").framing, framing);
        }
        let get = read(&line("GET", "/"), false).expect("a request that may end without content");
        assert_eq!(get.framing, BodyFraming::Length(0));
        let fields = [&line("GET", "/")[..], &[("content-length", "7")]].concat();
        let get = read(&fields, false);
        assert_eq!(get.err(), Some(RequestFault::ContentInGet), "as in HTTP/1");
    }

    #[test]
    fn hosts_and_tunnels() {
        let no_host = &[(":method", "GET"), (":scheme", "http"), (":path", "/")];
        assert_eq!(read(no_host, true).err(), Some(RequestFault::HostMissing));
        let bad = [&line("GET", "/")[..2], &[(":authority", "a/b"), (":path", "/")]].concat();
        assert_eq!(read(&bad, true).err(), Some(RequestFault::HostMalformed));
        let connect = [(":method", "CONNECT"), (":authority", "b.example:443")];
        let head = read(&connect, false).expect("a tunnel");
        assert_eq!((head.method, head.form), (Some(Method::Connect), TargetForm::Authority));
        assert_eq!((head.host(), head.port), (&b"b.example"[..], Some(443)));
        assert_eq!(head.fields.get(Known::Host), Some(&b"b.example:443"[..]));
        let long = format!("/{}", "x".repeat(100));
        assert!(read(&line("GET", &long), true).is_ok());
    }

    #[test]
    fn an_extended_connect_is_a_get_that_upgrades() {
        let with = |protocol: &'static str| {
            [&[(":method", "CONNECT"), (":protocol", protocol)], &line("", "/chat?x")[1..]].concat()
        };
        for ends in [false, true] {
            let head = read(&with("websocket"), ends).expect("an upgrade");
            assert_eq!((head.method, head.form), (Some(Method::Get), TargetForm::Origin));
            assert!(head.upgrade && head.framing == BodyFraming::None);
            assert_eq!(head.line(), b"GET /chat?x HTTP/2.0");
            assert_eq!(head.fields.get(Known::Upgrade), Some(&b"websocket"[..]));
            assert_eq!(head.fields.get(Known::Connection), Some(&b"upgrade"[..]));
        }
        for protocol in ["", "a b", "websocket, h2c"] {
            let fault = read(&with(protocol), false).err();
            assert_eq!(fault, Some(RequestFault::ProtocolMalformed), "{protocol}");
        }
    }

    #[test]
    fn a_target_has_a_limit() {
        let limits = Http1Limits { target_bytes_max: 5, ..Http1Limits::default() };
        for (target, fault) in [("/abcd", None), ("/abcde", Some(RequestFault::TargetTooLong))] {
            let mut out = RequestHead::new();
            let parts = SplitRequest {
                version: Version::Http2,
                method: b"GET",
                target: target.as_bytes(),
                framing: BodyFraming::None,
            };
            let mut fields = lighty_http::Fields::new();
            fields.push_known(Known::Host, "a");
            let result = out.read_parts(&parts, &mut fields, &limits, &ParseOpts::default());
            assert_eq!(result.err(), fault);
        }
    }
}
