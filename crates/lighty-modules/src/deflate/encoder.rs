//! A common interface of all encoders, with bounded input and output.

#[cfg(any(not(feature = "brotli"), not(feature = "bzip2"), not(feature = "zstd")))]
pub(super) mod absent;
#[cfg(feature = "brotli")]
pub(super) mod brotli;
#[cfg(feature = "bzip2")]
mod bzip2;
#[cfg(feature = "zstd")]
pub(super) mod zstd;

#[cfg(not(feature = "brotli"))]
pub(super) use absent as brotli;
#[cfg(not(feature = "bzip2"))]
use absent as bzip2;
#[cfg(not(feature = "zstd"))]
pub(super) use absent as zstd;

use std::io;

use flate2::{Compress as Zlib, Compression, FlushCompress, Status};

use super::coding::Coding;
use super::params::EncoderParams;

/// The operation after the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// More input will come.
    Run,
    /// Make all input so far decodable by the client.
    Flush,
    /// End of the body.
    Finish,
}

/// An encoder for one body.
pub(super) enum Encoder {
    Zlib(Zlib),
    Brotli(brotli::Brotli),
    Zstd(zstd::Zstd),
    Bzip2(bzip2::Bzip2),
}

impl Encoder {
    /// Creates an encoder; the body's length is a hint, if known.
    ///
    /// # Errors
    /// The parameters are rejected or memory is short.
    pub(super) fn new(
        coding: Coding,
        params: &EncoderParams,
        length: Option<u64>,
    ) -> io::Result<Self> {
        let zlib_level = || Compression::new(params.zlib_level);
        Ok(match coding {
            Coding::Gzip => Encoder::Zlib(Zlib::new_gzip(zlib_level(), params.zlib_window)),
            // RFC 9110 section 8.4.1.2: "deflate" is the zlib format.
            Coding::Deflate => {
                Encoder::Zlib(Zlib::new_with_window_bits(zlib_level(), true, params.zlib_window))
            }
            Coding::Brotli => Encoder::Brotli(brotli::Brotli::new(params, length)?),
            Coding::Zstd => Encoder::Zstd(zstd::Zstd::new(params, length)?),
            Coding::Bzip2 => Encoder::Bzip2(bzip2::Bzip2::new(params, length)?),
        })
    }

    /// Consumes input and appends to `out` up to `most` bytes. Returns the number of bytes
    /// consumed, and whether everything is done: the input consumed and the operation complete.
    ///
    /// # Errors
    /// The encoder's error; its state is unusable afterwards.
    pub(super) fn run(
        &mut self,
        input: &[u8],
        op: Op,
        out: &mut Vec<u8>,
        most: usize,
    ) -> io::Result<(usize, bool)> {
        let mut taken = 0;
        while taken < input.len() {
            if out.len() >= most {
                return Ok((taken, false));
            }
            taken += self.take(&input[taken..], out, most)?;
        }
        let mut done = op == Op::Run;
        while !done && out.len() < most {
            done = self.drain(op, out, most)?;
        }
        Ok((taken, done))
    }

    /// Consumes some of the input.
    fn take(&mut self, input: &[u8], out: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        make_room(out, most);
        match self {
            Encoder::Zlib(zlib) => {
                let before = zlib.total_in();
                zlib.compress_vec(input, out, FlushCompress::None).map_err(io::Error::other)?;
                Ok((zlib.total_in() - before) as usize)
            }
            Encoder::Bzip2(bzip2) => bzip2.take(input, out, most),
            Encoder::Zstd(zstd) => zstd.take(input, out, most),
            Encoder::Brotli(brotli) => brotli.take(input, out, most),
        }
    }

    /// Flushes or finishes; `true` when complete.
    fn drain(&mut self, op: Op, out: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        make_room(out, most);
        let finishes = op == Op::Finish;
        match self {
            Encoder::Zlib(zlib) => {
                let how = if finishes { FlushCompress::Finish } else { FlushCompress::Sync };
                let status = zlib.compress_vec(&[], out, how).map_err(io::Error::other)?;
                // A flush is complete when room was left over.
                Ok(status == Status::StreamEnd || (!finishes && out.len() < out.capacity()))
            }
            Encoder::Bzip2(bzip2) => bzip2.drain(finishes, out, most),
            Encoder::Zstd(zstd) => zstd.drain(finishes, out, most),
            Encoder::Brotli(brotli) => brotli.drain(finishes, out, most),
        }
    }
}

/// Output room per step, in bytes.
const ROOM_BYTES: usize = 16 * 1024;

fn make_room(out: &mut Vec<u8>, most: usize) {
    const LEAST: usize = 64;
    if out.capacity() - out.len() < LEAST {
        out.reserve(most.saturating_sub(out.len()).clamp(LEAST, ROOM_BYTES));
    }
}

#[cfg(all(test, feature = "brotli", feature = "bzip2", feature = "zstd"))]
mod tests;
