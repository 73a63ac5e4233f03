//! `mod_proxy_core`: routes requests to backends.

pub mod directives;
pub mod rules;
pub mod settings;
pub mod tunnel_route;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, Reject};
use lighty_core::module::{Acts, Backends, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::settings::services::ServiceSpec;
use lighty_core::{Exchange, Extension, Fault, Machine, Settings, extension_slot, pipeline};
use lighty_http::{Known, Method};

use crate::request::script::split;
use crate::response::proxy_status;
use crate::route::rules::{Route, Routes, Takes};
use crate::route::settings::ProxySettings;
use crate::serve::local::Local;
use crate::serve::{Upstreams, serve};
use crate::upstream::registry::{Naming, Registry};

/// A worker's side of the proxy, started at first use. It outlives generations.
pub struct WorkerProxy {
    registry: Arc<Registry>,
    local: OnceCell<Rc<Local>>,
    naming: RefCell<Option<Arc<Naming>>>,
}

impl WorkerProxy {
    /// Creates the worker's side; all workers share the registry.
    pub fn new(registry: Arc<Registry>) -> Rc<Self> {
        Rc::new(Self { registry, local: OnceCell::new(), naming: RefCell::default() })
    }

    /// Returns the worker's proxy state on this machine, created at first use.
    pub fn local(&self, machine: &Machine) -> &Rc<Local> {
        self.local.get_or_init(|| {
            let registry = Arc::clone(&self.registry);
            let local = Local::start(machine, registry);
            if let Some(naming) = &*self.naming.borrow() {
                local.adopt(naming);
            }
            local
        })
    }

    /// Switches new requests to the upstreams of another generation.
    pub fn adopt(&self, naming: &Arc<Naming>) {
        if let Some(local) = self.local.get() {
            local.adopt(naming);
        }
        *self.naming.borrow_mut() = Some(Arc::clone(naming));
    }
}

/// The module of one generation in one worker.
pub struct ProxyCore {
    worker: Rc<WorkerProxy>,
    /// Keeps the upstreams that the generation names.
    naming: Arc<Naming>,
    /// Routes to addresses that other modules named.
    named: RefCell<HashMap<Box<str>, Arc<Route>>>,
    /// Routes to services. The settings of the generation bound their number.
    services: RefCell<Vec<(Arc<ServiceSpec>, Arc<Route>)>>,
    /// Texts for [`Module::destination`]. The settings of the generation bound their number.
    destinations: RefCell<Vec<(Arc<Route>, Arc<str>)>>,
}

/// Limit on cached routes to addresses that other modules name. Scripts may derive them from
/// requests; beyond it, routes are built again.
const NAMED_MAX: usize = 256;

impl ProxyCore {
    /// Creates the module of a generation that names these upstreams.
    pub fn new(worker: &Rc<WorkerProxy>, naming: &Arc<Naming>) -> Self {
        Self {
            worker: Rc::clone(worker),
            naming: Arc::clone(naming),
            named: RefCell::default(),
            services: RefCell::default(),
            destinations: RefCell::default(),
        }
    }

    /// Returns the route to a service.
    fn route_to_service(
        &self,
        global: &Settings,
        service: &Arc<ServiceSpec>,
    ) -> Result<Arc<Route>, Reject> {
        let mut services = self.services.borrow_mut();
        if let Some((_, route)) = services.iter().find(|(known, _)| Arc::ptr_eq(known, service)) {
            return Ok(Arc::clone(route));
        }
        let route = ProxySettings::route_to_service(global, service)?;
        services.push((Arc::clone(service), Arc::clone(&route)));
        Ok(route)
    }

    /// Serves a request by a route that no directive has chosen.
    fn serve_by<'a>(&self, ex: &'a mut Exchange, route: Result<Arc<Route>, Reject>) -> Step<'a> {
        let route = match route {
            Ok(route) => route,
            Err(reject) => {
                ex.fail_saying(Fault::Internal, &reject.message);
                return Step::Answered;
            }
        };
        let local = Rc::clone(self.worker.local(&ex.machine));
        let upstreams = Upstreams { local, naming: Arc::clone(&self.naming) };
        Step::Wait(Box::pin(serve(ex, upstreams, route)))
    }

    /// Returns the route to an address that another module names.
    fn route_to(&self, settings: &Settings, address: &str) -> Result<Arc<Route>, Reject> {
        let mut named = self.named.borrow_mut();
        if let Some(route) = named.get(address) {
            return Ok(Arc::clone(route));
        }
        let route = ProxySettings::route_to(settings, address)?;
        if named.len() >= NAMED_MAX {
            named.clear();
        }
        named.insert(address.into(), Arc::clone(&route));
        Ok(route)
    }

    /// Proxies the request, if a route takes it.
    fn go<'a>(&self, ex: &'a mut Exchange, when: When) -> Step<'a> {
        let routes = ProxySettings::routes(&ex.settings);
        if routes.is_empty() || when == When::Named && must_wait_for_leave(routes, ex) {
            return Step::Next;
        }
        if let Some(flaw) = routes.flaw.clone() {
            ex.fail_saying(Fault::Internal, &flaw);
            return Step::Answered;
        }
        let Some(first) = taking(routes, ex, when).next().cloned() else { return Step::Next };
        let authorizes_first =
            routes.authorize && taking(routes, ex, when).any(|route| route.is_authorizer());
        if ex.rehearse(|_| described(&first)) {
            return Step::Answered;
        }
        let local = Rc::clone(self.worker.local(&ex.machine));
        let upstreams = Upstreams { local, naming: Arc::clone(&self.naming) };
        if let Some(end) = script_end(ex, &first, when) {
            return Step::Wait(Box::pin(serve_script(ex, upstreams, first, end)));
        }
        if authorizes_first {
            return Step::Wait(Box::pin(serve_after_leave(ex, upstreams, when)));
        }
        Step::Wait(Box::pin(serve(ex, upstreams, first)))
    }
}

impl Module for ProxyCore {
    fn name(&self) -> &'static str {
        "mod_proxy_core"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { remote: true, handle: true, response_head: true, ..Hooks::default() },
            head_never_waits: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let routes = ProxySettings::routes(settings);
        let adds_status = settings.module::<ProxySettings>().parts.adds_status();
        Hooks {
            remote: routes.take_unseen(),
            handle: !routes.is_empty(),
            response_head: adds_status && !routes.is_empty(),
            ..Hooks::default()
        }
    }

    fn directives() -> Vec<Directive<Settings>> {
        directives::all()
    }

    /// Closes idle connections: their targets may have changed.
    fn reopen(&self) {
        if let Some(local) = self.worker.local.get() {
            local.pool.clear();
            local.h2.clear();
        }
    }

    fn remote<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.go(ex, When::Named)
    }

    fn acts(&self, phase: Phase, ex: &Exchange) -> Acts {
        let routes = ProxySettings::routes(&ex.settings);
        if phase != Phase::Remote {
            let takes = || taking(routes, ex, When::Found).next().is_some();
            return Acts::perhaps_if(routes.flaw.is_some() || takes());
        }
        let is_sure = routes.flaw.is_none() && !routes.authorize;
        let mut named = taking(routes, ex, When::Named);
        match named.next() {
            None => Acts::perhaps_if(!is_sure),
            Some(first) if first.is_authorizer() && named.all(|route| route.is_authorizer()) => {
                Acts::Perhaps
            }
            Some(_) => Acts::Surely,
        }
    }

    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.go(ex, When::Found)
    }

    fn response_head<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        proxy_status::add(ex);
        Step::Next
    }

    fn destination(&self, phase: Phase, ex: &Exchange) -> Option<Arc<str>> {
        let routes = ProxySettings::routes(&ex.settings);
        let when = if phase == Phase::Remote { When::Named } else { When::Found };
        if routes.authorize || routes.flaw.is_some() {
            return None;
        }
        let route = taking(routes, ex, when).next()?;
        // The access rules of a script with path info are looked at on the way to its backend.
        if script_end(ex, route, when).is_some() {
            return None;
        }
        let mut known = self.destinations.borrow_mut();
        if let Some((_, text)) = known.iter().find(|(one, _)| Arc::ptr_eq(one, route)) {
            return Some(Arc::clone(text));
        }
        let text: Arc<str> = format!("{} {:?}", described(route), route.request).into();
        known.push((Arc::clone(route), Arc::clone(&text)));
        Some(text)
    }
}

impl Backends for ProxyCore {
    fn send<'a>(&'a self, ex: &'a mut Exchange, address: &str) -> Step<'a> {
        let route = self.route_to(&ex.settings, address);
        self.serve_by(ex, route)
    }

    fn ask<'a>(&'a self, ex: &'a mut Exchange, service: &Arc<ServiceSpec>) -> Step<'a> {
        let route = self.route_to_service(&ex.generation.global, service);
        self.serve_by(ex, route)
    }
}

/// Describes a route's action, for `lighty explain`.
fn described(route: &Route) -> String {
    let upstream = &route.upstream;
    let backends: Vec<&str> = upstream.backends.iter().map(|backend| &*backend.text).collect();
    let asks = if route.is_authorizer() { "asks the authorizer" } else { "asks a backend" };
    format!("{asks} of {}: {}", upstream.name, backends.join(", "))
}

/// Phase in which routes are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// The path is known: only routes that need no local file are checked.
    Named,
    /// The file is known: all routes are checked, because an index file, or a condition on the
    /// file, may lead to backends that need none.
    Found,
}

/// Returns the routes that match the request, in order of evaluation.
fn taking<'r>(
    routes: &'r Routes,
    ex: &'r Exchange,
    when: When,
) -> impl Iterator<Item = &'r Arc<Route>> {
    let path = &ex.request.path;
    let may_take = move |route: &Route| when == When::Found || route.needs_no_file(path);
    routes.iter().filter(move |route| may_take(route) && takes(route, ex, when))
}

/// Returns true if an authorizer can only decide once the file is known. A route that needs no
/// file must not respond before it.
fn must_wait_for_leave(routes: &Routes, ex: &Exchange) -> bool {
    if !routes.authorize {
        return false;
    }
    let mut late = routes.servers.iter().filter(|r| r.check_local && r.is_authorizer());
    late.any(|route| match &route.takes {
        Takes::Suffix(suffixes) => {
            suffixes.iter().any(|suffix| ex.request.path.ends_with(suffix.as_bytes()))
        }
        Takes::All | Takes::Prefix(_) => takes(route, ex, When::Named),
    })
}

/// Requests that authorizers have permitted; they do not decide again once the file is found.
#[derive(Default)]
struct Leaves(Vec<Leave>);

impl Extension for Leaves {
    extension_slot!();
}

/// An authorizer's permission for a path.
struct Leave {
    route: Arc<Route>,
    path: Vec<u8>,
}

fn has_leave(ex: &Exchange, route: &Arc<Route>) -> bool {
    let mut leaves = ex.ext::<Leaves>().into_iter().flat_map(|leaves| &leaves.0);
    leaves.any(|leave| Arc::ptr_eq(&leave.route, route) && leave.path == ex.request.path)
}

/// Returns the end of the script's name that a route sees in a path before the file look-up, if
/// path info follows.
fn script_end(ex: &Exchange, route: &Route, when: When) -> Option<usize> {
    let path = &ex.request.path;
    if when == When::Found || !matches!(route.takes, Takes::Suffix(_)) {
        return None;
    }
    let end = split(path, &route.takes, route.request.fix_root_scriptname);
    // The key "" names no script.
    (0 < end && end < path.len()).then_some(end)
}

/// Serves a request with path info by a route that needs no file. The script's access rules apply
/// to it.
async fn serve_script(
    ex: &mut Exchange,
    upstreams: Upstreams,
    first: Arc<Route>,
    end: usize,
) -> Step<'static> {
    if !pipeline::authorize_script(ex, end).await {
        return Step::Answered;
    }
    let routes = ProxySettings::routes(&ex.settings);
    let authorizes_first =
        routes.authorize && taking(routes, ex, When::Named).any(|route| route.is_authorizer());
    match authorizes_first {
        true => serve_after_leave(ex, upstreams, When::Named).await,
        false => serve(ex, upstreams, first).await,
    }
}

/// Asks every authorizer before a backend serves the request. An authorizer that permits the
/// request adds to its environment; one that refuses sends the response itself (FastCGI 1.0 section
/// 6.3).
async fn serve_after_leave(ex: &mut Exchange, upstreams: Upstreams, when: When) -> Step<'static> {
    let routes = ProxySettings::routes(&ex.settings);
    let routes: Vec<Arc<Route>> = taking(routes, ex, when).cloned().collect();
    for route in routes.iter().filter(|route| route.is_authorizer()) {
        if has_leave(ex, route) {
            continue;
        }
        match serve(ex, upstreams.clone(), Arc::clone(route)).await {
            Step::Next => {
                let (route, path) = (Arc::clone(route), ex.request.path.clone());
                ex.ext_mut::<Leaves>().0.push(Leave { route, path });
            }
            answered => return answered,
        }
    }
    match routes.into_iter().find(|route| !route.is_authorizer()) {
        Some(route) => serve(ex, upstreams, route).await,
        None => Step::Next,
    }
}

fn takes(route: &Route, ex: &Exchange, when: When) -> bool {
    if route.websocket.is_some() && !asks_for_websocket(ex) {
        return false;
    }
    match &route.takes {
        Takes::All => true,
        Takes::Prefix(prefix) => ex.request.path.starts_with(prefix.as_bytes()),
        // The existing file decides, not the text after its name: for `/image.jpg/x.php`, a program
        // must not be told that the image is a script.
        Takes::Suffix(suffixes) if when == When::Found => {
            let file = &ex.physical.rel;
            suffixes.iter().any(|suffix| file.ends_with(suffix.as_bytes()))
        }
        Takes::Suffix(suffixes) => {
            let path = &ex.request.path;
            suffixes.iter().any(|suffix| ends_segment(path, suffix.as_bytes()))
        }
    }
}

/// True if the request asks for a WebSocket.
fn asks_for_websocket(ex: &Exchange) -> bool {
    ex.request.method == Some(Method::Get)
        && ex.request.upgrade
        && ex.request.fields.list_contains(Known::Upgrade, "websocket")
}

/// Returns true if the path, or a part of it before a slash (path info follows), ends with
/// `suffix`.
fn ends_segment(path: &[u8], suffix: &[u8]) -> bool {
    if path.ends_with(suffix) {
        return true;
    }
    let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.any(|at| path[..at].ends_with(suffix))
}
