//! `local_tls` of a build without the feature `acme`, which makes no certificates.

use std::convert::Infallible;
use std::path::PathBuf;

use lighty_io::tls::TlsError;

/// Files in PEM; there are none.
pub struct LocalTls {
    /// Certificate and key of the site.
    pub pair: PathBuf,
    /// The authority's certificate, which clients have to trust.
    pub authority: PathBuf,
    /// Makes the type uninhabited.
    _none: Infallible,
}

/// Fails.
///
/// # Errors
/// Always.
pub fn prepare(_: &str) -> Result<LocalTls, TlsError> {
    Err(absent())
}

/// Fails.
///
/// # Errors
/// Always.
pub fn store() -> Result<PathBuf, TlsError> {
    Err(absent())
}

fn absent() -> TlsError {
    "this build makes no certificates; build with the feature \"acme\", or write a configuration \
     with ssl.pemfile"
        .into()
}
