//! Placeholders for encoders that this build lacks: types without values.

use std::io;

use lighty_io::libraries::Library;

use crate::deflate::params::EncoderParams;

/// An encoder that cannot be created.
pub(in crate::deflate) enum Absent {}

#[cfg(not(feature = "brotli"))]
pub(in crate::deflate) type Brotli = Absent;
#[cfg(not(feature = "bzip2"))]
pub(in crate::deflate) type Bzip2 = Absent;
#[cfg(not(feature = "zstd"))]
pub(in crate::deflate) type Zstd = Absent;

/// The library that this build does not have.
#[cfg(not(all(feature = "brotli", feature = "zstd")))]
pub(in crate::deflate) fn library() -> Option<Library> {
    None
}

impl Absent {
    pub(super) fn new(_: &EncoderParams, _: Option<u64>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn take(&mut self, _: &[u8], _: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn drain(&mut self, _: bool, _: &mut Vec<u8>, _: usize) -> io::Result<bool> {
        match *self {}
    }
}
