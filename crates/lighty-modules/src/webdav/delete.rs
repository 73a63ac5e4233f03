//! `DELETE`: RFC 4918 section 9.6.

use lighty_core::{Exchange, Level};
use lighty_http::Status;
use lighty_io::file::FileKind;
use lighty_io::file::tree::{Cancel, EntryFailure, exists};
use lighty_io::stat_cache::announce_change;
use lighty_io::threads::pool::Lane;

use super::conditions::{begin_writing, check_if, check_preconditions, covered};
use super::dav_error::{DavError, status_of};
use super::members::{MemberAccess, MemberCheck, check_collection, check_members};
use super::multistatus;
use super::put::way_to_new;
use super::resource::{Resource, in_pool, join};
use super::store::Store;
use super::{AllowedDepth, Call, depth, done, until_gone};

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let depth = depth(ex)?;
    let tokens = check_if(ex, &resource, store.as_ref()).await?;
    let Some(meta) = resource.look().await? else { return Err(Status::NOT_FOUND.into()) };
    if resource.rel.is_empty() {
        return Err(Status::FORBIDDEN.into());
    }
    if meta.kind == FileKind::Directory
        && matches!(depth, Some(AllowedDepth::Zero | AllowedDepth::One))
    {
        return Err(Status::BAD_REQUEST.into());
    }
    check_preconditions(ex, &resource, Some(&meta))?;
    check_collection(ex, &resource, Some(&meta), MemberAccess::Change).await?;
    if meta.kind == FileKind::Directory {
        check_members(
            ex,
            &resource,
            &[MemberCheck { resource: &resource, access: MemberAccess::Change }],
        )
        .await?;
    }
    let mut paths = way_to_new(&resource);
    paths.push(covered(&resource, true));
    let _writing = begin_writing(ex, &resource, store.as_ref(), paths, tokens).await?;
    let failures = remove(ex, &resource).await;
    announce_change();
    forget(ex, &resource, store.as_ref()).await;
    match outcome(&resource, failures?) {
        Some(refusal) => Err(refusal),
        None => {
            done(ex, Status::NO_CONTENT);
            Ok(())
        }
    }
}

pub(super) async fn remove(
    ex: &Exchange,
    resource: &Resource,
) -> Result<Vec<EntryFailure>, DavError> {
    let cancel = Cancel::default();
    let (tree, rel, its) = (resource.tree.clone(), resource.rel.clone(), cancel.clone());
    let work = in_pool(Lane::Write, move || tree.remove_all(&rel, &its));
    Ok(until_gone(ex, &cancel, work).await??)
}

/// Returns the response for files that could not be removed (RFC 4918 section 9.6.1). Collections
/// that stay only because of their members are not listed.
pub(super) fn outcome(resource: &Resource, mut failures: Vec<EntryFailure>) -> Option<DavError> {
    let own = failures.iter().position(|failure| failure.path.is_empty());
    if let (Some(own), 1) = (own, failures.len()) {
        return Some(failures.swap_remove(own).error.into());
    }
    if failures.is_empty() {
        return None;
    }
    let mut out = multistatus::begin("multistatus");
    for failure in &failures {
        let url = join(&resource.url, &failure.path);
        multistatus::push_outcome(&url, status_of(&failure.error), None, &mut out);
    }
    multistatus::end("multistatus", &mut out);
    Some(DavError::Xml(Status::MULTI_STATUS, out))
}

/// Removes properties and locks of files that no longer exist.
pub(super) async fn forget(ex: &Exchange, resource: &Resource, store: Option<&Store>) {
    let Some(store) = store else { return };
    let key = resource.canonical.path.clone();
    let forgotten = store.note(move |db| db.forget_gone(&key, is_there));
    if let Err(error) = forgotten.await {
        ex.log(Level::Error, &format!("webdav: properties of a file that is gone stay: {error}"));
    }
}

fn is_there(path: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    exists(std::path::Path::new(std::ffi::OsStr::from_bytes(path)))
}
