//! The error that prevents a server from starting.

use lighty_proxy::upstream::start_error::StartError;

/// Reason why the server could not start or continue, worded for the operator.
#[derive(Clone, Debug)]
pub struct BootError(pub String);

impl std::fmt::Display for BootError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BootError {}

impl From<StartError> for BootError {
    fn from(error: StartError) -> Self {
        Self(error.to_string())
    }
}
