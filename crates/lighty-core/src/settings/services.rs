//! Services that a module asks about a request, such as `auth.forward`.
//!
//! A module names them in its settings, and the proxy has connections to them: they get pools,
//! health and figures like other backends.

use std::sync::Arc;

use crate::module_settings;

/// Directives with the names of services.
pub const SERVICE_DIRECTIVES: &[&str] = &["auth.forward"];

/// A service over HTTP. Equal ones share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceSpec {
    /// Its name in logs and figures.
    pub name: Arc<str>,
    /// Addresses, as in `proxy-core.backends`.
    pub addresses: Vec<Arc<str>>,
    /// Name that the certificates must have if an address has none by itself.
    pub server_name: Option<Arc<str>>,
    /// File with the authorities that vouch for the service; `None`: those of other backends.
    pub ca_file: Option<Arc<str>>,
    /// Milliseconds for each step of a request, and for all of them together.
    pub timeout_ms: u64,
}

/// The services that the settings name.
#[derive(Clone, Debug, Default)]
pub struct ServiceList(pub Arc<[Arc<ServiceSpec>]>);
module_settings!(ServiceList);
