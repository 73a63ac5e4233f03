//! HTTP requests by the server's own threads: to authorities, hooks and collectors.
//!
//! Reading order: [`Fetcher::fetch`], then `encode` and `receive`. Each request has its own
//! connection, unencrypted or over TLS, and blocks its thread up to its timeout. The whole response
//! is read into memory. Requests from event loops use `lighty-proxy` instead.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, Uri};
use lighty_http::base64;
use lighty_http::uri::decode_into;
use lighty_io::clock::deadline::Deadline;
use lighty_io::connect::blocking::BlockingSocket;
use lighty_io::tls::{Dialer, TlsError};
use lighty_wire::http1::chunked::ChunkedDecoder;
use lighty_wire::http1::{Head, ResponseFraming, ResponseHead, ResponseLimits, parse_response};

/// Default maximum length of a response's body in bytes.
pub const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Bytes read at a time.
const PIECE_BYTES: usize = 8 << 10;

/// A blocking HTTP client.
#[derive(Clone)]
pub struct Fetcher {
    /// `None`: only `http` URLs.
    dialer: Option<Dialer>,
    response_bytes_max: usize,
}

impl Fetcher {
    /// A client that trusts the authorities in a file, or the system's.
    ///
    /// # Errors
    /// The file cannot be read or holds none, or the system has no bundle.
    pub fn trusting(file: Option<&Path>) -> Result<Self, TlsError> {
        Ok(Self { dialer: Some(Dialer::trusting(file)?), ..Self::in_the_clear() })
    }

    /// A client for a URL; trusts the system's authorities if the URL needs TLS.
    ///
    /// # Errors
    /// The system has no bundle of authorities.
    pub fn for_url(url: &str) -> Result<Self, TlsError> {
        match url.starts_with("https:") {
            true => Self::trusting(None),
            false => Ok(Self::in_the_clear()),
        }
    }

    /// A client that accepts any certificate.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn unverified() -> Result<Self, TlsError> {
        Ok(Self { dialer: Some(Dialer::unverified()?), ..Self::in_the_clear() })
    }

    /// A client without TLS, for `http` URLs only.
    #[must_use]
    pub fn in_the_clear() -> Self {
        Self { dialer: None, response_bytes_max: RESPONSE_BYTES_MAX }
    }

    /// Sets the maximum length of a response's body.
    #[must_use]
    pub fn receiving(self, response_bytes_max: usize) -> Self {
        Self { response_bytes_max, ..self }
    }

    /// Sends a request and receives its whole response, whatever its status.
    ///
    /// # Errors
    /// The URL has another scheme, the host cannot be reached, does not respond within `patience`,
    /// does not speak HTTP, or its response is too long. All messages name the host, with the port
    /// of the URL.
    pub fn fetch(
        &self,
        request: &Request<impl AsRef<[u8]>>,
        patience: Duration,
    ) -> io::Result<Response<Bytes>> {
        let uri = request.uri();
        let shown = || without_credentials(&uri.to_string());
        let host = uri.host().ok_or_else(|| io::Error::other(format!("{}: no host", shown())))?;
        let deadline = Deadline::after(patience);
        let port = uri.port().map_or_else(String::new, |port| format!(":{port}"));
        let at = |error: io::Error| {
            // Nothing listens, so the message should include the default port.
            let default = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
            let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
            let port = if port.is_empty() && is_refused { default } else { &port };
            io::Error::new(error.kind(), format!("{host}{port}: {}", lighty_io::os_text(&error)))
        };
        match (uri.scheme_str(), &self.dialer) {
            (Some("https"), Some(dialer)) => {
                let port = uri.port_u16().unwrap_or(443);
                let stream = dialer.dial(host, port, deadline).map_err(at)?;
                exchange(stream, request, self.response_bytes_max).map_err(at)
            }
            (Some("http"), _) => {
                let port = uri.port_u16().unwrap_or(80);
                let stream = BlockingSocket::connect(host, port, deadline).map_err(at)?;
                exchange(stream, request, self.response_bytes_max).map_err(at)
            }
            (Some("https"), None) => Err(at(io::Error::other("no authorities are known"))),
            _ => Err(io::Error::other(format!("{}: neither http nor https", shown()))),
        }
    }
}

/// Parses a URL. `None` if it is not one that can be fetched, by its form.
pub fn parse_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let has_scheme = matches!(url.scheme_str(), Some("http" | "https"));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (has_scheme && has_host && has_usable_port(&url)).then_some(url)
}

/// True if the URL has no port or a valid one. `Uri` treats a number that is too large like a
/// missing one.
fn has_usable_port(url: &Uri) -> bool {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.strip_prefix(':'),
        None => host.split_once(':').map(|(_, port)| port),
    };
    port.is_none_or(|port| port.is_empty() || port.parse().is_ok_and(|port: u16| port > 0))
}

/// The value of `Authorization` for the name and password in a URL (RFC 7617), with their escapes
/// decoded, as in curl.
pub fn basic_credentials(url: &Uri) -> Option<String> {
    let (given, _) =
        url.authority()?.as_str().rsplit_once('@').filter(|(text, _)| !text.is_empty())?;
    let (name, password) = given.split_once(':').unwrap_or((given, ""));
    let (mut pair, mut value) = (Vec::new(), b"Basic ".to_vec());
    decode_into(name.as_bytes(), &mut pair);
    pair.push(b':');
    decode_into(password.as_bytes(), &mut pair);
    base64::encode(&pair, &mut value);
    String::from_utf8(value).ok()
}

/// A URL without name and password, for messages.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

/// True if this name and value make a valid header field.
pub fn is_field(name: &str, value: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok() && HeaderValue::from_str(value).is_ok()
}

fn exchange(
    mut stream: impl Read + Write,
    request: &Request<impl AsRef<[u8]>>,
    bytes_max: usize,
) -> io::Result<Response<Bytes>> {
    stream.write_all(&encode(request))?;
    stream.flush()?;
    receive(&mut stream, *request.method() == Method::HEAD, bytes_max)
}

fn encode(request: &Request<impl AsRef<[u8]>>) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let library = request.headers().get(USER_AGENT).and_then(|value| value.to_str().ok());
    let library = library.map(|name| format!(" {name}")).unwrap_or_default();
    let body = request.body().as_ref();
    let has_body = !body.is_empty() || !matches!(*request.method(), Method::GET | Method::HEAD);
    let mut out = format!(
        "{} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: lighty/{}{library}\r\n\
         Connection: close\r\n",
        request.method(),
        env!("CARGO_PKG_VERSION"),
    )
    .into_bytes();
    for (name, value) in request.headers().iter().filter(|(name, _)| *name != USER_AGENT) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let given = basic_credentials(request.uri());
    if let Some(value) = given.filter(|_| !request.headers().contains_key(AUTHORIZATION)) {
        out.extend_from_slice(format!("Authorization: {value}\r\n").as_bytes());
    }
    if has_body {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// Reads a whole response.
fn receive(stream: &mut impl Read, is_head: bool, bytes_max: usize) -> io::Result<Response<Bytes>> {
    let broken = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let requested = is_head.then_some(lighty_http::Method::Head);
    let (mut input, mut head) = (Vec::new(), ResponseHead::new());
    loop {
        match parse_response(&input, requested, &ResponseLimits::default(), &mut head) {
            Ok(Head::Complete { consumed }) => {
                input.drain(..consumed);
                if !head.is_interim() {
                    break;
                }
                head.clear();
            }
            Ok(Head::Partial) if more(stream, &mut input, bytes_max)? => {}
            Ok(Head::Partial) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => return Err(broken("it does not speak HTTP")),
        }
    }
    let body = match head.framing {
        ResponseFraming::None => Vec::new(),
        ResponseFraming::Close => {
            while more(stream, &mut input, bytes_max)? {}
            input
        }
        ResponseFraming::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            while input.len() < length {
                if !more(stream, &mut input, bytes_max)? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            input.truncate(length);
            input
        }
        ResponseFraming::Chunked => unchunked(stream, input, bytes_max)?,
    };
    let mut response = Response::builder().status(head.status.code());
    for (name, value) in head.fields.iter() {
        let name = HeaderName::from_bytes(name).map_err(io::Error::other)?;
        response = response.header(name, HeaderValue::from_bytes(value).map_err(io::Error::other)?);
    }
    response.body(body.into()).map_err(io::Error::other)
}

fn unchunked(stream: &mut impl Read, mut input: Vec<u8>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let (mut decoder, mut body) = (ChunkedDecoder::of_response(), Vec::new());
    loop {
        let mut at = 0;
        while at < input.len() && !decoder.is_done() {
            let event = decoder.feed(&input[at..]);
            let event = event.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            body.extend_from_slice(&input[at..][event.data]);
            at += event.consumed;
        }
        input.clear();
        if decoder.is_done() {
            return Ok(body);
        }
        if body.len() > bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if !more(stream, &mut input, bytes_max)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads a piece; `false` at the end.
fn more(stream: &mut impl Read, input: &mut Vec<u8>, bytes_max: usize) -> io::Result<bool> {
    if input.len() > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the response is too large"));
    }
    let start = input.len();
    input.resize(start + PIECE_BYTES, 0);
    let read = match stream.read(&mut input[start..]) {
        // Some servers close without close_notify. Lengths reveal a truncated response.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    };
    input.truncate(start + *read.as_ref().unwrap_or(&0));
    read.map(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn received(text: &str, is_head: bool) -> io::Result<Response<Bytes>> {
        receive(&mut text.as_bytes(), is_head, RESPONSE_BYTES_MAX)
    }

    #[test]
    fn responses_are_read_however_they_end() {
        for (text, wanted) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc", "ab"),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc", "abc"),
            (
                "HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
                "abc",
            ),
            ("HTTP/1.1 204 None\r\nReplay-Nonce: n\r\n\r\n", ""),
        ] {
            let response = received(text, false).expect(text);
            assert_eq!(response.body(), wanted, "{text}");
        }
        let head = "HTTP/1.1 200 OK\r\nReplay-Nonce: n\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(received(head, true).expect("a head").headers()["replay-nonce"], "n");
        for broken in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(received(broken, false).is_err(), "{broken}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(RESPONSE_BYTES_MAX + 1));
        assert!(received(&endless, false).is_err());
    }

    #[test]
    fn a_request_goes_to_the_url_and_its_response_comes_back() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut requested = Vec::new();
            while !requested.ends_with(b"{}") {
                assert!(
                    more(&mut client, &mut requested, RESPONSE_BYTES_MAX).expect("a request"),
                    "whole"
                );
            }
            client.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno").expect("sent");
            String::from_utf8(requested).expect("text")
        });
        let request = Request::post(format!("http://x@127.0.0.1:{port}/v1?a=b"))
            .header("Content-Type", "application/json")
            .body("{}")
            .expect("a request");
        let fetched = Fetcher::in_the_clear().fetch(&request, Duration::from_secs(60));
        let response = fetched.expect("a response");
        assert_eq!((response.status().as_u16(), &response.body()[..]), (503, &b"no"[..]));
        let version = env!("CARGO_PKG_VERSION");
        let wanted = format!(
            "POST /v1?a=b HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: lighty/{version}\r\n\
             Connection: close\r\ncontent-type: application/json\r\nAuthorization: Basic eDo=\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        );
        assert_eq!(server.join().expect("no panic"), wanted);
    }

    #[test]
    fn names_and_passwords_of_urls_are_sent_and_not_told() {
        let credentials =
            |url: &str| basic_credentials(&parse_url(url).unwrap_or_else(|| panic!("{url}")));
        for (url, wanted) in [
            ("http://a.test/", None),
            ("http://@a.test/", None),
            ("http://Aladdin:open%20sesame@a.test/", Some("QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
            ("https://x@a.test:8/", Some("eDo=")),
            ("http://x:a:b@a.test/@", Some("eDphOmI=")),
            ("http://a%40b:%3a@[::1]/", Some("YUBiOjo=")),
        ] {
            let wanted = wanted.map(|text| format!("Basic {text}"));
            assert_eq!(credentials(url), wanted, "{url}");
        }
        for (url, wanted) in [
            ("http://u:p@a.test:1/x?y@z", "http://a.test:1/x?y@z"),
            ("http://a.test/x@y", "http://a.test/x@y"),
            ("https://u@a.test", "https://a.test"),
            ("no URL", "no URL"),
        ] {
            assert_eq!(without_credentials(url), wanted);
        }
        let request = Request::get("http://u:p@a.test/").header("Authorization", "Bearer x");
        let text = encode(&request.body("").expect("a request"));
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("Bearer x") && !text.contains("Basic"), "{text}");
    }

    #[test]
    fn a_port_is_one_that_can_be_reached() {
        for (url, is_one) in [
            ("http://a.test/", true),
            ("http://a.test:/", true),
            ("http://a.test:65535/", true),
            ("http://[::1]/", true),
            ("https://u:p@[::1]:8443/", true),
            ("http://a.test:65536/", false),
            ("http://a.test:0/", false),
            ("http://[::1]:99999/", false),
        ] {
            assert_eq!(parse_url(url).is_some(), is_one, "{url}");
        }
    }

    #[test]
    fn errors_of_fetches_name_the_cause_and_the_host() {
        let fetcher = Fetcher::in_the_clear();
        let why = |url: &str| {
            let request = Request::get(url).body("").expect("a request");
            fetcher.fetch(&request, Duration::from_secs(60)).expect_err(url).to_string()
        };
        assert!(why("https://example.org/").contains("example.org: no authorities"));
        assert!(why("ftp://example.org/").contains("neither http nor https"));
        assert!(why("/path").contains("no host"));
        let unused = lighty_testkit::backend::Port::reserve();
        let unused = unused.address();
        assert!(why(&format!("http://{unused}/")).starts_with(&format!("{unused}: ")), "refused");
    }
}
