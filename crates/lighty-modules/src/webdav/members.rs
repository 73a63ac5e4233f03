//! Access checks for each member of a collection that is listed, removed, moved, copied, replaced,
//! or locked as a tree. Access to a collection does not imply access to members that are denied.
//!
//! Each member is checked as a request for its URL would be. If neither a condition nor a module
//! depends on URLs, all members are alike and no check is needed. Files that appear between the
//! check and the work are not noticed; a client that is denied a path cannot cause that.

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

/// Stop listing after this many forbidden members.
const REFUSED_MAX: usize = 16;

/// Members read from the disk at a time.
const BATCH: usize = 128;

/// Members checked before the task yields.
const TURN: usize = 32;

/// Kind of access to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberAccess {
    Read,
    Change,
}

/// A base URL of the members, and the access that is needed there.
pub(super) struct MemberCheck<'a> {
    pub(super) resource: &'a Resource,
    pub(super) access: MemberAccess,
}

/// A member to which access is denied.
pub(super) struct RefusedMember {
    /// Path relative to the collection.
    pub(super) path: Vec<u8>,
    url: Vec<u8>,
    status: Status,
}

/// Checks access to everything beneath a collection.
///
/// # Errors
/// 207 with the forbidden members; the operation must not start then.
pub(super) async fn check_members(
    ex: &mut Exchange,
    collection: &Resource,
    checks: &[MemberCheck<'_>],
) -> Result<(), DavError> {
    let refused = find_refused(ex, collection, checks, (Extent::Tree, REFUSED_MAX)).await?;
    if refused.is_empty() {
        return Ok(());
    }
    let mut out = multistatus::begin("multistatus");
    for RefusedMember { url, status, .. } in &refused {
        ex.log(
            Level::Notice,
            &format!("webdav: nothing is done, for {} is refused", url.escape_ascii()),
        );
        multistatus::push_outcome(url, *status, None, &mut out);
    }
    multistatus::end("multistatus", &mut out);
    Err(DavError::Xml(Status::MULTI_STATUS, out))
}

/// Returns up to `most` forbidden members; the list is complete if it is shorter. Skips the
/// contents of a forbidden collection.
pub(super) async fn find_refused(
    ex: &mut Exchange,
    collection: &Resource,
    checks: &[MemberCheck<'_>],
    (extent, most): (Extent, usize),
) -> Result<Vec<RefusedMember>, DavError> {
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
            // A directory that cannot be read cannot be checked, so access is denied.
            let url = join_url(&collection.url, &last);
            refused.push(RefusedMember { path: last, url, status: status_of(&error) });
        }
        let batch = batch?;
        let Some(final_one) = batch.last().filter(|_| refused.len() < most) else {
            return Ok(refused);
        };
        last = final_one.path.clone();
        for (count, member) in batch.iter().enumerate() {
            let found = ask(ex, member, checks).await;
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

/// Fails if the client has disconnected.
async fn check_waits(ex: &Exchange) -> Result<(), DavError> {
    let Some(client) = ex.client.clone() else { return Ok(()) };
    let gone = std::future::poll_fn(|cx| {
        let mut client = client.borrow_mut();
        client.pause_body_timer();
        std::task::Poll::Ready(client.poll_gone(cx).is_ready())
    });
    if gone.await { Err(Fault::ClientGone.into()) } else { Ok(()) }
}

async fn ask(
    ex: &mut Exchange,
    member: &Member,
    checks: &[MemberCheck<'_>],
) -> Option<RefusedMember> {
    let is_protected = is_protected(&member.meta);
    for MemberCheck { resource, access } in checks {
        let url = listed(&join_url(&resource.url, &member.path), member.meta.kind);
        let mut is_path_allowed =
            !is_protected && may(ex, &url, resource.is_requested, *access).await;
        if is_path_allowed && *access == MemberAccess::Read && member.meta.kind == FileKind::Symlink
        {
            // The link may lead to a collection.
            let within = listed(&url, FileKind::Directory);
            is_path_allowed = may(ex, &within, resource.is_requested, *access).await;
        }
        if !is_path_allowed {
            return Some(RefusedMember {
                path: member.path.clone(),
                url,
                status: Status::FORBIDDEN,
            });
        }
    }
    None
}

/// Returns true if this access to an already rewritten URL is allowed.
async fn may(ex: &mut Exchange, url: &[u8], with_query: bool, access: MemberAccess) -> bool {
    let Ok(found) = locate_rewritten(ex, url, with_query).await else { return false };
    let own = found.settings.module::<DavSettings>();
    !names_staging(&found.physical.rel)
        && (access == MemberAccess::Read || (own.active && !own.readonly))
}

/// Checks a collection that was named without the slash at its end, so that rules for its contents
/// (`/private/`) apply too.
///
/// # Errors
/// 403 if access to its own URL is denied.
pub(super) async fn check_collection(
    ex: &mut Exchange,
    resource: &Resource,
    meta: Option<&Meta>,
    access: MemberAccess,
) -> Result<(), DavError> {
    if resource.slash || !meta.is_some_and(|meta| meta.kind == FileKind::Directory) {
        return Ok(());
    }
    match may(ex, &listed(&resource.url, FileKind::Directory), resource.is_requested, access).await
    {
        true => Ok(()),
        false => Err(Status::FORBIDDEN.into()),
    }
}

fn join_url(url: &[u8], path: &[u8]) -> Vec<u8> {
    [url, b"/", path].concat()
}
