//! The directives of the proxy, in the two spellings of lighttpd: `proxy-core.*` of 1.5, and
//! `fastcgi.server` and its like of 1.4.
//!
//! Reading order: `parts` (values of the directives) · `values`, `place`, `balancer` (values that
//! several rows share) · `core`, `limits`, `health`, `tls`, `rules` (`proxy-core.*`) · `servers`,
//! `host`, `header` (1.4) · `assemble` (parts become routes) · `check` (conflicts between
//! directives).

pub(crate) mod assemble;
mod balancer;
mod check;
mod core;
mod family;
mod header;
mod health;
mod host;
mod limits;
mod names;
pub(crate) mod parts;
mod period;
mod place;
mod rules;
mod servers;
mod service;
mod service_check;
mod tls;
mod values;

use lighty_core::Settings;
use lighty_core::settings::Directive;

pub use check::check;
pub(crate) use check::{blocks_of_ours, heads, settings_at};
pub(crate) use service::of_service;
pub(crate) use service_check::services;

use crate::route::settings::ProxySettings;
use parts::ProxyParts;

/// Every directive of the proxy.
pub fn all() -> Vec<Directive> {
    let mut rows = core::rows();
    rows.extend(limits::rows());
    rows.extend(health::rows());
    rows.extend(names::rows());
    rows.extend(rules::rows());
    rows.extend(tls::rows());
    let mut rows: Vec<Directive> =
        rows.into_iter().map(|row| row.module("mod_proxy_core")).collect();
    rows.extend(servers::rows());
    rows.extend(header::rows());
    rows
}

fn of(settings: &mut Settings) -> &mut ProxyParts {
    &mut settings.module_mut::<ProxySettings>().parts
}
