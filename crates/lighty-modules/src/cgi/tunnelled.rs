//! A program that has upgraded its connection.

use lighty_core::FarEnd;
use lighty_io::transport::{ByteStream, Stream};

use super::child_guard::ChildGuard;

/// A program at the far end of a tunnel.
pub(super) struct TunnelledProgram {
    pub(super) stream: Stream,
    pub(super) guard: ChildGuard,
}

impl FarEnd for TunnelledProgram {
    fn bytes(&self) -> &dyn ByteStream {
        &self.stream
    }

    fn complete(self) {
        self.guard.release();
    }
}
