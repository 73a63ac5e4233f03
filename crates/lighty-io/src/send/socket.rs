//! The writes themselves: as much as a socket accepts now.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use lighty_buf::{Chunk, ChunkQueue};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::transport::Stream;

/// Maximum memory pieces per call; more gains nothing.
pub(super) const PIECES_MAX: usize = 64;

/// Result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketStep {
    /// Bytes accepted by the socket.
    pub(super) bytes: u64,
    /// True if the socket accepts no more; its readiness is cleared.
    pub(super) full: bool,
}

/// The error for a file that ended before its announced length.
pub(super) fn shrank() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "file shrank while being sent")
}

/// Sends the memory at the front of the queue, `left` bytes at most: one chunk with `send`, several
/// with one `writev`, followed by `tail` (if any) when all of them fit.
pub(super) fn write_memory<F>(
    stream: &Stream,
    queue: &ChunkQueue<F>,
    left: u64,
    tail: Option<&[u8]>,
) -> io::Result<SocketStep> {
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    let mut count = 0;
    let mut want = 0_u64;
    let memory = queue.iter().map_while(|chunk| match chunk {
        Chunk::Memory(bytes) => Some(&bytes[..]),
        Chunk::File(_) => None,
    });
    for bytes in memory.chain(tail) {
        if count == PIECES_MAX || want == left {
            break;
        }
        let room = usize::try_from(left - want).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        pieces[count] = IoSlice::new(bytes);
        (count, want) = (count + 1, want + bytes.len() as u64);
    }
    match &pieces[..count] {
        [one] => write_bytes(stream, one),
        pieces => {
            let writev = |socket: BorrowedFd<'_>| rustix::io::writev(socket, pieces);
            write_now(stream, want, pieces, writev)
        }
    }
}

/// Sends one piece of memory.
pub(super) fn write_bytes(stream: &Stream, bytes: &[u8]) -> io::Result<SocketStep> {
    write_now(stream, bytes.len() as u64, &[IoSlice::new(bytes)], |socket| {
        rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)
    })
}

/// Sends two pieces of memory in one call.
pub(super) fn write_both(stream: &Stream, first: &[u8], second: &[u8]) -> io::Result<SocketStep> {
    let pieces = [IoSlice::new(first), IoSlice::new(second)];
    let want = (first.len() + second.len()) as u64;
    write_now(stream, want, &pieces, |socket| rustix::io::writev(socket, &pieces))
}

/// A partial write means that the socket is full. This is recorded to save a second call that would
/// only confirm it. A stream without a plain descriptor takes the pieces one after the other.
fn write_now(
    stream: &Stream,
    want: u64,
    pieces: &[IoSlice<'_>],
    write: impl Fn(BorrowedFd<'_>) -> Result<usize, Errno>,
) -> io::Result<SocketStep> {
    let mut bytes = 0;
    let result = stream.try_write_with(|socket| {
        bytes = rustix::io::retry_on_intr(|| write(socket))? as u64;
        if bytes < want { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match result {
        Some(result) => finish(result, bytes),
        None => write_pieces(stream, pieces),
    }
}

#[cold]
fn write_pieces(stream: &Stream, pieces: &[IoSlice<'_>]) -> io::Result<SocketStep> {
    let mut bytes = 0;
    let mut rest = pieces;
    while let Some(piece) = rest.first() {
        let want = match stream.is_tls() {
            true => rest.iter().map(|piece| piece.len()).sum(),
            false => piece.len(),
        };
        match stream.try_write_pieces(rest) {
            Ok(written) => {
                bytes += written as u64;
                if written < want {
                    return Ok(SocketStep { bytes, full: true });
                }
                rest = if stream.is_tls() { &[] } else { &rest[1..] };
            }
            // Bytes already sent must be counted; the error recurs with the next call.
            Err(error) if bytes == 0 => return finish(Err(error), 0),
            Err(_) => return Ok(SocketStep { bytes, full: true }),
        }
    }
    Ok(SocketStep { bytes, full: false })
}

/// Sends `want` bytes of a file from `offset` with `sendfile`, in as many calls as needed.
///
/// # Errors
/// [`shrank`] if the file is shorter; errors of the socket and the file; `Unsupported` for a stream
/// without a plain descriptor.
pub(super) fn sendfile(
    stream: &Stream,
    file: impl AsFd,
    offset: u64,
    want: u64,
) -> io::Result<SocketStep> {
    let mut bytes = 0;
    // A short count may come from the file, so only EAGAIN means that the socket is full.
    let result = stream.try_write_with(|socket| {
        while bytes < want {
            match sendfile_once(socket, file.as_fd(), offset + bytes, want - bytes) {
                Ok(sent) => bytes += sent,
                Err(error) if bytes == 0 || error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(error);
                }
                // Bytes already sent must be counted; the error recurs with the next call.
                Err(_) => break,
            }
        }
        Ok(())
    });
    finish(result.unwrap_or_else(|| Err(Errno::OPNOTSUPP.into())), bytes)
}

/// Makes a single `sendfile` call.
pub(super) fn sendfile_once(
    socket: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    want: u64,
) -> io::Result<u64> {
    // sendfile(2): maximum bytes per call.
    let count = want.min(0x7fff_f000) as usize;
    let mut position = offset;
    let sent = rustix::io::retry_on_intr(|| {
        rustix::fs::sendfile(socket, file, Some(&mut position), count)
    })?;
    if sent == 0 { Err(shrank()) } else { Ok(sent as u64) }
}

fn finish(result: io::Result<()>, bytes: u64) -> io::Result<SocketStep> {
    match result {
        Ok(()) => Ok(SocketStep { bytes, full: false }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Ok(SocketStep { bytes, full: true })
        }
        Err(error) => Err(error),
    }
}

/// True if `sendfile` cannot send this file although reading may work (a file system without
/// splice, a sandbox that blocks the call).
pub(super) fn sendfile_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM)
    )
}
