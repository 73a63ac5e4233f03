//! Resolves another URL of this server that a request names besides its target, such as WebDAV's
//! `Destination`.
//!
//! The URL is resolved like a request for it: conditions, access control (`mod_auth`,
//! `mod_access`), virtual hosts, aliases. A URL that would get an error or a redirect on that way
//! does not resolve.

use std::rc::Rc;

use lighty_config::Field;
use lighty_http::{Status, uri};

use crate::exchange::{Exchange, Rewriting};
use crate::limits;
use crate::module::{Hook, Phase, Step};
use crate::physical::Physical;
use crate::settings::Settings;

/// The place that a URL leads to.
pub struct Located {
    /// The decoded path of the URL.
    pub path: Vec<u8>,
    /// Its place in the file system; presumed, since nothing was looked up.
    pub physical: Physical,
    /// The settings of a request for it.
    pub settings: Rc<Settings>,
}

/// How the walk continues after a module.
enum Way {
    On,
    Again,
    Refused,
}

/// Resolves `target` (path and query, encoded). Calls the modules up to `until`, which inspects
/// physical paths. Restores the exchange afterwards.
///
/// # Errors
/// The status that a request would get.
pub async fn locate(ex: &mut Exchange, target: &[u8], until: &str) -> Result<Located, Status> {
    find(ex, Named::Target(target), until).await
}

/// Like [`locate`], for a decoded path that rewriting has already produced, or a member of one: no
/// rule changes it again. Uses the request's query if `with_query`.
///
/// # Errors
/// The status that a request would get.
pub async fn locate_rewritten(
    ex: &mut Exchange,
    path: &[u8],
    with_query: bool,
    until: &str,
) -> Result<Located, Status> {
    find(ex, Named::Path(path, with_query), until).await
}

/// True if [`locate`] may treat URLs differently: a condition or a module inspects URLs or paths.
pub fn tells_apart(ex: &Exchange, until: &str) -> bool {
    let services = &ex.services;
    let fields = [Field::Url, Field::PhysicalPath, Field::PhysicalExistingPath];
    let mut asked = [Phase::RawUrl, Phase::CleanUrl, Phase::Docroot, Phase::Physical]
        .into_iter()
        .flat_map(|phase| services.modules.ever(phase).take_while(|m| m.name() != until));
    fields.iter().any(|field| services.config().uses(field))
        || asked.any(|module| module.refuses_paths())
}

/// Starts or stops judging the physical path as presumed, before anything is looked up: a file to
/// be created is judged as what it will be. Resolves the settings of that place.
pub fn authorize_path(ex: &mut Exchange, presumed: bool) {
    ex.physical.presumed = presumed;
    if ex.services.asks_physical {
        ex.resolve_settings();
    }
}

/// True if the presumed physical path may be accessed. Otherwise the response is set.
pub async fn is_path_allowed(ex: &mut Exchange) -> bool {
    matches!(ask(Phase::Authorize, |m, ex| m.authorize(ex), ex, "").await, Way::On)
}

/// How a place is named.
enum Named<'a> {
    /// By an encoded target, as clients do.
    Target(&'a [u8]),
    Path(&'a [u8], bool),
}

async fn find(ex: &mut Exchange, named: Named<'_>, until: &str) -> Result<Located, Status> {
    let settings = Rc::clone(&ex.settings);
    let captures = std::mem::take(&mut ex.captures);
    let (physical, path_known) = (std::mem::take(&mut ex.physical), ex.path_known);
    let (target_before, path_end) = (ex.request.target.clone(), ex.request.path_end);
    let path = std::mem::take(&mut ex.request.path);
    let (user, realm) = (ex.request.remote_user.clone(), ex.request.auth_realm.clone());
    let rewriting = std::mem::take(&mut ex.rewriting);
    let found = match name(ex, &named, &target_before[path_end..]) {
        Ok(()) => walk(ex, until).await,
        Err(status) => Err(status),
    };
    if found.is_err() {
        ex.response.clear();
        ex.fault = None;
    }
    ex.rewriting = rewriting;
    (ex.request.remote_user, ex.request.auth_realm) = (user, realm);
    (ex.request.target, ex.request.path_end, ex.request.path) = (target_before, path_end, path);
    (ex.physical, ex.path_known) = (physical, path_known);
    ex.captures = captures;
    ex.settings = settings;
    found
}

/// Sets the exchange's target.
fn name(ex: &mut Exchange, named: &Named<'_>, query: &[u8]) -> Result<(), Status> {
    match *named {
        Named::Target(target) => {
            ex.rewriting = Rewriting::default();
            ex.set_target(target).map_err(|_| Status::BAD_REQUEST)
        }
        Named::Path(path, with_query) => {
            ex.rewriting = Rewriting { finished: true, ..Rewriting::default() };
            ex.request.target.clear();
            uri::encode_path(path, &mut ex.request.target);
            ex.request.path_end = ex.request.target.len();
            ex.request.target.extend_from_slice(if with_query { query } else { b"" });
            ex.request.path = path.to_vec();
            Ok(())
        }
    }
}

async fn walk(ex: &mut Exchange, until: &str) -> Result<Located, Status> {
    for _ in 0..=limits::RESTARTS_MAX {
        ex.physical = Physical::default();
        // Until the path is known, no condition on it holds, not even `!=`.
        ex.path_known = false;
        ex.resolve_settings();
        match pass(ex, until).await {
            Way::On => {
                let path = std::mem::take(&mut ex.request.path);
                let physical = std::mem::take(&mut ex.physical);
                return Ok(Located { path, physical, settings: Rc::clone(&ex.settings) });
            }
            Way::Again => {}
            Way::Refused => return Err(ex.response.status),
        }
    }
    Err(Status::INTERNAL_SERVER_ERROR)
}

async fn pass(ex: &mut Exchange, until: &str) -> Way {
    let mut way = ask(Phase::RawUrl, |m, ex| m.raw_url(ex), ex, until).await;
    if matches!(way, Way::On) {
        way = ask(Phase::CleanUrl, |m, ex| m.clean_url(ex), ex, until).await;
    }
    if matches!(way, Way::On) {
        way = ask(Phase::Docroot, |m, ex| m.docroot(ex), ex, until).await;
    }
    if matches!(way, Way::On) {
        ex.set_physical();
        way = ask(Phase::Physical, |m, ex| m.physical(ex), ex, until).await;
    }
    if matches!(way, Way::On) {
        let before = Rc::clone(&ex.settings);
        authorize_path(ex, true);
        if !Rc::ptr_eq(&before, &ex.settings) && !is_path_allowed(ex).await {
            return Way::Refused;
        }
    }
    way
}

async fn ask(phase: Phase, call: Hook, ex: &mut Exchange, until: &str) -> Way {
    let services = Rc::clone(&ex.services);
    let mut from = 0;
    while let Some((module, behind)) = services.modules.next(phase, &ex.settings, from) {
        from = behind;
        if module.name() == until {
            break;
        }
        if let Some(undecided) = ex.undecided.take() {
            ex.fail_undecided(&undecided);
            return Way::Refused;
        }
        let mut step = call(module, ex);
        while let Step::Wait(future) = step {
            step = future.await;
        }
        match step {
            Step::Next | Step::Wait(_) => {}
            Step::Restart => return Way::Again,
            Step::Answered | Step::SendFile(_) | Step::SendParts(_) => return Way::Refused,
        }
    }
    Way::On
}
