//! Preconditions of changes: the `If` field, and locks.

use lighty_core::pipeline::locate::locate;
use lighty_core::{Exchange, Fault};
use lighty_http::conditional::{self, PreconditionOutcome, Validators};
use lighty_http::etag::{strong_match, without_coding};
use lighty_http::host::parse_host;
use lighty_http::if_header::{IfHeader, IfState};
use lighty_http::uri::{Form, split_target};
use lighty_http::{Known, Method, Status};
use lighty_io::file::{FileKind, Meta};

use super::dav_error::{DavError, of_store};
use super::lock_clock::lock_clock;
use super::multistatus;
use super::resource::Resource;
use super::store::{Covered, Lock, Store, WriteClaim, Writing};

/// Evaluates the `If` field. Returns the tokens that the client submitted.
pub(super) async fn check_if(
    ex: &mut Exchange,
    resource: &Resource,
    store: Option<&Store>,
) -> Result<Vec<String>, DavError> {
    let mut values = ex.request.fields.get_all(Known::If);
    let Some(value) = values.next().map(<[u8]>::to_vec) else { return Ok(Vec::new()) };
    if values.next().is_some() {
        return Err(DavError::fault(Fault::DavXml, "more than one If"));
    }
    drop(values);
    let header = IfHeader::parse(&value)?;
    let mut holds = false;
    for list in &header.lists {
        let facts = match list.resource {
            None => Some(ConditionFacts::of(ex, resource, store).await?),
            Some(url) => match other_spot(ex, url).await {
                Ok(other) => Some(ConditionFacts::of(ex, &other, store).await?),
                // A missing resource has neither tag nor lock.
                Err(_) => None,
            },
        };
        let is_met = |state| facts.as_ref().is_some_and(|facts| facts.meet(state));
        holds |= list.conditions.iter().all(|one| is_met(one.state) != one.negated);
    }
    if !holds {
        return Err(Status::PRECONDITION_FAILED.into());
    }
    let text = |token: &[u8]| String::from_utf8_lossy(token).into_owned();
    Ok(header.tokens().map(text).collect())
}

/// The state of a resource that a condition tests.
struct ConditionFacts {
    etag: Option<Vec<u8>>,
    tokens: Vec<String>,
}

impl ConditionFacts {
    async fn of(
        ex: &Exchange,
        resource: &Resource,
        store: Option<&Store>,
    ) -> Result<Self, DavError> {
        let meta = resource.look().await?;
        let etag = meta.and_then(|meta| etag_of(resource, &meta));
        let tokens = match store {
            None => Vec::new(),
            Some(store) => {
                let (canonical, now_s) = (resource.canonical.clone(), lock_clock(ex));
                let locks = store.read(move |db| db.locks_at(&canonical, now_s)).await;
                locks.map_err(of_store)?.into_iter().map(|lock| lock.token).collect()
            }
        };
        Ok(Self { etag, tokens })
    }

    fn meet(&self, state: IfState<'_>) -> bool {
        match state {
            IfState::Token(token) => self.tokens.iter().any(|known| known.as_bytes() == token),
            IfState::ETag(tag) => {
                // GET may have sent the file compressed.
                let bare = without_coding(tag).map(|(bare, _)| bare);
                let is_own = |known: &Vec<u8>| {
                    strong_match(known, tag)
                        || bare.as_ref().is_some_and(|bare| strong_match(known, bare))
                };
                self.etag.as_ref().is_some_and(is_own)
            }
        }
    }
}

/// Returns a file's ETag, the same as in `GET`.
pub(super) fn etag_of(resource: &Resource, meta: &Meta) -> Option<Vec<u8>> {
    let etag = (meta.kind == FileKind::File).then(|| resource.settings.core.etag_of(meta))??;
    Some(etag.as_bytes().to_vec())
}

/// Resolves another URL of a request, from `Destination` or a tag in `If`. It must be on this host.
///
/// # Errors
/// 400 for an invalid URL, 502 for another host (RFC 4918 section 9.8.5), 401 if credentials are
/// missing, 403 if access is denied or WebDAV is off there.
pub(super) async fn other_spot(ex: &mut Exchange, url: &[u8]) -> Result<Resource, DavError> {
    let target = match split_target(url, false) {
        Ok(Form::Origin(target)) => target.to_vec(),
        Ok(Form::Absolute { authority, rest, secure }) => {
            if !is_own_host(ex, authority, secure) {
                return Err(Status::BAD_GATEWAY.into());
            }
            if rest.is_empty() { b"/".to_vec() } else { rest.to_vec() }
        }
        _ => return Err(Status::BAD_REQUEST.into()),
    };
    if target.contains(&b'#') || target.contains(&b'?') {
        return Err(Status::BAD_REQUEST.into());
    }
    let located = locate(ex, &target).await;
    let located = located.map_err(|refusal| match refusal.status {
        Status::BAD_REQUEST => DavError::Status(refusal.status),
        Status::UNAUTHORIZED => DavError::Unauthorized(refusal.challenges),
        _ => DavError::Status(Status::FORBIDDEN),
    })?;
    let resource = Resource::of_located(ex, &located).await?;
    if !resource.own().active || super::names_staging(&resource.rel) {
        return Err(Status::FORBIDDEN.into());
    }
    Ok(resource)
}

/// Returns true if an authority is the request's own. The scheme may differ, because a proxy may
/// have terminated TLS.
fn is_own_host(ex: &Exchange, authority: &[u8], secure: bool) -> bool {
    let parse = &ex.settings.server.parse;
    let mut host = Vec::new();
    let Ok(port) = parse_host(authority, parse, &mut host) else { return false };
    let mut own_host = Vec::new();
    let Ok(own_port) = parse_host(&ex.request.authority, parse, &mut own_host) else {
        return false;
    };
    let default = if secure { 443 } else { 80 };
    let own_default = if ex.request.scheme == "https" { 443 } else { 80 };
    let (port, own_port) = (port.unwrap_or(default), own_port.unwrap_or(own_default));
    let both_default = matches!((port, own_port), (443, 80));
    host == own_host && (port == own_port || both_default)
}

/// Evaluates `If-Match` and the other preconditions (RFC 9110 section 13) against the existing
/// file.
pub(super) fn check_preconditions(
    ex: &Exchange,
    resource: &Resource,
    meta: Option<&Meta>,
) -> Result<(), DavError> {
    let etag = meta.and_then(|meta| etag_of(resource, meta));
    let validators = Validators {
        etag: etag.as_deref(),
        last_modified: meta.map(|meta| meta.mtime_s),
        now: ex.machine.clock.unix_s(),
    };
    let method = ex.request.method.unwrap_or(Method::Put);
    match conditional::evaluate(method, &ex.request.fields, meta.is_some(), &validators) {
        PreconditionOutcome::Proceed { .. } => Ok(()),
        _ => Err(Status::PRECONDITION_FAILED.into()),
    }
}

/// Begins to change files. Fails if they have locks of other clients, or locks without a submitted
/// token.
pub(super) async fn begin_writing(
    ex: &Exchange,
    resource: &Resource,
    store: Option<&Store>,
    paths: Vec<Covered>,
    tokens: Vec<String>,
) -> Result<Option<Writing>, DavError> {
    let Some(store) = store else { return Ok(None) };
    let claim = WriteClaim { paths, tokens, user: ex.request.remote_user.clone() };
    let begun = store.begin_writing(claim, lock_clock(ex)).await;
    match begun.map_err(of_store)? {
        Ok(writing) => Ok(Some(writing)),
        Err(locks) => Err(locked(resource, &locks)),
    }
}

/// Returns 423, or 207 if only members are locked (RFC 4918 section 9.6.1).
fn locked(resource: &Resource, locks: &[Lock]) -> DavError {
    let only_beneath =
        locks.iter().all(|lock| super::store::is_below(&lock.path, &resource.canonical.path));
    if !only_beneath {
        let urls: Vec<_> = locks.iter().map(|lock| lock.url.clone()).collect();
        return DavError::condition(Status::LOCKED, "lock-token-submitted", &urls);
    }
    let mut out = multistatus::begin("multistatus");
    for lock in locks {
        let url = resource.url_of(&lock.path);
        let condition = Some("lock-token-submitted");
        multistatus::push_outcome(&url, Status::LOCKED, condition, &mut out);
    }
    multistatus::end("multistatus", &mut out);
    DavError::Xml(Status::MULTI_STATUS, out)
}

/// Describes a file, or the tree of a collection, for a claim.
pub(super) fn covered(resource: &Resource, tree: bool) -> Covered {
    Covered { canonical: resource.canonical.clone(), tree }
}
