//! `mod_proxy_core`: which requests go to a backend.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::module::{Hooks, Module, Step};
use lighty_core::{Exchange, Fault, Services, Settings};

use crate::directives;
use crate::local::{Local, Registry};
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

    fn go<'a>(&self, ex: &'a mut Exchange, route: Arc<Route>) -> Step<'a> {
        let local = Rc::clone(self.local(&ex.services));
        Step::Wait(Box::pin(serve(ex, local, route)))
    }
}

impl Module for ProxyCore {
    fn name(&self) -> &'static str {
        "mod_proxy_core"
    }

    fn hooks(&self) -> Hooks {
        Hooks { physical: true, handle: true, ..Hooks::default() }
    }

    fn directives() -> Vec<Directive<Settings>> {
        directives::all()
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
        match choose(ex, false) {
            Some(route) => self.go(ex, route),
            None => Step::Next,
        }
    }

    /// After it: routes for files that are there.
    fn handle<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if ProxySettings::routes(&ex.settings).is_empty() {
            return Step::Next;
        }
        match choose(ex, true) {
            Some(route) => self.go(ex, route),
            None => Step::Next,
        }
    }
}

/// The first route that takes the request, among those that want a local file or that do not.
fn choose(ex: &Exchange, check_local: bool) -> Option<Arc<Route>> {
    let routes = ProxySettings::routes(&ex.settings);
    let mut candidates = routes.servers.iter().chain(&routes.core);
    candidates.find(|r| r.check_local == check_local && takes(&r.takes, ex)).cloned()
}

fn takes(what: &Takes, ex: &Exchange) -> bool {
    match what {
        Takes::All => true,
        Takes::Prefix(prefix) => ex.request.path.starts_with(prefix.as_bytes()),
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
