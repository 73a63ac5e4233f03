//! Buffers and state of the request that an HTTP/1 connection serves.

use std::cell::RefCell;
use std::rc::Rc;

use lighty_buf::ChunkQueue;
use lighty_core::Exchange;
use lighty_core::settings::limits;
use lighty_io::clock::Clock;
use lighty_io::file::OpenFile;
use lighty_wire::http1::RequestHead;

use super::input::{Input, InputMemory};

/// An exchange with the buffers that HTTP/1 needs for it. Pooled per worker: an idle connection
/// holds none of it.
pub(crate) struct H1Exchange {
    pub(crate) exchange: Exchange,
    pub(super) io: H1Io,
}

/// The buffers of an exchange, and the framing of its message.
pub(crate) struct H1Io {
    /// Reads from the client; shared with the request body that a handler reads.
    pub(super) input: Rc<RefCell<Input>>,
    /// The parsed head, before it becomes a request.
    pub(super) head: RequestHead,
    /// The response head, followed by a small body.
    pub(super) out: Vec<u8>,
    /// The part of the response that the socket has not accepted yet.
    pub(in crate::conn) queue: ChunkQueue<Rc<OpenFile>>,
    /// Framing of the response's body.
    pub(super) framing: Framing,
    /// True if the connection stays open after the response.
    pub(super) keeps_open: bool,
}

/// Ways to mark the end of a response's body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length,
    Chunked,
    Close,
}

impl H1Exchange {
    /// Creates an exchange for any connection of the worker with this clock and memory for
    /// input.
    pub(crate) fn new(mut exchange: Exchange, clock: Clock, memory: InputMemory) -> Self {
        let input = Rc::new(RefCell::new(Input::new(clock, memory)));
        exchange.client = Some(Rc::clone(&input) as _);
        let io = H1Io {
            input,
            head: RequestHead::default(),
            out: Vec::with_capacity(1024),
            queue: ChunkQueue::default(),
            framing: Framing::None,
            keeps_open: false,
        };
        Self { exchange, io }
    }

    /// Frees buffers that are larger than a pooled exchange may keep.
    pub(crate) fn trim(&mut self) {
        debug_assert!(self.io.queue.is_empty(), "{} bytes are left", self.io.queue.len_bytes());
        if self.io.out.capacity() > limits::KEPT_BUFFER_BYTES_MAX {
            self.io.out = Vec::new();
        }
    }
}
