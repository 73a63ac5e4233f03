//! The HTTP client for authorities: requests over TLS, and their Retry-After.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use lighty_fetch::Fetcher;
use lighty_http::date;
use lighty_io::clock::Clock;
use lighty_io::tls::TlsError;

use crate::error::OrderError;
use crate::standing_record;

/// Timeout of a request to an authority.
const PATIENCE: Duration = Duration::from_secs(30);

/// HTTP client for authorities.
#[derive(Clone)]
pub(crate) struct AcmeClient {
    fetcher: Fetcher,
    /// Time before which the authority accepts no other order, in seconds since 1970.
    retry_after_s: Arc<AtomicI64>,
    /// Name of the authority in records of dns-persist-01, once it has said it.
    issuer_name: Arc<OnceLock<String>>,
}

/// Checks that the file of trusted authorities can be used. It verifies the ACME servers'
/// certificates.
///
/// # Errors
/// A message: it cannot be read, or holds none.
pub fn check_authorities(file: &Path) -> Result<(), TlsError> {
    Fetcher::trusting(Some(file)).map(drop)
}

impl AcmeClient {
    /// A client that trusts the authorities in a file, or the system's.
    pub(crate) fn trusting(file: Option<&Path>) -> Result<Self, OrderError> {
        let fetcher = Fetcher::trusting(file).map_err(OrderError::Tls)?;
        Ok(Self { fetcher, retry_after_s: Arc::default(), issuer_name: Arc::default() })
    }

    /// Time before which the authority accepts no other order, in seconds since 1970; 0 if not
    /// stated.
    pub(crate) fn retry_after_s(&self) -> i64 {
        self.retry_after_s.load(Ordering::Relaxed)
    }

    /// Name of the authority in records of dns-persist-01, if it offers that.
    pub(crate) fn issuer_name(&self) -> Option<&str> {
        self.issuer_name.get().map(String::as_str)
    }

    fn exchange(&self, request: &Request<Vec<u8>>) -> io::Result<Response<Bytes>> {
        if request.uri().scheme_str() != Some("https") {
            return Err(io::Error::other(format!("{}: not https", request.uri())));
        }
        let response = self.fetcher.fetch(request, PATIENCE)?;
        if response.status().as_u16() == 429 || response.status().as_u16() == 503 {
            let now_s = Clock::start().unix_s();
            let value = response.headers().get(RETRY_AFTER);
            let after_s = value.and_then(|value| retry_after_s(value.as_bytes(), now_s));
            self.retry_after_s.fetch_max(after_s.unwrap_or(0), Ordering::Relaxed);
        }
        if let Some(name) = standing_record::issuer_name(response.body()) {
            let _ = self.issuer_name.set(name);
        }
        Ok(response)
    }
}

impl HttpClient for AcmeClient {
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
            let is_post = head.method == Method::POST;
            // The request blocks; meanwhile other orders continue.
            let request = Request::from_parts(head, sent);
            let exchange = tokio::task::spawn_blocking(move || client.exchange(&request));
            let response = exchange.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            let (parts, body) = response.map_err(|error| Error::Other(error.into()))?.into_parts();
            if let Some(error) = refusal(is_post, parts.status, &body) {
                return Err(error);
            }
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// The error of a response that instant-acme would report as unparsable: it expects a problem
/// document in each body, and a directory in the first response, whatever its status is.
fn refusal(is_post: bool, status: StatusCode, body: &[u8]) -> Option<Error> {
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(_) if is_post => None,
        Ok(problem) if problem.detail.is_some() => Some(problem.into()),
        _ => Some(Error::Other(format!("the authority answers {status}").into())),
    }
}

/// Parses Retry-After (RFC 9110 section 10.2.3) to seconds since 1970.
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

    #[test]
    fn an_authority_says_when_to_come_again() {
        assert_eq!(retry_after_s(b" 120 ", 1_000), Some(1_120));
        let date = retry_after_s(b"Sun, 06 Nov 1994 08:49:37 GMT", 0);
        assert_eq!(date, Some(784_111_777));
        assert_eq!(retry_after_s(b"soon", 0), None);
    }

    #[test]
    fn refusals_are_told_in_the_authoritys_words_where_it_has_some() {
        let message = |is_post, status, body: &[u8]| {
            let status = StatusCode::from_u16(status).expect("a status");
            refusal(is_post, status, body).map(|error| OrderError::from(error).to_string())
        };
        let problem = br#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "closed"}"#;
        let unreadable = Some("the authority answers 503 Service Unavailable".to_owned());
        assert_eq!(message(false, 503, problem), Some("closed (rateLimited)".to_owned()));
        assert_eq!(message(true, 400, problem), None, "the library tells badNonce by it");
        assert_eq!(message(true, 503, b"<html>"), unreadable);
        assert_eq!(message(false, 503, b""), unreadable);
        assert_eq!(message(false, 200, b"{"), None);
    }
}
