//! A connection's life: idle without a buffer, busy with one, closed.
//!
//! `h1` is the loop over requests, `proxy_header` what may come before them, `input` reads heads and
//! bodies, `answer` frames and sends, `meanwhile` takes what comes in while it does.

pub(crate) mod answer;
pub(crate) mod h1;
pub(crate) mod input;
mod meanwhile;
pub(crate) mod proxy_header;

use std::cell::RefCell;
use std::rc::Rc;

use lighty_buf::ChunkQueue;
use lighty_core::Exchange;
use lighty_io::file::OpenFile;
use lighty_wire::http1::RequestHead;

/// Everything that a connection needs while it is busy. Pooled per worker: an idle connection
/// holds none of it.
pub struct H1Exchange {
    /// Reads from the client; shared with the request body that a handler reads.
    pub input: Rc<RefCell<input::Input>>,
    /// The parsed head, before it becomes a request.
    pub head: RequestHead,
    /// The request and its answer.
    pub exchange: Exchange,
    /// Bytes of the answer's head, and of small bodies behind it.
    pub out: Vec<u8>,
    /// What could not be sent at once.
    pub queue: ChunkQueue<Rc<OpenFile>>,
}
