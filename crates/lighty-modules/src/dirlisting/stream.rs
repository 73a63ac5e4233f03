//! The body of a streamed listing: too long, or of unknown length.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lighty_buf::Chunk;
use lighty_core::{BodyChunk, BodyStream};
use lighty_io::file::{DirEntry, FileKind, ReadDir};

use super::Rendering;
use super::entries::{Entries, Item};

/// Bytes rendered at a time: some hundred entries, less than a millisecond.
const SLICE_BYTES: usize = 32 * 1024;

/// Slices in a row before the listing yields to other connections: a fast client would block the
/// loop for the whole listing.
const SLICES_PER_TURN: u32 = 2;

/// Reserve for another entry after a full slice, so that its buffer need not grow. Each byte of a
/// name takes up to three bytes in the link and more in the text.
const SLICE_SLACK_BYTES: usize = 4096;

/// A streamed listing.
pub(super) struct Listing {
    rendering: Rendering,
    source: Source,
    state: ListingState,
    rows: u64,
    slices: u32,
    /// The pending yield.
    turn: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListingState {
    Head,
    Rows,
    Ended,
}

enum Source {
    /// All entries, sorted.
    Known { entries: Rc<Entries>, next: usize },
    /// Entries as they are read.
    Live { reader: Reader, batch: std::vec::IntoIter<DirEntry> },
}

type Batch = io::Result<Option<Vec<DirEntry>>>;

/// A directory, idle or reading its next batch.
enum Reader {
    Idle(ReadDir),
    Busy(Pin<Box<dyn Future<Output = (ReadDir, Batch)>>>),
    Ended,
}

impl Listing {
    /// Sends entries that are all known.
    pub(super) fn known(rendering: Rendering, entries: Rc<Entries>) -> Self {
        Self::new(rendering, Source::Known { entries, next: 0 })
    }

    /// Sends entries as they are read.
    pub(super) fn live(rendering: Rendering, dir: ReadDir) -> Self {
        let reader = Reader::Idle(dir);
        Self::new(rendering, Source::Live { reader, batch: Vec::new().into_iter() })
    }

    fn new(rendering: Rendering, source: Source) -> Self {
        Self { rendering, source, state: ListingState::Head, rows: 0, slices: 0, turn: None }
    }

    /// Yields to other connections. Waking the own task is not enough: the loop would run it many
    /// times before it polls sockets again. `yield_now` waits until the loop has polled them.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slices >= SLICES_PER_TURN {
            let turn = self.turn.get_or_insert_with(|| Box::pin(tokio::task::yield_now()));
            std::task::ready!(turn.as_mut().poll(cx));
            self.turn = None;
            self.slices = 0;
        }
        self.slices += 1;
        Poll::Ready(())
    }

    /// Fills `out` up to a slice; `Ready(Ok(true))` at the end of the listing.
    fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<bool>> {
        if self.state == ListingState::Head {
            self.state = ListingState::Rows;
            self.rendering.head(out);
        }
        while out.len() < SLICE_BYTES {
            match &mut self.source {
                Source::Known { entries, next } => {
                    let Some(item) = entries.get(*next) else { return Poll::Ready(Ok(true)) };
                    self.rendering.row(&item, *next == 0, out);
                    *next += 1;
                }
                Source::Live { reader, batch } => match batch.next() {
                    Some(entry) => {
                        if let Some(item) = self.rendering.item(&entry) {
                            self.rendering.row(&item, self.rows == 0, out);
                            self.rows += 1;
                        }
                    }
                    None => match std::task::ready!(reader.poll_batch(cx))? {
                        Some(more) => *batch = more.into_iter(),
                        None => return Poll::Ready(Ok(true)),
                    },
                },
            }
        }
        Poll::Ready(Ok(false))
    }
}

impl BodyStream for Listing {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        if self.state == ListingState::Ended {
            return Poll::Ready(None);
        }
        std::task::ready!(self.poll_turn(cx));
        let mut out = Vec::with_capacity(SLICE_BYTES + SLICE_SLACK_BYTES);
        match self.poll_fill(cx, &mut out) {
            Poll::Pending if out.is_empty() => return Poll::Pending,
            Poll::Pending | Poll::Ready(Ok(false)) => {}
            Poll::Ready(Ok(true)) => {
                self.state = ListingState::Ended;
                self.rendering.tail(&mut out);
            }
            Poll::Ready(Err(error)) => {
                self.state = ListingState::Ended;
                return Poll::Ready(Some(Err(error.into())));
            }
        }
        Poll::Ready(Some(Ok(Chunk::Memory(Bytes::from(out)))))
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }
}

impl Reader {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Batch> {
        loop {
            match std::mem::replace(self, Reader::Ended) {
                Reader::Ended => return Poll::Ready(Ok(None)),
                Reader::Idle(mut dir) => {
                    *self = Reader::Busy(Box::pin(async move {
                        let batch = dir.next_batch().await;
                        (dir, batch)
                    }));
                }
                Reader::Busy(mut future) => match future.as_mut().poll(cx) {
                    Poll::Pending => {
                        *self = Reader::Busy(future);
                        return Poll::Pending;
                    }
                    Poll::Ready((dir, Ok(Some(batch)))) => {
                        *self = Reader::Idle(dir);
                        return Poll::Ready(Ok(Some(batch)));
                    }
                    Poll::Ready((_, end)) => return Poll::Ready(end),
                },
            }
        }
    }
}

impl Rendering {
    /// The item for an entry, if it is shown.
    fn item<'a>(&self, entry: &'a DirEntry) -> Option<Item<'a>> {
        let is_directory = match entry.meta.kind {
            FileKind::Directory => true,
            FileKind::File => false,
            _ => return None,
        };
        self.shows(entry).then_some(Item {
            name: &entry.name,
            is_directory,
            size: entry.meta.size,
            mtime_s: entry.meta.mtime_s,
        })
    }
}
