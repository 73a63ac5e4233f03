//! What the configuration says of each member of a collection that is listed, removed, moved,
//! copied, replaced, or locked with all that is in it: access to a collection gives no access to
//! members that are denied.
//!
//! Each member is looked up as a request for it would be. Where neither a condition nor a module
//! looks at URLs, all members are alike and none is asked for. What appears in the tree between
//! this look and the work is not seen; a client that is denied a path cannot make that happen.

use std::io;

use lighty_core::pipeline::locate::{distinguishes_urls, locate_rewritten};
use lighty_core::pipeline::protected_files::{holds_protected, is_protected};
use lighty_core::{Exchange, Fault, Level};
use lighty_http::Status;
use lighty_io::file::tree::{Extent, Member, Survey};
use lighty_io::file::{FileKind, Meta};
use lighty_io::threads::pool::Lane;

use super::dav_error::{DavError, status_of};
use super::multistatus;
use super::names_staging;
use super::resource::{Resource, in_pool, listed};
use super::settings::DavSettings;

/// Members that are told of; then there is no use in looking on.
const REFUSED_MAX: usize = 16;

/// Members that are read from the disk at a time.
const BATCH: usize = 128;

/// Members between two turns of others.
const TURN: usize = 32;

/// What is meant to be done to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    Change,
}

/// A URL at which the members would be asked for, and what for.
pub(super) struct Asked<'a> {
    pub(super) resource: &'a Resource,
    pub(super) deed: Deed,
}

/// A member that may not be had.
pub(super) struct Refused {
    /// Beneath the collection.
    pub(super) path: Vec<u8>,
    url: Vec<u8>,
    status: Status,
}

/// Checks all that is beneath a collection.
///
/// # Errors
/// 207, in which those are named that may not be had; nothing may be done then.
pub(super) async fn check_members(
    ex: &mut Exchange,
    collection: &Resource,
    asked: &[Asked<'_>],
) -> Result<(), DavError> {
    let refused = find_refused(ex, collection, asked, (Extent::Tree, REFUSED_MAX)).await?;
    if refused.is_empty() {
        return Ok(());
    }
    let mut out = multistatus::begin("multistatus");
    for Refused { url, status, .. } in &refused {
        ex.log(
            Level::Notice,
            &format!("webdav: nothing is done, for {} is refused", url.escape_ascii()),
        );
        multistatus::push_outcome(url, *status, None, &mut out);
    }
    multistatus::end("multistatus", &mut out);
    Err(DavError::Xml(Status::MULTI_STATUS, out))
}

/// Members that may not be had, `most` of them at most; there are no more if it is fewer. What is
/// in one of them is not looked at.
pub(super) async fn find_refused(
    ex: &mut Exchange,
    collection: &Resource,
    asked: &[Asked<'_>],
    (extent, most): (Extent, usize),
) -> Result<Vec<Refused>, DavError> {
    let mut refused = Vec::new();
    if !distinguishes_urls(ex) && !holds_protected(&collection.canonical.path) {
        return Ok(refused);
    }
    let (tree, rel) = (collection.tree.clone(), collection.rel.clone());
    let mut survey = in_pool(Lane::Stat, move || Survey::begin(&tree, &rel, extent)).await??;
    let (mut enter, mut last) = (false, Vec::new());
    loop {
        let (entered, batch);
        (survey, entered, batch) = next_batch(survey, enter).await?;
        if let Err(error) = entered {
            // What cannot be seen cannot be known to be allowed.
            let url = join_url(&collection.url, &last);
            refused.push(Refused { path: last, url, status: status_of(&error) });
        }
        let batch = batch?;
        let Some(final_one) = batch.last().filter(|_| refused.len() < most) else {
            return Ok(refused);
        };
        last = final_one.path.clone();
        for (count, member) in batch.iter().enumerate() {
            let found = ask(ex, member, asked).await;
            enter = found.is_none();
            refused.extend(found);
            if refused.len() >= most {
                return Ok(refused);
            }
            if count % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        check_waits(ex).await?;
    }
}

async fn next_batch(
    mut survey: Survey,
    enter: bool,
) -> Result<(Survey, io::Result<()>, io::Result<Vec<Member>>), DavError> {
    in_pool(Lane::Stat, move || {
        let entered = if enter { survey.enter() } else { Ok(()) };
        let batch = survey.next_batch(BATCH);
        (survey, entered, batch)
    })
    .await
}

/// Whether the client still waits.
async fn check_waits(ex: &Exchange) -> Result<(), DavError> {
    let Some(client) = ex.client.clone() else { return Ok(()) };
    let gone = std::future::poll_fn(|cx| {
        let mut client = client.borrow_mut();
        client.pause_body_timer();
        std::task::Poll::Ready(client.poll_gone(cx).is_ready())
    });
    if gone.await { Err(Fault::ClientGone.into()) } else { Ok(()) }
}

async fn ask(ex: &mut Exchange, member: &Member, asked: &[Asked<'_>]) -> Option<Refused> {
    let is_protected = is_protected(&member.meta);
    for Asked { resource, deed } in asked {
        let url = listed(&join_url(&resource.url, &member.path), member.meta.kind);
        let mut is_path_allowed =
            !is_protected && may(ex, &url, resource.is_requested, *deed).await;
        if is_path_allowed && *deed == Deed::Read && member.meta.kind == FileKind::Symlink {
            // A collection, perhaps.
            let within = listed(&url, FileKind::Directory);
            is_path_allowed = may(ex, &within, resource.is_requested, *deed).await;
        }
        if !is_path_allowed {
            return Some(Refused { path: member.path.clone(), url, status: Status::FORBIDDEN });
        }
    }
    None
}

/// Whether a URL, rewritten by now, may be had for this.
async fn may(ex: &mut Exchange, url: &[u8], with_query: bool, deed: Deed) -> bool {
    let Ok(found) = locate_rewritten(ex, url, with_query).await else { return false };
    let own = found.settings.module::<DavSettings>();
    !names_staging(&found.physical.rel) && (deed == Deed::Read || (own.active && !own.readonly))
}

/// A collection may be named without the slash at its end. What the configuration says of what is
/// in it (`/private/`) is then asked, too.
///
/// # Errors
/// 403 where it may not be had or changed under its own URL.
pub(super) async fn check_collection(
    ex: &mut Exchange,
    resource: &Resource,
    meta: Option<&Meta>,
    deed: Deed,
) -> Result<(), DavError> {
    if resource.slash || !meta.is_some_and(|meta| meta.kind == FileKind::Directory) {
        return Ok(());
    }
    match may(ex, &listed(&resource.url, FileKind::Directory), resource.is_requested, deed).await {
        true => Ok(()),
        false => Err(Status::FORBIDDEN.into()),
    }
}

fn join_url(url: &[u8], path: &[u8]) -> Vec<u8> {
    [url, b"/", path].concat()
}
