//! The error of an upstream's programs at their start.

/// An upstream, and the reason why its programs were not started, worded for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub(crate) String);
