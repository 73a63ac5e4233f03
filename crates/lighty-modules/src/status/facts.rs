//! The state of the server: the reports of the workers, and of the process.

use std::sync::Arc;

use lighty_core::machine::metrics::history::{Second, merged};
use lighty_core::machine::metrics::hosts::HostCounts;
use lighty_core::machine::status_board::{BackendPool, ConnectionReport, Report, StatusBoard};
use lighty_io::file::followed::{self, FollowedState};

use super::durations::Durations;
use super::hosts;

/// The data collected before the process itself is inspected.
pub(super) struct FactsInput {
    pub(super) reports: Vec<Report>,
    pub(super) workers: usize,
    pub(super) started_s: i64,
    pub(super) now_s: i64,
    pub(super) modules: Vec<&'static str>,
    pub(super) sort: bool,
    pub(super) refresh_s: Option<u16>,
    pub(super) host: String,
}

/// The data of all status pages.
pub(super) struct Facts {
    pub(super) input: FactsInput,
    pub(super) figures: Vec<(String, String)>,
    pub(super) pools: Vec<BackendPool>,
    /// Names of certificates and their expiry, in wall-clock seconds.
    pub(super) certificates: Vec<(String, i64)>,
    /// Files of data that are read again when they change.
    pub(super) data_files: Vec<FollowedState>,
    pub(super) durations: Durations,
    /// Names of hosts and their counts.
    pub(super) hosts: Vec<(Arc<str>, HostCounts)>,
    /// History of the last minutes.
    pub(super) history: Vec<Second>,
    pub(super) version: &'static str,
}

impl Facts {
    /// Gathers the data of the process. Too slow for an event loop if there is much.
    pub(super) fn gather(input: FactsInput, board: &StatusBoard) -> Self {
        let [operators, logins] = board.bans().counts(input.now_s);
        let mut figures = board.figures(&input.reports);
        figures.push(("bans.logins".to_owned(), logins.to_string()));
        figures.push(("bans.operator".to_owned(), operators.to_string()));
        figures.sort();
        Self {
            figures,
            pools: board.pools(),
            certificates: board.certificates(),
            data_files: followed::states(),
            durations: Durations::merged(&input.reports, board.names()),
            hosts: hosts::merged(&input.reports, board.names()),
            history: merged(input.reports.iter().map(|report| &*report.history)),
            version: env!("CARGO_PKG_VERSION"),
            input,
        }
    }

    /// A figure of `status.statistics-url` that is a number.
    pub(super) fn figure(&self, name: &str) -> Option<u64> {
        let (_, value) = self.figures.iter().find(|(known, _)| known == name)?;
        value.parse().ok()
    }

    /// Reports of the workers.
    pub(super) fn reports(&self) -> &[Report] {
        match self.input.reports.split_last() {
            Some((last, workers)) if last.is_of_ended() => workers,
            _ => &self.input.reports,
        }
    }

    /// The same, and the counters of ended workers.
    pub(super) fn all_reports(&self) -> &[Report] {
        &self.input.reports
    }

    pub(super) fn uptime_s(&self) -> u64 {
        u64::try_from(self.input.now_s - self.input.started_s).unwrap_or(0)
    }

    pub(super) fn sum(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.all_reports().iter().map(of).fold(0, u64::saturating_add)
    }

    /// Lists the reported connections and streams, each with its worker's index.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &ConnectionReport)> {
        self.reports().iter().flat_map(move |report| {
            let rows = report.connections.iter().flat_map(ConnectionReport::rows);
            rows.map(move |row| (report.worker, row))
        })
    }

    /// Open HTTP/2 streams.
    pub(super) fn streams(&self) -> u64 {
        self.sum(|report| report.streams.iter().sum())
    }

    pub(super) fn idle(&self) -> u64 {
        self.sum(Report::idle)
    }

    pub(super) fn busy(&self) -> u64 {
        self.sum(|report| report.open().saturating_sub(report.idle()))
    }

    /// Returns the average per second over the latest seconds.
    pub(super) fn recent(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.reports().iter().map(|report| of(report) / report.pace.seconds.max(1)).sum()
    }

    /// Returns the average per second since the start.
    pub(super) fn mean(&self, of: impl Fn(&Report) -> u64) -> u64 {
        self.sum(of) / self.uptime_s().max(1)
    }
}
