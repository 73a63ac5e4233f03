//! Failures of commands and their messages.

use std::io::Write as _;

/// Why a command failed.
pub(crate) enum Failure {
    /// Printed already.
    Reported,
    /// To be printed.
    Says(String),
    /// The command line asks for what cannot be; to be printed.
    Usage(String),
}

impl Failure {
    /// A failure that says this.
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Failure::Says(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Says(error.to_string())
    }
}

/// Writes to the error output. Its reader may have read enough: `lighty -t 2>&1 | head`.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
