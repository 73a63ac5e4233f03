//! What a program says, on its way to the client.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::{BufPool, Chunk};
use lighty_core::{BodyStream, Fault, Tunnel};
use lighty_io::clock::Clock;
use lighty_io::file::OpenFile;
use lighty_io::transport::Stream;

use super::keeper::Keeper;
use super::talk::{Talk, Trouble};

/// The body of a program's answer.
pub(super) struct Output {
    talk: Talk,
    /// Bytes still to come, where the program said how many.
    left: Option<u64>,
    length: Option<u64>,
    fault: Option<(Fault, Cow<'static, str>)>,
    ended: bool,
}

impl Output {
    pub(super) fn new(mut talk: Talk, length: Option<u64>) -> Self {
        talk.begin_body();
        Self { talk, left: length, length, fault: None, ended: false }
    }

    /// What was read, up to the announced length; what a program writes beyond it is dropped.
    fn take(&mut self) -> Option<Bytes> {
        let mut bytes = self.talk.take_pending();
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
        }
        (!bytes.is_empty()).then_some(bytes)
    }

    fn end(&mut self) {
        self.ended = true;
        self.talk.complete();
    }

    fn broke(&mut self, trouble: &Trouble) -> io::Error {
        self.ended = true;
        let kind = match trouble {
            Trouble::Gone(_) => io::ErrorKind::BrokenPipe,
            _ => {
                self.fault = Some((trouble.fault(), trouble.to_string().into()));
                io::ErrorKind::UnexpectedEof
            }
        };
        io::Error::new(kind, trouble.to_string())
    }

    fn cut(&mut self) -> io::Error {
        self.end();
        let words = "the program ended before its Content-Length was reached";
        self.fault = Some((Fault::BackendCut, words.into()));
        io::Error::new(io::ErrorKind::UnexpectedEof, words)
    }
}

impl BodyStream for Output {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Chunk<Rc<OpenFile>>>>> {
        loop {
            if let Some(bytes) = self.take() {
                return Poll::Ready(Some(Ok(Chunk::Memory(bytes))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            // The rest of its output, and its end, are waited for all the same.
            match ready!(self.talk.poll_more(cx)) {
                Ok(0) if self.left.is_some_and(|left| left > 0) => {
                    return Poll::Ready(Some(Err(self.cut())));
                }
                Ok(0) => self.end(),
                Ok(_) => {}
                Err(trouble) => return Poll::Ready(Some(Err(self.broke(&trouble)))),
            }
        }
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }

    fn fault(&self) -> Option<(Fault, String)> {
        let (fault, words) = self.fault.as_ref()?;
        Some((*fault, words.to_string()))
    }
}

/// A client and a program that speak with one another.
pub(super) struct Joined {
    program: Stream,
    early: Bytes,
    keeper: Keeper,
    idle_ms: u64,
    clock: Clock,
}

/// Bytes and number of the buffers of one tunnel: one for each direction.
const TUNNEL_BUFFER_BYTES: usize = 16 * 1024;
const TUNNEL_BUFFERS: usize = 2;

impl Joined {
    pub(super) fn new(
        program: Stream,
        early: Bytes,
        keeper: Keeper,
        idle_ms: u64,
        clock: Clock,
    ) -> Self {
        Self { program, early, keeper, idle_ms, clock }
    }
}

impl Tunnel for Joined {
    fn run(
        self: Box<Self>,
        client: Rc<Stream>,
        early: Bytes,
    ) -> Pin<Box<dyn Future<Output = io::Result<u64>>>> {
        Box::pin(async move {
            let buffers = BufPool::new(TUNNEL_BUFFER_BYTES, TUNNEL_BUFFERS);
            let ends = lighty_io::transport::Tunnel {
                near: &client,
                far: &self.program,
                early_near: early,
                early_far: self.early,
            };
            let end = ends.run_while_active(&buffers, &self.clock, self.idle_ms).await;
            if !end.was_idle {
                self.keeper.release();
            }
            Ok(end.to_near_bytes)
        })
    }
}
