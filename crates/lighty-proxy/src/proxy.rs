//! `mod_proxy_core`: which requests go to a backend.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step};
use lighty_core::{Exchange, Fault, Services, Settings};

use crate::directives;
use crate::local::Local;
use crate::registry::Registry;
use crate::serve::serve;
use crate::settings::{ProxySettings, Route, Takes};

/// The module of one worker.
pub struct ProxyCore {
    registry: Arc<Registry>,
    local: OnceCell<Rc<Local>>,
}

impl ProxyCore {
    /// For a worker; the registry is the process's.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, local: OnceCell::new() }
    }

    fn local(&self, services: &Services) -> &Rc<Local> {
        self.local.get_or_init(|| {
            let registry = Arc::clone(&self.registry);
            Local::start(services.clock.clone(), services.log.clone(), registry)
        })
    }

    /// Proxies the request, if a route takes it among those that want a local file or that do not.
    fn go<'a>(&self, ex: &'a mut Exchange, check_local: bool) -> Step<'a> {
        let Some(first) = taking(ex, check_local).next().cloned() else { return Step::Next };
        let is_asked_first = taking(ex, check_local).any(|route| route.is_authorizer());
        let local = Rc::clone(self.local(&ex.services));
        if is_asked_first {
            return Step::Wait(Box::pin(serve_after_leave(ex, local, check_local)));
        }
        Step::Wait(Box::pin(serve(ex, local, first)))
    }
}

impl Module for ProxyCore {
    fn name(&self) -> &'static str {
        "mod_proxy_core"
    }

    fn hooks(&self) -> Hooks {
        Hooks { physical: true, handle: true, ..Hooks::default() }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.hooks().only_if(!ProxySettings::routes(settings).is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        directives::all()
    }

    /// Connections that rest are made anew: what they lead to may have changed.
    fn reopen(&self) {
        if let Some(local) = self.local.get() {
            local.pool.clear();
        }
    }

    /// Before the path is looked up: routes that need no file of ours.
    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let routes = ProxySettings::routes(&ex.settings);
        if routes.is_empty() {
            return Step::Next;
        }
        if let Some(flaw) = routes.flaw.clone() {
            ex.fail_saying(Fault::Internal, &flaw);
            return Step::Answered;
        }
        self.go(ex, false)
    }

    /// After it: routes for files that are there.
    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ProxySettings::routes(&ex.settings).is_empty() {
            return Step::Next;
        }
        self.go(ex, true)
    }
}

/// The routes that take the request, in the order in which they are asked.
fn taking(ex: &Exchange, check_local: bool) -> impl Iterator<Item = &Arc<Route>> {
    let routes = ProxySettings::routes(&ex.settings);
    let all = routes.servers.iter().chain(&routes.core);
    all.filter(move |route| route.check_local == check_local && takes(route, ex))
}

/// Every authorizer gives leave, and adds to the environment, before a backend answers; one that
/// does not answers itself (FastCGI 1.0 section 6.3).
async fn serve_after_leave(
    ex: &mut Exchange,
    local: Rc<Local>,
    check_local: bool,
) -> Step<'static> {
    let routes: Vec<Arc<Route>> = taking(ex, check_local).cloned().collect();
    for route in routes.iter().filter(|route| route.is_authorizer()) {
        match serve(ex, Rc::clone(&local), Arc::clone(route)).await {
            Step::Next => {}
            answered => return answered,
        }
    }
    match routes.into_iter().find(|route| !route.is_authorizer()) {
        Some(route) => serve(ex, local, route).await,
        None => Step::Next,
    }
}

fn takes(route: &Route, ex: &Exchange) -> bool {
    match &route.takes {
        Takes::All => true,
        Takes::Prefix(prefix) => ex.request.path.starts_with(prefix.as_bytes()),
        // The file that is there decides, not what was written behind its name: of `/image.jpg/x.php`
        // a program must not be told that the image is a script.
        Takes::Suffix(suffixes) if route.check_local => {
            let file = &ex.physical.rel;
            suffixes.iter().any(|suffix| file.ends_with(suffix.as_bytes()))
        }
        Takes::Suffix(suffixes) => {
            let path = &ex.request.path;
            suffixes.iter().any(|suffix| ends_segment(path, suffix.as_bytes()))
        }
    }
}

/// Whether the path, or a part of it before a slash (what follows is path info), ends so.
fn ends_segment(path: &[u8], suffix: &[u8]) -> bool {
    if path.ends_with(suffix) {
        return true;
    }
    let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.any(|at| path[..at].ends_with(suffix))
}
