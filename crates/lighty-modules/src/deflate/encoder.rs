//! One interface for all encoders, with bounded input and output.

use std::io;

use brotlic::encode::BrotliOperation;
use brotlic::{BrotliEncoder, BrotliEncoderOptions, CompressionMode, Quality, WindowSize};
use bzip2::{Action, Compress as Bzip2};
use flate2::{Compress as Zlib, Compression, FlushCompress, Status};
use zstd::stream::raw::{CParameter, Encoder as Zstd, InBuffer, Operation, OutBuffer};

use super::coding::Coding;
use super::params::Params;

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
    Brotli(BrotliEncoder),
    Zstd(Zstd<'static>),
    Bzip2(Bzip2),
}

impl Encoder {
    /// Creates an encoder; the body's length is a hint, if known.
    ///
    /// # Errors
    /// The parameters are rejected or memory is short.
    pub(super) fn new(coding: Coding, params: &Params, length: Option<u64>) -> io::Result<Self> {
        let zlib_level = || Compression::new(params.zlib_level);
        Ok(match coding {
            Coding::Gzip => Encoder::Zlib(Zlib::new_gzip(zlib_level(), params.zlib_window)),
            // RFC 9110 section 8.4.1.2: "deflate" is the zlib format.
            Coding::Deflate => {
                Encoder::Zlib(Zlib::new_with_window_bits(zlib_level(), true, params.zlib_window))
            }
            Coding::Brotli => Encoder::Brotli(new_brotli(params, length)?),
            Coding::Zstd => Encoder::Zstd(new_zstd(params, length)?),
            Coding::Bzip2 => {
                let level = bzip2::Compression::new(params.bzip2_block);
                Encoder::Bzip2(Bzip2::new(level, params.bzip2_work))
            }
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
            Encoder::Bzip2(bzip2) => {
                let before = bzip2.total_in();
                bzip2.compress_vec(input, out, Action::Run).map_err(io::Error::other)?;
                Ok((bzip2.total_in() - before) as usize)
            }
            Encoder::Zstd(zstd) => {
                let mut from = InBuffer::around(input);
                let at = out.len();
                zstd.run(&mut from, &mut OutBuffer::around_pos(out, at))?;
                Ok(from.pos())
            }
            Encoder::Brotli(brotli) => {
                run_brotli(brotli, input, BrotliOperation::Process, out, most)
            }
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
            Encoder::Bzip2(bzip2) => {
                let how = if finishes { Action::Finish } else { Action::Flush };
                let status = bzip2.compress_vec(&[], out, how).map_err(io::Error::other)?;
                Ok(matches!(status, bzip2::Status::StreamEnd | bzip2::Status::RunOk))
            }
            Encoder::Zstd(zstd) => {
                let at = out.len();
                let mut into = OutBuffer::around_pos(out, at);
                let left =
                    if finishes { zstd.finish(&mut into, true)? } else { zstd.flush(&mut into)? };
                Ok(left == 0)
            }
            Encoder::Brotli(brotli) => {
                let how = if finishes { BrotliOperation::Finish } else { BrotliOperation::Flush };
                run_brotli(brotli, &[], how, out, most)?;
                Ok(!brotli.has_output())
            }
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

fn new_brotli(params: &Params, length: Option<u64>) -> io::Result<BrotliEncoder> {
    let small = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    let mut options = BrotliEncoderOptions::new();
    options
        .quality(Quality::new(small(params.brotli_quality)).map_err(io::Error::other)?)
        .window_size(
            WindowSize::new(small(params.brotli_window_for(length))).map_err(io::Error::other)?,
        )
        .mode(match params.brotli_mode {
            1 => CompressionMode::Text,
            2 => CompressionMode::Font,
            _ => CompressionMode::Generic,
        })
        .size_hint(length.map_or(0, |length| u32::try_from(length).unwrap_or(u32::MAX)));
    options.build().map_err(io::Error::other)
}

/// Runs brotli within the room; returns the number of bytes consumed.
fn run_brotli(
    brotli: &mut BrotliEncoder,
    input: &[u8],
    op: BrotliOperation,
    out: &mut Vec<u8>,
    most: usize,
) -> io::Result<usize> {
    let at = out.len();
    out.resize(out.capacity().min(most).max(at), 0);
    let ran = brotli.compress(input, &mut out[at..], op).map_err(io::Error::other);
    out.truncate(at + ran.as_ref().map_or(0, |ran| ran.bytes_written));
    Ok(ran?.bytes_read)
}

fn new_zstd(params: &Params, length: Option<u64>) -> io::Result<Zstd<'static>> {
    let mut zstd = Zstd::new(params.zstd_level)?;
    zstd.set_parameter(CParameter::WindowLog(params.zstd_window))?;
    if let Some(strategy) = params.zstd_strategy() {
        zstd.set_parameter(CParameter::Strategy(strategy))?;
    }
    if length.is_some() {
        zstd.set_pledged_src_size(length)?;
    }
    Ok(zstd)
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
