//! The way to an authority: HTTP/1.1 over TLS, one request a connection.

use std::future::Future;
use std::io::{self, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use lighty_http::date;
use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::tls::Dialer;
use lighty_wire::http1::chunked::ChunkedDecoder;
use lighty_wire::http1::{Head, ResponseFraming, ResponseHead, ResponseLimits, parse_response};

use crate::error::OrderError;

/// How long an authority may take for one request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of a response: a chain of certificates has some 5 KB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Bytes read at a time.
const PIECE_BYTES: usize = 8 << 10;

/// What speaks with authorities.
#[derive(Clone)]
pub(crate) struct Client {
    dialer: Dialer,
    /// Seconds since 1970 before which the authority wants no other order.
    retry_after_s: Arc<AtomicI64>,
}

impl Client {
    /// One that trusts the authorities in a file, or those of the system.
    pub(crate) fn trusting(file: Option<&Path>) -> Result<Self, OrderError> {
        let dialer = Dialer::trusting(file).map_err(OrderError::Tls)?;
        Ok(Self { dialer, retry_after_s: Arc::default() })
    }

    /// Seconds since 1970 before which the authority wants no other order; 0 if it has not said.
    pub(crate) fn retry_after_s(&self) -> i64 {
        self.retry_after_s.load(Ordering::Relaxed)
    }

    fn exchange(&self, head: &http::request::Parts, body: &[u8]) -> io::Result<Response<Bytes>> {
        let uri = &head.uri;
        if uri.scheme_str() != Some("https") {
            return Err(io::Error::other(format!("{uri}: not https")));
        }
        let host = uri.host().ok_or_else(|| io::Error::other(format!("{uri}: no host")))?;
        let deadline = Deadline::after(PATIENCE);
        let at = |error: io::Error| {
            io::Error::new(error.kind(), format!("{host}: {}", lighty_io::os_text(&error)))
        };
        let port = uri.port_u16().unwrap_or(443);
        let mut stream = self.dialer.dial(host, port, deadline).map_err(at)?;
        stream.write_all(&encode(head, body)).map_err(at)?;
        stream.flush().map_err(at)?;
        let is_head = head.method == Method::HEAD;
        let response = receive(&mut stream, is_head).map_err(at)?;
        if response.status().as_u16() == 429 || response.status().as_u16() == 503 {
            let now_s = Clock::start().unix_s();
            let value = response.headers().get(RETRY_AFTER);
            let after_s = value.and_then(|value| retry_after_s(value.as_bytes(), now_s));
            self.retry_after_s.fetch_max(after_s.unwrap_or(0), Ordering::Relaxed);
        }
        Ok(response)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (head, mut body) = request.into_parts();
            let mut sent = Vec::new();
            while let Some(Ok(frame)) =
                std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
            {
                sent.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            }
            // It blocks, and other orders go on meanwhile.
            let exchange = tokio::task::spawn_blocking(move || client.exchange(&head, &sent));
            let response = exchange.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            let (parts, body) = response.map_err(|error| Error::Other(error.into()))?.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

fn encode(head: &http::request::Parts, body: &[u8]) -> Vec<u8> {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let host = head.uri.authority().map_or("", |authority| authority.as_str());
    let agent = concat!("lighty/", env!("CARGO_PKG_VERSION"));
    let library = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    let mut out = format!(
        "{} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent} {}\r\nConnection: close\r\n",
        head.method,
        library.unwrap_or_default()
    )
    .into_bytes();
    for (name, value) in head.headers.iter().filter(|(name, _)| *name != USER_AGENT) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if head.method == Method::POST {
        out.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}

/// Reads a response whole.
fn receive(stream: &mut impl Read, is_head: bool) -> io::Result<Response<Bytes>> {
    let broken = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let asked = is_head.then_some(lighty_http::Method::Head);
    let (mut input, mut head) = (Vec::new(), ResponseHead::new());
    loop {
        match parse_response(&input, asked, &ResponseLimits::default(), &mut head) {
            Ok(Head::Complete { consumed }) => {
                input.drain(..consumed);
                if !head.is_interim() {
                    break;
                }
                head.clear();
            }
            Ok(Head::Partial) if more(stream, &mut input)? => {}
            Ok(Head::Partial) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => return Err(broken("it does not speak HTTP")),
        }
    }
    let body = match head.framing {
        ResponseFraming::None => Vec::new(),
        ResponseFraming::Close => {
            while more(stream, &mut input)? {}
            input
        }
        ResponseFraming::Length(length) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            while input.len() < length {
                if !more(stream, &mut input)? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            input.truncate(length);
            input
        }
        ResponseFraming::Chunked => unchunked(stream, input)?,
    };
    let mut response = Response::builder().status(head.status.code());
    for (name, value) in head.fields.iter() {
        let name = HeaderName::from_bytes(name).map_err(io::Error::other)?;
        response = response.header(name, HeaderValue::from_bytes(value).map_err(io::Error::other)?);
    }
    response.body(body.into()).map_err(io::Error::other)
}

fn unchunked(stream: &mut impl Read, mut input: Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut decoder, mut body) = (ChunkedDecoder::new(), Vec::new());
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
        if body.len() > RESPONSE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if !more(stream, &mut input)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reads a piece; `false` at the end.
fn more(stream: &mut impl Read, input: &mut Vec<u8>) -> io::Result<bool> {
    if input.len() > RESPONSE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the response is too large"));
    }
    let start = input.len();
    input.resize(start + PIECE_BYTES, 0);
    let read = match stream.read(&mut input[start..]) {
        // The end of TLS is not said by everybody; lengths tell what is missing.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read,
    };
    input.truncate(start + *read.as_ref().unwrap_or(&0));
    read.map(|count| count > 0)
}

/// Seconds since 1970 (RFC 9110 section 10.2.3).
fn retry_after_s(value: &[u8], now_s: i64) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.parse::<u32>() {
        Ok(seconds) => Some(now_s + i64::from(seconds)),
        Err(_) => date::parse(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(text: &str, is_head: bool) -> io::Result<Response<Bytes>> {
        receive(&mut text.as_bytes(), is_head)
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
    fn an_authority_says_when_to_come_again() {
        assert_eq!(retry_after_s(b" 120 ", 1_000), Some(1_120));
        let date = retry_after_s(b"Sun, 06 Nov 1994 08:49:37 GMT", 0);
        assert_eq!(date, Some(784_111_777));
        assert_eq!(retry_after_s(b"soon", 0), None);
    }
}
