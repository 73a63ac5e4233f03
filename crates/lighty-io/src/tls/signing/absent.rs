//! `signing` for builds without the feature `acme`, which generate no keys.

use std::sync::Arc;

use rustls::sign::CertifiedKey;

use super::tls_error::TlsError;

/// Fails: this build creates no certificates.
pub(super) fn placeholder(_: &[String]) -> Result<Arc<CertifiedKey>, TlsError> {
    Err("this build makes no certificates; build with the feature \"acme\"".into())
}
