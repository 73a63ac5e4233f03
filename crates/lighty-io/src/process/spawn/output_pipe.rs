//! The server's end of a pipe that a program writes to.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;

use crate::transport::Stream;

/// Our end of a program's standard output or error output.
#[derive(Debug)]
pub enum OutputPipe {
    /// A pipe.
    Pipe(pipe::Receiver),
    /// A connection in memory, in a simulation. Boxed, because pipes are small.
    Simulated(Box<Stream>),
}

impl OutputPipe {
    /// Waits for bytes or the end.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.readable().await,
            Self::Simulated(stream) => stream.readable().await,
        }
    }

    /// Reads the bytes that are there; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, and errors of the system.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.try_read(buffer),
            Self::Simulated(stream) => {
                match stream.poll_read(&mut Context::from_waker(Waker::noop()), buffer) {
                    Poll::Ready(read) => read,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Reads, or waits for bytes or the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipe(pipe) => {
                let mut target = ReadBuf::new(buffer);
                ready!(Pin::new(pipe).poll_read(cx, &mut target))?;
                Poll::Ready(Ok(target.filled().len()))
            }
            Self::Simulated(stream) => stream.poll_read(cx, buffer),
        }
    }
}
