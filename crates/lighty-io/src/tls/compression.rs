//! Certificates in fewer bytes (RFC 8879). Browsers know Brotli or zlib, not all of them both.

#[cfg(feature = "brotli")]
mod brotli;

use rustls::compress::{CertCompressor, ZLIB_COMPRESSOR};

/// Those that a server has, the preferred one first. Each certificate is compressed once for a
/// policy of a worker.
pub(super) fn compressors() -> Vec<&'static dyn CertCompressor> {
    vec![
        #[cfg(feature = "brotli")]
        &brotli::Brotli,
        ZLIB_COMPRESSOR,
    ]
}
