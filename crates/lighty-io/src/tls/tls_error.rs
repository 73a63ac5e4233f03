//! Errors of setting up TLS.

use std::fmt;

/// A message for the operator about an error of setting up TLS: the file, and its fault. For errors
/// of a library, the message is the library's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl From<String> for TlsError {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for TlsError {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
