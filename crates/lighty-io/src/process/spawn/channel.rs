//! The server's end of a program's input and output.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Child, ChildInput, ChildOutput, OutputPipe, Program};
use crate::transport::Stream;

/// Our end of a program's standard input and output.
#[derive(Debug)]
pub enum Channel {
    /// Two pipes, as programs expect; the input may be closed already.
    Pipes {
        /// The program's standard input; `None` once it is closed.
        stdin: Option<pipe::Sender>,
        /// The program's standard output.
        stdout: OutputPipe,
    },
    /// One socket for both, which can be spliced with a client's.
    Socket(Stream),
    /// The same with connections in memory, in a simulation.
    Simulated {
        /// The program's standard input; `None` once it is closed.
        stdin: Option<Box<Stream>>,
        /// The program's standard output.
        stdout: OutputPipe,
    },
}

impl Channel {
    /// Takes both ends of a child that was started with pipes.
    ///
    /// # Errors
    /// Its output is not a pipe.
    pub fn of_pipes(child: &mut Child) -> io::Result<Self> {
        let stdout = child.stdout.take().ok_or(io::ErrorKind::InvalidInput)?;
        if let OutputPipe::Simulated(_) = stdout {
            return Ok(Self::Simulated { stdin: child.simulated_stdin.take(), stdout });
        }
        Ok(Self::Pipes { stdin: child.stdin.take(), stdout })
    }

    /// Makes a socket the input and output of a program that has not started yet.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn of_socket(program: &mut Program) -> io::Result<Self> {
        let (ours, theirs) = Pair::pair()?;
        ours.set_nonblocking(true)?;
        let output = OwnedFd::from(theirs.try_clone()?);
        program.stdin = ChildInput::Fd(theirs.into());
        program.stdout = ChildOutput::Fd(output);
        Ok(Self::Socket(Stream::from_unix(UnixStream::from_std(ours)?)))
    }

    /// Reads the program's output; 0 at its end.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipes { stdout, .. } | Self::Simulated { stdout, .. } => {
                stdout.poll_read(cx, buffer)
            }
            Self::Socket(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes to the program and returns the number of bytes accepted.
    ///
    /// # Errors
    /// `BrokenPipe` if it reads no more, or if the input was closed.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipes { stdin: Some(stdin), .. } => Pin::new(stdin).poll_write(cx, bytes),
            Self::Socket(stream) => poll_stream(stream, cx, bytes),
            Self::Simulated { stdin: Some(stdin), .. } => poll_stream(stdin, cx, bytes),
            Self::Pipes { stdin: None, .. } | Self::Simulated { stdin: None, .. } => {
                Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
            }
        }
    }

    /// Closes the program's input: it then reads the end of the file.
    pub fn close_input(&mut self) {
        match self {
            Self::Pipes { stdin, .. } => *stdin = None,
            Self::Simulated { stdin, .. } => *stdin = None,
            // If the program has ended, there is no input to close.
            Self::Socket(stream) => drop(stream.shutdown_write()),
        }
    }
}

/// Writes to a socket.
fn poll_stream(stream: &Stream, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        match stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(stream.poll_writable(cx))?;
            }
            written => return Poll::Ready(written),
        }
    }
}
