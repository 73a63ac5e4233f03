//! The filter that compresses.
//!
//! A block of input, an encoder and a buffer go to a pool thread and come back while the event loop
//! does other work. At most one block is between source and client; if the client does not read,
//! the encoder pauses. Short, cheap blocks are compressed on the event loop.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use lighty_buf::Chunk;
use lighty_core::machine::permits::Permit;
use lighty_core::{BodyChunk, FaultReport, Filter, Source};
use lighty_io::file::FileEngine;
use lighty_io::file::cache_file::CacheFile;

use super::encoder::{Encoder, Op};

/// Maximum output of one turn in bytes, if `deflate.output-buffer-size` is not set.
pub(super) const OUT_BYTES: usize = 64 * 1024;

/// Parameters for compressing a body.
pub(super) struct CompressPlan {
    pub(super) encoder: Encoder,
    /// Input of one turn in bytes.
    pub(super) block_bytes: usize,
    /// Output of one turn in bytes.
    pub(super) out_bytes: usize,
    /// Maximum input compressed on the event loop, in bytes.
    pub(super) inline_bytes_max: usize,
    /// Flush after every piece, so that the client sees it at once.
    pub(super) sync_flush: bool,
    /// The cache file that gets a copy.
    pub(super) copy: Option<CacheFile>,
    pub(super) permit: Permit,
}

/// A filter that passes a body through an encoder.
pub(super) struct CompressFilter {
    state: CompressState,
    engine: FileEngine,
    block_bytes: usize,
    inline_bytes_max: usize,
    sync_flush: bool,
    /// Input bytes that may not have been output yet.
    held_bytes: usize,
    source_ended: bool,
}

enum CompressState {
    Idle(Box<CompressWork>),
    Busy(Pin<Box<dyn Future<Output = io::Result<Turned>>>>),
    Ended,
}

type Turned = (Box<CompressWork>, io::Result<bool>);

/// The work handed to a thread and returned by it.
struct CompressWork {
    /// `None` once the body is complete: the thread that allocated the tables frees them, so that
    /// it can reuse them for the next body.
    encoder: Option<Encoder>,
    input: VecDeque<Bytes>,
    input_bytes: usize,
    op: Op,
    /// The operation is incomplete: the buffer was full.
    unfinished: bool,
    out: Vec<u8>,
    out_bytes: usize,
    copy: Option<CacheFile>,
    _permit: Permit,
}

impl CompressFilter {
    pub(super) fn new(plan: CompressPlan, engine: &FileEngine) -> Self {
        let work = CompressWork {
            encoder: Some(plan.encoder),
            input: VecDeque::new(),
            input_bytes: 0,
            op: Op::Run,
            unfinished: false,
            out: Vec::new(),
            out_bytes: plan.out_bytes,
            copy: plan.copy,
            _permit: plan.permit,
        };
        Self {
            state: CompressState::Idle(Box::new(work)),
            engine: engine.clone(),
            block_bytes: plan.block_bytes,
            inline_bytes_max: plan.inline_bytes_max,
            sync_flush: plan.sync_flush,
            held_bytes: 0,
            source_ended: false,
        }
    }

    /// Collects a block and sets the operation for it. Returns `Pending` if the block is not
    /// complete.
    fn poll_gather(
        &mut self,
        work: &mut CompressWork,
        source: &mut Source,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), FaultReport>> {
        debug_assert!(!work.unfinished && !self.source_ended, "{} bytes", work.input_bytes);
        work.op = Op::Run;
        while work.input_bytes < self.block_bytes {
            match source.poll_bytes(cx) {
                Poll::Ready(Some(piece)) => {
                    let piece = piece?;
                    self.held_bytes = self.held_bytes.saturating_add(piece.len());
                    work.input_bytes = work.input_bytes.saturating_add(piece.len());
                    work.input.push_back(piece);
                }
                Poll::Ready(None) => {
                    self.source_ended = true;
                    work.op = Op::Finish;
                    break;
                }
                Poll::Pending if self.sync_flush && self.held_bytes > 0 => {
                    work.op = Op::Flush;
                    break;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Runs the work here or on a thread.
    fn begin(&mut self, mut work: Box<CompressWork>) -> CompressState {
        debug_assert!(
            work.input_bytes <= self.held_bytes,
            "{} {}",
            work.input_bytes,
            self.held_bytes
        );
        if self.held_bytes <= self.inline_bytes_max && work.copy.is_none() {
            let done = work.turn();
            return CompressState::Busy(Box::pin(std::future::ready(Ok((work, done)))));
        }
        CompressState::Busy(Box::pin(self.engine.compute(move || {
            let done = work.turn();
            (work, done)
        })))
    }

    /// Returns the output of a turn.
    fn finish_turn(&mut self, turned: io::Result<Turned>) -> io::Result<Option<Bytes>> {
        let (mut work, done) = turned?;
        let done = done?;
        work.unfinished = !done;
        debug_assert!(!done || work.input.is_empty(), "{} pieces are left", work.input.len());
        debug_assert!(!work.input.is_empty() || work.input_bytes == 0, "{}", work.input_bytes);
        if done && work.op != Op::Run {
            self.held_bytes = 0;
        }
        let out = Bytes::from(std::mem::take(&mut work.out));
        if done && self.source_ended {
            self.state = CompressState::Ended;
        } else {
            self.state = CompressState::Idle(work);
        }
        Ok(Some(out).filter(|out| !out.is_empty()))
    }
}

impl Drop for CompressFilter {
    /// An incomplete copy is removed where blocking is allowed, and the encoder's tables are freed
    /// by the thread that allocated them.
    fn drop(&mut self) {
        if let CompressState::Idle(work) = std::mem::replace(&mut self.state, CompressState::Ended)
            && (work.copy.is_some() || work.encoder.is_some())
        {
            drop(self.engine.compute(move || drop(work)));
        }
    }
}

impl CompressWork {
    /// Runs the encoder until the input is used up or the buffer is full; `true` when the operation
    /// is complete.
    fn turn(&mut self) -> io::Result<bool> {
        let done = self.feed()?;
        if let Some(copy) = &mut self.copy {
            copy.append(&self.out);
        }
        if done && self.op == Op::Finish {
            self.encoder = None;
            if let Some(copy) = self.copy.take() {
                copy.commit();
            }
        }
        Ok(done)
    }

    fn feed(&mut self) -> io::Result<bool> {
        let Some(encoder) = &mut self.encoder else { return Ok(true) };
        while let Some(piece) = self.input.front_mut() {
            let (taken, done) = encoder.run(piece, Op::Run, &mut self.out, self.out_bytes)?;
            debug_assert!(taken <= self.input_bytes, "{taken} of {}", self.input_bytes);
            piece.advance(taken);
            self.input_bytes = self.input_bytes.saturating_sub(taken);
            if !done {
                return Ok(false);
            }
            self.input.pop_front();
        }
        if self.op == Op::Run {
            return Ok(true);
        }
        let (_, done) = encoder.run(&[], self.op, &mut self.out, self.out_bytes)?;
        Ok(done)
    }
}

impl Filter for CompressFilter {
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        loop {
            match std::mem::replace(&mut self.state, CompressState::Ended) {
                CompressState::Ended => return Poll::Ready(None),
                CompressState::Idle(mut work) if !work.unfinished => {
                    match self.poll_gather(&mut work, source, cx) {
                        Poll::Pending => {
                            self.state = CompressState::Idle(work);
                            return Poll::Pending;
                        }
                        Poll::Ready(Err(report)) => return Poll::Ready(Some(Err(report))),
                        Poll::Ready(Ok(())) => self.state = self.begin(work),
                    }
                }
                CompressState::Idle(work) => self.state = self.begin(work),
                CompressState::Busy(mut turn) => {
                    let Poll::Ready(turned) = turn.as_mut().poll(cx) else {
                        self.state = CompressState::Busy(turn);
                        return Poll::Pending;
                    };
                    match self.finish_turn(turned) {
                        Ok(None) => {}
                        Ok(Some(out)) => return Poll::Ready(Some(Ok(Chunk::Memory(out)))),
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    }
                }
            }
        }
    }

    fn needs_bytes(&self) -> bool {
        true
    }
}
