//! Opens a connection to a backend: TCP or a unix socket, with TLS over it if configured.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use lighty_core::{Fault, FaultReport};
use lighty_io::clock::Clock;
use lighty_io::connect::{ConnectOptions, Target, connect};
use lighty_io::tls::ServerFault;
use lighty_io::transport::Stream;
use tokio::time::timeout;

use crate::upstream::backend_tls::BackendTls;

/// A connection to be opened.
pub(crate) struct Dial<'a> {
    pub target: &'a Target,
    /// TLS settings; `None` for a clear-text connection.
    pub tls: Option<&'a BackendTls>,
    /// Bytes sent in the clear before TLS: the header of the PROXY protocol.
    pub greeting: &'a [u8],
    pub options: &'a ConnectOptions,
    pub clock: &'a Clock,
    /// Start of the TLS handshake, in monotonic microseconds.
    pub tls_began_us: Cell<Option<u64>>,
}

/// Reason for a failed connection.
#[derive(Debug)]
pub(crate) enum DialFault {
    /// The connection was refused or failed.
    Refused(io::Error),
    /// The backend did not accept within the limit.
    ConnectTimeout { limit_ms: u64 },
    /// The TLS handshake exceeded the limit.
    HandshakeTimeout { limit_ms: u64 },
    /// The TLS handshake failed.
    Tls(ServerFault),
    /// The backend does not speak HTTP/2.
    Http2(String),
}

impl DialFault {
    /// Returns true if this machine lacks resources for a connection, or the backend's listen queue
    /// is full: the backend has no fault then.
    pub(crate) fn is_want(&self) -> bool {
        match self {
            Self::Refused(error) => error.kind() == io::ErrorKind::WouldBlock || is_ours(error),
            _ => false,
        }
    }

    pub(crate) fn report(&self) -> FaultReport {
        match self {
            Self::Refused(error) if is_ours(error) => {
                FaultReport::new(Fault::NoConnection, error.to_string())
            }
            Self::Refused(_) if self.is_want() => {
                FaultReport::new(Fault::BackendBusy, "its listen queue is full")
            }
            Self::Refused(error) => FaultReport::new(Fault::BackendRefused, error.to_string()),
            Self::ConnectTimeout { limit_ms } => {
                FaultReport::new(Fault::BackendConnectTimeout, format!("{limit_ms} ms"))
            }
            Self::HandshakeTimeout { limit_ms } => {
                let message = format!("{limit_ms} ms, in the handshake of TLS");
                FaultReport::new(Fault::BackendConnectTimeout, message)
            }
            Self::Tls(fault) => FaultReport::new(Fault::BackendTls, fault.to_string()),
            Self::Http2(why) => FaultReport::new(Fault::BackendMalformed, format!("HTTP/2: {why}")),
        }
    }
}

/// Returns true if an error concerns this machine rather than the backend.
fn is_ours(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOMEM: i32 = 12;
    const EADDRNOTAVAIL: i32 = 99;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM | EADDRNOTAVAIL | ENOBUFS))
}

impl Dial<'_> {
    /// Opens the connection within a time limit for all steps.
    ///
    /// # Errors
    /// The connection cannot be opened; the variant is the reason.
    pub(crate) async fn open(&self, limit_ms: u64) -> Result<Stream, DialFault> {
        let opened = timeout(Duration::from_millis(limit_ms), self.open_patiently()).await;
        opened.unwrap_or_else(|_| Err(self.too_late(limit_ms)))
    }

    /// Returns the fault for an exceeded time limit.
    pub(crate) fn too_late(&self, limit_ms: u64) -> DialFault {
        match self.tls_began_us.get() {
            None => DialFault::ConnectTimeout { limit_ms },
            Some(_) => DialFault::HandshakeTimeout { limit_ms },
        }
    }

    /// Opens the connection without a time limit.
    ///
    /// # Errors
    /// The connection cannot be opened; the variant is the reason.
    pub(crate) async fn open_patiently(&self) -> Result<Stream, DialFault> {
        let mut stream = connect(self.target, self.options).await.map_err(DialFault::Refused)?;
        if let Some(tls) = self.tls {
            self.tls_began_us.set(Some(self.clock.mono_us()));
            send(&stream, self.greeting).await.map_err(DialFault::Refused)?;
            tls.shake_hands(&mut stream).await.map_err(DialFault::Tls)?;
        }
        Ok(stream)
    }
}

/// Sends all of `bytes`.
pub(crate) async fn send(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_of_this_machine_is_not_the_backends_fault() {
        for (code, is_want, fault) in [
            (24, true, Fault::NoConnection),
            (99, true, Fault::NoConnection),
            (11, true, Fault::BackendBusy),
            (111, false, Fault::BackendRefused),
        ] {
            let dial = DialFault::Refused(io::Error::from_raw_os_error(code));
            assert_eq!((dial.is_want(), dial.report().fault), (is_want, fault), "{code}");
        }
    }
}
