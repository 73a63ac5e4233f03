//! Resolves a second URL that a request names besides its target, such as WebDAV's `Destination`.
//!
//! The URL is resolved like a request for it: conditions, access control (`mod_auth`,
//! `mod_access`), virtual hosts, aliases. A URL that would get an error or a redirect on the way
//! does not resolve.

use std::mem::take;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{CaptureSet, Field};
use lighty_http::{Known, Status, uri};

use crate::exchange::Exchange;
use crate::exchange::extensions::Extension;
use crate::exchange::request_state::Rewriting;
use crate::extension_slot;
use crate::fault::Fault;
use crate::module::{Among, Module};
use crate::pipeline::phase::{ORDER, Phase};
use crate::pipeline::physical::Physical;
use crate::pipeline::{self, Pass};
use crate::settings::Settings;
use crate::settings::limits;

/// Target of a URL.
pub struct Located {
    /// The decoded path of the URL.
    pub path: Vec<u8>,
    /// Its physical path; presumed, since nothing was looked up.
    pub physical: Physical,
    /// The settings of a request for the URL.
    pub settings: Rc<Settings>,
}

/// Refusal of a URL.
pub struct Refusal {
    /// The status that a request would get.
    pub status: Status,
    /// Values of `WWW-Authenticate` that go with a 401.
    pub challenges: Vec<Vec<u8>>,
}

/// Resolves `target` (path and query, encoded). Restores the exchange afterwards.
///
/// # Errors
/// The refusal that a request would get.
pub async fn locate(ex: &mut Exchange, target: &[u8]) -> Result<Located, Refusal> {
    find(ex, Named::Target(target)).await
}

/// Like [`locate`], for a decoded path that rewriting has already produced, or a member of such a
/// path: no rule changes it again. Uses the request's query if `with_query`.
///
/// # Errors
/// The status that a request would get.
pub async fn locate_rewritten(
    ex: &mut Exchange,
    path: &[u8],
    with_query: bool,
) -> Result<Located, Status> {
    find(ex, Named::Path(path, with_query)).await.map_err(|refusal| refusal.status)
}

/// True if [`locate`] may treat URLs differently: a condition or a module inspects URLs or paths.
pub fn distinguishes_urls(ex: &Exchange) -> bool {
    let generation = &ex.generation;
    let fields = [Field::Url, Field::PhysicalPath, Field::PhysicalExistingPath];
    let reached = |phase| {
        let is_before_response = move |module: &&dyn Module| !responds(*module, phase);
        generation.modules.ever(phase).take_while(is_before_response)
    };
    let mut reached = phases().flat_map(reached);
    fields.iter().any(|field| generation.config().uses(field))
        || reached.any(|module| !module.traits().never_refuses_paths)
}

/// Starts or stops authorizing the physical path as presumed, before any look-up: a file that is to
/// be created is authorized as the file that it will be. Resolves the settings for the path.
pub fn authorize_path(ex: &mut Exchange, presumed: bool) {
    ex.physical.presumed = presumed;
    if ex.generation.asks_physical {
        ex.resolve_settings();
    }
}

/// True if the presumed physical path may be accessed. Otherwise the response is set.
pub async fn is_path_allowed(ex: &mut Exchange) -> bool {
    pipeline::run(Phase::Authorize, ex).await.is_none()
}

/// True while another URL than the request's own is being resolved. An extension, because few
/// requests name one and many requests wait.
#[derive(Default)]
struct Locating(bool);

impl Extension for Locating {
    extension_slot!();
}

/// True while another URL than the request's own is being resolved: a verdict about the request
/// does not cover it.
pub fn is_locating(ex: &Exchange) -> bool {
    ex.ext::<Locating>().is_some_and(|locating| locating.0)
}

/// Form in which the URL is given.
enum Named<'a> {
    /// An encoded target, as in a request.
    Target(&'a [u8]),
    Path(&'a [u8], bool),
}

async fn find(ex: &mut Exchange, named: Named<'_>) -> Result<Located, Refusal> {
    let aside = Aside::take(ex);
    let locates = std::mem::replace(&mut ex.ext_mut::<Locating>().0, true);
    let query = &aside.target[aside.path_end..];
    let found = match name(ex, &named, query) {
        Ok(()) => walk(ex).await,
        Err(status) => Err(status),
    };
    let found = found.map_err(|status| {
        let challenges = ex.response.fields.get_all(Known::WwwAuthenticate);
        let challenges = challenges.map(<[u8]>::to_vec).collect();
        ex.response.clear();
        Refusal { status, challenges }
    });
    aside.restore(ex);
    ex.ext_mut::<Locating>().0 = locates;
    found
}

/// Target state of a request, set aside while another URL is resolved in its place.
struct Aside {
    settings: Rc<Settings>,
    captures: CaptureSet,
    physical: Physical,
    target: Vec<u8>,
    path_end: usize,
    path: Vec<u8>,
    user: Vec<u8>,
    realm: Option<Arc<str>>,
    path_known: bool,
    rewriting: Rewriting,
    fault: Option<Fault>,
    handler: &'static str,
}

impl Aside {
    fn take(ex: &mut Exchange) -> Self {
        Self {
            settings: Rc::clone(&ex.settings),
            captures: take(&mut ex.captures),
            physical: take(&mut ex.physical),
            target: take(&mut ex.request.target),
            path_end: ex.request.path_end,
            path: take(&mut ex.request.path),
            user: ex.request.remote_user.clone(),
            realm: ex.request.auth_realm.clone(),
            path_known: ex.state.path_known,
            rewriting: take(&mut ex.state.rewriting),
            fault: ex.state.fault,
            handler: ex.state.handler,
        }
    }

    fn restore(self, ex: &mut Exchange) {
        ex.settings = self.settings;
        ex.captures = self.captures;
        ex.physical = self.physical;
        let request = &mut ex.request;
        (request.target, request.path_end, request.path) = (self.target, self.path_end, self.path);
        (request.remote_user, request.auth_realm) = (self.user, self.realm);
        let state = &mut ex.state;
        (state.path_known, state.rewriting) = (self.path_known, self.rewriting);
        (state.fault, state.handler) = (self.fault, self.handler);
    }
}

/// Sets the exchange's target.
fn name(ex: &mut Exchange, named: &Named<'_>, query: &[u8]) -> Result<(), Status> {
    match *named {
        Named::Target(target) => {
            ex.state.rewriting = Rewriting::default();
            ex.set_target(target).map_err(|_| Status::BAD_REQUEST)
        }
        Named::Path(path, with_query) => {
            ex.state.rewriting = Rewriting { finished: true, tried: true, ..Rewriting::default() };
            ex.request.target.clear();
            uri::encode_path(path, &mut ex.request.target);
            ex.request.path_end = ex.request.target.len();
            ex.request.target.extend_from_slice(if with_query { query } else { b"" });
            ex.request.path = path.to_vec();
            Ok(())
        }
    }
}

async fn walk(ex: &mut Exchange) -> Result<Located, Status> {
    for _ in 0..=limits::RESTARTS_MAX {
        ex.physical = Physical::default();
        // Until the path is known, no condition on it holds, not even `!=`.
        ex.state.path_known = false;
        ex.resolve_settings();
        match pass(ex).await {
            None => {
                let path = take(&mut ex.request.path);
                let physical = take(&mut ex.physical);
                return Ok(Located { path, physical, settings: Rc::clone(&ex.settings) });
            }
            Some(Pass::Restart) => {}
            Some(_) => return Err(ex.response.status),
        }
    }
    Err(Status::INTERNAL_SERVER_ERROR)
}

/// The phases that resolve a URL.
fn phases() -> impl Iterator<Item = Phase> {
    ORDER.into_iter().take_while(|phase| *phase <= Phase::Physical)
}

/// True if a module responds in this phase instead of resolving the URL.
fn responds(module: &dyn Module, phase: Phase) -> bool {
    phase == Phase::Physical && module.traits().responds_to_paths
}

async fn pass(ex: &mut Exchange) -> Option<Pass> {
    for phase in phases() {
        let among = Among::only(ex.generation.modules.before(|module| responds(module, phase)));
        if phase == Phase::Physical {
            ex.set_physical();
        }
        let end = pipeline::run_among(among, phase, ex).await;
        if end.is_some() {
            return end;
        }
    }
    let before = Rc::clone(&ex.settings);
    authorize_path(ex, true);
    if Rc::ptr_eq(&before, &ex.settings) {
        return None;
    }
    pipeline::run(Phase::Authorize, ex).await
}
