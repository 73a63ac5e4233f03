//! A program's input and output, as its caller has them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pair;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Child, Input, Output, Program};
use crate::transport::Stream;

/// Our end of a program's standard input and output.
#[derive(Debug)]
pub enum Channel {
    /// Two pipes, as programs expect; the input may be closed already.
    Pipes {
        /// Where the program reads from; `None` once it is closed.
        stdin: Option<pipe::Sender>,
        /// Where the program writes to.
        stdout: pipe::Receiver,
    },
    /// One socket for both, which can be joined with a client's.
    Socket(Stream),
}

impl Channel {
    /// Takes both ends of a child that was started with pipes.
    ///
    /// # Errors
    /// When its output is no pipe.
    pub fn of_pipes(child: &mut Child) -> io::Result<Self> {
        let stdout = child.stdout.take().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self::Pipes { stdin: child.stdin.take(), stdout })
    }

    /// Makes a socket the input and output of a program that is yet to be started.
    ///
    /// # Errors
    /// When descriptors have run out.
    pub fn of_socket(program: &mut Program) -> io::Result<Self> {
        let (ours, theirs) = Pair::pair()?;
        ours.set_nonblocking(true)?;
        let output = OwnedFd::from(theirs.try_clone()?);
        program.stdin = Input::Fd(theirs.into());
        program.stdout = Output::Fd(output);
        Ok(Self::Socket(Stream::from_unix(UnixStream::from_std(ours)?)))
    }

    /// Reads what the program has written; 0 at its end.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipes { stdout, .. } => {
                let mut target = ReadBuf::new(buffer);
                ready!(Pin::new(stdout).poll_read(cx, &mut target))?;
                Poll::Ready(Ok(target.filled().len()))
            }
            Self::Socket(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// Writes to the program; how much it took.
    ///
    /// # Errors
    /// `BrokenPipe` when it reads no more, or nothing more was to come.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Pipes { stdin: Some(stdin), .. } => Pin::new(stdin).poll_write(cx, bytes),
            Self::Pipes { stdin: None, .. } => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Self::Socket(stream) => loop {
                match stream.try_write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(stream.poll_writable(cx))?;
                    }
                    written => return Poll::Ready(written),
                }
            },
        }
    }

    /// Nothing more will be written: the program reads the end of its input.
    pub fn close_input(&mut self) {
        match self {
            Self::Pipes { stdin, .. } => *stdin = None,
            // A program that has ended has no input to be closed.
            Self::Socket(stream) => drop(stream.shutdown_write()),
        }
    }
}
