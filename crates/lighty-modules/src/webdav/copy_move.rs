//! `COPY` and `MOVE`: RFC 4918 sections 9.8 and 9.9.
//!
//! The destination is checked against the configuration as if it were requested: another host, a
//! path that is denied to this client, or one without WebDAV is rejected.

use lighty_core::{Exchange, Level};
use lighty_http::{Known, Status};
use lighty_io::file::tree::{Cancel, EntryFailure, Reach, Replace};
use lighty_io::file::{FileKind, Meta};
use lighty_io::stat_cache::announce_change;
use lighty_io::threads::pool::Lane;

use super::conditions::{begin_writing, check_if, check_preconditions, covered, other_spot};
use super::dav_error::{DavError, of_store};
use super::delete::{forget, outcome};
use super::members::{MemberAccess, MemberCheck, check_collection, check_members};
use super::put::{in_missing, way_to_new};
use super::resource::{Resource, in_pool};
use super::store::{Covered, Store, is_below};
use super::{AllowedDepth, Call, depth, done, sole, until_gone};

/// The method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Copy,
    Move,
}

/// A checked `COPY` or `MOVE`.
struct CopyMovePlan {
    verb: Verb,
    from: Resource,
    to: Resource,
    replace: Replace,
    reach: Reach,
    /// The destination exists.
    replaces: bool,
}

pub(super) async fn serve(ex: &mut Exchange, call: Call, verb: Verb) -> Result<(), DavError> {
    let Call { resource: from, store } = call;
    let reach = reach(ex, verb)?;
    let requested = overwrite(ex)?;
    let target = sole(ex, Known::Destination)?.ok_or(Status::BAD_REQUEST)?.to_vec();
    let mut to = other_spot(ex, &target).await?;
    let tokens = check_if(ex, &from, store.as_ref()).await?;
    let Some(meta) = from.look().await? else { return Err(Status::NOT_FOUND.into()) };
    check_preconditions(ex, &from, Some(&meta))?;
    let mut there = to.look().await?;
    let into_collection = meta.kind == FileKind::File && is_collection(there.as_ref());
    if into_collection {
        to = inside(ex, target).await?;
        there = to.look().await?;
        if is_collection(there.as_ref()) {
            return Err(Status::CONFLICT.into());
        }
    }
    check_paths(&from, &to, &meta, verb)?;
    check_collection(ex, &from, Some(&meta), verb.access()).await?;
    check_collection(ex, &to, there.as_ref(), MemberAccess::Change).await?;
    // The destination's own settings apply.
    let overwrite = if to.own().overwrite { requested } else { Replace::No };
    if there.is_some() && overwrite == Replace::No {
        return Err(Status::PRECONDITION_FAILED.into());
    }
    let replaces = there.is_some();
    if meta.kind == FileKind::File && to.slash && !replaces {
        // A URL with a slash names a collection.
        return Err(Status::CONFLICT.into());
    }
    let taken = meta.kind == FileKind::Directory && reach == Reach::All;
    check_all(ex, (&from, verb.access(), taken), (&to, there)).await?;
    let plan = CopyMovePlan { verb, from, to, replace: overwrite, reach, replaces };
    let _writing = begin_writing(ex, &plan.from, store.as_ref(), plan.changes(), tokens)
        .await
        .map_err(|refusal| refusal.missing_is_conflict())?;
    let failures = plan.carry_out(ex, store.as_ref()).await?;
    match outcome(&plan.to, failures) {
        Some(refusal) => Err(refusal),
        None => {
            let was_there = replaces || into_collection;
            done(ex, if was_there { Status::NO_CONTENT } else { Status::CREATED });
            Ok(())
        }
    }
}

fn is_collection(meta: Option<&Meta>) -> bool {
    meta.is_some_and(|meta| meta.kind == FileKind::Directory)
}

/// Returns the member of a collection to which a file is copied, under its own name. RFC 4918
/// section 9.8.4 would have the file replace the collection. But a URL that lacks its last segment
/// must not delete a tree, and lighttpd puts the file inside as well.
async fn inside(ex: &mut Exchange, mut collection: Vec<u8>) -> Result<Resource, DavError> {
    if !collection.ends_with(b"/") {
        collection.push(b'/');
    }
    let path = ex.request.path_encoded();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    collection.extend_from_slice(name);
    other_spot(ex, &collection).await
}

impl Verb {
    /// Returns the access that the source needs.
    fn access(self) -> MemberAccess {
        match self {
            Self::Copy => MemberAccess::Read,
            Self::Move => MemberAccess::Change,
        }
    }
}

/// Checks access to the members of the source, at their old and new URLs, and to the members of a
/// replaced collection.
async fn check_all(
    ex: &mut Exchange,
    (from, access, taken): (&Resource, MemberAccess, bool),
    (to, there): (&Resource, Option<Meta>),
) -> Result<(), DavError> {
    let new = MemberCheck { resource: to, access: MemberAccess::Change };
    if taken {
        check_members(ex, from, &[MemberCheck { resource: from, access }, new]).await?;
    }
    if there.is_some_and(|meta| meta.kind == FileKind::Directory) {
        check_members(ex, to, &[MemberCheck { resource: to, access: MemberAccess::Change }])
            .await?;
    }
    Ok(())
}

/// Returns the depth. A move always includes all members.
fn reach(ex: &Exchange, verb: Verb) -> Result<Reach, DavError> {
    match (depth(ex)?, verb) {
        (None | Some(AllowedDepth::Infinity), _) => Ok(Reach::All),
        (Some(AllowedDepth::Zero), Verb::Copy) => Ok(Reach::Itself),
        _ => Err(Status::BAD_REQUEST.into()),
    }
}

/// Parses `Overwrite` (RFC 4918 section 10.6).
fn overwrite(ex: &Exchange) -> Result<Replace, DavError> {
    match sole(ex, Known::Overwrite)? {
        None => Ok(Replace::Yes),
        Some(value) if value.eq_ignore_ascii_case(b"T") => Ok(Replace::Yes),
        Some(value) if value.eq_ignore_ascii_case(b"F") => Ok(Replace::No),
        Some(_) => Err(Status::BAD_REQUEST.into()),
    }
}

/// Rejects senseless operations: a collection cannot go into itself or replace a collection that
/// contains it, and nothing replaces a document root.
fn check_paths(from: &Resource, to: &Resource, meta: &Meta, verb: Verb) -> Result<(), DavError> {
    let links = !matches!(meta.kind, FileKind::File | FileKind::Directory);
    let (source, target) = (&from.canonical.path, &to.canonical.path);
    let same = source == target;
    let into_itself = meta.kind == FileKind::Directory && is_below(target, source);
    let over_itself = is_below(source, target);
    let roots = to.rel.is_empty() || (verb == Verb::Move && from.rel.is_empty());
    if same || into_itself || over_itself || links || roots || to.own().readonly {
        return Err(Status::FORBIDDEN.into());
    }
    Ok(())
}

impl CopyMovePlan {
    fn changes(&self) -> Vec<Covered> {
        let mut paths = vec![covered(&self.to, true)];
        if !self.replaces {
            paths.extend(way_to_new(&self.to));
        }
        if self.verb == Verb::Move {
            paths.extend(way_to_new(&self.from));
            paths.push(covered(&self.from, true));
        }
        paths
    }

    async fn carry_out(
        &self,
        ex: &Exchange,
        store: Option<&Store>,
    ) -> Result<Vec<EntryFailure>, DavError> {
        let keys = (self.from.canonical.path.clone(), self.to.canonical.path.clone());
        if let (Verb::Move, Some(store)) = (self.verb, store) {
            let (from, to) = keys.clone();
            store.write(move |db| db.moving(&from, &to)).await.map_err(of_store)?;
        }
        let work = self.work(ex).await;
        announce_change();
        if let Some(store) = store {
            let (verb, whole) = (self.verb, self.reach == Reach::All);
            let done = work.is_ok();
            let noted = store.note(move |db| match (verb, done) {
                (Verb::Copy, true) => db.copied(&keys.0, &keys.1, whole),
                (Verb::Copy, false) => Ok(()),
                (Verb::Move, true) => db.moved(&keys.0, &keys.1),
                (Verb::Move, false) => db.not_moved(&keys.0),
            });
            if let Err(error) = noted.await {
                ex.log(Level::Error, &format!("webdav: properties did not follow: {error}"));
            }
            forget(ex, &self.to, Some(store)).await;
        }
        work
    }

    async fn work(&self, ex: &Exchange) -> Result<Vec<EntryFailure>, DavError> {
        let cancel = Cancel::default();
        let (verb, replace, reach, its) = (self.verb, self.replace, self.reach, cancel.clone());
        let (from, rel) = (self.from.tree.clone(), self.from.rel.clone());
        let (to, new_rel) = (self.to.tree.clone(), self.to.rel.clone());
        let work = in_pool(Lane::Write, move || match verb {
            Verb::Copy => from.copy_to(&rel, (&to, &new_rel), (replace, reach), &its),
            Verb::Move => from.move_to(&rel, (&to, &new_rel), replace, &its),
        });
        match until_gone(ex, &cancel, work).await? {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Status::PRECONDITION_FAILED.into())
            }
            done => done.map_err(|error| in_missing(error).missing_is_conflict()),
        }
    }
}
