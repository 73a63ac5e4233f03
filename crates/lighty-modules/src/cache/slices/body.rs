//! A body that is put together from slices. The next slice is opened while one is sent, and none
//! further ahead. A client that stops reading keeps the memory of one slice at most: the next one
//! is left to the store, and is opened again if it has left that.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use lighty_buf::Chunk;
use lighty_cache::flight::FlightBroken;
use lighty_cache::store::SliceVersion;
use lighty_core::FaultReport;
use lighty_core::exchange::body::{BodyChunk, BodyStream};
use lighty_http::range::ByteRange;
use lighty_io::file::OpenFile;

use super::super::answer::{OpenContent, WholeContent};
use super::super::body::{ClientGone, FlightReader, cut};
use super::super::outcome::CacheWord;
use super::source::{OpenSlice, ReleasedSlice, SliceContent, SliceFault, SliceSource};

type SliceChunk = Chunk<Rc<OpenFile>>;
type Opening = Pin<Box<dyn Future<Output = Result<OpenSlice, SliceFault>>>>;

/// The slice behind the one that is sent.
enum NextSlice {
    Opening(Opening),
    Open(Result<OpenSlice, SliceFault>),
    Released(ReleasedSlice),
}

/// The rest of a slice.
enum SlicePart {
    Stored(Box<dyn BodyStream>),
    Arriving {
        reader: FlightReader,
        /// Bytes in front of the part.
        skipped: u64,
    },
}

/// The body.
pub(super) struct SliceBody {
    source: Rc<SliceSource>,
    version: SliceVersion,
    /// The bytes that are still to be sent.
    rest: ByteRange,
    /// The slice that is being sent, and the end of its bytes in the body.
    part: Option<(SlicePart, u64)>,
    next: Option<(u64, NextSlice)>,
    /// The present slice was opened again, because it had broken off.
    is_repeated: bool,
    /// The offset at which a slice was opened again last, because it had left the store.
    evicted_at: Option<u64>,
    gone: ClientGone,
}

impl SliceBody {
    /// The bytes of a range, whose first slice may be open.
    pub(super) fn new(
        source: &Rc<SliceSource>,
        first: OpenSlice,
        range: ByteRange,
        gone: ClientGone,
    ) -> Self {
        let version = first.version.clone();
        let next = (first.index == range.start / source.slice_bytes)
            .then(|| (first.index, NextSlice::Open(Ok(first))));
        let (source, part) = (Rc::clone(source), None);
        let (is_repeated, evicted_at) = (false, None);
        Self { source, version, rest: range, part, next, is_repeated, evicted_at, gone }
    }

    /// Begins to open a slice, unless it is open, and continues that.
    fn advance(&mut self, index: u64, cx: &mut Context<'_>) {
        if self.next.as_ref().is_none_or(|(next, _)| *next != index) {
            let opening = Rc::clone(&self.source).open(index, Some(self.version.clone()));
            self.next = Some((index, NextSlice::Opening(Box::pin(opening))));
        }
        if let Some((_, next)) = &mut self.next
            && let NextSlice::Opening(opening) = next
            && let Poll::Ready(opened) = opening.as_mut().poll(cx)
        {
            *next = NextSlice::Open(opened);
            if self.part.is_some() {
                self.release_next();
            }
        }
    }

    /// Leaves the memory of the next slice to the store: the client may take long until it is sent.
    fn release_next(&mut self) {
        self.next = self.next.take().map(|(index, next)| match next {
            NextSlice::Open(Ok(slice)) => match slice.release() {
                Ok(released) => (index, NextSlice::Released(released)),
                Err(slice) => (index, NextSlice::Open(Ok(slice))),
            },
            next => (index, next),
        });
    }

    /// The rest of an open slice; `None` if its body has left the store.
    fn rest_of(&self, slice: OpenSlice, skipped: u64, end: u64) -> Option<SlicePart> {
        let source = &self.source;
        let object = match slice.content {
            SliceContent::Stored(object) => object,
            SliceContent::Arriving(passenger, _) => {
                let reader = FlightReader::new(passenger);
                return Some(SlicePart::Arriving { reader, skipped });
            }
        };
        let Some(mut content) = OpenContent::of(&source.store, &object) else {
            source.store.drop_from_memory(&object);
            return None;
        };
        let bytes = end - self.rest.start;
        let is_saved = matches!(
            slice.word,
            CacheWord::Hit | CacheWord::Stale | CacheWord::Updating | CacheWord::Revalidated
        );
        if is_saved {
            source.store.counters().saved_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let engine = &source.template.machine.engine;
        Some(SlicePart::Stored(content.part(engine, skipped, skipped + bytes).into_stream()))
    }

    /// Makes the next slice the present one.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FaultReport>> {
        let (index, bytes) = (self.rest.start / self.source.slice_bytes, self.source.slice_bytes);
        self.advance(index, cx);
        let opened = match self.next.take() {
            Some((_, NextSlice::Open(opened))) => opened,
            Some((_, NextSlice::Released(released))) => match released.open() {
                Some(slice) => Ok(slice),
                None => return Poll::Ready(self.open_again()),
            },
            opening => {
                self.next = opening;
                return Poll::Pending;
            }
        };
        let slice = match opened {
            Ok(slice) => slice,
            Err(fault) if fault.may_pass() => {
                return Poll::Ready(self.repeat(cut(fault.as_str().to_owned())));
            }
            Err(fault) => return Poll::Ready(Err(cut(fault.as_str().to_owned()))),
        };
        let (from, end) = (index * bytes, (index + 1).saturating_mul(bytes).min(self.rest.end));
        match self.rest_of(slice, self.rest.start - from, end) {
            Some(part) => self.part = Some((part, end)),
            None => self.open_again()?,
        }
        Poll::Ready(Ok(()))
    }

    /// Lets the present slice be opened once more.
    fn repeat(&mut self, fault: FaultReport) -> Result<(), FaultReport> {
        self.part = None;
        self.next = None;
        if std::mem::replace(&mut self.is_repeated, true) { Err(fault) } else { Ok(()) }
    }

    /// Opens the present slice again, because it has left the store: once without a limit for each
    /// part of it that is sent.
    fn open_again(&mut self) -> Result<(), FaultReport> {
        let offset = self.rest.start;
        if self.evicted_at.replace(offset) == Some(offset) {
            return self.repeat(cut(FlightBroken::Evicted.to_string()));
        }
        self.part = None;
        self.next = None;
        Ok(())
    }

    /// The next bytes, or an error; `None` at the end.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        while self.rest.start < self.rest.end {
            let Some((_, end)) = &self.part else {
                if let Err(fault) = ready!(self.poll_part(cx)) {
                    self.rest.end = self.rest.start;
                    return Poll::Ready(Some(Err(fault)));
                }
                continue;
            };
            let end = *end;
            if end < self.rest.end {
                self.advance(end / self.source.slice_bytes, cx);
            }
            let Some((part, _)) = &mut self.part else { continue };
            let goes_on = match ready!(part.poll_chunk(cx)) {
                Some(Ok(mut chunk)) => {
                    let left = end - self.rest.start;
                    let chunk = if chunk.len() > left { chunk.split_to(left) } else { chunk };
                    self.rest.start += chunk.len();
                    if self.rest.start == end {
                        self.part = None;
                        self.is_repeated = false;
                    }
                    if !chunk.is_empty() {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                    continue;
                }
                Some(Err(PartFault::Broken(FlightBroken::Evicted))) => self.open_again(),
                Some(Err(PartFault::Broken(broken))) => self.repeat(cut(broken.to_string())),
                Some(Err(PartFault::Other(fault))) => self.repeat(fault),
                None => self.repeat(cut("a slice has ended early".to_owned())),
            };
            if let Err(fault) = goes_on {
                self.rest.end = self.rest.start;
                return Poll::Ready(Some(Err(fault)));
            }
        }
        Poll::Ready(None)
    }
}

/// The early end of a part.
enum PartFault {
    Broken(FlightBroken),
    Other(FaultReport),
}

impl SlicePart {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<SliceChunk, PartFault>>> {
        let (reader, skipped) = match self {
            Self::Stored(body) => {
                let chunk = ready!(body.poll_next(cx));
                return Poll::Ready(chunk.map(|chunk| chunk.map_err(PartFault::Other)));
            }
            Self::Arriving { reader, skipped } => (reader, skipped),
        };
        loop {
            let mut chunk = match ready!(reader.poll_chunk(cx)) {
                Some(Ok(chunk)) => chunk,
                Some(Err(broken)) => return Poll::Ready(Some(Err(PartFault::Broken(broken)))),
                None => return Poll::Ready(None),
            };
            let skip = chunk.len().min(*skipped);
            chunk.advance(skip);
            *skipped -= skip;
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(chunk)));
            }
        }
    }
}

impl BodyStream for SliceBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        match self.poll_rest(cx) {
            Poll::Pending => self.gone.as_mut().poll(cx).map(|fault| Some(Err(fault.into()))),
            ready => ready,
        }
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        Some(self.rest.len())
    }
}
