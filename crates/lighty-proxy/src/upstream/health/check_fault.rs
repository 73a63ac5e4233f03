//! Faults of a checked backend.

use std::fmt;
use std::io;

use lighty_io::tls::ServerFault;

/// Maximum bytes of a response head, and of a gRPC response: [`CheckFault::TooLong`].
pub(crate) const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// Reason for a failed check.
#[derive(Debug)]
pub(crate) enum CheckFault {
    /// The connection could not be opened.
    Connect(io::Error),
    /// The TLS handshake failed.
    Tls(ServerFault),
    /// The connection broke.
    Talk(io::Error),
    /// The check as a whole took longer than its `timeout`.
    Timeout { timeout_ms: u64 },
    /// The connection closed before a complete response.
    Closed,
    /// The response is longer than [`RESPONSE_BYTES_MAX`].
    TooLong,
    /// The response does not follow the protocol.
    Protocol(String),
    /// The status does not count as good.
    Status(u16),
    /// The status of a gRPC call is not OK.
    Grpc(u64),
    /// The status that gRPC's health service reports, if it is not `SERVING`.
    NotServing(u64),
    /// The check cannot be sent: the configured target or host is invalid.
    Unfit(String),
}

impl fmt::Display for CheckFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "connect: {error}"),
            Self::Tls(fault) => write!(f, "TLS: {fault}"),
            Self::Talk(error) => write!(f, "connection: {error}"),
            Self::Timeout { timeout_ms } => write!(f, "no answer within {timeout_ms} ms (timeout)"),
            Self::Closed => f.write_str("closed before it answered"),
            Self::TooLong => write!(f, "a response of more than {RESPONSE_BYTES_MAX} bytes"),
            Self::Protocol(words) => write!(f, "answer: {words}"),
            Self::Status(code) => write!(f, "status {code}"),
            Self::Grpc(code) => write!(f, "grpc-status {code}"),
            Self::NotServing(status) => match status {
                2 => f.write_str("the service is NOT_SERVING"),
                3 => f.write_str("the service is unknown (SERVICE_UNKNOWN)"),
                _ => write!(f, "the serving status is {status}"),
            },
            Self::Unfit(words) => write!(f, "question: {words}"),
        }
    }
}

impl std::error::Error for CheckFault {}

/// Checks that a status is between the first and the last good one.
pub(super) fn check_status(status: u16, good: (u16, u16)) -> Result<(), CheckFault> {
    if (good.0..=good.1).contains(&status) { Ok(()) } else { Err(CheckFault::Status(status)) }
}
