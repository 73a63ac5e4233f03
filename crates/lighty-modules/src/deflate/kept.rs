//! Compressed files: cached copies in `deflate.cache-dir`, and precompressed files beside the
//! original.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use lighty_core::{Body, Exchange};
use lighty_http::{Known, Status};
use lighty_io::file::cache_file::CacheFile;
use lighty_io::file::{FileKind, Follow};
use lighty_io::stat_cache::{CacheEntry, Lookup};

use super::coding::Coding;

/// True if the response is a whole file, unmodified.
pub(super) fn is_whole_file(ex: &Exchange) -> bool {
    ex.response.status == Status::OK
        && ex.response.is_whole_file()
        && matches!(ex.response.body, Body::Cached(_) | Body::File { .. })
}

/// The best of `codings` with a precompressed file beside the original that is not older.
pub(super) async fn find_beside(
    ex: &Exchange,
    codings: &[Coding],
) -> Option<(Coding, Rc<CacheEntry>)> {
    let root = ex.physical.root.clone()?;
    for (coding, ending) in with_endings(codings) {
        let name = [&ex.physical.rel, ending.as_bytes()].concat();
        let found = look_up(ex, &root, &name, ex.settings.core.follow_symlink).await;
        if let Some(entry) = found.filter(|entry| is_current(ex, entry)) {
            return Some((coding, entry));
        }
    }
    None
}

/// Like [`find_beside`], without waiting: `None` also if a file must be looked up first.
pub(super) fn known_beside(ex: &Exchange, codings: &[Coding]) -> Option<(Coding, Rc<CacheEntry>)> {
    let root = ex.physical.root.as_ref()?;
    let follow = ex.settings.core.follow_symlink;
    let noatime = ex.settings.server.use_noatime;
    for (coding, ending) in with_endings(codings) {
        let name = [&ex.physical.rel, ending.as_bytes()].concat();
        let entry = ex.machine.stat_cache.known(root, &name, follow, noatime)?;
        if is_content(&entry) && is_current(ex, &entry) {
            return Some((coding, entry));
        }
    }
    None
}

fn with_endings(codings: &[Coding]) -> impl Iterator<Item = (Coding, &'static str)> {
    codings.iter().filter_map(|coding| Some((*coding, coding.ending()?)))
}

/// True if a precompressed file is not older than the original.
fn is_current(ex: &Exchange, entry: &CacheEntry) -> bool {
    ex.physical.entry.as_ref().is_some_and(|original| {
        let (theirs, ours) = (entry.meta(), original.meta());
        (theirs.mtime_s, theirs.mtime_ns) >= (ours.mtime_s, ours.mtime_ns)
    })
}

/// True for a non-empty regular file: no encoding is empty.
fn is_content(entry: &CacheEntry) -> bool {
    let meta = entry.meta();
    meta.kind == FileKind::File && meta.size > 0
}

/// The name in the cache directory: physical path, coding, tag. `None` if the file has no strong
/// tag, or the name would be too long.
pub(super) fn cached_name(ex: &Exchange, coding: Coding) -> Option<Vec<u8>> {
    /// `NAME_MAX`.
    const NAME_BYTES_MAX: usize = 255;
    let tag = ex.response.fields.get(Known::ETag)?;
    let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if !tag.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let path = ex.physical.path();
    let path = path.strip_prefix(b"/").unwrap_or(&path);
    let name = [path, b"-", coding.name().as_bytes(), b"-", tag].concat();
    let last = name.rsplit(|byte| *byte == b'/').next()?;
    (last.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Looks up a name in the cache.
pub(super) async fn find_cached(
    ex: &Exchange,
    directory: &str,
    name: &[u8],
) -> Option<Rc<CacheEntry>> {
    let root = match ex.machine.root(directory.as_bytes()) {
        Some(root) => root,
        None => ex.machine.open_root(directory.as_bytes()).await.ok()?,
    };
    // Only lighty writes here: do not follow a symlink made by someone else.
    look_up(ex, &root, name, Follow::None).await
}

/// A new cache file.
pub(super) fn new_cached(directory: &str, name: &[u8]) -> CacheFile {
    CacheFile::new(Path::new(directory), Path::new(std::ffi::OsStr::from_bytes(name)))
}

/// Looks up a file with content.
async fn look_up(
    ex: &Exchange,
    root: &Rc<lighty_io::file::Root>,
    name: &[u8],
    follow: Follow,
) -> Option<Rc<CacheEntry>> {
    let noatime = ex.settings.server.use_noatime;
    let entry = match ex.machine.stat_cache.lookup(root, name, follow, noatime) {
        Lookup::Ready(result) => result.ok()?,
        Lookup::Wait(future) => future.await.ok()?,
    };
    is_content(&entry).then_some(entry)
}

/// A whole file as a body.
pub(super) fn body_of(entry: &Rc<CacheEntry>) -> Body {
    match entry.small() {
        Some(_) => Body::Cached(Rc::clone(entry)),
        None => {
            let length = entry.meta().size;
            Body::File { file: Rc::clone(entry.file()), offset: 0, length }
        }
    }
}
