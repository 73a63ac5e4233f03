//! The error of an upstream's programs at their start.

/// An upstream, and the reason why its programs were not started, worded for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError(pub(crate) String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}
