//! Errors of setting up TLS.

/// A message for the operator about an error of setting up TLS: the file, and its fault. For errors
/// of a library, the message is the library's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

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
