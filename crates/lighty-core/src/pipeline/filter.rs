//! Filters: stages between a response's source and the client.
//!
//! A filter transforms chunks and knows neither neighbour: it pulls from a [`Source`] and is pulled
//! by the sender. Backpressure follows from pulling: while the client does not read, nothing is
//! produced. An unfiltered body is untouched: a file range reaches the network backend as is.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange};
use lighty_http::Fields;
use lighty_io::file::{FileEngine, OpenFile, OwnedBuf};

use crate::exchange::body::{Body, BodyChunk, BodyStream};
use crate::fault::{Fault, FaultReport};

type File = Rc<OpenFile>;

/// A stage between a response's source and the client.
pub trait Filter {
    /// The next output chunk, made from the chunks of `source`; `None` at the end. A fault
    /// truncates the response.
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>>;

    /// True if output and input have the same length.
    fn keeps_length(&self) -> bool {
        false
    }

    /// True if the filter inspects or changes bytes. Other filters receive file ranges unchanged.
    fn needs_bytes(&self) -> bool;
}

/// Input of a filter: the handler's body, or the previous filter.
pub struct Source {
    stream: Box<dyn BodyStream>,
    engine: FileEngine,
    /// A partly read file range.
    range: Option<FileRange<File>>,
    reading: Option<FileReading>,
    bytes_only: bool,
    /// Bytes still expected, if the source announced a length.
    owed: Option<u64>,
    /// File ranges since other connections had their turn, and the wait for it.
    ranges: u32,
    turn: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

type FileReading = Pin<Box<dyn Future<Output = (OwnedBuf, io::Result<usize>)>>>;

/// Maximum bytes read from a file at once.
pub const FILE_PIECE_BYTES: u64 = 64 * 1024;

/// File ranges that are read before other connections have their turn: of many small files, reading
/// takes longer than the filter.
const RANGES_PER_TURN: u32 = 64;

impl Body {
    /// The body as seen through a filter.
    #[must_use]
    pub fn filtered(self, filter: Box<dyn Filter>, engine: &FileEngine) -> Body {
        let stream = self.into_stream();
        let source = Source {
            owed: stream.known_length(),
            stream,
            engine: engine.clone(),
            range: None,
            reading: None,
            bytes_only: filter.needs_bytes(),
            ranges: 0,
            turn: None,
        };
        Body::Stream(Box::new(Filtered { filter, source }))
    }

    /// Turns any body into a source of chunks.
    pub fn into_stream(self) -> Box<dyn BodyStream> {
        let mut queue = ChunkQueue::new();
        match self {
            Body::Empty => {}
            Body::Memory(bytes) => queue.push_bytes(bytes),
            Body::Cached(entry) => queue.push_bytes(entry.small().cloned().unwrap_or_default()),
            Body::File { file, offset, length } => {
                queue.push_file(FileRange { file, offset, length });
            }
            Body::Chunks(chunks) => queue = chunks,
            Body::Stream(stream) => return stream,
        }
        Box::new(Pieces(queue))
    }
}

/// A ready body, chunk by chunk.
struct Pieces(ChunkQueue<File>);

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        Some(self.0.len_bytes())
    }
}

impl Source {
    /// The next chunk. For a filter that needs bytes, it is in memory: file ranges are read in
    /// pieces of [`FILE_PIECE_BYTES`], immediately if they are in the page cache and off the event
    /// loop otherwise.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        ready!(self.poll_turn(cx));
        if let Some(bytes) = ready!(self.poll_file(cx)) {
            return Poll::Ready(Some(bytes.map(Chunk::Memory)));
        }
        match ready!(self.stream.poll_next(cx)) {
            None if self.owed.is_some_and(|owed| owed > 0) => {
                Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
            }
            Some(Ok(chunk)) => {
                if let Err(error) = self.count(chunk.len()) {
                    return Poll::Ready(Some(Err(error)));
                }
                match chunk {
                    Chunk::File(range) if self.bytes_only => {
                        let left = self.range.as_ref().map_or(0, |range| range.length);
                        debug_assert_eq!(left, 0, "the last range is not read");
                        self.range = Some(range);
                        self.ranges += 1;
                        self.poll_chunk(cx)
                    }
                    chunk => Poll::Ready(Some(Ok(chunk))),
                }
            }
            end => Poll::Ready(end),
        }
    }

    /// Yields after [`RANGES_PER_TURN`]. Waking the own task would not do: the loop may run it many
    /// times before it polls sockets again.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ranges >= RANGES_PER_TURN {
            let turn = self.turn.get_or_insert_with(|| Box::pin(tokio::task::yield_now()));
            ready!(turn.as_mut().poll(cx));
            (self.turn, self.ranges) = (None, 0);
        }
        Poll::Ready(())
    }

    /// The next piece in memory, for filters that need bytes.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        self.bytes_only = true;
        let chunk = ready!(self.poll_chunk(cx));
        Poll::Ready(chunk.map(|chunk| match chunk? {
            Chunk::Memory(bytes) => Ok(bytes),
            Chunk::File(_) => {
                Err(FaultReport::new(Fault::Internal, "a file range where bytes were asked for"))
            }
        }))
    }

    /// Checks the announced length. After a filter, a mismatch would go unnoticed.
    fn count(&mut self, bytes: u64) -> Result<(), FaultReport> {
        if let Some(owed) = &mut self.owed {
            *owed = owed.checked_sub(bytes).ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(())
    }

    /// The next piece of the current file range; `None` if there is none.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        let Some(range) = self.range.clone().filter(|range| range.length > 0) else {
            return Poll::Ready(None);
        };
        if self.reading.is_none() {
            let mut piece = vec![0; range.length.min(FILE_PIECE_BYTES) as usize];
            if let Some(done) = self.engine.try_read(&range.file, range.offset, &mut piece) {
                return Poll::Ready(Some(self.took(piece, done)));
            }
            let engine = self.engine.clone();
            self.reading = Some(Box::pin(async move {
                engine.read(&range.file, range.offset, OwnedBuf::Heap(piece)).await
            }));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let (buf, done) = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let piece = match buf {
            OwnedBuf::Heap(piece) => piece,
            OwnedBuf::Pooled(buf) => buf.to_vec(),
        };
        Poll::Ready(Some(self.took(piece, done)))
    }

    /// Advances the file range by the piece that was read.
    fn took(&mut self, mut piece: Vec<u8>, done: io::Result<usize>) -> Result<Bytes, FaultReport> {
        let count = done?;
        // The file has shrunk since its length was announced.
        let range = self.range.as_mut().filter(|_| count > 0);
        let range = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        debug_assert!(count as u64 <= range.length, "{count} of {}", range.length);
        range.offset += count as u64;
        range.length = range.length.saturating_sub(count as u64);
        piece.truncate(count);
        Ok(Bytes::from(piece))
    }
}

/// A source and the filter that pulls from it.
struct Filtered {
    filter: Box<dyn Filter>,
    source: Source,
}

impl BodyStream for Filtered {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        self.filter.poll_next(&mut self.source, cx)
    }

    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        self.source.stream.poll_meanwhile(cx)
    }

    fn known_length(&self) -> Option<u64> {
        self.source.stream.known_length().filter(|_| self.filter.keeps_length())
    }

    fn trailers(&self) -> Option<&Fields> {
        self.source.stream.trailers()
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
