//! The target of the error log, from `server.errorlog` and its companions.

use lighty_core::settings::ServerSettings;
use lighty_io::log_writer::LogTarget;

/// Returns an error about the error log, with the directive and its value.
pub(crate) fn failure(server: &ServerSettings, error: &std::io::Error) -> String {
    format!("{}: {error}", directive(server))
}

/// Returns the directive that names the error log.
pub(crate) fn directive(server: &ServerSettings) -> String {
    match &server.errorlog {
        Some(path) if !server.errorlog_use_syslog => format!("server.errorlog = \"{path}\""),
        _ => "server.errorlog".to_owned(),
    }
}

/// Returns the target of the error log.
pub(crate) fn target(server: &ServerSettings) -> LogTarget {
    match (&server.errorlog, server.errorlog_use_syslog) {
        (_, true) => LogTarget::syslog(&server.syslog_facility, "notice", "lighty"),
        (Some(text), false) => LogTarget::parse(text),
        (None, false) => LogTarget::stderr(),
    }
}
