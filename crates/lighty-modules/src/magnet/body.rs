//! A response's body out of a script's pieces.

use std::{fmt, io};

use bytes::Bytes;
use lighty_buf::{ChunkQueue, FileRange};
use lighty_core::{Body, Exchange};
use lighty_io::file::FileKind;
use lighty_lua::Piece;

use super::script_changes::ScriptChanges;
use super::scripts::look_up;

/// Takes over a body that needs no file. `false` if it needs one.
pub(super) fn take_bytes(ex: &mut Exchange) -> bool {
    let changes = ex.ext_mut::<ScriptChanges>();
    if !changes.has_body {
        return true;
    }
    if changes.pieces.iter().any(|piece| matches!(piece, Piece::File { .. })) {
        return false;
    }
    changes.has_body = false;
    let mut pieces = std::mem::take(&mut changes.pieces);
    let all = match (pieces.len(), pieces.pop()) {
        (1, Some(Piece::Bytes(bytes))) => bytes,
        (_, last) => {
            let bytes = pieces.into_iter().chain(last).flat_map(|piece| match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::File { .. } => Vec::new(),
            });
            bytes.collect()
        }
    };
    ex.response.body = if all.is_empty() { Body::Empty } else { Body::Memory(all.into()) };
    ex.response.is_whole_file = false;
    true
}

/// A file that a script names in a body and that cannot be opened.
#[derive(Debug)]
pub(super) struct PieceError {
    path: Vec<u8>,
    error: io::Error,
}

impl fmt::Display for PieceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", String::from_utf8_lossy(&self.path), self.error)
    }
}

/// Takes over a body, with the files that it names opened.
///
/// # Errors
/// The file that cannot be opened, and why. What stands before it is the body.
pub(super) async fn take(ex: &mut Exchange) -> Result<(), PieceError> {
    let changes = ex.ext_mut::<ScriptChanges>();
    changes.has_body = false;
    let pieces = std::mem::take(&mut changes.pieces);
    let mut queue = ChunkQueue::new();
    let mut met = Ok(());
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => queue.push_bytes(Bytes::from(bytes)),
            Piece::File { path, offset, length } => match open(ex, &path, offset, length).await {
                Ok(range) if range.length > 0 => queue.push_file(range),
                Ok(_) => {}
                Err(error) => {
                    met = Err(PieceError { path, error });
                    break;
                }
            },
        }
    }
    ex.response.body = Body::Chunks(queue);
    ex.response.is_whole_file = false;
    met
}

async fn open(
    ex: &Exchange,
    path: &[u8],
    offset: i64,
    length: Option<u64>,
) -> io::Result<FileRange<std::rc::Rc<lighty_io::file::OpenFile>>> {
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
    Ok(FileRange { file: std::rc::Rc::clone(entry.file()), offset: from, length })
}
