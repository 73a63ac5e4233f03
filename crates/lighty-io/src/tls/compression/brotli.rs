//! Brotli for certificates.

use std::io::Write as _;

use brotlic::{BrotliEncoderOptions, CompressorWriter, Quality, WindowSize};
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertCompressor, CompressionFailed, CompressionLevel};

/// Takes 0.1 ms for a chain of 3 KB. Higher qualities take 10 ms for 2 % less.
const QUALITY: u8 = 5;

/// Window size in bits: no certificate chain is larger.
const WINDOW_BITS: u8 = 16;

/// Compresses certificates with Brotli.
#[derive(Debug)]
pub(super) struct Brotli;

impl CertCompressor for Brotli {
    fn compress(
        &self,
        input: Vec<u8>,
        _level: CompressionLevel,
    ) -> Result<Vec<u8>, CompressionFailed> {
        compress(&input).ok_or(CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

fn compress(input: &[u8]) -> Option<Vec<u8>> {
    let encoder = BrotliEncoderOptions::new()
        .quality(Quality::new(QUALITY).ok()?)
        .window_size(WindowSize::new(WINDOW_BITS).ok()?)
        .build()
        .ok()?;
    let mut writer = CompressorWriter::with_encoder(encoder, Vec::new());
    writer.write_all(input).ok()?;
    writer.into_inner().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn compressed_text_is_decompressed_unchanged() {
        let text = include_bytes!("brotli.rs").repeat(3);
        let small = Brotli.compress(text.clone(), CompressionLevel::Interactive);
        let small = small.expect("compressed");
        assert!(small.len() < text.len() / 3, "{}", small.len());
        let mut again = Vec::new();
        let read = brotlic::DecompressorReader::new(&small[..]).read_to_end(&mut again);
        assert_eq!((read.expect("decompressed"), again), (text.len(), text));
    }
}
