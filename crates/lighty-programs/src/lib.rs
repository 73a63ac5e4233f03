//! Programs beside the server: what starts FastCGI applications, and FastCGI applications.
//!
//! Each runs in a process of its own and knows nothing of the server: it makes a listening socket
//! or is handed one, and speaks FastCGI on it. Codecs are lighty-wire's, system calls lighty-io's.
//!
//! Reading order: `spawn_fcgi` (spawn-fcgi, option by option), `supervisor` (`lighty spawn`), `app`
//! (the loop of a FastCGI application), `stat_accel` and `magnet` (what runs in it), `timing_plot`
//! (pictures from logs).
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

/// Writes a line to standard error, as programs without a log do.
pub(crate) fn complain(program: &str, text: &dyn std::fmt::Display) {
    use std::io::Write;
    // Without standard error the message is lost.
    let _ = writeln!(std::io::stderr(), "{program}: {text}");
}
