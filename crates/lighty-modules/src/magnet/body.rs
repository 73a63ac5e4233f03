//! Response bodies made from the pieces of a script.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lighty_buf::{Chunk, ChunkQueue, FileRange};
use lighty_core::exchange::response::BodyOrigin;
use lighty_core::{Body, BodyChunk, Exchange, FaultReport, Filter, Response, Source};
use lighty_http::{Known, Status};
use lighty_io::file::{FileKind, OpenFile};
use lighty_lua::BodyPiece;

use super::http;
use super::script_changes::{REPRESENTATION, ScriptChanges};
use super::scripts::look_up;

/// Removes the metadata of a body that a script replaces: fields that scripts did not set, the
/// length, and the status of a partial or unmodified response.
pub(super) fn forget_representation(ex: &mut Exchange) {
    let own = ex.ext::<ScriptChanges>().map(|changes| changes.own_fields).unwrap_or_default();
    let response = &mut ex.response;
    for (name, is_own) in REPRESENTATION.into_iter().zip(own) {
        if !is_own {
            response.fields.remove(name);
        }
    }
    response.fields.remove(Known::ContentLength);
    (response.declared_length, response.head_content_length) = (None, None);
    let is_own_part = response.fields.contains(Known::ContentRange);
    if response.status == Status::NOT_MODIFIED
        || (response.status == Status::PARTIAL_CONTENT && !is_own_part)
    {
        response.status = Status::OK;
    }
}

/// Sets a body that contains no files. Returns `false` if it has files or extends another body.
pub(super) fn take_bytes(ex: &mut Exchange) -> bool {
    let changes = ex.ext_mut::<ScriptChanges>();
    if !changes.has_body {
        return true;
    }
    if changes.extends || changes.pieces.iter().any(|piece| matches!(piece, BodyPiece::File { .. }))
    {
        return false;
    }
    changes.has_body = false;
    let mut pieces = std::mem::take(&mut changes.pieces);
    let all = match (pieces.len(), pieces.pop()) {
        (1, Some(BodyPiece::Bytes(bytes))) => bytes,
        (_, last) => {
            let bytes = pieces.into_iter().chain(last).flat_map(|piece| match piece {
                BodyPiece::Bytes(bytes) => bytes,
                BodyPiece::File { .. } => Vec::new(),
            });
            bytes.collect()
        }
    };
    ex.response.body = if all.is_empty() { Body::Empty } else { Body::Memory(all.into()) };
    ex.response.origin = BodyOrigin::Other;
    true
}

/// Pieces processed before yielding to other connections: some 0.1 ms of opening files.
const PIECES_AT_ONCE: usize = 64;

/// A file that a script names in a body and that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", String::from_utf8_lossy(.path))]
pub(super) struct PieceError {
    path: Vec<u8>,
    error: io::Error,
}

/// Makes the pieces that a script set the response's body, and opens the files that they name.
///
/// # Errors
/// The first file that cannot be opened, and its error. The body then ends before that file.
pub(super) async fn take(ex: &mut Exchange) -> Result<(), PieceError> {
    let changes = ex.ext_mut::<ScriptChanges>();
    changes.has_body = false;
    let extends = std::mem::take(&mut changes.extends);
    let pieces = std::mem::take(&mut changes.pieces);
    let mut queue = ChunkQueue::new();
    let mut met = Ok(());
    for (at, piece) in pieces.into_iter().enumerate() {
        if at % PIECES_AT_ONCE == PIECES_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        match piece {
            BodyPiece::Bytes(bytes) => queue.push_bytes(Bytes::from(bytes)),
            BodyPiece::File { path, offset, length } => match open(ex, &path, offset, length).await
            {
                Ok(range) if range.length > 0 => queue.push_file(range),
                Ok(_) => {}
                Err(error) => {
                    met = Err(PieceError { path, error });
                    break;
                }
            },
        }
    }
    if !extends {
        ex.response.body = Body::Chunks(queue);
    } else if can_be_extended(&ex.response) {
        let end = Around { before: ChunkQueue::new(), behind: queue, fault: None };
        let body = std::mem::take(&mut ex.response.body);
        let engine = ex.machine.engine.clone();
        forget_representation(ex);
        ex.response.body = body.filtered(Box::new(end), &engine);
    }
    ex.response.origin = BodyOrigin::Other;
    met
}

/// False for a partial, an encoded or a missing body: appended bytes would not follow its end.
fn can_be_extended(response: &Response) -> bool {
    response.status != Status::PARTIAL_CONTENT
        && response.status.allows_content()
        && !response.fields.contains(Known::ContentEncoding)
}

/// Sends chunks before and after a body.
struct Around {
    before: ChunkQueue<Rc<OpenFile>>,
    behind: ChunkQueue<Rc<OpenFile>>,
    /// An error while the body was collected; it ends the body.
    fault: Option<FaultReport>,
}

impl Filter for Around {
    fn poll_next(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        if let Some(chunk) = self.before.pop_front() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(report) = self.fault.take() {
            return Poll::Ready(Some(Err(report)));
        }
        match ready!(source.poll_chunk(cx)) {
            Some(chunk) => Poll::Ready(Some(chunk)),
            None => Poll::Ready(self.behind.pop_front().map(Ok)),
        }
    }

    fn needs_bytes(&self) -> bool {
        false
    }
}

/// Reads the body of an existing response into memory, for a script that reads it. Returns `false`
/// if it has more than `most` bytes or fails; the body then is unchanged.
pub(super) async fn collect(ex: &mut Exchange, most: usize) -> bool {
    let is_longer = ex.response.body.known_length().is_some_and(|length| length > most as u64);
    let is_none = matches!(ex.response.body, Body::Empty);
    if is_longer || is_none || ex.ext::<ScriptChanges>().is_some_and(|changes| changes.has_body) {
        return false;
    }
    let body = std::mem::take(&mut ex.response.body);
    let engine = ex.machine.engine.clone();
    let Body::Stream(mut rest) = body.filtered(Box::new(http::AsBytes), &engine) else {
        return false;
    };
    let (mut all, mut fault, mut ends) = (Vec::new(), None, false);
    while all.len() <= most && fault.is_none() && !ends {
        match poll_fn(|cx| rest.poll_next(cx)).await {
            Some(Ok(Chunk::Memory(bytes))) => all.extend_from_slice(&bytes),
            Some(Ok(Chunk::File(_))) => {}
            Some(Err(report)) => fault = Some(report),
            None => ends = true,
        }
    }
    ex.response.origin = BodyOrigin::Other;
    if ends {
        ex.response.body = Body::Memory(all.into());
        return true;
    }
    let mut before = ChunkQueue::new();
    before.push_bytes(all.into());
    let whole = Around { before, behind: ChunkQueue::new(), fault };
    ex.response.body = Body::Stream(rest).filtered(Box::new(whole), &engine);
    false
}

async fn open(
    ex: &Exchange,
    path: &[u8],
    offset: i64,
    length: Option<u64>,
) -> io::Result<FileRange<Rc<OpenFile>>> {
    let entry = look_up(&ex.machine, path).await?;
    let meta = entry.meta();
    if meta.kind != FileKind::File {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    lighty_core::pipeline::protected_files::admit(meta)?;
    let from = match u64::try_from(offset) {
        Ok(offset) => offset.min(meta.size),
        Err(_) => meta.size.saturating_sub(offset.unsigned_abs()),
    };
    let length = length.unwrap_or(u64::MAX).min(meta.size - from);
    Ok(FileRange { file: Rc::clone(entry.file()), offset: from, length })
}
