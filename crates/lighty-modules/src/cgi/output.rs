//! The output of a program, sent to the client.

use std::borrow::Cow;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use lighty_buf::Chunk;
use lighty_core::pipeline::read_ahead::Ahead;
use lighty_core::{BodyChunk, BodyStream, Fault, FaultReport};
use lighty_wire::cgi::{CgiHead, Left};
use lighty_wire::http1::chunked::ChunkFault;

use super::talk::{CgiError, Talk};

/// The response body of a program.
pub(super) struct ProgramBody {
    talk: Talk,
    left: Left,
    length: Option<u64>,
    part: ProgramPart,
}

// The rest of a response (`ProgramPart`):
//
//                end of output            signal known, or no need of it
//     Writes ---------------------> Exits -----------------------------> Done
//       |                                                                  ^
//       +------------------------------------------------------------------+
//                error, faulty chunk

/// The next expected event of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramPart {
    Writes,
    /// The exit; the output has ended.
    Exits,
    /// Nothing: the response is complete or broken.
    Done,
}

impl ProgramBody {
    pub(super) fn new(mut talk: Talk, head: &CgiHead) -> Self {
        talk.begin_body();
        let (left, length) = (Left::of(head), head.content_length);
        Self { talk, left, length, part: ProgramPart::Writes }
    }

    /// Takes the pending output, up to the announced length. Further output is dropped.
    fn take(&mut self) -> Result<Option<Bytes>, ChunkFault> {
        let mut raw = self.talk.take_pending();
        let mut data = BytesMut::new();
        while !raw.is_empty() {
            let (consumed, body) = self.left.take(&raw)?;
            if consumed == raw.len() && data.is_empty() {
                return Ok(Some(raw.slice(body)).filter(|bytes| !bytes.is_empty()));
            }
            data.extend_from_slice(&raw[body]);
            raw.advance(consumed);
        }
        Ok((!data.is_empty()).then(|| data.freeze()))
    }

    fn end(&mut self) {
        self.part = ProgramPart::Done;
        self.talk.complete();
    }

    fn broke(&mut self, error: &CgiError) -> FaultReport {
        self.part = ProgramPart::Done;
        FaultReport::new(error.fault(), error.to_string())
    }

    fn cut(&mut self, detail: impl Into<Cow<'static, str>>) -> FaultReport {
        self.end();
        FaultReport::new(Fault::BackendCut, detail)
    }

    /// Handles the end of the output: an error if the response is incomplete.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FaultReport>> {
        let message = match self.left {
            _ if self.left.is_nothing() => None,
            Left::Chunks(_) => Some("the program ended before its last chunk"),
            _ => Some("the program ended before its Content-Length was reached"),
        };
        if let Some(message) = message {
            return Poll::Ready(Err(self.cut(message)));
        }
        // Without a length, the output of a killed program counts as incomplete.
        if matches!(self.left, Left::Rest)
            && let Some(signal) = ready!(self.talk.poll_signal(cx))
        {
            return Poll::Ready(Err(self.cut(format!("the program was ended by signal {signal}"))));
        }
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl Ahead for ProgramBody {
    const WAITER: &'static str = "a program";

    fn takes_request(&self) -> bool {
        self.talk.takes_body()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FaultReport>>> {
        loop {
            match self.take() {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Some(Err(self.cut(fault.message())))),
            }
            match self.part {
                ProgramPart::Done => return Poll::Ready(None),
                ProgramPart::Exits => return self.poll_end(cx).map(|end| end.err().map(Err)),
                ProgramPart::Writes => match ready!(self.talk.poll_more(cx)) {
                    Ok(0) => self.part = ProgramPart::Exits,
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Some(Err(self.broke(&error)))),
                },
            }
        }
    }
}

impl BodyStream for ProgramBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        self.poll_piece(cx).map(|next| next.map(|piece| piece.map(Chunk::Memory)))
    }

    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> bool {
        self.talk.push_body(cx);
        self.takes_request()
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }
}
