//! Results of operations, and failures of connections.

use std::io;

use ldap3::{LdapError, LdapResult};

use super::error::ServerFailure;

/// Result codes (RFC 4511 appendix A).
pub(super) mod code {
    pub(in crate::directory) const SUCCESS: u32 = 0;
    pub(in crate::directory) const OPERATIONS_ERROR: u32 = 1;
    pub(in crate::directory) const PROTOCOL_ERROR: u32 = 2;
    pub(in crate::directory) const TIME_LIMIT_EXCEEDED: u32 = 3;
    pub(in crate::directory) const SIZE_LIMIT_EXCEEDED: u32 = 4;
    pub(in crate::directory) const AUTH_METHOD_NOT_SUPPORTED: u32 = 7;
    pub(in crate::directory) const STRONGER_AUTH_REQUIRED: u32 = 8;
    pub(in crate::directory) const REFERRAL: u32 = 10;
    pub(in crate::directory) const ADMIN_LIMIT_EXCEEDED: u32 = 11;
    pub(in crate::directory) const CONFIDENTIALITY_REQUIRED: u32 = 13;
    pub(in crate::directory) const NO_SUCH_OBJECT: u32 = 32;
    pub(in crate::directory) const INVALID_CREDENTIALS: u32 = 49;
    pub(in crate::directory) const INSUFFICIENT_ACCESS: u32 = 50;
    pub(in crate::directory) const BUSY: u32 = 51;
    pub(in crate::directory) const UNAVAILABLE: u32 = 52;
    pub(in crate::directory) const UNWILLING_TO_PERFORM: u32 = 53;
    pub(in crate::directory) const OTHER: u32 = 80;
}

/// The failure of a connection.
pub(super) fn lost(error: io::Error) -> ServerFailure {
    ServerFailure::Lost(lighty_io::os_text(&error))
}

/// The failure of a call to the library.
pub(super) fn failed_call(error: LdapError) -> ServerFailure {
    match error {
        LdapError::Io { source } => lost(source),
        LdapError::LdapResult { result } => ServerFailure::Lost(shown(&result)),
        LdapError::Timeout { .. } => ServerFailure::Timeout,
        LdapError::OpSend { .. } | LdapError::ResultRecv { .. } | LdapError::EndOfStream => {
            ServerFailure::Lost("it closed the connection".to_owned())
        }
        other => ServerFailure::Lost(other.to_string()),
    }
}

/// The name of the result's code, and the server's text.
pub(super) fn shown(result: &LdapResult) -> String {
    shown_result(result.rc, &result.text)
}

/// The name of a result's code, and the server's text.
pub(super) fn shown_result(rc: u32, text: &str) -> String {
    let name = match rc {
        code::OPERATIONS_ERROR => "operationsError",
        code::PROTOCOL_ERROR => "protocolError",
        code::TIME_LIMIT_EXCEEDED => "timeLimitExceeded",
        code::AUTH_METHOD_NOT_SUPPORTED => "authMethodNotSupported",
        code::STRONGER_AUTH_REQUIRED => "strongerAuthRequired",
        code::REFERRAL => "referral",
        code::ADMIN_LIMIT_EXCEEDED => "adminLimitExceeded",
        code::CONFIDENTIALITY_REQUIRED => "confidentialityRequired",
        code::INVALID_CREDENTIALS => "invalidCredentials",
        code::INSUFFICIENT_ACCESS => "insufficientAccessRights",
        code::BUSY => "busy",
        code::UNAVAILABLE => "unavailable",
        code::UNWILLING_TO_PERFORM => "unwillingToPerform",
        _ => "result code",
    };
    match text {
        "" => format!("{name} ({rc})"),
        text => format!("{name} ({rc}): {}", text.escape_debug()),
    }
}
