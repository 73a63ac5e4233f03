//! Brotli (RFC 7932), by the library in C.

use std::io;

use brotlic::encode::BrotliOperation;
use brotlic::{BrotliEncoder, BrotliEncoderOptions, CompressionMode, Quality, WindowSize};
use lighty_io::libraries::Library;

use crate::deflate::params::EncoderParams;

/// The library.
pub(in crate::deflate) fn library() -> Option<Library> {
    // BrotliEncoderVersion: 8 bits, 12 bits and 12 bits.
    let version = brotlic::BrotliEncoder::version();
    let version = format!("{}.{}.{}", version >> 24, version >> 12 & 0xfff, version & 0xfff);
    Some(Library { name: "brotli", version, shared_object: "libbrotlienc.so" })
}

/// An encoder.
pub(in crate::deflate) struct Brotli(BrotliEncoder);

impl Brotli {
    pub(super) fn new(params: &EncoderParams, length: Option<u64>) -> io::Result<Self> {
        let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
        let mut options = BrotliEncoderOptions::new();
        options
            .quality(Quality::new(small(params.brotli_quality)).map_err(io::Error::other)?)
            .window_size(
                WindowSize::new(small(params.brotli_window_for(length)))
                    .map_err(io::Error::other)?,
            )
            .mode(match params.brotli_mode {
                1 => CompressionMode::Text,
                2 => CompressionMode::Font,
                _ => CompressionMode::Generic,
            })
            .size_hint(length.map_or(0, |length| u32::try_from(length).unwrap_or(u32::MAX)));
        options.build().map(Self).map_err(io::Error::other)
    }

    pub(super) fn take(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<usize> {
        self.run(input, BrotliOperation::Process, out, most)
    }

    pub(super) fn drain(
        &mut self,
        finishes: bool,
        out: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<bool> {
        let how = if finishes { BrotliOperation::Finish } else { BrotliOperation::Flush };
        self.run(&[], how, out, most)?;
        Ok(!self.0.has_output())
    }

    /// Runs within the room; returns the number of bytes consumed.
    fn run(
        &mut self,
        input: &[u8],
        op: BrotliOperation,
        out: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<usize> {
        let at = out.len();
        out.resize(out.capacity().min(most).max(at), 0);
        let ran = self.0.compress(input, &mut out[at..], op).map_err(io::Error::other);
        out.truncate(at + ran.as_ref().map_or(0, |ran| ran.bytes_written));
        Ok(ran?.bytes_read)
    }
}
