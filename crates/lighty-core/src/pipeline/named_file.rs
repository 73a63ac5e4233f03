//! Files that a handler names as its response (`X-Sendfile` and the like), and the fields that the
//! handler adds.

use std::rc::Rc;

use lighty_buf::{ChunkQueue, FileRange};
use lighty_http::{Known, Status};
use lighty_io::file::{FileKind, Follow, Root};
use lighty_io::stat_cache::CacheEntry;

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::file_part::FilePart;
use crate::fault::{Fault, FaultReport};
use crate::log::Level;
use crate::module::FileFate;
use crate::pipeline::protected_files;

/// Opens `physical.docroot` and the file beneath it. Symbolic links that leave the directory are
/// not followed, whatever `server.follow-symlink` allows: the handler was trusted with this
/// directory only.
///
/// # Errors
/// The reason why the file cannot be sent.
pub(crate) async fn look_up(ex: &mut Exchange, fate: FileFate) -> Result<(), FaultReport> {
    let path = String::from_utf8_lossy(&ex.physical.path()).into_owned();
    let entry = find(ex, fate, &path).await?;
    if fate == FileFate::Removed {
        remove(ex, &path).await;
    }
    ex.physical.entry = Some(entry);
    Ok(())
}

/// Opens files one after the other and joins their parts into a body.
///
/// # Errors
/// The reason why a file cannot be sent.
pub(crate) async fn join_parts(ex: &mut Exchange, parts: &[FilePart]) -> Result<Body, FaultReport> {
    let mut queue = ChunkQueue::new();
    for part in parts {
        ex.physical.clear();
        ex.physical.docroot.clone_from(&part.root);
        ex.physical.rel.clone_from(&part.rel);
        let path = String::from_utf8_lossy(&ex.physical.path()).into_owned();
        let entry = find(ex, FileFate::Stays, &path).await?;
        let size = entry.meta().size;
        let (offset, length) = part
            .within(size)
            .filter(|(_, length)| queue.has_room_for(*length))
            .ok_or_else(|| {
                let message = format!("X-Sendfile2: {path} of {size} bytes has no such part");
                FaultReport::new(Fault::BackendMalformed, message)
            })?;
        queue.push_file(FileRange { file: Rc::clone(entry.file()), offset, length });
    }
    Ok(Body::Chunks(queue))
}

/// Finds the file at the exchange's physical path.
async fn find(
    ex: &mut Exchange,
    fate: FileFate,
    path: &str,
) -> Result<Rc<CacheEntry>, FaultReport> {
    let entry = open(ex, fate).await.map_err(|error| {
        let fault = match Fault::of_file_error(&error) {
            Fault::SymlinkRefused | Fault::NotARegularFile => Fault::SendfileRefused,
            other => other,
        };
        if matches!(fault, Fault::NotFound | Fault::Forbidden | Fault::NameTooLong) {
            // An ordinary refusal for the client, but noteworthy for the operator.
            ex.log(
                Level::Warning,
                &format!("a file to send that a backend named: {error}: {path}"),
            );
        }
        FaultReport { fault, detail: format!("{path}: {error}").into(), source: Some(error) }
    })?;
    if entry.meta().kind != FileKind::File {
        return Err(FaultReport::new(
            Fault::SendfileRefused,
            format!("{path}: not a regular file"),
        ));
    }
    if protected_files::is_protected(entry.meta()) {
        let detail = format!("{path}: {}", protected_files::REFUSAL);
        return Err(FaultReport::new(Fault::SendfileRefused, detail));
    }
    Ok(entry)
}

async fn open(ex: &mut Exchange, fate: FileFate) -> std::io::Result<Rc<CacheEntry>> {
    let root = match ex.machine.root(&ex.physical.docroot) {
        Some(root) => root,
        None => ex.machine.open_root(&ex.physical.docroot).await?,
    };
    ex.physical.root = Some(Rc::clone(&root));
    let (cache, rel) = (&ex.machine.stat_cache, &ex.physical.rel);
    let noatime = ex.settings.server.use_noatime;
    match fate {
        FileFate::Stays => cache.lookup(&root, rel, follow(ex), noatime).entry().await,
        FileFate::Removed => cache.open_unkept(&root, rel, follow(ex)).await,
    }
}

/// Unlinks the file. The open descriptor keeps the content until it is sent, even if the client
/// leaves.
async fn remove(ex: &Exchange, path: &str) {
    let Some(root) = &ex.physical.root else { return };
    let root: &Root = root;
    if let Err(error) = ex.machine.engine.remove(root, &ex.physical.rel, follow(ex)).await {
        ex.log(Level::Warning, &format!("cannot remove {path}: {error}"));
    }
}

fn follow(ex: &Exchange) -> Follow {
    match ex.settings.core.follow_symlink {
        Follow::None => Follow::None,
        Follow::All | Follow::Beneath => Follow::Beneath,
    }
}

/// Adds the carried fields to the response that replaces the handler's. Error responses get none of
/// them.
pub(crate) fn join_carried(ex: &mut Exchange) {
    let response = &mut ex.response;
    if ex.carried.is_empty() || response.status.code() >= 400 {
        return;
    }
    let carried = std::mem::take(&mut ex.carried);
    response.unfiltered = false;
    let parts = response.fields.get(Known::ContentType).is_some_and(is_multipart);
    let keeps_type = response.status == Status::NOT_MODIFIED || parts;
    let joins = |known| match known {
        Some(Known::ContentType) => !keeps_type,
        _ => true,
    };
    for (known, name, _) in carried.iter_known().filter(|(known, ..)| joins(*known)) {
        if known != Some(Known::SetCookie) {
            response.fields.remove_named(name);
        }
    }
    for (known, name, value) in carried.iter_known().filter(|(known, ..)| joins(*known)) {
        response.fields.push_looked_up(known, name, value);
    }
}

fn is_multipart(media_type: &[u8]) -> bool {
    const RANGES: &[u8] = b"multipart/byteranges";
    media_type.get(..RANGES.len()).is_some_and(|start| start.eq_ignore_ascii_case(RANGES))
}
