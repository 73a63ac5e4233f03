//! Faults of a checked backend.

use std::io;

use lighty_io::tls::ServerFault;

/// Maximum bytes of a response head, and of a gRPC response: [`CheckFault::TooLong`].
pub(crate) const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// Reason for a failed check.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckFault {
    /// The connection could not be opened.
    #[error("connect: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(ServerFault),
    /// The connection broke.
    #[error("connection: {0}")]
    Talk(io::Error),
    /// The check as a whole took longer than its `timeout`.
    #[error("no answer within {timeout_ms} ms (timeout)")]
    Timeout { timeout_ms: u64 },
    /// The connection closed before a complete response.
    #[error("closed before it answered")]
    Closed,
    /// The response is longer than [`RESPONSE_BYTES_MAX`].
    #[error("a response of more than {RESPONSE_BYTES_MAX} bytes")]
    TooLong,
    /// The response does not follow the protocol.
    #[error("answer: {0}")]
    Protocol(String),
    /// The status does not count as good.
    #[error("status {0}")]
    Status(u16),
    /// The status of a gRPC call is not OK.
    #[error("grpc-status {0}")]
    Grpc(u64),
    /// The status that gRPC's health service reports, if it is not `SERVING`.
    #[error("{}", serving_status(*.0))]
    NotServing(u64),
    /// The check cannot be sent: the configured target or host is invalid.
    #[error("question: {0}")]
    Unfit(String),
}

/// Describes a `ServingStatus` of gRPC's health service.
fn serving_status(status: u64) -> String {
    match status {
        2 => "the service is NOT_SERVING".to_owned(),
        3 => "the service is unknown (SERVICE_UNKNOWN)".to_owned(),
        _ => format!("the serving status is {status}"),
    }
}

/// Checks that a status is between the first and the last good one.
pub(super) fn check_status(status: u16, good: (u16, u16)) -> Result<(), CheckFault> {
    if (good.0..=good.1).contains(&status) { Ok(()) } else { Err(CheckFault::Status(status)) }
}
