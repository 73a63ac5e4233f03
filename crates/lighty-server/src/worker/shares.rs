//! Each worker's share of the process's limits.

use lighty_core::settings::ServerSettings;
use lighty_core::settings::limits;

/// Returns the number of workers that a configuration wants.
pub(crate) fn worker_count(server: &ServerSettings) -> usize {
    match server.max_worker {
        Some(count) => count as usize,
        None => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    }
}

/// The share of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerShares {
    /// Of `server.max-connections`.
    pub connections_max: usize,
    /// Files that its stat cache may hold open.
    pub stat_entries_max: usize,
    /// Document roots that it may keep open.
    pub roots_max: usize,
}

impl WorkerShares {
    /// Divides the limits of a process with `fds` descriptors among its workers.
    pub(crate) fn of(server: &ServerSettings, fds: u64, workers: usize) -> Self {
        let workers = workers.max(1);
        let part = |of: u64| usize::try_from(fds / of).unwrap_or(usize::MAX);
        let connections = match server.max_connections {
            0 => part(3),
            limit => limit as usize,
        };
        Self {
            connections_max: connections.div_ceil(workers),
            // At most a third of all descriptors, to leave room for connections.
            stat_entries_max: server.stat_cache_entries_max.min(part(3) / workers),
            roots_max: (part(6) / workers).clamp(1, limits::ROOTS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_divided_among_the_workers() {
        let server = ServerSettings { max_connections: 100, ..ServerSettings::default() };
        let shares = WorkerShares::of(&server, 6_000, 3);
        assert_eq!(shares.connections_max, 34);
        assert_eq!((shares.stat_entries_max, shares.roots_max), (666, limits::ROOTS_MAX.min(333)));
        let shares = WorkerShares::of(&ServerSettings::default(), 6_000, 0);
        assert_eq!(shares.connections_max, 2_000);
    }
}
