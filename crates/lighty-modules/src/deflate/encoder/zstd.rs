//! Zstandard (RFC 8878), by the library in C.

use std::io;

use lighty_io::libraries::Library;
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::Strategy;

use crate::deflate::params::EncoderParams;

/// The library.
pub(in crate::deflate) fn library() -> Option<Library> {
    let version = zstd::zstd_safe::version_string().to_owned();
    Some(Library { name: "zstd", version, shared_object: "libzstd.so" })
}

/// An encoder.
pub(in crate::deflate) struct Zstd(Encoder<'static>);

impl Zstd {
    pub(super) fn new(params: &EncoderParams, length: Option<u64>) -> io::Result<Self> {
        let mut zstd = Encoder::new(params.zstd_level)?;
        zstd.set_parameter(CParameter::WindowLog(params.zstd_window))?;
        if let Some(strategy) = strategy(params.zstd_strategy) {
            zstd.set_parameter(CParameter::Strategy(strategy))?;
        }
        if length.is_some() {
            zstd.set_pledged_src_size(length)?;
        }
        Ok(Self(zstd))
    }

    pub(super) fn take(&mut self, input: &[u8], out: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        let mut from = InBuffer::around(input);
        let at = out.len();
        self.0.run(&mut from, &mut OutBuffer::around_pos(out, at))?;
        Ok(from.pos())
    }

    pub(super) fn drain(
        &mut self,
        finishes: bool,
        out: &mut Vec<u8>,
        _: usize,
    ) -> io::Result<bool> {
        let at = out.len();
        let mut into = OutBuffer::around_pos(out, at);
        let left =
            if finishes { self.0.finish(&mut into, true)? } else { self.0.flush(&mut into)? };
        Ok(left == 0)
    }
}

fn strategy(number: u32) -> Option<Strategy> {
    Some(match number {
        1 => Strategy::ZSTD_fast,
        2 => Strategy::ZSTD_dfast,
        3 => Strategy::ZSTD_greedy,
        4 => Strategy::ZSTD_lazy,
        5 => Strategy::ZSTD_lazy2,
        6 => Strategy::ZSTD_btlazy2,
        7 => Strategy::ZSTD_btopt,
        8 => Strategy::ZSTD_btultra,
        9 => Strategy::ZSTD_btultra2,
        _ => return None,
    })
}
