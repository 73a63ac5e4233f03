//! Certificate compression (RFC 8879). Browsers support Brotli or zlib, but not all support both.

#[cfg(feature = "brotli")]
mod brotli;

use rustls::compress::{CertCompressor, ZLIB_COMPRESSOR};

/// The algorithms of a server, the preferred one first. Each certificate is compressed once per
/// policy of a worker.
pub(super) fn compressors() -> Vec<&'static dyn CertCompressor> {
    vec![
        #[cfg(feature = "brotli")]
        &brotli::Brotli,
        ZLIB_COMPRESSOR,
    ]
}
