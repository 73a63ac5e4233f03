//! The conversation between a server and the process that takes its place: frames over a pair of
//! stream sockets.
//!
//! A frame is the length of its text and the number of its descriptors, as two 32-bit numbers in
//! network byte order, then the descriptors (SCM_RIGHTS), with one byte for each [`BATCH`] of them,
//! then the text. `predecessor` is the end of the new process, `spawn::successor` that of the old.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::descriptors;

/// The environment variable that names the process before this one.
pub(crate) const VARIABLE: &str = "LIGHTY_UPGRADE_OF";

/// Maximum bytes of a frame's text.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// Maximum descriptors of a frame.
pub(crate) const DESCRIPTORS_MAX: usize = 16 << 10;

/// Descriptors that one byte carries.
pub(crate) const BATCH: usize = 128;

const _: () = assert!(BATCH <= descriptors::PER_MESSAGE);

pub(crate) const HEAD_BYTES: usize = 8;

/// A received frame.
#[derive(Debug)]
pub struct SuccessionFrame {
    /// Its text.
    pub text: Vec<u8>,
    /// Its descriptors, in order. They are closed by `exec`.
    pub descriptors: Vec<OwnedFd>,
}

/// Sizes that a frame announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) text_bytes: usize,
    pub(crate) descriptors: usize,
}

impl FrameHead {
    pub(crate) fn encode(self) -> io::Result<[u8; HEAD_BYTES]> {
        if self.text_bytes > TEXT_BYTES_MAX || self.descriptors > DESCRIPTORS_MAX {
            return Err(too_long());
        }
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&(self.text_bytes as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&(self.descriptors as u32).to_be_bytes());
        Ok(bytes)
    }

    pub(crate) fn decode(bytes: [u8; HEAD_BYTES]) -> io::Result<Self> {
        let number = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
        };
        let head = FrameHead { text_bytes: number(0), descriptors: number(4) };
        match head.text_bytes <= TEXT_BYTES_MAX && head.descriptors <= DESCRIPTORS_MAX {
            true => Ok(head),
            false => Err(too_long()),
        }
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame between two servers is too long")
}

/// Sends a byte that carries these descriptors, at most [`BATCH`].
pub(crate) fn send_batch(socket: impl AsFd, batch: &[BorrowedFd<'_>]) -> io::Result<()> {
    let sent = descriptors::send(socket, b"d", batch, SendFlags::empty())?;
    debug_assert_eq!(sent, 1);
    Ok(())
}

/// Receives a byte and the descriptors that it carries.
pub(crate) fn receive_batch(socket: impl AsFd, into: &mut Vec<OwnedFd>) -> io::Result<()> {
    match descriptors::receive(socket, &mut [0], into, RecvFlags::empty())? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_a_frame_has_limits() {
        for (text_bytes, descriptors) in [(0, 0), (1, 2), (TEXT_BYTES_MAX, DESCRIPTORS_MAX)] {
            let head = FrameHead { text_bytes, descriptors };
            let encoded = head.encode().expect("within the limits");
            assert_eq!(FrameHead::decode(encoded).expect("within the limits"), head);
        }
        let longer = FrameHead { text_bytes: TEXT_BYTES_MAX + 1, descriptors: 0 };
        assert!(longer.encode().is_err());
        let more = FrameHead { text_bytes: 0, descriptors: DESCRIPTORS_MAX + 1 };
        assert!(more.encode().is_err());
        assert!(FrameHead::decode([0xff; HEAD_BYTES]).is_err());
    }

    #[test]
    fn descriptors_arrive_with_their_byte() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let files: Vec<_> = (0..BATCH).map(|_| tempfile::tempfile().expect("a file")).collect();
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        send_batch(&ours, &borrowed).expect("sent");
        let mut received = Vec::new();
        receive_batch(&theirs, &mut received).expect("received");
        assert_eq!(received.len(), BATCH);
        drop(ours);
        let ended = receive_batch(&theirs, &mut received).expect_err("the end");
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
