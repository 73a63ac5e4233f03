//! Messages with descriptors over unix sockets (SCM_RIGHTS of unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Maximum descriptors of one message; the kernel's limit is 253 (SCM_MAX_FD).
pub(crate) const PER_MESSAGE: usize = 250;

const SPACE_BYTES: usize = rustix::cmsg_space!(ScmRights(PER_MESSAGE));

/// Sends bytes with at most [`PER_MESSAGE`] descriptors. Returns the number of bytes sent.
///
/// # Errors
/// The system's; `InvalidInput` for too many descriptors.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The buffer is rounded up, and would take one more.
    let fits = descriptors.len() <= PER_MESSAGE;
    let has_room = descriptors.is_empty()
        || (fits && control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !has_room {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = flags | SendFlags::NOSIGNAL;
    let sent = rustix::io::retry_on_intr(|| {
        sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)
    })?;
    Ok(sent)
}

/// Receives bytes, and adds the descriptors that came with them, which `exec` closes. Returns the
/// number of bytes; 0 at the end.
///
/// # Errors
/// The system's.
pub(crate) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    into: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            into.extend(descriptors);
        }
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_a_limit() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let send = |count| send(&ours, b"x", &vec![theirs.as_fd(); count], SendFlags::empty());
        assert_eq!(send(PER_MESSAGE).expect("sent"), 1);
        let error = send(PER_MESSAGE + 1).expect_err("too many");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let mut received = Vec::new();
        let mut bytes = [0; 2];
        assert_eq!(receive(&theirs, &mut bytes, &mut received, RecvFlags::empty()).ok(), Some(1));
        assert_eq!(received.len(), PER_MESSAGE);
    }
}
