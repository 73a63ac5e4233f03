//! The services of a configuration.

use std::sync::Arc;

use lighty_config::{Config, Diagnostic, Level, Reject, Span};
use lighty_core::Settings;
use lighty_core::settings::services::{SERVICE_DIRECTIVES, ServiceList};

use super::service::of_service;
use crate::route::rules::Route;
use crate::route::settings::ProxySettings;

/// A service of a configuration.
pub(crate) struct ServiceRoute {
    pub(crate) directive: &'static str,
    /// The value of the directive.
    pub(crate) span: Span,
    /// The route to the service; an error if an address is invalid.
    pub(crate) route: Result<Arc<Route>, Reject>,
}

/// Returns the routes to the services that a configuration names, with the places of their
/// directives.
pub(crate) fn services(config: &Config<Settings>) -> Vec<ServiceRoute> {
    let parts = &config.global().module::<ProxySettings>().parts;
    let set = config.blocks().iter().flat_map(|block| &block.settings);
    let mut found = Vec::new();
    for setting in set.filter(|setting| SERVICE_DIRECTIVES.contains(&setting.name)) {
        let mut settings = Settings::default();
        setting.apply(&mut settings);
        let services = &settings.module::<ServiceList>().0;
        found.extend(services.iter().map(|service| ServiceRoute {
            directive: setting.name,
            span: setting.value.span,
            route: of_service(parts, service),
        }));
    }
    found
}

/// Reports services with invalid addresses.
pub(super) fn check(config: &Config<Settings>, findings: &mut Vec<Diagnostic>) {
    for ServiceRoute { directive, span, route } in services(config) {
        let Err(reject) = route else { continue };
        let text = format!("{directive} {}", reject.message);
        let finding = Diagnostic::new(Level::Error, "value", span, text);
        findings.push(match reject.help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}
