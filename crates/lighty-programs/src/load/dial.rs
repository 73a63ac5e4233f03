//! Opens connections to the server: TCP, TLS, and the chosen protocol.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_io::connect::{ConnectOptions, Target, connect};
use lighty_io::tls::ClientPolicy;
use lighty_io::transport::Stream;

use super::tally::LoadFailure;

/// The ALPN name of HTTP/2: RFC 9113 section 3.2.
pub(super) const ALPN_H2: &str = "h2";

/// Reason of the first broken connection.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstDialError(Arc<Mutex<Option<String>>>);

impl FirstDialError {
    pub(super) fn note(&self, message: String) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(message);
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Data needed to connect to the server.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) target: Target,
    /// TLS policy, if the server uses TLS.
    pub(super) policy: Option<Arc<ClientPolicy>>,
    pub(super) is_http2: bool,
    pub(super) first_error: FirstDialError,
}

impl Dial {
    /// Connects, with a TLS handshake if the server uses TLS.
    pub(super) async fn open(&self) -> Result<Stream, LoadFailure> {
        let mut stream =
            connect(&self.target, &ConnectOptions::default()).await.map_err(|error| match error
                .kind()
            {
                io::ErrorKind::ConnectionRefused => LoadFailure::Refused,
                _ => {
                    self.first_error.note(error.to_string());
                    LoadFailure::Connect
                }
            })?;
        let Some(policy) = &self.policy else { return Ok(stream) };
        let fail = |message: String| {
            self.first_error.note(message);
            LoadFailure::Handshake
        };
        let info = stream.connect_tls(policy).await.map_err(|fault| fail(fault.to_string()))?;
        let is_http2 = info.alpn.as_deref() == Some(ALPN_H2.as_bytes());
        if self.is_http2 && !is_http2 {
            return Err(fail("it does not choose HTTP/2 (ALPN h2)".to_owned()));
        }
        Ok(stream)
    }
}
