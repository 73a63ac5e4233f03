//! Finds the byte of a rejected head at which its fault is, for people. Runs for rejected messages
//! only, and searches the head again.

use lighty_http::fields::is_token_byte;
use memchr::memchr;

use super::fault::RequestFault;

/// Returns the offset in `head` of the first byte that shows the fault. `None` if no single byte
/// does: something is missing, or a limit was exceeded.
pub fn in_request(head: &[u8], fault: RequestFault) -> Option<usize> {
    use RequestFault as F;
    let request_line = lines(head).find(|line| !line.text.is_empty())?;
    match fault {
        F::LeadingLines => Some(0),
        F::RequestLine => Some(request_line.start + line_fault(request_line.text)),
        F::Version => Some(request_line.start + last_word(request_line.text)),
        F::Target(_) => {
            let target = request_line.start + first_word_end(request_line.text) + 1;
            Some(target.min(head.len()))
        }
        F::BareLf => (0..head.len()).find(|at| head[*at] == b'\n' && !head[..*at].ends_with(b"\r")),
        F::BareCr => bare_cr(head),
        F::ObsoleteFolding | F::NoColon | F::SpaceBeforeColon | F::FieldName | F::FieldValue => {
            field_fault(head)
        }
        F::HostRepeated => field(head, b"host", 1),
        F::HostMalformed => field(head, b"host", 0),
        F::ContentTypeConflict => field(head, b"content-type", 1),
        F::IfModifiedSinceConflict => field(head, b"if-modified-since", 1),
        F::ContentLengthMalformed | F::ContentLengthTooLarge => field(head, b"content-length", 0),
        F::ContentLengthRepeated | F::ContentLengthConflict => {
            field(head, b"content-length", 1).or_else(|| field(head, b"content-length", 0))
        }
        F::LengthAndCoding | F::CodingInHttp10 | F::CodingMalformed | F::CodingUnknown => {
            field(head, b"transfer-encoding", 0)
        }
        F::Expectation => field(head, b"expect", 0),
        F::TargetTooLong
        | F::HeadTooLarge
        | F::FieldsTooLarge
        | F::TooManyFields
        | F::HostMissing
        | F::ProtocolMalformed
        | F::LengthRequired
        | F::ContentInGet => None,
    }
}

/// Returns the offset of the first byte of a response's head that breaks the grammar; `None` if
/// its fault is of another kind.
pub fn in_response(head: &[u8]) -> Option<usize> {
    const VERSION: &[u8] = b"HTTP/1.";
    let differs = |at: &usize| head.get(*at).is_some_and(|byte| *byte != VERSION[*at]);
    (0..VERSION.len()).find(differs).or_else(|| field_fault(head))
}

/// A line of a head, without its end.
struct HeadLine<'a> {
    start: usize,
    text: &'a [u8],
}

fn lines(head: &[u8]) -> impl Iterator<Item = HeadLine<'_>> {
    let mut start = 0;
    head.split(|byte| *byte == b'\n').map(move |text| {
        let line = HeadLine { start, text: text.strip_suffix(b"\r").unwrap_or(text) };
        start += text.len() + 1;
        line
    })
}

/// The lines of fields: behind the first line with text, before the empty one.
fn field_lines(head: &[u8]) -> impl Iterator<Item = HeadLine<'_>> {
    let from_first = lines(head).skip_while(|line| line.text.is_empty());
    from_first.skip(1).take_while(|line| !line.text.is_empty())
}

fn bare_cr(head: &[u8]) -> Option<usize> {
    head.windows(2).position(|pair| pair[0] == b'\r' && pair[1] != b'\n')
}

/// Returns the offset of the first fault among the fields.
fn field_fault(head: &[u8]) -> Option<usize> {
    field_lines(head).find_map(|line| Some(line.start + field_line_fault(line.text)?))
}

fn field_line_fault(line: &[u8]) -> Option<usize> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Some(0);
    }
    let Some(colon) = memchr(b':', line) else { return Some(line.len()) };
    let name = line[..colon].iter().position(|byte| !is_token_byte(*byte));
    let is_wrong = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    let value = || line[colon + 1..].iter().position(is_wrong).map(|at| colon + 1 + at);
    name.or_else(|| (colon == 0).then_some(0)).or_else(value)
}

/// Returns the offset of the value of a field, after `skipped` others of its name.
fn field(head: &[u8], name: &[u8], skipped: usize) -> Option<usize> {
    let has_name = |line: &HeadLine<'_>| {
        let length = memchr(b':', line.text);
        length.is_some_and(|length| line.text[..length].eq_ignore_ascii_case(name))
    };
    let line = field_lines(head).filter(has_name).nth(skipped)?;
    let value = &line.text[name.len() + 1..];
    let blanks = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    Some(line.start + name.len() + 1 + blanks)
}

/// Returns the offset of the fault in a request line: a character that no method has, or the third
/// word, which is not a version.
fn line_fault(line: &[u8]) -> usize {
    let method_end = first_word_end(line);
    let bad = line[..method_end].iter().position(|byte| !is_token_byte(*byte));
    bad.unwrap_or_else(|| if method_end == 0 { 0 } else { last_word(line) })
}

fn first_word_end(line: &[u8]) -> usize {
    memchr(b' ', line).unwrap_or(line.len())
}

fn last_word(line: &[u8]) -> usize {
    line.iter().rposition(|byte| *byte == b' ').map_or(line.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::http1::{Http1Limits, RequestHead, parse_request};
    use lighty_http::uri::ParseOpts;

    /// Heads with a `^` before the byte at which the fault is.
    const HEADS: &[&str] = &[
        "GET /a ^HTTQ/1.1\r\nHost: a\r\n\r\n",
        "GET /a ^HTTP/2.0\r\nHost: a\r\n\r\n",
        "G^\u{1}T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ^a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1^\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b^\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n^ folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nnone^\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA^ : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA^(: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b^\u{1}c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nhost: ^b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: ^a b\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\nContent-Length: ^x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length:^2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: ^chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ^x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: ^x\r\n\r\n",
    ];

    #[test]
    fn faults_of_requests_are_at_their_bytes() {
        for marked in HEADS {
            let position = marked.find('^').expect("a mark");
            let head = marked.replace('^', "").into_bytes();
            let (limits, opts) = (Http1Limits::default(), ParseOpts::default());
            let parsed = parse_request(&head, &limits, &opts, &mut RequestHead::new());
            let fault = parsed.expect_err(marked);
            assert_eq!(in_request(&head, fault), Some(position), "{marked:?}: {fault:?}");
        }
        let head = b"GET / HTTP/1.1\r\n\r\n";
        assert_eq!(in_request(head, RequestFault::HostMissing), None);
    }

    #[test]
    fn faults_of_responses_are_at_their_bytes() {
        for (head, position) in [
            ("HTTX/1.1 200 OK\r\n\r\n", Some(3)),
            ("HTTP/1.1 200 OK\r\nA b\r\n\r\n", Some(20)),
            ("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", Some(18)),
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(in_response(head.as_bytes()), position, "{head:?}");
        }
    }

    #[test]
    fn any_bytes_have_a_position_within_them_or_none() {
        let bytes: Vec<u8> = b"GET : \r\n\0\x80 ".repeat(3);
        for start in 0..bytes.len() {
            for end in start..bytes.len() {
                let head = &bytes[start..end];
                let found = RequestFault::ALL.iter().filter_map(|fault| in_request(head, *fault));
                assert!(found.chain(in_response(head)).all(|at| at <= head.len()), "{head:?}");
            }
        }
    }
}
