//! The remaining body of a program's response.

use alloc::boxed::Box;
use core::ops::Range;

use super::CgiHead;
use crate::http1::chunked::{ChunkFault, ChunkedDecoder};

/// Remaining part of a response body.
#[derive(Debug)]
pub enum Left {
    /// Everything up to the end of the output.
    Rest,
    /// This many bytes.
    Length(u64),
    /// Chunks up to the last one.
    Chunks(Box<ChunkedDecoder>),
}

impl Left {
    /// The body that a response head announces.
    #[must_use]
    pub fn of(head: &CgiHead) -> Self {
        match head.content_length {
            Some(length) => Self::Length(length),
            None if head.is_chunked => Self::Chunks(Box::new(ChunkedDecoder::of_response())),
            None => Self::Rest,
        }
    }

    /// True if a response that ends now is complete.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Rest | Self::Length(0) => true,
            Self::Length(_) => false,
            Self::Chunks(decoder) => decoder.is_done(),
        }
    }

    /// True if the body is complete, even if the output continues.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !matches!(self, Self::Rest) && self.is_nothing()
    }

    /// Consumes the front of the output. Returns the number of bytes consumed and the range of body
    /// among them. Bytes after the announced end are dropped.
    ///
    /// # Errors
    /// The chunked coding is invalid.
    pub fn take(&mut self, output: &[u8]) -> Result<(usize, Range<usize>), ChunkFault> {
        Ok(match self {
            Self::Rest => (output.len(), 0..output.len()),
            Self::Length(left) => {
                let counted = output.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= counted as u64;
                (output.len(), 0..counted)
            }
            Self::Chunks(decoder) if decoder.is_done() => (output.len(), 0..0),
            Self::Chunks(decoder) => {
                let found = decoder.feed(output)?;
                (found.consumed, found.data)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_announced_end_are_dropped() {
        let mut left = Left::Length(3);
        assert_eq!(left.take(b"ab"), Ok((2, 0..2)));
        assert!(!left.is_nothing() && !left.is_whole());
        assert_eq!(left.take(b"cde"), Ok((3, 0..1)));
        assert!(left.is_nothing() && left.is_whole());
        assert_eq!(left.take(b"f"), Ok((1, 0..0)));
    }

    #[test]
    fn the_rest_ends_with_the_response_alone() {
        let mut left = Left::of(&CgiHead::new());
        assert_eq!(left.take(b"ab"), Ok((2, 0..2)));
        assert!(left.is_nothing() && !left.is_whole());
    }

    #[test]
    fn chunks_end_with_the_last_one() {
        let mut left = Left::Chunks(Box::new(ChunkedDecoder::of_response()));
        let mut output: &[u8] = b"2\r\nab\r\n0\r\n\r\nmore";
        let mut bytes = 0;
        while !output.is_empty() {
            let (consumed, body) = left.take(output).expect("chunks");
            bytes += body.len();
            output = &output[consumed..];
        }
        assert_eq!((bytes, left.is_whole()), (2, true));
        let mut other = Left::Chunks(Box::new(ChunkedDecoder::of_response()));
        assert!(other.take(b"no chunk\r\n").is_err());
    }
}
