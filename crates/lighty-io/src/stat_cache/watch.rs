//! Directories watched for changes.

/// The watches that tell when an entry changes.
pub(super) struct Watched;
