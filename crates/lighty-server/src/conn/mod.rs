//! A connection's life: idle without a buffer, busy with one, closed.
//!
//! `h1` is the request loop. `proxy_header` reads a PROXY header before the first request. `input`
//! reads heads and bodies. `answer` frames and sends responses. `meanwhile` reads the request body
//! while a response is being sent.

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

/// Everything a busy connection needs. Pooled per worker: an idle connection holds none of it.
pub struct H1Exchange {
    /// Reads from the client; shared with the request body that a handler reads.
    pub input: Rc<RefCell<input::Input>>,
    /// The parsed head, before it becomes a request.
    pub head: RequestHead,
    /// The request and its response.
    pub exchange: Exchange,
    /// The response head, followed by a small body.
    pub out: Vec<u8>,
    /// What the socket did not accept immediately.
    pub queue: ChunkQueue<Rc<OpenFile>>,
}
