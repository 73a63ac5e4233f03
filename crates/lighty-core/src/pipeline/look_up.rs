//! Looks up the physical path.

use std::rc::Rc;

use lighty_http::{Known, Method, Status};
use lighty_io::file::FileKind;
use lighty_io::stat_cache::{CacheEntry, Lookup};

use super::is_directory;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::log::Level;
use crate::machine::is_out_of_descriptors;
use crate::module::Acts;
use crate::pipeline::phase::Phase;

/// True if a module takes the request before its file is looked up.
#[must_use]
pub fn is_taken_unseen(ex: &Exchange) -> bool {
    ex.generation.modules.iter().any(|module| module.acts(Phase::Remote, ex) == Acts::Surely)
}

/// The kind of the file at the physical path, `Some(None)` if there is none; `None` if the answer
/// needs a wait.
pub fn kind_known(ex: &mut Exchange) -> Option<Option<FileKind>> {
    let root = ex.machine.root(&ex.physical.docroot)?;
    let core = &ex.settings.core;
    let noatime = ex.settings.server.use_noatime;
    let rel = &ex.physical.rel;
    match ex.machine.stat_cache.lookup(&root, rel, core.follow_symlink, noatime) {
        Lookup::Ready(Ok(entry)) => Some(Some(entry.meta().kind)),
        Lookup::Ready(Err(_)) => Some(None),
        Lookup::Wait(_) => None,
    }
}

/// The kind of the file at the physical path, `None` if there is none; waits if necessary.
pub async fn kind(ex: &mut Exchange) -> Option<FileKind> {
    hold_root(ex).await.ok()?;
    look_up_path(ex).await.ok().map(|entry| entry.meta().kind)
}

/// Opens the document root unless it is already held.
///
/// # Errors
/// The reason why it cannot be opened.
pub async fn hold_root(ex: &mut Exchange) -> Result<(), Fault> {
    let root = match ex.machine.root(&ex.physical.docroot) {
        Some(root) => root,
        None => open_root(ex).await?,
    };
    ex.physical.root = Some(root);
    Ok(())
}

/// Looks up the physical path in the stat cache only. Nearly always succeeds.
#[inline]
pub(super) fn is_known(ex: &mut Exchange) -> bool {
    let Some(root) = ex.machine.root(&ex.physical.docroot) else { return false };
    let rel = ex.physical.rel.as_slice();
    // Trailing slashes are handled elsewhere.
    if rel.ends_with(b"/") {
        return false;
    }
    let noatime = ex.settings.server.use_noatime;
    let follow = ex.settings.core.follow_symlink;
    ex.physical.entry = ex.machine.stat_cache.known(&root, rel, follow, noatime);
    ex.physical.root = Some(root);
    ex.physical.entry.is_some()
}

/// Looks up the physical path and splits off path info if a file appears where a directory is
/// expected.
pub(super) async fn look_up(ex: &mut Exchange) -> Result<(), Fault> {
    hold_root(ex).await?;
    match look_up_path(ex).await {
        Ok(entry) => {
            ex.physical.entry = Some(entry);
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Box::pin(split_path_info(ex)).await
        }
        Err(error) => Err(file_fault(ex, &error)),
    }
}

/// The stat cache's entry for `docroot/rel`; waits if necessary. If no descriptor is free, waits
/// briefly for one.
pub async fn look_up_path(ex: &Exchange) -> std::io::Result<Rc<CacheEntry>> {
    match look_up_once(ex).await {
        Err(error) if is_out_of_descriptors(&error) => Box::pin(look_up_later(ex, error)).await,
        looked => looked,
    }
}

async fn look_up_later(ex: &Exchange, mut met: std::io::Error) -> std::io::Result<Rc<CacheEntry>> {
    let since_ms = ex.machine.clock.mono_ms();
    loop {
        ex.machine.await_descriptor(since_ms, met).await?;
        match look_up_once(ex).await {
            Err(error) if is_out_of_descriptors(&error) => met = error,
            looked => return looked,
        }
    }
}

async fn look_up_once(ex: &Exchange) -> std::io::Result<Rc<CacheEntry>> {
    let core = &ex.settings.core;
    let root = ex.physical.root.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
    let noatime = ex.settings.server.use_noatime;
    // A trailing slash is not part of the name: `a.txt/` is looked up as a file and rejected below.
    let rel = ex.physical.rel.as_slice();
    let trimmed = rel.strip_suffix(b"/").unwrap_or(rel);
    let entry = match ex.machine.stat_cache.lookup(root, trimmed, core.follow_symlink, noatime) {
        Lookup::Ready(result) => result?,
        Lookup::Wait(future) => future.await?,
    };
    if trimmed.len() < rel.len() && entry.meta().kind != FileKind::Directory {
        return Err(std::io::ErrorKind::NotADirectory.into());
    }
    Ok(entry)
}

async fn open_root(ex: &mut Exchange) -> Result<Rc<lighty_io::file::Root>, Fault> {
    if ex.physical.docroot.is_empty() {
        log_missing_root(ex);
        return Err(Fault::NotFound);
    }
    let opened = Box::pin(ex.machine.open_root(&ex.physical.docroot)).await;
    match opened {
        Ok(root) => Ok(root),
        Err(error) if Fault::of_file_error(&error).is_want() => Err(Fault::of_file_error(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Fault::NotFound),
        // An alias for a file, with more path after it.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotADirectory && ex.physical.step_out() =>
        {
            Box::pin(open_root(ex)).await
        }
        Err(error) => {
            ex.log_fault(Fault::NoDocumentRoot, &error.to_string());
            // As in lighttpd, a directory that may not be entered gives 403.
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => Err(Fault::Forbidden),
                _ => Err(Fault::NoDocumentRoot),
            }
        }
    }
}

/// Logs, rate-limited, a request for a file where no document root is configured.
#[cold]
fn log_missing_root(ex: &Exchange) {
    let now_s = (ex.machine.clock.mono_ms() / 1000) as u32;
    if ex.machine.no_document_root.is_due(now_s) {
        let text = "server.document-root is not set here, and no backend takes the request: \
                    answered 404";
        ex.log(Level::Warning, text);
    }
}

/// Splits `/a.php/b/c`: if a part of the path is a file, the rest is path info. Everything before
/// that part is a directory and nothing after it exists, so a binary search needs only a few
/// look-ups.
async fn split_path_info(ex: &mut Exchange) -> Result<(), Fault> {
    if !ex.settings.core.pathinfo {
        return Err(Fault::NotFound);
    }
    let whole = std::mem::take(&mut ex.physical.rel);
    let slash = |(at, byte): (usize, &u8)| (*byte == b'/').then_some(at);
    let ends: Vec<usize> = whole.iter().enumerate().filter_map(slash).collect();
    let (mut low, mut high) = (0, ends.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let end = ends[middle];
        ex.physical.rel = whole[..end].to_vec();
        match look_up_path(ex).await {
            Ok(entry) if entry.meta().kind == FileKind::File => {
                ex.physical.path_info = whole[end..].to_vec();
                ex.physical.entry = Some(entry);
                return Ok(());
            }
            Ok(entry) if entry.meta().kind == FileKind::Directory => low = middle + 1,
            Ok(_) => break,
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => high = middle,
            Err(error) => return Err(file_fault(ex, &error)),
        }
    }
    ex.physical.rel = whole;
    Err(Fault::NotFound)
}

/// Redirects a directory's URL to the form with a trailing slash, so that relative links in its
/// pages work: 301, query kept. The path is normalised, so it begins with a single slash and cannot
/// name another host.
pub(super) fn redirect_to_slash(ex: &mut Exchange) -> bool {
    if !is_directory(ex) || ex.request.path.ends_with(b"/") {
        return false;
    }
    let mut location = Vec::new();
    let named = ex.settings.core.server_name.as_deref().unwrap_or_default().as_bytes();
    let authority = Some(&*ex.request.authority).filter(|host| !host.is_empty()).unwrap_or(named);
    if ex.settings.server.absolute_dir_redirect && !authority.is_empty() {
        location.extend_from_slice(ex.request.scheme.as_bytes());
        location.extend_from_slice(b"://");
        location.extend_from_slice(authority);
    }
    lighty_http::uri::encode_path(&ex.request.path, &mut location);
    location.push(b'/');
    location.extend_from_slice(&ex.request.target[ex.request.path_end..]);
    // Methods other than GET and HEAD must not become GET (RFC 9110 section 15.4.9).
    let keeps_method = !ex.request.method.is_some_and(Method::is_get_or_head);
    let status = if keeps_method { Status::PERMANENT_REDIRECT } else { Status::MOVED_PERMANENTLY };
    // Fields that a script has set stay.
    ex.response.status = status;
    ex.response.answered = true;
    ex.response.fields.push_known(Known::Location, location);
    true
}

fn file_fault(ex: &Exchange, error: &std::io::Error) -> Fault {
    let fault = Fault::of_file_error(error);
    if fault == Fault::DiskError {
        ex.log_fault(fault, &error.to_string());
    }
    fault
}
