//! Receives a request body completely before a backend or a program gets the request.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use lighty_http::incremental;
use lighty_io::file::{FileEngine, OwnedBuf};
use lighty_io::spool::Spool;
use lighty_io::threads::pool::ThreadPool;

use crate::exchange::span::Span;
use crate::pipeline::read_ahead::{MEMORY_BYTES_MAX, options};
use crate::settings::StreamBody;
use crate::{BodyFault, BodySource, Exchange, Fault, FaultReport, RequestBody};

/// Write size in bytes.
const WRITE_BYTES: usize = 256 * 1024;

/// Read size in bytes.
const READ_BYTES: u64 = 64 * 1024;

/// Reason why a body could not be received.
#[derive(Debug)]
enum StoreFault {
    /// The client did not send it completely.
    Body(BodyFault),
    /// It does not fit on the disk.
    Disk(String),
}

impl From<StoreFault> for FaultReport {
    fn from(fault: StoreFault) -> Self {
        match fault {
            StoreFault::Body(BodyFault::Malformed(message)) => {
                FaultReport::new(Fault::of_body(BodyFault::Malformed(message)), message)
            }
            StoreFault::Body(fault) => FaultReport::new(Fault::of_body(fault), "request body"),
            StoreFault::Disk(message) => FaultReport::new(Fault::SpoolFull, message),
        }
    }
}

/// True if the body must be received first: because the configuration requires it, or because the
/// protocol needs the length up front and the client did not send one (`announced`).
pub fn is_needed(
    ex: &Exchange,
    announced: Option<u64>,
    stream: StreamBody,
    is_length_needed: bool,
) -> bool {
    let spools = stream == StreamBody::Spool && !incremental::is_requested(&ex.request.fields);
    spools || (announced.is_none() && is_length_needed)
}

/// A complete body, which can be sent repeatedly.
pub struct StoredBody {
    memory: Vec<Bytes>,
    /// Number of pieces of the memory already handed out.
    at: usize,
    disk: Spool,
    engine: FileEngine,
    reading: Option<ContentReading>,
}

type ContentReading = Pin<Box<dyn Future<Output = io::Result<Bytes>>>>;

impl StoredBody {
    /// Receives a whole request body. Its length is limited by `server.max-request-size` and by the
    /// disk.
    ///
    /// # Errors
    /// The client's fault, or a full disk.
    pub async fn receive(ex: &mut Exchange, body: &mut RequestBody) -> Result<Self, FaultReport> {
        let before = ex.begin_span(Span::RequestBody);
        let stored = Self::store(ex, body).await;
        ex.begin_span(before);
        stored.map_err(FaultReport::from)
    }

    async fn store(ex: &Exchange, body: &mut RequestBody) -> Result<Self, StoreFault> {
        let pool = ThreadPool::global().clone();
        let mut stored = Self {
            memory: Vec::new(),
            at: 0,
            disk: Spool::new(options(&ex.settings, u64::MAX), pool),
            engine: ex.machine.engine.clone(),
            reading: None,
        };
        let mut held_bytes = 0;
        let mut unwritten = BytesMut::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(StoreFault::Body)?;
            if held_bytes + piece.len() <= MEMORY_BYTES_MAX && unwritten.is_empty() {
                held_bytes += piece.len();
                stored.memory.push(piece);
                continue;
            }
            held_bytes = MEMORY_BYTES_MAX;
            unwritten.extend_from_slice(&piece);
            if unwritten.len() >= WRITE_BYTES {
                stored.write(unwritten.split().freeze()).await?;
            }
        }
        stored.write(unwritten.freeze()).await?;
        Ok(stored)
    }

    async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreFault> {
        let written = self.disk.append(&mut bytes).await;
        written.map_err(|error| StoreFault::Disk(error.to_string()))
    }

    /// Length of the body in bytes.
    pub fn length(&self) -> u64 {
        let in_memory: usize = self.memory.iter().map(Bytes::len).sum();
        in_memory as u64 + self.disk.written_bytes()
    }

    /// Rewinds to the first byte.
    pub fn rewind(&mut self) {
        self.at = 0;
        self.reading = None;
        // Written data is never released before the body is dropped.
        let is_whole = self.disk.rewind();
        debug_assert!(is_whole, "a part was released");
    }

    /// The body for a handler that reads it once.
    pub fn into_body(self) -> RequestBody {
        Self::as_body(&Rc::new(RefCell::new(self)))
    }

    /// The body for a handler, from its current position.
    pub fn as_body(stored: &Rc<RefCell<Self>>) -> RequestBody {
        debug_assert_eq!(stored.borrow().at, 0, "the length is that of the whole");
        let length = stored.borrow().length();
        RequestBody::incoming(Rc::clone(stored) as Rc<RefCell<dyn BodySource>>, Some(length))
    }

    fn begin_reading(&mut self) -> Option<ContentReading> {
        let range = self.disk.take(READ_BYTES)?;
        let engine = self.engine.clone();
        Some(Box::pin(async move {
            let length = usize::try_from(range.length).unwrap_or(usize::MAX);
            let buffer = OwnedBuf::zeroed(length);
            let (buffer, read) = engine.read(&range.file, range.offset, buffer).await;
            match (buffer, read?) {
                (OwnedBuf::Heap(bytes), count) if count == length => Ok(Bytes::from(bytes)),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }))
    }
}

impl BodySource for StoredBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if let Some(piece) = self.memory.get(self.at) {
            self.at += 1;
            return Poll::Ready(Some(Ok(piece.clone())));
        }
        if self.reading.is_none() {
            self.reading = self.begin_reading();
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        Poll::Ready(Some(read.map_err(|_| BodyFault::Lost)))
    }
}
