//! bzip2.

use std::io;

use bzip2::{Action, Compress, Compression, Status};

use crate::deflate::params::EncoderParams;

/// An encoder.
pub(in crate::deflate) struct Bzip2(Compress);

impl Bzip2 {
    #[expect(clippy::unnecessary_wraps, reason = "as other encoders")]
    pub(super) fn new(params: &EncoderParams, _: Option<u64>) -> io::Result<Self> {
        Ok(Self(Compress::new(Compression::new(params.bzip2_block), params.bzip2_work)))
    }

    pub(super) fn take(&mut self, input: &[u8], out: &mut Vec<u8>, _: usize) -> io::Result<usize> {
        let before = self.0.total_in();
        self.0.compress_vec(input, out, Action::Run).map_err(io::Error::other)?;
        Ok((self.0.total_in() - before) as usize)
    }

    pub(super) fn drain(
        &mut self,
        finishes: bool,
        out: &mut Vec<u8>,
        _: usize,
    ) -> io::Result<bool> {
        let how = if finishes { Action::Finish } else { Action::Flush };
        let status = self.0.compress_vec(&[], out, how).map_err(io::Error::other)?;
        Ok(matches!(status, Status::StreamEnd | Status::RunOk))
    }
}
