//! The conversation between a server and the process that takes its place: frames over a pair of
//! stream sockets.
//!
//! A frame is the length of its text and the number of its descriptors, as two 32-bit numbers in
//! network byte order, then the descriptors (SCM_RIGHTS), with one byte for each [`BATCH`] of them,
//! then the text. `predecessor` is the end of the new process, `spawn::successor` that of the old.
//! [`SuccessionLink`] is either end once the new process serves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

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

/// An end of the pair, for frames without descriptors.
#[derive(Debug)]
pub struct SuccessionLink {
    stream: UnixStream,
    /// Bytes of frames that are not complete.
    received: Vec<u8>,
}

impl SuccessionLink {
    /// The end over one socket of a pair.
    pub fn over(stream: UnixStream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Sends a frame. Without its end, the other process makes no sense of the next one.
    ///
    /// # Errors
    /// The other process has ended, or the frame is too long.
    pub async fn send(&mut self, text: &[u8]) -> io::Result<()> {
        let head = FrameHead { text_bytes: text.len(), descriptors: 0 }.encode()?;
        self.stream.write_all(&head).await?;
        self.stream.write_all(text).await
    }

    /// Waits for the text of the next frame. May be dropped and called again.
    ///
    /// # Errors
    /// The other process has ended, or the frame is malformed.
    pub async fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(text) = self.complete()? {
                return Ok(text);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Takes the first frame, if it is complete.
    fn complete(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = self.received.first_chunk() else { return Ok(None) };
        let head = FrameHead::decode(*head)?;
        if head.descriptors > 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors out of order"));
        }
        let end = HEAD_BYTES + head.text_bytes;
        if self.received.len() < end {
            self.received.reserve(end - self.received.len());
            return Ok(None);
        }
        let rest = self.received.split_off(end);
        let frame = std::mem::replace(&mut self.received, rest);
        Ok(frame.get(HEAD_BYTES..).map(<[u8]>::to_vec))
    }
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

    #[tokio::test]
    async fn link_has_whole_frames_in_order() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut ours, mut theirs) = (SuccessionLink::over(ours), SuccessionLink::over(theirs));
        let long = vec![b'x'; 1 << 20];
        let sending = async {
            ours.send(b"one").await.expect("sent");
            ours.send(b"").await.expect("sent");
            ours.send(&long).await.expect("sent");
            ours.stream.write_all(&[0, 0, 0, 9, 0]).await.expect("a part");
            drop(ours);
        };
        let receiving = async {
            let mut all = Vec::new();
            while let Ok(text) = theirs.receive().await {
                all.push(text.len());
            }
            all
        };
        let ((), all) = tokio::join!(sending, receiving);
        assert_eq!(all, [3, 0, 1 << 20]);
    }

    #[tokio::test]
    async fn link_refuses_descriptors_and_long_frames() {
        for head in [[0, 0, 0, 0, 0, 0, 0, 1], [0xff; HEAD_BYTES]] {
            let (mut ours, theirs) = UnixStream::pair().expect("a pair");
            ours.write_all(&head).await.expect("sent");
            let fault = SuccessionLink::over(theirs).receive().await.expect_err("a fault");
            assert_eq!(fault.kind(), io::ErrorKind::InvalidData);
        }
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
