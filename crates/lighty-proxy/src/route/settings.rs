//! The settings of a request that may be proxied.

use std::fmt;
use std::sync::{Arc, OnceLock};

use lighty_config::Reject;
use lighty_core::module_settings;
use lighty_core::settings::Settings;
use lighty_core::settings::services::ServiceSpec;

use crate::route::directives::parts::ProxyParts;
use crate::route::directives::{self, assemble};
use crate::route::rules::{Route, Routes};

/// The proxy's settings for one set of conditions.
///
/// Directives override each other one by one as conditions match, so their values are kept apart
/// and assembled once, when the routes of a settings variant are first requested.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    pub(crate) parts: ProxyParts,
    assembled: Assembled,
}
module_settings!(ProxySettings);

impl ProxySettings {
    /// Returns the routes of these settings. Assembles them at the first call; later calls only
    /// read a cell.
    pub fn routes(settings: &Settings) -> &Routes {
        let proxy = settings.module::<ProxySettings>();
        if proxy.parts.is_idle() {
            static NONE: Routes = Routes::NONE;
            return &NONE;
        }
        proxy.assembled.0.get_or_init(|| assemble::routes(&proxy.parts, &settings.core))
    }
}

impl ProxySettings {
    /// Returns the route to a service that another module asks. These are the global settings.
    ///
    /// # Errors
    /// An address of the service is invalid.
    pub(crate) fn route_to_service(
        global: &Settings,
        service: &ServiceSpec,
    ) -> Result<Arc<Route>, Reject> {
        directives::of_service(&global.module::<ProxySettings>().parts, service)
    }

    /// Returns a route to an address that no directive names, for requests of other modules.
    ///
    /// # Errors
    /// The address is invalid.
    pub(crate) fn route_to(settings: &Settings, address: &str) -> Result<Arc<Route>, Reject> {
        let proxy = settings.module::<ProxySettings>();
        assemble::to_address(&proxy.parts, &settings.core, address)
    }
}

/// Assembled routes. A clone is about to change, so it starts empty.
#[derive(Default)]
struct Assembled(OnceLock<Routes>);

impl Clone for Assembled {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Prints nothing: the routes derive from the parts.
impl fmt::Debug for Assembled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Assembled")
    }
}
