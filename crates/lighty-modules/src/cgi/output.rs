//! What a program says, on its way to the client.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lighty_buf::{BufPool, Chunk};
use lighty_core::{BodyStream, Fault, Tunnel};
use lighty_io::clock::Clock;
use lighty_io::file::OpenFile;
use lighty_io::transport::{KickHow, Stream, TunnelMeter};

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

/// How often a tunnel is looked at, in milliseconds: it may be idle for so much longer.
const LOOK_MS: u64 = 1_000;

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
            let meter = TunnelMeter::default();
            meter.active_ms.set(self.clock.mono_ms());
            let buffers = BufPool::new(TUNNEL_BUFFER_BYTES, TUNNEL_BUFFERS);
            let ends = lighty_io::transport::Tunnel {
                near: &client,
                far: &self.program,
                early_near: early,
                early_far: self.early,
            };
            tokio::select! {
                // A tunnel that broke was open: there is nobody to tell.
                _ = ends.run(&buffers, &self.clock, &meter) => self.keeper.release(),
                () = idle(&meter, &self.clock, self.idle_ms) => {
                    client.kick_handle().kick(KickHow::Both);
                }
            }
            Ok(meter.to_near_bytes.get())
        })
    }
}

/// Ends when nothing moved for the limit.
async fn idle(meter: &TunnelMeter, clock: &Clock, idle_ms: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        let idle_for_ms = clock.mono_ms().saturating_sub(meter.active_ms.get());
        if idle_ms > 0 && idle_for_ms >= idle_ms {
            return;
        }
    }
}
