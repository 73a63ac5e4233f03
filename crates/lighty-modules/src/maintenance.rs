//! `mod_maintenance`: routes that an operator has closed for a while. Their requests get 503 and a
//! page.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use lighty_config::{Config, Directive};
use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::settings::route_name::RouteName;
use lighty_core::{Exchange, Settings};
use lighty_http::{Known, Status as Code};

/// Page of routes that were closed without one.
const PAGE: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><title>Maintenance</title></head>\
                    <body><h1>Down for maintenance</h1><p>Please come back later.</p></body></html>\n";

/// Seconds after which clients may try again.
const RETRY_AFTER_S: &str = "120";

/// Routes that are closed. Clones share them; a reload keeps them.
#[derive(Clone, Default)]
pub struct ClosedRoutes(Arc<RouteTable>);

#[derive(Default)]
struct RouteTable {
    /// Number of routes, so that requests read one number as long as there are none.
    count: AtomicUsize,
    /// Names and pages.
    routes: Mutex<Vec<(String, Bytes)>>,
}

impl ClosedRoutes {
    fn routes(&self) -> MutexGuard<'_, Vec<(String, Bytes)>> {
        self.0.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a route, with a page in HTML or the usual one. Replaces the page of a closed route.
    pub fn close(&self, route: &str, page: Option<String>) {
        let page = page.map_or(Bytes::from_static(PAGE.as_bytes()), Bytes::from);
        let mut routes = self.routes();
        routes.retain(|(known, _)| known != route);
        routes.push((route.to_owned(), page));
        self.0.count.store(routes.len(), Ordering::Relaxed);
    }

    /// Opens a route. Returns false if it is not closed.
    pub fn open(&self, route: &str) -> bool {
        let mut routes = self.routes();
        let before = routes.len();
        routes.retain(|(known, _)| known != route);
        self.0.count.store(routes.len(), Ordering::Relaxed);
        routes.len() < before
    }

    /// The closed routes with their pages, `None` for the usual one: for the process that takes
    /// this one's place.
    pub fn remember(&self) -> Vec<(String, Option<String>)> {
        let page = |page: &Bytes| {
            let is_usual = page == PAGE.as_bytes();
            (!is_usual).then(|| String::from_utf8_lossy(page).into_owned())
        };
        self.routes().iter().map(|(name, text)| (name.clone(), page(text))).collect()
    }

    /// Names of the closed routes, in the order of the changes.
    pub fn closed(&self) -> Vec<String> {
        self.routes().iter().map(|(name, _)| name.clone()).collect()
    }

    /// The page of a closed route.
    fn page(&self, route: &str) -> Option<Bytes> {
        if route.is_empty() || self.0.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let routes = self.routes();
        routes.iter().find(|(known, _)| known == route).map(|(_, page)| page.clone())
    }
}

/// Names of the routes of a configuration: the values of `status.route`.
pub fn routes(config: &Config<Settings>) -> Vec<Arc<str>> {
    let mut names = Vec::new();
    let all = config.blocks().iter().flat_map(|block| &block.settings);
    for setting in all.filter(|setting| setting.name == "status.route") {
        let mut settings = Settings::default();
        setting.apply(&mut settings);
        let name = &settings.module::<RouteName>().0;
        if !name.is_empty() && !names.contains(name) {
            names.push(Arc::clone(name));
        }
    }
    names
}

/// The module.
pub struct Maintenance(ClosedRoutes);

impl Maintenance {
    /// Creates a worker's instance.
    pub fn new(closed: ClosedRoutes) -> Self {
        Self(closed)
    }

    fn page(&self, ex: &Exchange) -> Option<Bytes> {
        self.0.page(&ex.settings.module::<RouteName>().0)
    }
}

impl Module for Maintenance {
    fn name(&self) -> &'static str {
        "mod_maintenance"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { clean_url: true, ..Hooks::default() },
            acts_seldom: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<RouteName>().0.is_empty())
    }

    fn acts(&self, _phase: Phase, ex: &Exchange) -> Acts {
        Acts::perhaps_if(self.page(ex).is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        Vec::new()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let Some(page) = self.page(ex) else { return Step::Next };
        ex.response.set_text(Code::SERVICE_UNAVAILABLE, "text/html; charset=utf-8", page);
        ex.response.fields.set(Known::RetryAfter, RETRY_AFTER_S);
        ex.response.fields.set(Known::CacheControl, "no-store");
        Step::Answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_routes_have_pages_until_they_are_opened() {
        let routes = ClosedRoutes::default();
        assert_eq!((routes.page("shop"), routes.open("shop")), (None, false));
        routes.close("shop", Some("one".to_owned()));
        routes.close("api", None);
        routes.close("shop", Some("two".to_owned()));
        assert_eq!(routes.closed(), ["api", "shop"]);
        assert_eq!(routes.page("shop").as_deref(), Some(&b"two"[..]));
        assert!(routes.page("api").is_some_and(|page| page.starts_with(b"<!DOCTYPE html>")));
        assert_eq!((routes.page(""), routes.page("blog")), (None, None));
        assert!(routes.open("shop") && routes.clone().open("api"));
        assert!(routes.closed().is_empty() && routes.page("shop").is_none());
    }
}
