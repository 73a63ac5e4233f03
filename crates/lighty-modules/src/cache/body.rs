//! Bodies of stored responses that are not in memory: of a flight, which others read too, and of a
//! file that is compared with its checksums while it is sent.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::{Chunk, FileRange};
use lighty_cache::flight::{FlightBroken, FlightPiece, Passenger};
use lighty_cache::object::BodyCheck;
use lighty_cache::sums::BLOCK_BYTES;
use lighty_core::exchange::body::{BodyChunk, BodyStream};
use lighty_core::{Fault, FaultReport};
use lighty_io::file::{FileEngine, OpenFile, OwnedBuf};

/// The pieces of a flight, for one of its passengers.
pub(super) struct FlightReader {
    passenger: Passenger,
    /// The file with its first part, once a piece came from there.
    file: Option<Rc<OpenFile>>,
}

impl FlightReader {
    pub(super) fn new(passenger: Passenger) -> Self {
        Self { passenger, file: None }
    }

    /// The next piece; `None` at the end.
    pub(super) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<FlightChunk>> {
        Poll::Ready(match ready!(self.passenger.poll_piece(cx)) {
            Some(Ok(FlightPiece::Memory(piece))) => Some(Ok(Chunk::Memory(piece))),
            Some(Ok(FlightPiece::File { file, offset, length })) => {
                let own = self.file.get_or_insert_with(|| Rc::new(file.file.to_send()));
                Some(Ok(Chunk::File(FileRange { file: Rc::clone(own), offset, length })))
            }
            Some(Err(broken)) => Some(Err(broken)),
            None => None,
        })
    }
}

/// A part of the body of a flight.
pub(super) type FlightChunk = Result<Chunk<Rc<OpenFile>>, FlightBroken>;

/// Resolves when a client has gone.
pub(super) type ClientGone = Pin<Box<dyn Future<Output = Fault>>>;

/// The body of a flight.
pub(super) struct FlightBody {
    reader: FlightReader,
    length: Option<u64>,
    /// The passenger leaves with its client, although there is nothing to send.
    gone: ClientGone,
}

impl FlightBody {
    pub(super) fn new(passenger: Passenger, length: Option<u64>, gone: ClientGone) -> Self {
        Self { reader: FlightReader::new(passenger), length, gone }
    }
}

impl BodyStream for FlightBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        match self.reader.poll_chunk(cx) {
            Poll::Pending => self.gone.as_mut().poll(cx).map(|fault| Some(Err(fault.into()))),
            Poll::Ready(chunk) => {
                Poll::Ready(chunk.map(|chunk| chunk.map_err(|broken| cut(broken.to_string()))))
            }
        }
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }
}

pub(super) fn cut(why: String) -> FaultReport {
    FaultReport::new(Fault::BackendCut, why)
}

type BlockRead = Pin<Box<dyn Future<Output = std::io::Result<Vec<u8>>>>>;

/// A part of a body in a file that nothing has compared with its checksums yet.
pub(super) struct CheckedBody {
    pub(super) engine: FileEngine,
    pub(super) file: Rc<OpenFile>,
    pub(super) check: Arc<BodyCheck>,
    /// Offset of the body in the file, and its length.
    pub(super) offset: u64,
    pub(super) length: u64,
    /// The part: offsets in the body.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Number of the next block.
    block: u64,
    reading: Option<BlockRead>,
    /// Takes the body out of the store.
    on_damage: Option<Box<dyn FnOnce()>>,
}

impl CheckedBody {
    pub(super) fn new(
        engine: FileEngine,
        file: Rc<OpenFile>,
        check: Arc<BodyCheck>,
        (offset, length): (u64, u64),
        (start, end): (u64, u64),
        on_damage: Box<dyn FnOnce()>,
    ) -> Self {
        let (block, reading, on_damage) = (start / BLOCK_BYTES as u64, None, Some(on_damage));
        Self { engine, file, check, offset, length, start, end, block, reading, on_damage }
    }

    /// Begins to read a block.
    fn read(&self) -> BlockRead {
        let from = self.block * BLOCK_BYTES as u64;
        let bytes = (self.length - from).min(BLOCK_BYTES as u64) as usize;
        let (engine, file, offset) =
            (self.engine.clone(), Rc::clone(&self.file), self.offset + from);
        Box::pin(async move {
            let mut block = Vec::with_capacity(bytes);
            while block.len() < bytes {
                let buffer = OwnedBuf::Heap(vec![0; bytes - block.len()]);
                let at = offset + block.len() as u64;
                let (buffer, read) = engine.read(&file, at, buffer).await;
                match read? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => block.extend_from_slice(&buffer[..read]),
                }
            }
            Ok(block)
        })
    }

    fn damaged(&mut self, why: String) -> BodyChunk {
        if let Some(on_damage) = self.on_damage.take() {
            on_damage();
        }
        Err(cut(why))
    }
}

impl BodyStream for CheckedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let from = self.block * BLOCK_BYTES as u64;
        if from >= self.end {
            return Poll::Ready(None);
        }
        let read = match &mut self.reading {
            Some(reading) => reading,
            None => {
                let begun = self.read();
                self.reading.insert(begun)
            }
        };
        let block = ready!(read.as_mut().poll(cx));
        self.reading = None;
        let block = match block {
            Ok(block) if self.check.proves(self.block, &block) => block,
            Ok(_) => return Poll::Ready(Some(self.damaged("a stored body is damaged".to_owned()))),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Poll::Ready(Some(self.damaged(error.to_string())));
            }
            Err(error) => return Poll::Ready(Some(Err(cut(error.to_string())))),
        };
        self.block += 1;
        if self.start == 0 && self.block * BLOCK_BYTES as u64 >= self.length {
            self.check.finish();
        }
        // Within the block: its length is a `usize`.
        let first = self.start.saturating_sub(from) as usize;
        let last = (self.end - from).min(block.len() as u64) as usize;
        Poll::Ready(Some(Ok(Chunk::Memory(Bytes::from(block).slice(first..last)))))
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        Some(self.end - self.start)
    }
}
