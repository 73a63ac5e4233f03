//! Routes of tunnels: whether a reload leaves them.

use std::rc::Rc;
use std::sync::Arc;

use lighty_core::settings::tunnel_reload::RouteFate;
use lighty_core::{Exchange, TunnelRoute};
use tokio::sync::Notify;

use super::{When, takes};
use crate::connect::pool::ConnPermit;
use crate::route::rules::Route;
use crate::route::settings::ProxySettings;
use crate::serve::local::Local;
use crate::upstream::Upstream;
use crate::upstream::address::AddressId;

/// A tunnel's backend, by which its route is found in later configurations.
pub struct BackendRoute {
    local: Rc<Local>,
    upstream: Arc<Upstream>,
    address: AddressId,
    /// Asks the tunnel to close, if it speaks the protocol of its bytes.
    closer: Option<Rc<Notify>>,
}

impl BackendRoute {
    pub(crate) fn new(local: &Rc<Local>, permit: &ConnPermit, closer: Option<Rc<Notify>>) -> Self {
        let (upstream, address) = (Arc::clone(&permit.upstream), permit.address.id);
        Self { local: Rc::clone(local), upstream, address, closer }
    }

    /// Returns the route of a request's tunnel. `None` if the configuration does not name the
    /// backend: a script has chosen it.
    pub(crate) fn of_request(
        ex: &Exchange,
        route: &Arc<Route>,
        local: &Rc<Local>,
        permit: &ConnPermit,
        closer: Option<Rc<Notify>>,
    ) -> Option<Rc<dyn TunnelRoute>> {
        let mut routes = ProxySettings::routes(&ex.settings).iter();
        let is_configured = routes.any(|one| Arc::ptr_eq(one, route));
        is_configured.then(|| Rc::new(Self::new(local, permit, closer)) as _)
    }

    /// Returns the fate of the tunnel's route if these are the routes that its client gets now.
    pub fn among<'r>(&self, routes: impl Iterator<Item = &'r Arc<Route>>) -> RouteFate {
        let mut fate = RouteFate::Gone;
        for route in routes {
            let upstream = self.local.upstream_now(&route.upstream);
            if Arc::ptr_eq(&upstream, &self.upstream) {
                return RouteFate::Same;
            }
            // The addresses of a name may not be known yet.
            let is_named = upstream.label == self.upstream.label && upstream.has_names();
            if is_named || upstream.addresses().iter().any(|one| one.id == self.address) {
                fate = RouteFate::Changed;
            }
        }
        fate
    }
}

impl TunnelRoute for BackendRoute {
    fn fate(&self, ex: &Exchange) -> RouteFate {
        let routes = ProxySettings::routes(&ex.settings);
        let is_taken =
            |route: &&Arc<Route>| [When::Named, When::Found].iter().any(|at| takes(route, ex, *at));
        self.among(routes.iter().filter(is_taken))
    }

    fn close(&self) -> bool {
        if let Some(closer) = &self.closer {
            closer.notify_one();
        }
        self.closer.is_some()
    }
}
