//! Why TLS cannot be set up.

use std::fmt;

/// Why TLS cannot be set up with what a configuration names, worded for the operator: which file,
/// and what is wrong with it. Where a library refuses, the words are the library's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl From<String> for TlsError {
    fn from(words: String) -> Self {
        Self(words)
    }
}

impl From<&str> for TlsError {
    fn from(words: &str) -> Self {
        Self(words.to_owned())
    }
}
