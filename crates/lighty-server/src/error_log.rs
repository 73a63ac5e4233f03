//! Where the error log goes, as `server.errorlog` and its companions say.

use lighty_core::settings::ServerSettings;
use lighty_io::log_writer::LogTarget;

/// Where the error log goes.
pub(crate) fn target(server: &ServerSettings) -> LogTarget {
    match (&server.errorlog, server.errorlog_use_syslog) {
        (_, true) => LogTarget::syslog(&server.syslog_facility, "notice", "lighty"),
        (Some(text), false) => LogTarget::parse(text),
        (None, false) => LogTarget::stderr(),
    }
}
