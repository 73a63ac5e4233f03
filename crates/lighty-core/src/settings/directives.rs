//! The core's rows of the directive table.
//!
//! `process`: directives of the process. `sandbox`: its rights. `control`: its control socket.
//! `connections`: limits on connections and requests. `http2`: limits of HTTP/2. `lifecycle`: stop,
//! and restarts of workers. `files`: files, media types and validators. `bodies`: bodies between
//! client and backend. `debug`: tracing switches. `error_log`: contents of the error log.
//! `feature_flags`: `server.feature-flags`. `tls`: lighttpd's TLS switches. `lighttpd`: lighttpd's
//! names that this version does not support, or never will.

mod bodies;
mod connections;
mod control;
mod debug;
mod error_log;
mod feature_flags;
mod files;
mod http2;
mod lifecycle;
mod lighttpd;
mod process;
mod sandbox;
mod tls;

use lighty_config::Directive;

use crate::settings::Settings;

pub use lighttpd::{GONE, GONE_MODULES, INSTEAD, PLANNED, REMOVED};

/// Every directive of the core.
pub fn all() -> Vec<Directive<Settings>> {
    let mut rows = process::rows();
    rows.extend(error_log::rows());
    rows.extend(sandbox::rows());
    rows.extend(control::rows());
    rows.extend(connections::rows());
    rows.extend(http2::rows());
    rows.extend(lifecycle::rows());
    rows.extend(files::rows());
    rows.extend(bodies::rows());
    rows.extend(debug::rows());
    rows.extend(tls::rows());
    rows
}
