//! Requests and responses of the control socket: HTTP/1.1 with JSON bodies, one for each
//! connection.

use lighty_http::uri::{ParseOpts, decode_into};
use lighty_http::{Known, Method, Status};
use lighty_wire::http1::request::{BodyFraming, Head, Http1Limits, RequestHead, parse_request};
use serde::Serialize;

use super::fault::ControlFault;

/// A request that has arrived.
#[derive(Debug)]
pub(super) struct ControlRequest {
    pub(super) method: Method,
    /// The path, without the query.
    pub(super) path: String,
    query: String,
    /// The body: JSON, or empty.
    pub(super) body: Vec<u8>,
}

/// Returns true if the bytes are a whole request, or cannot become one.
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    let mut head = RequestHead::new();
    let parsed = parse_request(bytes, &Http1Limits::default(), &ParseOpts::default(), &mut head);
    match (parsed, head.framing) {
        (Ok(Head::Partial), _) => false,
        (Ok(Head::Complete { consumed }), BodyFraming::Length(length)) => {
            (bytes.len() - consumed) as u64 >= length
        }
        _ => true,
    }
}

/// Reads a request.
///
/// # Errors
/// It is malformed, or a browser may have sent it for a page of another site.
pub(super) fn parse(bytes: &[u8]) -> Result<ControlRequest, ControlFault> {
    let mut head = RequestHead::new();
    let parsed = parse_request(bytes, &Http1Limits::default(), &ParseOpts::default(), &mut head);
    let consumed = match parsed {
        Ok(Head::Complete { consumed }) => consumed,
        Ok(Head::Partial) => return Err(ControlFault::Partial),
        Err(fault) => return Err(ControlFault::Malformed(fault.message())),
    };
    let length = match head.framing {
        BodyFraming::None => 0,
        BodyFraming::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
        BodyFraming::Chunked => return Err(ControlFault::Chunked),
    };
    let body = bytes[consumed..].get(..length).ok_or(ControlFault::Partial)?;
    check_origin(&head)?;
    let method = head.method.ok_or(ControlFault::Method)?;
    if method == Method::Post && !is_json(&head) {
        return Err(ControlFault::MediaType);
    }
    let target = String::from_utf8_lossy(&head.target);
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    Ok(ControlRequest { method, path, query, body: body.to_vec() })
}

impl ControlRequest {
    /// The parameters of the query.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        let decoded = |text: &str| {
            let mut bytes = Vec::new();
            decode_into(text.as_bytes(), &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(move |pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        })
    }
}

/// Refuses requests that a browser sends for a page.
fn check_origin(head: &RequestHead) -> Result<(), ControlFault> {
    let names = head.fields.get_named(b"Origin").or(head.fields.get(Known::Referer));
    let is_local = matches!(head.host(), b"" | b"localhost" | b"lighty");
    if names.is_some() || !is_local { Err(ControlFault::Origin) } else { Ok(()) }
}

fn is_json(head: &RequestHead) -> bool {
    let named = head.fields.get(Known::ContentType).unwrap_or_default();
    let kind = named.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// Returns a response with a JSON body.
pub(super) fn response(status: Status, body: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    lighty_core::json::push_lines(body, &mut text);
    text.push(b'\n');
    whole(status, JSON, &text)
}

/// Returns a response with JSON that is text already.
pub(super) fn json(text: &[u8]) -> Vec<u8> {
    whole(Status::OK, JSON, text)
}

/// Returns a response with plain text.
pub(super) fn text(text: &[u8]) -> Vec<u8> {
    whole(Status::OK, PLAIN, text)
}

const JSON: &str = "application/json";

/// The media type of responses that are no JSON.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

fn whole(status: Status, media_type: &str, text: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        status.code(),
        status.reason(),
        text.len()
    );
    [head.as_bytes(), text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &str = "POST /reload HTTP/1.1\r\nHost: localhost\r\n";

    #[test]
    fn request_is_complete_with_its_body() {
        let whole =
            format!("{POST}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}");
        for end in 0..whole.len() {
            assert!(!is_complete(&whole.as_bytes()[..end]), "{end}");
        }
        assert!(is_complete(whole.as_bytes()));
        let request = parse(whole.as_bytes()).expect("a request");
        assert_eq!((request.path.as_str(), request.body.as_slice()), ("/reload", &b"{}"[..]));
        assert!(is_complete(b"GET\r\n\r\n"), "it cannot become one");
    }

    #[test]
    fn parameters_are_decoded() {
        let request = parse(b"GET /a?b=c%20d&e&&f=g%3Dh HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let parameters: Vec<_> = request.expect("a request").parameters().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(parameters, [pair("b", "c d"), pair("e", ""), pair("f", "g=h")]);
    }

    #[test]
    fn requests_of_browsers_and_other_hosts_are_refused() {
        let json = "Content-Type: application/json\r\n";
        for (head, is_permitted) in [
            (format!("{POST}{json}"), true),
            (format!("{POST}Content-Type: application/json; charset=utf-8\r\n"), true),
            (format!("{POST}{json}Origin: http://localhost\r\n"), false),
            (format!("{POST}{json}Referer: http://localhost/\r\n"), false),
            (format!("{POST}Content-Type: text/plain\r\n"), false),
            (POST.to_owned(), false),
            (format!("POST /reload HTTP/1.1\r\nHost: example.org\r\n{json}"), false),
        ] {
            let found = parse(format!("{head}Content-Length: 0\r\n\r\n").as_bytes());
            assert_eq!(found.is_ok(), is_permitted, "{head}: {found:?}");
        }
    }
}
