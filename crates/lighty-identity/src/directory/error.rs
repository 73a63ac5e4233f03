//! Errors of directories.

use std::io;

use lighty_io::tls::TlsError;

use super::server::DirectoryServer;

/// Reason why a directory gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The servers cannot be reached, or have no time now.
    #[error("{server}: {reason}")]
    Unreachable {
        /// The last server that was tried.
        server: String,
        /// Its error.
        reason: String,
    },
    /// The time limit for all servers together has passed.
    #[error("no server answered in time")]
    Late,
    /// A server refuses the operation: the configuration, or that of the directory, is at fault.
    #[error("{server}: {reason}")]
    Refused {
        /// The server.
        server: String,
        /// Its message.
        reason: String,
    },
    /// The files for TLS cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The thread cannot be started.
    #[error("{0}")]
    Thread(io::Error),
    /// A response broke the rules of the protocol.
    #[error("a response of the server is malformed")]
    Malformed,
}

impl DirectoryError {
    /// True if another attempt may succeed without changes to the configuration.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Late | Self::Malformed)
    }
}

/// Reason why an operation failed at one server.
#[derive(Debug)]
pub(super) enum ServerFailure {
    /// The connection cannot be made, or ended.
    Lost(String),
    /// No answer in time.
    Timeout,
    /// The server has no time for the operation.
    Busy(String),
    /// The server refuses the operation.
    Refused(String),
}

impl ServerFailure {
    /// True if another server may do better.
    pub(super) fn is_of_server(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }

    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout)
    }

    /// The error for callers.
    pub(super) fn of(self, server: &DirectoryServer) -> DirectoryError {
        let server = server.to_string();
        match self {
            Self::Lost(reason) | Self::Busy(reason) => {
                DirectoryError::Unreachable { server, reason }
            }
            Self::Timeout => {
                DirectoryError::Unreachable { server, reason: "no answer in time".to_owned() }
            }
            Self::Refused(reason) => DirectoryError::Refused { server, reason },
        }
    }
}

/// A filter that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It has no place for the user's name.
    #[error("has no \"?\" for the name")]
    NoPlace,
    /// It is no filter (RFC 4515).
    #[error("is no filter of LDAP (RFC 4515)")]
    Syntax,
}
