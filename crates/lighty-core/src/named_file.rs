//! A file that a handler names as its answer (`X-Sendfile` and its like), and the fields that the
//! handler sends along.

use std::rc::Rc;

use lighty_http::{Known, Status};
use lighty_io::file::{FileKind, Follow, Root};
use lighty_io::stat_cache::Entry;

use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::log::Level;
use crate::module::FileFate;

/// Opens `physical.docroot` and the file beneath it. Symbolic links that lead out of it are not
/// followed, whatever `server.follow-symlink` allows: the handler was trusted with this directory.
///
/// # Errors
/// The fault, and words for the log.
pub(crate) async fn look_up(ex: &mut Exchange, fate: FileFate) -> Result<(), (Fault, String)> {
    let path = String::from_utf8_lossy(&ex.physical.path()).into_owned();
    let entry = open(ex, fate).await.map_err(|error| {
        let fault = match Fault::of_file_error(&error) {
            Fault::SymlinkRefused | Fault::NotARegularFile => Fault::SendfileRefused,
            other => other,
        };
        if matches!(fault, Fault::NotFound | Fault::Forbidden | Fault::NameTooLong) {
            // For the client that is an ordinary refusal; for the operator it is not.
            ex.log(
                Level::Warning,
                &format!("a file to send that a backend named: {error}: {path}"),
            );
        }
        (fault, format!("{path}: {error}"))
    })?;
    if entry.meta().kind != FileKind::File {
        return Err((Fault::SendfileRefused, format!("{path}: not a regular file")));
    }
    if fate == FileFate::Removed {
        remove(ex, &path).await;
    }
    ex.physical.entry = Some(entry);
    Ok(())
}

async fn open(ex: &mut Exchange, fate: FileFate) -> std::io::Result<Rc<Entry>> {
    let root = match ex.services.root(&ex.physical.docroot) {
        Some(root) => root,
        None => ex.services.open_root(&ex.physical.docroot).await?,
    };
    ex.physical.root = Some(Rc::clone(&root));
    let (cache, rel) = (&ex.services.stat_cache, &ex.physical.rel);
    let noatime = ex.settings.server.use_noatime;
    match fate {
        FileFate::Stays => cache.lookup(&root, rel, follow(ex), noatime).entry().await,
        FileFate::Removed => cache.open_unkept(&root, rel, follow(ex)).await,
    }
}

/// The descriptor keeps the content until it is sent, also when the client goes away meanwhile.
async fn remove(ex: &Exchange, path: &str) {
    let Some(root) = &ex.physical.root else { return };
    let root: &Root = root;
    if let Err(error) = ex.services.engine.remove(root, &ex.physical.rel, follow(ex)).await {
        ex.log(Level::Warning, &format!("cannot remove {path}: {error}"));
    }
}

fn follow(ex: &Exchange) -> Follow {
    match ex.settings.core.follow_symlink {
        Follow::None => Follow::None,
        Follow::All | Follow::Beneath => Follow::Beneath,
    }
}

/// Adds the fields that were carried to the answer that stands in for the handler's. An error is
/// an answer of its own: it takes none of them.
pub(crate) fn join_carried(ex: &mut Exchange) {
    let response = &mut ex.response;
    if ex.carried.is_empty() || response.status.code() >= 400 {
        return;
    }
    let carried = std::mem::take(&mut ex.carried);
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
