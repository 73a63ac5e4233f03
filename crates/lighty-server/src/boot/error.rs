//! The error that prevents a server from starting.

use std::fmt::Display;
use std::io;

use lighty_proxy::upstream::start_error::StartError;

/// Reason why the server could not start or continue, worded for the operator.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// A step of the start failed, or the object that a directive or a listener names.
    #[error("{0}: {1}")]
    Step(String, io::Error),
    /// A directive's value cannot be used.
    #[error("{directive} = \"{value}\": {reason}")]
    Value {
        /// The directive's name.
        directive: &'static str,
        /// Its value.
        value: String,
        /// The error.
        reason: String,
    },
    /// The address of a `$SERVER["socket"]` cannot be used, for this reason.
    #[error("$SERVER[\"socket\"] == \"{0}\": {1}")]
    Socket(String, String),
    /// Nothing says which directory is to be served.
    #[error("server.document-root is not set: which directory is to be served?")]
    NoDocumentRoot,
    /// Certificates or keys cannot be loaded, for these reasons.
    #[error("{}", .0.join("; "))]
    Certificates(Vec<String>),
    /// Files of data cannot be read, for these reasons.
    #[error("{}", .0.join("; "))]
    Files(Vec<String>),
    /// The programs of an upstream cannot be started.
    #[error("{0}")]
    Programs(#[from] StartError),
    /// An error whose text names its object.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A worker panicked at this place.
    #[error("it panicked at {0}")]
    Panicked(String),
    /// A worker ended without a message.
    #[error("a worker ended while starting")]
    WorkerEnded,
    /// The running server can serve no longer, for this reason.
    #[error("{0}")]
    GivenUp(String),
}

impl BootError {
    pub(crate) fn value(
        directive: &'static str,
        value: &dyn Display,
        reason: &dyn Display,
    ) -> Self {
        Self::Value { directive, value: value.to_string(), reason: reason.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_object_and_the_error() {
        let gone = || io::Error::other("gone");
        let bind = BootError::value("server.bind", &"a:1", &"no host");
        let of_path = BootError::Certificates(vec!["a.pem: x".to_owned(), "b.pem: y".to_owned()]);
        for (error, text) in [
            (BootError::Step("server.pid-file".to_owned(), gone()), "server.pid-file: gone"),
            (bind, "server.bind = \"a:1\": no host"),
            (BootError::Socket(":x".into(), "bad".into()), "$SERVER[\"socket\"] == \":x\": bad"),
            (of_path, "a.pem: x; b.pem: y"),
            (gone().into(), "gone"),
            (BootError::Panicked("a.rs:1".to_owned()), "it panicked at a.rs:1"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
