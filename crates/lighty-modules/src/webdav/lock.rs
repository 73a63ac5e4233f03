//! `LOCK` and `UNLOCK`: RFC 4918 sections 9.10 and 9.11.

use lighty_core::{Body, Exchange, Fault};
use lighty_http::{Known, Status, decimal};
use lighty_io::entropy::random_bytes;
use lighty_io::file::FileKind;
use lighty_io::stat_cache::announce_change;
use lighty_io::threads::pool::Lane;

use super::conditions::{begin_writing, check_if};
use super::dav_error::{DavError, of_store};
use super::live::push_locks;
use super::lock_clock::lock_clock;
use super::members::{MemberAccess, MemberCheck, check_collection, check_members};
use super::multistatus::{self, MEDIA_TYPE, push};
use super::put::{created, in_missing, way_to_new};
use super::resource::{Resource, in_pool, listed};
use super::store::{Lock, NewLock, Refresh, Store, Taken, is_below};
use super::xml::XmlDocument;
use super::{AllowedDepth, Call, depth, done, first_item, log_xml, read_xml, sole};

/// Default lifetime of a lock, in seconds.
const LOCK_SECONDS: u32 = 600;

/// Maximum size of an owner's description, in bytes: it is listed with every locked resource.
const OWNER_BYTES_MAX: usize = 4096;

pub(super) async fn serve(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let store = store.ok_or_else(no_locks)?;
    let infinite = match depth(ex)? {
        Some(AllowedDepth::Zero) => false,
        None | Some(AllowedDepth::Infinity) => true,
        Some(AllowedDepth::One) => return Err(Status::BAD_REQUEST.into()),
    };
    let document = read_xml(ex).await?;
    let tokens = check_if(ex, &resource, Some(&store)).await?;
    let Some(document) = document else { return refresh(ex, &resource, &store, tokens).await };
    let (exclusive, owner) = lock_info(&document).ok_or(Status::UNPROCESSABLE_CONTENT)?;
    check_owner(&owner)?;
    let meta = resource.look().await?;
    check_collection(ex, &resource, meta.as_ref(), MemberAccess::Change).await?;
    if infinite && meta.is_some_and(|meta| meta.kind == FileKind::Directory) {
        check_members(
            ex,
            &resource,
            &[MemberCheck { resource: &resource, access: MemberAccess::Change }],
        )
        .await?;
    }
    match meta.map(|meta| meta.kind) {
        None if resource.slash || resource.rel.is_empty() => return Err(Status::CONFLICT.into()),
        None | Some(FileKind::File | FileKind::Directory) => {}
        Some(_) => return Err(Fault::SymlinkRefused.into()),
    }
    let lock = Lock {
        token: new_token()?,
        path: resource.canonical.path.clone(),
        url: listed(&resource.url, meta.map_or(FileKind::File, |meta| meta.kind)),
        infinite: infinite && meta.is_some_and(|meta| meta.kind == FileKind::Directory),
        exclusive,
        owner,
        user: ex.request.remote_user.clone(),
        expires_s: expiry(ex, &resource),
    };
    take(ex, &resource, &store, &lock, tokens).await?;
    if meta.is_none() {
        create(ex, &resource, &store, &lock).await?;
    }
    let token = format!("<{}>", lock.token);
    respond(ex, lock, if meta.is_none() { Status::CREATED } else { Status::OK });
    ex.response.fields.push_known(Known::LockToken, token);
    Ok(())
}

fn no_locks() -> DavError {
    DavError::fault(Fault::MethodNotAllowed, "there are no locks without a database")
}

/// Parses the scope and the owner of a lock (RFC 4918 section 14.11). True means exclusive.
fn lock_info(document: &XmlDocument) -> Option<(bool, String)> {
    let root = &document.root;
    let scope = root.dav_child("lockscope").filter(|_| root.is_dav("lockinfo"))?;
    root.dav_child("locktype")?.dav_child("write")?;
    let exclusive = scope.dav_child("exclusive").is_some();
    if exclusive == scope.dav_child("shared").is_some() {
        return None;
    }
    let owner = root.dav_child("owner").map(|owner| document.standalone(owner));
    Some((exclusive, owner.unwrap_or_default()))
}

/// Creates a UUID of version 4 (RFC 9562).
fn check_owner(owner: &str) -> Result<(), DavError> {
    if owner.len() <= OWNER_BYTES_MAX {
        return Ok(());
    }
    let text = format!("an owner of more than {OWNER_BYTES_MAX} bytes");
    Err(DavError::fault(Fault::DavXml, text))
}

fn new_token() -> Result<String, DavError> {
    let mut number = u128::from_be_bytes(random_bytes()?);
    number = number & !(0xF << 76) | 4 << 76;
    number = number & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{number:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(format!("urn:uuid:{}", parts.join("-")))
}

/// Returns the expiry of a lock: the client's first choice, within the limit (RFC 4918 section
/// 10.7).
fn expiry(ex: &Exchange, resource: &Resource) -> i64 {
    let requested = ex.request.fields.get(Known::Timeout).and_then(first_item);
    let most = resource.own().lock_seconds_max;
    lock_clock(ex) + i64::from(seconds(requested).min(most))
}

fn seconds(requested: Option<&[u8]>) -> u32 {
    let Some(requested) = requested else { return LOCK_SECONDS };
    if requested.eq_ignore_ascii_case(b"infinite") {
        return u32::MAX;
    }
    let number = match requested.split_at_checked(7) {
        Some((unit, number)) if unit.eq_ignore_ascii_case(b"second-") => decimal::parse(number),
        _ => None,
    };
    number.map_or(LOCK_SECONDS, |number| u32::try_from(number).unwrap_or(u32::MAX))
}

async fn take(
    ex: &Exchange,
    resource: &Resource,
    store: &Store,
    lock: &Lock,
    tokens: Vec<String>,
) -> Result<(), DavError> {
    let is_new = resource.look().await?.is_none();
    // A new file changes its parent collection.
    let way = if is_new { way_to_new(resource) } else { Vec::new() };
    drop(begin_writing(ex, resource, Some(store), way, tokens).await?);
    let (now_s, most) = (lock_clock(ex), resource.own().locks_max);
    let new = NewLock { lock: lock.clone(), links: resource.canonical.links.clone() };
    match store.take_lock(new, now_s, most).await.map_err(of_store)? {
        Taken::Yes => Ok(()),
        Taken::Busy => Err(Status::LOCKED.into()),
        Taken::TooMany => Err(Fault::DavLocksMax.into()),
        Taken::Conflict(others) => Err(conflict(resource, &others)),
    }
}

/// Returns 423, or 207 if only members are locked (RFC 4918 section 9.10.9).
fn conflict(resource: &Resource, others: &[Lock]) -> DavError {
    let condition = "no-conflicting-lock";
    if others.iter().any(|other| !is_below(&other.path, &resource.canonical.path)) {
        let urls: Vec<_> = others.iter().map(|other| other.url.clone()).collect();
        return DavError::condition(Status::LOCKED, condition, &urls);
    }
    let mut out = multistatus::begin("multistatus");
    for other in others {
        let url = resource.url_of(&other.path);
        multistatus::push_outcome(&url, Status::LOCKED, Some(condition), &mut out);
    }
    let own = listed(&resource.url, FileKind::Directory);
    multistatus::push_outcome(&own, Status::FAILED_DEPENDENCY, None, &mut out);
    multistatus::end("multistatus", &mut out);
    DavError::Xml(Status::MULTI_STATUS, out)
}

/// Creates an empty file for a lock on an unmapped URL (RFC 4918 section 7.3).
async fn create(
    ex: &Exchange,
    resource: &Resource,
    store: &Store,
    lock: &Lock,
) -> Result<(), DavError> {
    let (tree, rel) = (resource.tree.clone(), resource.rel.clone());
    let made = in_pool(Lane::Write, move || tree.make_file(&rel)).await?;
    match made {
        Ok(()) => {
            announce_change();
            created(ex, resource, Some(store)).await;
            Ok(())
        }
        // Another client created the file; the lock covers it all the same.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let Lock { token, user, .. } = lock.clone();
            let (canonical, now_s) = (resource.canonical.clone(), lock_clock(ex));
            let given_back =
                store.write(move |db| db.unlock(&canonical, &token, &user, now_s)).await;
            given_back.map_err(of_store)?;
            Err(in_missing(error).missing_is_conflict())
        }
    }
}

/// Handles a `LOCK` without a body, which refreshes a lock (RFC 4918 section 9.10.2).
async fn refresh(
    ex: &mut Exchange,
    resource: &Resource,
    store: &Store,
    tokens: Vec<String>,
) -> Result<(), DavError> {
    if tokens.is_empty() {
        return Err(Status::BAD_REQUEST.into());
    }
    let times = (lock_clock(ex), expiry(ex, resource));
    let (canonical, user) = (resource.canonical.clone(), ex.request.remote_user.clone());
    let refreshed = store.write(move |db| db.refresh_lock(&canonical, &tokens, &user, times)).await;
    match refreshed.map_err(of_store)? {
        Refresh::Done(lock) => {
            respond(ex, lock, Status::OK);
            Ok(())
        }
        Refresh::Unknown => Err(Status::PRECONDITION_FAILED.into()),
        Refresh::NotYours => Err(Status::FORBIDDEN.into()),
    }
}

fn respond(ex: &mut Exchange, lock: Lock, status: Status) {
    let mut out = multistatus::begin("prop");
    push_locks(&[lock], lock_clock(ex), &mut out);
    push(&mut out, &["\n"]);
    multistatus::end("prop", &mut out);
    log_xml(ex, &out);
    done(ex, status);
    ex.response.fields.set(Known::ContentType, MEDIA_TYPE);
    ex.response.body = Body::Memory(out.into());
}

/// Handles `UNLOCK`.
pub(super) async fn serve_unlock(ex: &mut Exchange, call: Call) -> Result<(), DavError> {
    let Call { resource, store } = call;
    let store = store.ok_or_else(no_locks)?;
    let value = sole(ex, Known::LockToken)?.ok_or(Status::BAD_REQUEST)?;
    let token = value.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
    let token = String::from_utf8_lossy(token.ok_or(Status::BAD_REQUEST)?).into_owned();
    check_if(ex, &resource, Some(&store)).await?;
    let (canonical, user) = (resource.canonical.clone(), ex.request.remote_user.clone());
    let now_s = lock_clock(ex);
    let unlocked = store.write(move |db| db.unlock(&canonical, &token, &user, now_s)).await;
    match unlocked.map_err(of_store)? {
        Refresh::Done(_) => {
            done(ex, Status::NO_CONTENT);
            Ok(())
        }
        Refresh::Unknown => {
            Err(DavError::condition(Status::CONFLICT, "lock-token-matches-request-uri", &[]))
        }
        Refresh::NotYours => Err(Status::FORBIDDEN.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_of_an_owner_has_a_limit() {
        assert!(check_owner(&"o".repeat(OWNER_BYTES_MAX)).is_ok());
        let refused = check_owner(&"o".repeat(OWNER_BYTES_MAX + 1));
        let Err(DavError::Fault(report)) = refused else { panic!("{refused:?}") };
        assert_eq!(report.detail, format!("an owner of more than {OWNER_BYTES_MAX} bytes"));
    }

    #[test]
    fn tokens_are_random_uuids() {
        let token = new_token().expect("random bytes");
        let uuid = token.strip_prefix("urn:uuid:").expect("a UUID");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uuid.as_bytes()[19]));
        assert_ne!(token, new_token().expect("random bytes"));
    }

    #[test]
    fn time_outs_are_what_the_client_asks_for_first() {
        assert_eq!(seconds(None), 600);
        assert_eq!(seconds(Some(b"Second-5")), 5);
        assert_eq!(seconds(Some(b"second-4100000000")), 4_100_000_000);
        assert_eq!(seconds(Some(b"Second-99999999999")), u32::MAX);
        assert_eq!(seconds(Some(b"Infinite")), u32::MAX);
        assert_eq!(seconds(Some(b"Second-x")), 600);
        assert_eq!(seconds(Some(b"Tomorrow")), 600);
    }
}
