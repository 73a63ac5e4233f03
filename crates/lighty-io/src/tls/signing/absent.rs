//! `signing` of a build without the feature `acme`, which makes no keys.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::tls_error::TlsError;

/// Fails: this build makes no certificates.
pub(super) fn placeholder(_: &[String]) -> Result<Arc<CertifiedKey>, TlsError> {
    Err("this build makes no certificates; build with the feature \"acme\"".into())
}
