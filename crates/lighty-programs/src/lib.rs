//! Programs beside the server: spawners of FastCGI applications, and FastCGI applications.
//!
//! Each runs in its own process and does not depend on the server: it creates or inherits a
//! listening socket, and uses FastCGI on it. Codecs are in lighty-wire, system calls in lighty-io.
//!
//! Reading order: `spawn_fcgi` (compatible with spawn-fcgi), `supervisor` (`lighty spawn`), `app`
//! (the loop of a FastCGI application), `stat_accel` and `magnet` (applications), `timing_plot`
//! (charts from logs).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod app;
pub mod load;
#[cfg(feature = "scripts")]
pub mod magnet;
mod plain;
pub mod spawn_fcgi;
pub mod stat_accel;
pub mod supervisor;
mod svg;
pub mod timing_plot;
pub mod top;

/// Writes a line to standard error, for programs without a log.
pub(crate) fn print_error(program: &str, text: &dyn std::fmt::Display) {
    use std::io::Write;
    // Without standard error the message is lost.
    let _ = writeln!(std::io::stderr(), "{program}: {text}");
}
