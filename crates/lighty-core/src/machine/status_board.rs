//! Where workers report what they are doing, to one another and to the status page.
//!
//! A worker counts in cells that no other thread may read. A reader therefore asks every worker,
//! and each replies between two turns of its loop.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lighty_io::threads::panics;
use tokio::sync::{mpsc, oneshot};

use crate::machine::metrics::Snapshot;
use crate::machine::metrics::exemplars::Exemplars;
use crate::machine::metrics::history::Second;
use crate::machine::metrics::series::SeriesNames;

/// How long a worker may take to reply before it is reported as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Queued questions per worker; further ones are not sent.
const QUESTIONS_MAX: usize = 16;

/// Connections that one worker reports in full, and streams of HTTP/2; the rest are only counted.
pub const TOLD_CONNECTIONS_MAX: usize = 1000;

/// What a connection is doing, which selects its time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// Waits for a request.
    Idle,
    /// Its request is being read.
    Head,
    /// Its request's body is being read.
    Body,
    /// Its request is being handled.
    Handler,
    /// Its response is being sent.
    Write,
    /// Like [`ConnState::Write`], and reported as such, while more of the request body is read.
    Duplex,
}

impl ConnState {
    /// The reported states, in the order of a request's life.
    pub const ALL: [ConnState; 5] =
        [ConnState::Idle, ConnState::Head, ConnState::Body, ConnState::Handler, ConnState::Write];

    /// Its index in [`ConnState::ALL`].
    pub fn place(self) -> usize {
        let told = if self == ConnState::Duplex { ConnState::Write } else { self };
        Self::ALL.iter().position(|known| *known == told).unwrap_or(0)
    }

    /// The letter on a scoreboard (lighttpd 1.5, mod_status).
    pub fn letter(self) -> char {
        match self {
            ConnState::Idle => '_',
            ConnState::Head => 'r',
            ConnState::Body => 'R',
            ConnState::Handler => 'h',
            ConnState::Write | ConnState::Duplex => 'W',
        }
    }

    /// The state in words.
    pub fn words(self) -> &'static str {
        match self {
            ConnState::Idle => "idle",
            ConnState::Head => "read head",
            ConnState::Body => "read body",
            ConnState::Handler => "handle request",
            ConnState::Write | ConnState::Duplex => "write answer",
        }
    }
}

/// One connection, or one stream of one.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Tells the connections apart that its worker has; streams have that of their connection.
    pub number: u32,
    /// Its state.
    pub doing: ConnState,
    /// Seconds in this state.
    pub for_s: u32,
    /// The client's address.
    pub client: Arc<str>,
    /// The method of the current or latest request.
    pub method: &'static str,
    /// The host of the current or latest request.
    pub host: String,
    /// The target of the current or latest request, as received.
    pub target: String,
    /// `http` or `https`; empty without a request.
    pub scheme: &'static str,
    /// `HTTP/1.1` and the like; empty without a request.
    pub protocol: &'static str,
    /// The listener's port.
    pub local_port: u16,
    /// The client's port; 0 without one.
    pub remote_port: u16,
    /// Bytes moved in this state.
    pub bytes: u64,
    /// Its open streams, each with a request, if it speaks HTTP/2.
    pub streams: Vec<Connection>,
}

impl Connection {
    /// What there is to tell of it: its streams, or itself if it has none.
    pub fn rows(&self) -> &[Connection] {
        if self.streams.is_empty() { std::slice::from_ref(self) } else { &self.streams }
    }

    /// As [`Connection::rows`].
    pub fn into_rows(mut self) -> Vec<Connection> {
        let streams = std::mem::take(&mut self.streams);
        if streams.is_empty() { vec![self] } else { streams }
    }
}

/// A worker's recent activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Seconds that the counts below span.
    pub seconds: u64,
    /// Requests in that time.
    pub requests: u64,
    /// Bytes sent in that time.
    pub bytes_out: u64,
}

/// A worker's connections of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerReport {
    /// The listener's address, as in `$SERVER["socket"]`.
    pub name: String,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Those that are open.
    pub open: u64,
}

/// One worker's report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The worker's index, from 0.
    pub worker: usize,
    /// Requests since the worker's start.
    pub requests: u64,
    /// Bytes received since the worker's start.
    pub bytes_in: u64,
    /// Bytes sent since the worker's start.
    pub bytes_out: u64,
    /// Its activity in the last seconds.
    pub pace: Pace,
    /// The file engine's name, and why it was chosen.
    pub engine: (String, String),
    /// How files reach the network, as `server.network-backend` names it.
    pub network_backend: String,
    /// Open connections by state, in the order of [`ConnState::ALL`].
    pub doing: [u64; ConnState::ALL.len()],
    /// Open streams of HTTP/2 by state, in the same order.
    pub streams: [u64; ConnState::ALL.len()],
    /// Microseconds of processor time that its thread has used.
    pub cpu_us: u64,
    /// The longest of the last minute's delays of a tick, in microseconds: so long its loop did not
    /// turn.
    pub late_us: u64,
    /// Some or all of the connections, if they are wanted.
    pub connections: Vec<Connection>,
    /// Connections and streams that are not among these for lack of room.
    pub untold: u64,
    /// How long requests took, if that is wanted.
    pub durations: Snapshot,
    /// Examples of whole requests by the key of their series, with the durations.
    pub exemplars: Vec<(u64, Box<Exemplars>)>,
    /// Its listeners.
    pub listeners: Vec<ListenerReport>,
    /// The last minutes, if they are wanted.
    pub history: Vec<Second>,
    /// Named figures, summed over all workers.
    pub figures: Vec<(String, u64)>,
}

impl Report {
    /// Number of open connections.
    pub fn open(&self) -> u64 {
        self.doing.iter().sum()
    }

    /// Number of idle connections.
    pub fn idle(&self) -> u64 {
        self.doing[0]
    }
}

/// Figures of the process rather than of a worker.
pub trait Statistics: Send + Sync {
    /// Adds names and values.
    fn collect(&self, figures: &mut Vec<(String, String)>);

    /// Adds reports of backend pools.
    fn collect_pools(&self, _pools: &mut Vec<BackendPool>) {}

    /// Adds certificates: a name, and the wall-clock second in which it expires.
    fn collect_certificates(&self, _certificates: &mut Vec<(String, i64)>) {}
}

/// Backends that share the requests of one configuration entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendPool {
    /// Its name in the configuration.
    pub name: String,
    /// Requests so far.
    pub requests: u64,
    /// Requests waiting for a place at a backend.
    pub waiting: u32,
    /// Its backends.
    pub backends: Vec<Backend>,
}

/// One backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backend {
    /// The address as logs call it.
    pub address: String,
    /// A word such as `up` or `down`.
    pub state: &'static str,
    /// Why it is not up, if known.
    pub why: String,
    /// Requests in progress.
    pub in_use: u32,
    /// Idle connections.
    pub idle: u32,
    /// Requests sent to it so far.
    pub requests: u64,
    /// Tries of requests that failed because of it.
    pub failed: u64,
    /// Mean time to the first response byte in microseconds; 0: unknown.
    pub first_byte_us: u32,
    /// Its share of requests.
    pub weight: u32,
}

/// What a report is to have beside figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// [`Report::connections`].
    pub connections: bool,
    /// [`Report::durations`] and [`Report::history`].
    pub durations: bool,
}

type Question = (Wanted, oneshot::Sender<Report>);

/// The board of a process. Clones share it.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Desks>);

#[derive(Default)]
struct Desks {
    workers: Mutex<Vec<mpsc::Sender<Question>>>,
    statistics: Mutex<Vec<Arc<dyn Statistics>>>,
    names: SeriesNames,
}

/// Receives the questions for a worker.
pub struct StatusResponder(mpsc::Receiver<Question>);

impl StatusResponder {
    /// Replies to questions for as long as it is polled.
    pub async fn respond(mut self, mut report: impl FnMut(Wanted) -> Report) {
        while let Some((wanted, asker)) = self.0.recv().await {
            // The asker may have timed out. If the report panics, this reply is skipped.
            if let Ok(report) = panics::caught_in(|| report(wanted)) {
                let _ = asker.send(report);
            }
        }
    }
}

impl StatusBoard {
    /// Adds a worker.
    pub fn join(&self) -> StatusResponder {
        let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
        self.0.workers.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
        StatusResponder(questions)
    }

    /// Adds figures of the process.
    pub fn add(&self, statistics: Arc<dyn Statistics>) {
        self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).push(statistics);
    }

    /// The names of series of durations.
    pub fn names(&self) -> &SeriesNames {
        &self.0.names
    }

    /// Asks every worker. Returns the reports, in worker order, and the number of workers. Workers
    /// that do not reply in time are missing from the reports.
    pub async fn ask(&self, wanted: Wanted) -> (Vec<Report>, usize) {
        let desks = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let asked: Vec<_> = desks.iter().map(|desk| ask_one(desk, wanted)).collect();
        let mut reports = Vec::with_capacity(desks.len());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for response in asked.into_iter().flatten() {
            if let Ok(Ok(report)) = tokio::time::timeout_at(deadline, response).await {
                reports.push(report);
            }
        }
        reports.sort_by_key(|report| report.worker);
        (reports, desks.len())
    }

    /// The summed figures of all workers and those of the process, sorted by name.
    pub fn figures(&self, reports: &[Report]) -> Vec<(String, String)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for (name, value) in reports.iter().flat_map(|report| &report.figures) {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(*value),
                None => sums.push((name.clone(), *value)),
            }
        }
        let mut all: Vec<_> = sums.into_iter().map(|(name, sum)| (name, sum.to_string())).collect();
        let sources = self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.iter().for_each(|source| source.collect(&mut all));
        all.sort();
        all
    }

    /// All backend pools, in order of first use.
    pub fn pools(&self) -> Vec<BackendPool> {
        let sources = self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut pools = Vec::new();
        sources.iter().for_each(|source| source.collect_pools(&mut pools));
        pools
    }

    /// Certificates and when they expire, by name.
    pub fn certificates(&self) -> Vec<(String, i64)> {
        let sources = self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut certificates = Vec::new();
        sources.iter().for_each(|source| source.collect_certificates(&mut certificates));
        certificates.sort();
        certificates
    }
}

fn ask_one(
    responder: &mpsc::Sender<Question>,
    wanted: Wanted,
) -> Option<oneshot::Receiver<Report>> {
    let (response, answered) = oneshot::channel();
    responder.try_send((wanted, response)).is_ok().then_some(answered)
}

/// The scoreboard letters of the reported connections.
pub fn score(reports: &[Report]) -> String {
    let mut text = String::new();
    for connection in reports.iter().flat_map(|report| &report.connections) {
        // Writing to a string cannot fail.
        let _ = text.write_char(connection.doing.letter());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Statistics for Two {
        fn collect(&self, figures: &mut Vec<(String, String)>) {
            figures.push(("a.process".to_owned(), "up".to_owned()));
        }
    }

    fn report(worker: usize) -> Report {
        let figures = vec![("b.sum".to_owned(), 3), (format!("c.{worker}"), 1)];
        Report { worker, figures, ..Report::default() }
    }

    #[tokio::test]
    async fn workers_are_asked_and_one_that_hangs_is_missing() {
        let board = StatusBoard::default();
        board.add(Arc::new(Two));
        let (first, second) = (board.join(), board.join());
        let _hangs = board.join();
        let (reports, workers) = tokio::select! {
            asked = board.ask(Wanted::default()) => asked,
            () = second.respond(|_| report(1)) => unreachable!("it answers for ever"),
            () = first.respond(|_| report(0)) => unreachable!("it answers for ever"),
        };
        assert_eq!((reports.len(), workers), (2, 3));
        assert_eq!((reports[0].worker, reports[1].worker), (0, 1));
        let figures = board.figures(&reports);
        let text: Vec<_> = figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(text, ["a.process=up", "b.sum=6", "c.0=1", "c.1=1"]);
    }

    #[tokio::test]
    async fn a_worker_is_asked_no_more_than_n_times_at_once() {
        let board = StatusBoard::default();
        let mut responder = board.join();
        let asked: Vec<_> = (0..=QUESTIONS_MAX)
            .map(|_| ask_one(&board.0.workers.lock().expect("no panic")[0], Wanted::default()))
            .collect();
        assert!(asked[..QUESTIONS_MAX].iter().all(Option::is_some));
        assert!(asked[QUESTIONS_MAX].is_none());
        assert!(responder.0.recv().await.is_some());
    }
}
