//! A connection in memory that behaves like TCP: half-closes, resets, bounded buffers.
//!
//! For simulations, and for parts of one worker that communicate over connections. Both ends are on
//! one thread. A write reaches the other end immediately, up to the free space of its buffer. A
//! reset discards bytes that the other end has not read yet, which a real reset may or may not do.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;

use super::{Idle, PeerClose, ShutdownHow};

/// Creates a connection between two addresses. Each end buffers up to `room_bytes` unread bytes.
pub fn pair(one: SocketAddr, other: SocketAddr, room_bytes: usize) -> (MemoryEnd, MemoryEnd) {
    let line = Rc::new(RefCell::new(Line {
        towards: [Pipe::default(), Pipe::default()],
        addresses: [one, other],
        room_bytes: room_bytes.max(1),
        is_open: [true, true],
    }));
    (MemoryEnd { line: Rc::clone(&line), side: 0 }, MemoryEnd { line, side: 1 })
}

/// One end of a connection in memory. Dropping it closes the connection, by a reset if bytes are
/// unread, as TCP does.
pub struct MemoryEnd {
    line: Rc<RefCell<Line>>,
    side: usize,
}

/// Shuts a connection in memory down from outside.
#[derive(Clone)]
pub(super) struct MemoryShutdown {
    line: std::rc::Weak<RefCell<Line>>,
    side: usize,
}

struct Line {
    /// Bytes in flight to each side.
    towards: [Pipe; 2],
    addresses: [SocketAddr; 2],
    room_bytes: usize,
    is_open: [bool; 2],
}

/// One direction, as seen by its reader.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    /// The writer has shut its side.
    is_ended: bool,
    /// The reader has shut its side.
    is_shut: bool,
    /// The writer has reset the connection.
    is_reset: bool,
    /// Bytes that arrived after the reader was dropped.
    lost_bytes: u64,
    readers: Vec<Waker>,
    writers: Vec<Waker>,
}

impl Pipe {
    fn wake_readers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.readers)
    }

    fn has_news(&self) -> bool {
        !self.bytes.is_empty() || self.is_ended || self.is_shut || self.is_reset
    }
}

fn note(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|known| known.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

impl Line {
    /// Takes the wakers of all tasks waiting at either end.
    fn everyone(&mut self) -> Vec<Waker> {
        let pipes = self.towards.iter_mut();
        pipes.flat_map(|pipe| pipe.readers.drain(..).chain(pipe.writers.drain(..))).collect()
    }

    /// Resets the connection from one side: bytes in flight are discarded.
    fn reset_by(&mut self, side: usize) {
        let there = &mut self.towards[1 - side];
        there.is_reset = true;
        there.bytes.clear();
        self.towards[side].bytes.clear();
    }
}

impl MemoryEnd {
    /// True once the peer has reset the connection.
    pub fn is_reset(&self) -> bool {
        self.line.borrow().towards[self.side].is_reset
    }

    /// True once nothing more can arrive: the peer's end of stream or reset.
    pub fn is_ended(&self) -> bool {
        let line = self.line.borrow();
        line.towards[self.side].is_ended || line.towards[self.side].is_reset
    }

    /// Resets the connection at once; closing it later changes nothing.
    pub fn reset(&self) {
        let woken = {
            let mut line = self.line.borrow_mut();
            line.reset_by(self.side);
            line.towards[1 - self.side].is_ended = true;
            line.everyone()
        };
        wake(woken);
    }

    /// Resets the connection behind the bytes that the peer has not read yet.
    pub fn reset_behind_bytes(&self) {
        let woken = {
            let mut line = self.line.borrow_mut();
            line.towards[1 - self.side].is_reset = true;
            line.everyone()
        };
        wake(woken);
    }

    /// Reads received bytes; 0 at the end.
    ///
    /// # Errors
    /// `ConnectionReset`.
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut line = self.line.borrow_mut();
        let pipe = &mut line.towards[self.side];
        if pipe.bytes.is_empty() {
            return match () {
                () if pipe.is_reset => Poll::Ready(Err(Errno::CONNRESET.into())),
                () if pipe.is_ended || pipe.is_shut => Poll::Ready(Ok(0)),
                () => {
                    note(&mut pipe.readers, cx);
                    Poll::Pending
                }
            };
        }
        let count = buffer.len().min(pipe.bytes.len());
        let (front, back) = pipe.bytes.as_slices();
        let at_front = count.min(front.len());
        buffer[..at_front].copy_from_slice(&front[..at_front]);
        buffer[at_front..count].copy_from_slice(&back[..count - at_front]);
        pipe.bytes.drain(..count);
        let writers = std::mem::take(&mut pipe.writers);
        drop(line);
        wake(writers);
        Poll::Ready(Ok(count))
    }

    /// [`poll_read`](Self::poll_read) as a future.
    ///
    /// # Errors
    /// `ConnectionReset`.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes as many bytes as there is space for.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, `BrokenPipe` or `ConnectionReset` if the connection is over.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let readers = {
            let mut line = self.line.borrow_mut();
            self.writable_now(&line)?;
            let (room, is_open) = (line.room_bytes, line.is_open[1 - self.side]);
            let pipe = &mut line.towards[1 - self.side];
            if !is_open {
                // Accepted here and discarded there, with a reset as the reply.
                pipe.lost_bytes += bytes.len() as u64;
                line.towards[self.side].is_reset = true;
                let woken = line.everyone();
                drop(line);
                wake(woken);
                return Ok(bytes.len());
            }
            let count = bytes.len().min(room.saturating_sub(pipe.bytes.len()));
            if count == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            pipe.bytes.extend(&bytes[..count]);
            (pipe.wake_readers(), count)
        };
        wake(readers.0);
        Ok(readers.1)
    }

    /// Writes all bytes.
    ///
    /// # Errors
    /// As for [`try_write`](Self::try_write), except `WouldBlock`.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| self.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn writable_now(&self, line: &Line) -> io::Result<()> {
        let (there, here) = (&line.towards[1 - self.side], &line.towards[self.side]);
        if there.is_ended {
            return Err(Errno::PIPE.into());
        }
        if here.is_reset {
            return Err(Errno::CONNRESET.into());
        }
        Ok(())
    }

    /// Waits for bytes, the end or an error.
    ///
    /// # Errors
    /// None.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.line.borrow_mut();
        let pipe = &mut line.towards[self.side];
        if pipe.has_news() {
            return Poll::Ready(Ok(()));
        }
        note(&mut pipe.readers, cx);
        Poll::Pending
    }

    /// Waits for free space, or for an error that a write would report.
    ///
    /// # Errors
    /// None.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut line = self.line.borrow_mut();
        let room_bytes = line.room_bytes;
        let is_over = self.writable_now(&line).is_err() || !line.is_open[1 - self.side];
        let pipe = &mut line.towards[1 - self.side];
        if is_over || pipe.bytes.len() < room_bytes {
            return Poll::Ready(Ok(()));
        }
        note(&mut pipe.writers, cx);
        Poll::Pending
    }

    /// Ends this end's stream.
    ///
    /// # Errors
    /// `NotConnected` after a reset.
    pub fn shutdown_write(&self) -> io::Result<()> {
        let woken = {
            let mut line = self.line.borrow_mut();
            if line.towards[self.side].is_reset {
                return Err(Errno::NOTCONN.into());
            }
            line.towards[1 - self.side].is_ended = true;
            line.everyone()
        };
        wake(woken);
        Ok(())
    }

    /// See [`Stream::probe`](super::Stream::probe).
    pub(super) fn probe(&self) -> Idle {
        let line = self.line.borrow();
        let pipe = &line.towards[self.side];
        match (pipe.bytes.is_empty(), pipe.has_news()) {
            (false, _) => Idle::Unsolicited,
            (true, true) => Idle::Closed,
            (true, false) => Idle::Quiet,
        }
    }

    /// See [`Stream::peer_close`](super::Stream::peer_close).
    pub(super) fn poll_peer_close(&self, cx: &mut Context<'_>) -> Poll<PeerClose> {
        let mut line = self.line.borrow_mut();
        let is_ended_by_us = line.towards[1 - self.side].is_ended;
        let pipe = &mut line.towards[self.side];
        if pipe.is_reset || ((pipe.is_ended || pipe.is_shut) && is_ended_by_us) {
            return Poll::Ready(PeerClose::Full);
        }
        if pipe.is_ended || pipe.is_shut {
            return Poll::Ready(PeerClose::Half);
        }
        note(&mut pipe.readers, cx);
        Poll::Pending
    }

    /// See [`Stream::reset`](super::Stream::reset).
    pub(super) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut line = self.line.borrow_mut();
        let pipe = &mut line.towards[self.side];
        if pipe.is_reset {
            return Poll::Ready(());
        }
        note(&mut pipe.readers, cx);
        Poll::Pending
    }

    /// Bytes written after the reader was dropped.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.line.borrow().towards[1 - self.side].lost_bytes
    }

    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        let line = self.line.borrow();
        if line.towards[self.side].is_reset {
            return Err(Errno::NOTCONN.into());
        }
        Ok(line.addresses[1 - self.side])
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.line.borrow().addresses[self.side]
    }

    pub(super) fn shutdown_handle(&self) -> MemoryShutdown {
        MemoryShutdown { line: Rc::downgrade(&self.line), side: self.side }
    }
}

impl MemoryShutdown {
    pub(super) fn has_unread(&self) -> bool {
        let line = self.line.upgrade();
        line.is_some_and(|line| !line.borrow().towards[self.side].bytes.is_empty())
    }

    pub(super) fn shut_down(&self, how: ShutdownHow) -> bool {
        let Some(line) = self.line.upgrade() else { return false };
        let woken = {
            let mut line = line.borrow_mut();
            if !line.is_open[self.side] {
                return false;
            }
            line.towards[self.side].is_shut = true;
            if how == ShutdownHow::Both {
                line.towards[1 - self.side].is_ended = true;
            }
            line.everyone()
        };
        wake(woken);
        true
    }
}

impl Drop for MemoryEnd {
    fn drop(&mut self) {
        let woken = {
            let mut line = self.line.borrow_mut();
            line.is_open[self.side] = false;
            if !line.towards[self.side].bytes.is_empty() {
                line.reset_by(self.side);
            }
            line.towards[1 - self.side].is_ended = true;
            line.everyone()
        };
        wake(woken);
    }
}

impl fmt::Debug for MemoryEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local();
        f.debug_struct("MemoryEnd").field("local", &local).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryShutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryShutdown").field("side", &self.side).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
