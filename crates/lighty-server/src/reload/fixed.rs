//! Directives that a reload cannot apply, and those for which it starts new workers.

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::settings::ServerSettings;

type SettingText = fn(&ServerSettings) -> String;
type SettingRow = (&'static str, SettingText);

/// Directives of the process: they take effect only at the start, or need privileges that are
/// dropped.
const OF_PROCESS: &[SettingRow] = &[
    ("server.chroot", |s| text(s.chroot.as_deref())),
    ("server.username", |s| text(s.username.as_deref())),
    ("server.groupname", |s| text(s.groupname.as_deref())),
    ("server.pid-file", |s| text(s.pid_file.as_deref())),
    ("server.control-socket", |s| text(s.control_socket.as_deref())),
    ("server.control-readers", |s| format!("{:?}", s.control_readers)),
    ("server.control-admins", |s| format!("{:?}", s.control_admins)),
    ("server.state-dir", |s| text(s.state_dir.as_deref())),
    ("server.max-fds", |s| s.max_fds.to_string()),
    ("server.sandbox", |s| s.sandbox.mode.name().to_owned()),
    ("server.sandbox-paths", |s| format!("{:?}", s.sandbox.paths)),
    ("server.sandbox-ports", |s| format!("{:?}", s.sandbox.ports)),
    ("server.core-files", |s| s.core_files.to_string()),
    ("server.systemd-socket-activation", |s| s.systemd_socket_activation.to_string()),
];

/// Directives of a worker's parts, which are made when its thread starts.
const OF_WORKERS: &[SettingRow] = &[
    ("server.network-backend", |s| s.network_backend.to_string()),
    ("server.io-engine", |s| s.io_engine.to_string()),
    ("server.max-stat-threads", |s| s.max_stat_threads.to_string()),
    ("server.max-read-threads", |s| s.max_read_threads.to_string()),
    ("server.max-bulk-reads", |s| s.max_bulk_reads.to_string()),
    ("server.read-chunk", |s| s.read_chunk_bytes.to_string()),
    ("server.stat-cache-engine", |s| s.stat_cache_engine.to_string()),
    ("server.stat-cache-file-size", |s| s.stat_cache_small_file_bytes.to_string()),
    ("server.stat-cache-memory", |s| s.stat_cache_small_total_bytes.to_string()),
];

fn text(value: Option<&str>) -> String {
    value.map_or("not set".to_owned(), |value| format!("\"{value}\""))
}

/// A directive with different values in two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangedSetting {
    pub(super) name: &'static str,
    pub(super) before: String,
    pub(super) after: String,
}

/// Returns the changed directives that a running process cannot apply.
pub(super) fn needs_restart(
    present: &Config<Settings>,
    next: &Config<Settings>,
) -> Vec<ChangedSetting> {
    changed(OF_PROCESS, &present.global().server, &next.global().server)
}

/// Returns the changed directives for which new workers take the place of the present ones.
pub(super) fn needs_workers(
    present: &ServerSettings,
    next: &ServerSettings,
) -> Vec<ChangedSetting> {
    changed(OF_WORKERS, present, next)
}

fn changed(
    rows: &[SettingRow],
    present: &ServerSettings,
    next: &ServerSettings,
) -> Vec<ChangedSetting> {
    let compare = |(name, text): &SettingRow| {
        let (before, after) = (text(present), text(next));
        (before != after).then_some(ChangedSetting { name, before, after })
    };
    rows.iter().filter_map(compare).collect()
}
