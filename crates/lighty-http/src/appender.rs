//! Formatting into byte buffers.

use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Formats into a byte buffer without an allocation of its own.
pub(crate) struct Appender<'a>(pub(crate) &'a mut Vec<u8>);

impl Write for Appender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
