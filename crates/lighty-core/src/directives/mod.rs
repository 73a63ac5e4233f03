//! The core's rows of the directive table.
//!
//! `process` has what is set once; `connections` what limits connections and requests; `files`
//! what concerns files, media types and validators; `bodies` how they pass
//! between client and backend; `debug` the tracing switches; `feature_flags` `server.feature-flags`; `tls` what lighttpd
//! switches TLS on with; `ancestors` the names that lighttpd knows and this version does not have,
//! or that are gone for good.

mod ancestors;
mod bodies;
mod connections;
mod debug;
mod feature_flags;
mod files;
mod process;
mod tls;

use lighty_config::Directive;

use crate::settings::Settings;

pub use ancestors::{GONE, GONE_MODULES, INSTEAD, PLANNED, REMOVED};

/// Every directive of the core.
pub fn all() -> Vec<Directive<Settings>> {
    let mut rows = process::rows();
    rows.extend(connections::rows());
    rows.extend(files::rows());
    rows.extend(bodies::rows());
    rows.extend(debug::rows());
    rows.extend(tls::rows());
    rows
}
