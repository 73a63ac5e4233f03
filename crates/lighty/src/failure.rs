//! Failures of commands and their messages.

use std::io::Write as _;

/// Failure of a command.
pub(crate) enum CommandFailure {
    /// It was printed already.
    Reported,
    /// Its message is to be printed.
    Says(String),
    /// The command line is invalid; the message is to be printed.
    Usage(String),
}

impl CommandFailure {
    /// Creates a failure with this message.
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        CommandFailure::Says(error.to_string())
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> Self {
        CommandFailure::Says(error.to_string())
    }
}

/// Writes to standard error. Ignores errors, since the reader may have closed: `lighty -t 2>&1 |
/// head`.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
