//! Where another URL of this server leads: what a request names besides its own target, such as
//! WebDAV's `Destination`.
//!
//! It goes the way that a request for it would go: the conditions of the configuration, who may
//! have it (`mod_auth`, `mod_access`), virtual hosts, aliases. What would be answered on that way,
//! with an error or a redirection, is no place.

use std::rc::Rc;

use lighty_config::Field;
use lighty_http::{Status, uri};

use crate::exchange::{Exchange, Rewriting};
use crate::limits;
use crate::module::{Hook, Phase, Step};
use crate::physical::Physical;
use crate::settings::Settings;

/// A place that a URL leads to.
pub struct Located {
    /// The decoded path of the URL.
    pub path: Vec<u8>,
    /// Where that is in the file system; nothing was looked up there, and it is presumed.
    pub physical: Physical,
    /// The settings that a request for it would have.
    pub settings: Rc<Settings>,
}

/// What becomes of the walk after a module was asked.
enum Way {
    On,
    Again,
    Refused,
}

/// Finds the place that `target` (path and query, encoded) leads to. Modules are asked up to the one
/// called `until`, which looks at physical paths. The exchange is as before afterwards.
///
/// # Errors
/// The status that a request would have been answered with.
pub async fn locate(ex: &mut Exchange, target: &[u8], until: &str) -> Result<Located, Status> {
    find(ex, Named::Target(target), until).await
}

/// As [`locate`], of a decoded path that rewriting has made already, or a member of one: no rule
/// changes it again. The query is that of the request, if `with_query`.
///
/// # Errors
/// The status that a request would have been answered with.
pub async fn locate_rewritten(
    ex: &mut Exchange,
    path: &[u8],
    with_query: bool,
    until: &str,
) -> Result<Located, Status> {
    find(ex, Named::Path(path, with_query), until).await
}

/// Whether [`locate`] may come to another end for one URL than for another: a condition looks at
/// URLs or paths, or a module does.
pub fn tells_apart(ex: &Exchange, until: &str) -> bool {
    let services = &ex.services;
    let fields = [Field::Url, Field::PhysicalPath, Field::PhysicalExistingPath];
    let mut asked = [Phase::RawUrl, Phase::CleanUrl, Phase::Docroot, Phase::Physical]
        .into_iter()
        .flat_map(|phase| services.modules.ever(phase).take_while(|m| m.name() != until));
    fields.iter().any(|field| services.config().uses(field))
        || asked.any(|module| module.refuses_paths())
}

/// Begins, or ends, to judge the physical path as what is there, before anything is looked up: what is
/// to be made is judged as what it will be. Finds the settings of that place.
pub fn authorize_path(ex: &mut Exchange, presumed: bool) {
    ex.physical.presumed = presumed;
    if ex.services.asks_physical {
        ex.resolve_settings();
    }
}

/// Whether what is at the physical path, which is presumed, may be had; else the answer stands.
pub async fn is_path_allowed(ex: &mut Exchange) -> bool {
    matches!(ask(Phase::Place, |m, ex| m.place(ex), ex, "").await, Way::On)
}

/// How a place is named.
enum Named<'a> {
    /// As a client does.
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

/// Gives the exchange another target.
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
        // Until there is one, no condition on it holds, not even `!=`.
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
