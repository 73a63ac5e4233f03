//! Board on which workers report their state to one another and to the status page.
//!
//! A worker counts in cells that no other thread may read. A reader therefore asks every worker,
//! and each replies between two turns of its event loop.

pub mod carried;
mod ended;

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_io::threads::panics;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::machine::bad_messages::BadMessage;
use crate::machine::bans::Bans;
use crate::machine::metrics::Snapshot;
use crate::machine::metrics::exemplars::Exemplars;
use crate::machine::metrics::history::Second;
use crate::machine::metrics::hosts::HostCounts;
use crate::machine::metrics::series::SeriesNames;
use crate::machine::request_watch::TraceFilter;
use carried::Carried;

/// Time limit for a worker's reply. Slower workers are reported as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum queued questions per worker; further ones are not sent.
const QUESTIONS_MAX: usize = 16;

/// Maximum connections, and maximum HTTP/2 streams, that one worker reports in full; the rest are
/// only counted.
pub const DETAILED_CONNECTIONS_MAX: usize = 1000;

/// State of a connection, which selects its time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// Waiting for a request.
    Idle,
    /// Reading the request's head.
    Head,
    /// Reading the request's body.
    Body,
    /// Handling the request.
    Handler,
    /// Sending the response.
    Write,
    /// Like [`ConnState::Write`], and reported as such, while more of the request body is read.
    Duplex,
}

impl ConnState {
    /// The reported states, in the order of a request's life.
    pub const ALL: [ConnState; 5] =
        [ConnState::Idle, ConnState::Head, ConnState::Body, ConnState::Handler, ConnState::Write];

    /// The state's index in [`ConnState::ALL`].
    pub fn place(self) -> usize {
        let shown = if self == ConnState::Duplex { ConnState::Write } else { self };
        Self::ALL.iter().position(|known| *known == shown).unwrap_or(0)
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

    /// Description of the state.
    pub fn label(self) -> &'static str {
        match self {
            ConnState::Idle => "idle",
            ConnState::Head => "read head",
            ConnState::Body => "read body",
            ConnState::Handler => "handle request",
            ConnState::Write | ConnState::Duplex => "write answer",
        }
    }
}

/// Report of one connection, or of one of its streams.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Number of the connection, unique within its worker among open ones. Streams have their
    /// connection's.
    pub number: u32,
    /// Number of earlier connections with this number, which tells it from them.
    pub serial: u32,
    /// Identifier of the stream; 0 for the connection itself.
    pub stream: u32,
    /// State of the connection.
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
    /// Protocol and version, such as `HTTP/1.1`; empty without a request.
    pub protocol: &'static str,
    /// The listener's port.
    pub local_port: u16,
    /// The client's port; 0 if it has none.
    pub remote_port: u16,
    /// Bytes transferred in this state.
    pub bytes: u64,
    /// The open streams of an HTTP/2 connection, each with a request.
    pub streams: Vec<ConnectionReport>,
}

impl ConnectionReport {
    /// Rows for a report: the streams, or the connection itself if it has none.
    pub fn rows(&self) -> &[ConnectionReport] {
        if self.streams.is_empty() { std::slice::from_ref(self) } else { &self.streams }
    }

    /// Owned form of [`ConnectionReport::rows`].
    pub fn into_rows(mut self) -> Vec<ConnectionReport> {
        let streams = std::mem::take(&mut self.streams);
        if streams.is_empty() { vec![self] } else { streams }
    }
}

/// A worker's recent activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Length of the period in seconds.
    pub seconds: u64,
    /// Requests in the period.
    pub requests: u64,
    /// Bytes sent in the period.
    pub bytes_out: u64,
}

/// Connections that a worker accepted on one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerReport {
    /// The listener's address, as in `$SERVER["socket"]`.
    pub name: String,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections still open.
    pub open: u64,
}

/// Counters of ended workers of one index, here or in the processes before this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FormerWorker {
    /// The index.
    pub worker: usize,
    /// Requests.
    pub requests: u64,
    /// Processor time of their threads, in microseconds.
    pub cpu_us: u64,
}

/// An earlier configuration that a worker still uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldGenerationReport {
    /// Its number.
    pub number: u64,
    /// Number of its holders: requests under way, some more than once.
    pub holders: usize,
}

/// Report of one worker.
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
    /// Activity of the last seconds.
    pub pace: Pace,
    /// Name of the file engine, and the reason for its choice.
    pub engine: (String, String),
    /// Method of sending files, as named by `server.network-backend`.
    pub network_backend: String,
    /// Open connections by state, in the order of [`ConnState::ALL`].
    pub doing: [u64; ConnState::ALL.len()],
    /// Open HTTP/2 streams by state, in the same order.
    pub streams: [u64; ConnState::ALL.len()],
    /// Processor time of the worker's thread, in microseconds.
    pub cpu_us: u64,
    /// Longest delay of a tick in the last minute, in microseconds: the event loop was blocked for
    /// so long.
    pub late_us: u64,
    /// Connections in detail, at most [`DETAILED_CONNECTIONS_MAX`]; empty if not requested.
    pub connections: Vec<ConnectionReport>,
    /// Connections and streams beyond that limit.
    pub unlisted: u64,
    /// Distributions of request durations; empty if not requested.
    pub durations: Snapshot,
    /// Exemplars of whole requests by the key of their series, along with the durations.
    pub exemplars: Vec<(u64, Box<Exemplars>)>,
    /// Requests by host with the durations, in the order of [`SeriesNames::hosts`].
    pub hosts: Vec<HostCounts>,
    /// Earlier configurations in use.
    pub old_generations: Vec<OldGenerationReport>,
    /// The worker's listeners.
    pub listeners: Vec<ListenerReport>,
    /// The last minutes; empty if not requested.
    pub history: Vec<Second>,
    /// Named counters, to be summed over all workers and all processes.
    pub figures: Vec<(String, u64)>,
    /// The latest bad messages, the oldest first; empty if not requested.
    pub bad_messages: Vec<BadMessage>,
    /// The traces that operators have ordered.
    pub traces: Vec<TraceFilter>,
    /// The ended workers one by one, in the report that stands for them.
    pub former: Vec<FormerWorker>,
    /// Processor time of the processes before this one, in microseconds.
    pub process_cpu_us: u64,
    /// Series that the processes before this one recorded as other, see [`SeriesNames::others`].
    pub overflows: u64,
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

/// Figures of the process, rather than of a worker.
pub trait Statistics: Send + Sync {
    /// Adds names and values.
    fn collect(&self, figures: &mut Vec<(String, String)>);

    /// Adds counters, which go on in the process that takes this one's place.
    fn count(&self, _counters: &mut Vec<(String, u64)>) {}

    /// Adds reports of backend pools.
    fn collect_pools(&self, _pools: &mut Vec<BackendPool>) {}

    /// Adds certificates: the name, and the wall-clock second of expiry.
    fn collect_certificates(&self, _certificates: &mut Vec<(String, i64)>) {}
}

/// Backends that share the requests of one configuration entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendPool {
    /// The pool's name in the configuration.
    pub name: String,
    /// Requests so far.
    pub requests: u64,
    /// Requests waiting for a place at a backend.
    pub waiting: u32,
    /// The pool's backends.
    pub backends: Vec<BackendReport>,
}

/// Report of one backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendReport {
    /// The address as it appears in logs.
    pub address: String,
    /// A word such as `up` or `down`.
    pub state: &'static str,
    /// Reason why the backend is not up, if known.
    pub why: String,
    /// Requests in progress.
    pub in_use: u32,
    /// Idle connections.
    pub idle: u32,
    /// Requests sent to it so far.
    pub requests: u64,
    /// Failed tries of requests, due to the backend.
    pub failed: u64,
    /// Mean time to the first response byte in microseconds; 0: unknown.
    pub first_byte_us: u32,
    /// The backend's share of requests.
    pub weight: u32,
    /// Maximum number of connections to it.
    pub connections_max: u32,
    /// True if it was added at run time.
    pub is_added: bool,
}

/// Optional parts of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportParts {
    /// Include [`Report::connections`].
    pub connections: bool,
    /// Include [`Report::durations`] and [`Report::history`].
    pub durations: bool,
    /// Include [`Report::bad_messages`].
    pub bad_messages: bool,
}

/// An order of an operator to the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerOrder {
    /// End a connection, or one of its streams.
    Kill {
        /// Index of the worker.
        worker: usize,
        /// Number of the connection.
        number: u32,
        /// As in [`ConnectionReport::serial`].
        serial: u32,
        /// Identifier of the stream; 0: the connection.
        stream: u32,
    },
    /// End all connections of a client, which has just been banned.
    KillClient(IpAddr),
    /// Record the targets of requests for some seconds.
    NoteTargets {
        /// Number of seconds.
        for_s: u32,
    },
    /// Log details of the requests that match; `None`: of none.
    Trace(Option<TraceFilter>),
}

/// Mail for a worker, with the way for its reply.
enum WorkerMail {
    Report(ReportParts, oneshot::Sender<Report>),
    Order(WorkerOrder, oneshot::Sender<bool>),
}

/// The board of a process. Clones share it.
#[derive(Clone, Default)]
pub struct StatusBoard(Arc<Desks>);

#[derive(Default)]
struct Desks {
    /// Locked before `ended` where both are.
    workers: Mutex<Vec<(usize, mpsc::Sender<WorkerMail>)>>,
    /// Counters of the workers that have ended.
    ended: Mutex<Option<Report>>,
    /// Counters of the processes before this one.
    carried: Carried,
    statistics: Mutex<Vec<Arc<dyn Statistics>>>,
    names: SeriesNames,
    bans: Arc<Bans>,
}

/// A worker's end of the board: receives the questions and orders.
pub struct StatusResponder(mpsc::Receiver<WorkerMail>);

impl StatusResponder {
    /// Replies to questions, and obeys orders, for as long as it is polled. `obey` returns true if
    /// an order had an effect in this worker.
    pub async fn respond(
        mut self,
        mut report: impl FnMut(ReportParts) -> Report,
        mut obey: impl FnMut(&WorkerOrder) -> bool,
    ) {
        while let Some(mail) = self.0.recv().await {
            // The sender may have timed out. If the work panics, this reply is skipped.
            match mail {
                WorkerMail::Report(wanted, asker) => {
                    if let Ok(report) = panics::caught_in(|| report(wanted)) {
                        let _ = asker.send(report);
                    }
                }
                WorkerMail::Order(order, operator) => {
                    if let Ok(is_obeyed) = panics::caught_in(|| obey(&order)) {
                        let _ = operator.send(is_obeyed);
                    }
                }
            }
        }
    }
}

impl StatusBoard {
    /// Adds a worker with this index to the board, until its end is dropped.
    pub fn join(&self, worker: usize) -> StatusResponder {
        let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
        let mut desks = self.desks();
        // A worker that was replaced replies no more.
        desks.retain(|(_, desk)| !desk.is_closed());
        desks.push((worker, ask));
        drop(desks);
        StatusResponder(questions)
    }

    /// Returns the indexes of the workers.
    pub fn workers(&self) -> Vec<usize> {
        self.desks().iter().map(|(worker, _)| *worker).collect()
    }

    /// Returns the desks of the workers that have not ended.
    fn desks(&self) -> MutexGuard<'_, Vec<(usize, mpsc::Sender<WorkerMail>)>> {
        let mut desks = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        desks.retain(|(_, desk)| !desk.is_closed());
        desks
    }

    /// Adds a source of process figures.
    pub fn add(&self, statistics: Arc<dyn Statistics>) {
        self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).push(statistics);
    }

    /// Names of the series of durations.
    pub fn names(&self) -> &SeriesNames {
        &self.0.names
    }

    /// Keeps the counters of a worker that ends. Its desk is closed, so that it does not count
    /// twice.
    pub fn leave(&self, last: Report) {
        let mut desks = self.desks();
        desks.retain(|(worker, _)| *worker != last.worker);
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get_or_insert_with(Report::of_ended).absorb(last);
    }

    /// Returns the counters of the workers that have ended and of the processes before this one,
    /// and takes back the `replies` of workers that have ended since.
    fn ended(
        &self,
        replies: &mut Vec<(mpsc::Sender<WorkerMail>, Report)>,
        wanted: ReportParts,
    ) -> Option<Report> {
        let desks = self.desks();
        replies.retain(|(desk, _)| desks.iter().any(|(_, known)| known.same_channel(desk)));
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = ended.as_ref().map(|ended| ended.copied(wanted));
        drop(desks);
        match (ended, self.0.carried.report(wanted)) {
            (Some(mut ended), Some(carried)) => {
                ended.absorb(carried);
                Some(ended)
            }
            (ended, carried) => ended.or(carried),
        }
    }

    /// The clients that are refused.
    pub fn bans(&self) -> &Arc<Bans> {
        &self.0.bans
    }

    /// Asks every worker. Returns the reports, in worker order, and the number of workers. Workers
    /// that do not reply in time are missing from the reports. The counters of ended workers follow
    /// as one more report, see [`Report::is_of_ended`].
    pub async fn ask(&self, wanted: ReportParts) -> (Vec<Report>, usize) {
        let desks = self.desks().clone();
        let carried = self.0.carried.refresh();
        let pending: Vec<_> = desks.iter().map(|(_, desk)| (desk, ask_one(desk, wanted))).collect();
        let mut replies = Vec::with_capacity(desks.len());
        let deadline = tokio::time::Instant::now() + PATIENCE;
        for (desk, response) in pending {
            let Some(response) = response else { continue };
            if let Ok(Ok(report)) = tokio::time::timeout_at(deadline, response).await {
                replies.push((desk.clone(), report));
            }
        }
        if let Some(carried) = carried {
            let _ = tokio::time::timeout_at(deadline, carried).await;
        }
        let ended = self.ended(&mut replies, wanted);
        let mut reports: Vec<_> = replies.into_iter().map(|(_, report)| report).collect();
        reports.extend(ended);
        reports.sort_by_key(|report| report.worker);
        (reports, desks.len())
    }

    /// Gives every worker an order. Returns the number of workers in which it had an effect.
    /// Workers that do not reply in time are not waited for, and obey later.
    pub async fn order(&self, order: &WorkerOrder) -> usize {
        let desks = self.desks().clone();
        let send = |desk: &mpsc::Sender<WorkerMail>| {
            let (done, obeyed) = oneshot::channel();
            desk.try_send(WorkerMail::Order(order.clone(), done)).is_ok().then_some(obeyed)
        };
        let responses: Vec<_> = desks.iter().filter_map(|(_, desk)| send(desk)).collect();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut count = 0;
        for response in responses {
            let obeyed = tokio::time::timeout_at(deadline, response).await;
            count += usize::from(matches!(obeyed, Ok(Ok(true))));
        }
        count
    }

    /// Figures of all workers, summed, and of the process, sorted by name.
    pub fn figures(&self, reports: &[Report]) -> Vec<(String, String)> {
        let mut sums: Vec<(String, u64)> = Vec::new();
        let own = self.counters();
        for (name, value) in reports.iter().flat_map(|report| &report.figures).chain(&own) {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum = sum.saturating_add(*value),
                None => sums.push((name.clone(), *value)),
            }
        }
        // The only gauge of workers.
        sums.push(("server.connections.open".to_owned(), reports.iter().map(Report::open).sum()));
        let mut all: Vec<_> = sums.into_iter().map(|(name, sum)| (name, sum.to_string())).collect();
        self.sources().iter().for_each(|source| source.collect(&mut all));
        all.sort();
        all
    }

    fn sources(&self) -> Vec<Arc<dyn Statistics>> {
        self.0.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counters of the process itself.
    fn counters(&self) -> Vec<(String, u64)> {
        let mut counters = Vec::new();
        self.sources().iter().for_each(|source| source.count(&mut counters));
        counters
    }

    /// All backend pools, in order of first use.
    pub fn pools(&self) -> Vec<BackendPool> {
        let mut pools = Vec::new();
        self.sources().iter().for_each(|source| source.collect_pools(&mut pools));
        pools
    }

    /// Certificates and their expiry, by name.
    pub fn certificates(&self) -> Vec<(String, i64)> {
        let mut certificates = Vec::new();
        self.sources().iter().for_each(|source| source.collect_certificates(&mut certificates));
        certificates.sort();
        certificates
    }
}

fn ask_one(
    responder: &mpsc::Sender<WorkerMail>,
    wanted: ReportParts,
) -> Option<oneshot::Receiver<Report>> {
    let (response, answered) = oneshot::channel();
    responder.try_send(WorkerMail::Report(wanted, response)).is_ok().then_some(answered)
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
        let (first, second) = (board.join(0), board.join(1));
        let hangs = board.join(2);
        let (reports, workers) = tokio::select! {
            responses = board.ask(ReportParts::default()) => responses,
            () = second.respond(|_| report(1), |_| true) => unreachable!("it answers for ever"),
            () = first.respond(|_| report(0), |_| true) => unreachable!("it answers for ever"),
        };
        assert_eq!((reports.len(), workers), (2, 3));
        assert_eq!(board.workers(), [2], "the others have ended");
        drop(hangs);
        assert_eq!((reports[0].worker, reports[1].worker), (0, 1));
        let figures = board.figures(&reports);
        let text: Vec<_> = figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            text,
            ["a.process=up", "b.sum=6", "c.0=1", "c.1=1", "server.connections.open=0"]
        );
    }

    #[tokio::test]
    async fn orders_reach_all_workers_and_their_effects_are_counted() {
        let board = StatusBoard::default();
        let (first, second) = (board.join(0), board.join(1));
        let _hangs = board.join(2);
        let order = WorkerOrder::Kill { worker: 1, number: 2, serial: 3, stream: 0 };
        let obeys = |index: usize| move |order: &WorkerOrder| matches!(order, WorkerOrder::Kill { worker, .. } if *worker == index);
        let count = tokio::select! {
            count = board.order(&order) => count,
            () = first.respond(|_| report(0), obeys(0)) => unreachable!("it answers for ever"),
            () = second.respond(|_| report(1), obeys(1)) => unreachable!("it answers for ever"),
        };
        assert_eq!(count, 1);
    }

    #[tokio::test]
    async fn a_worker_is_asked_no_more_than_n_times_at_once() {
        let board = StatusBoard::default();
        let mut responder = board.join(0);
        let responses: Vec<_> = (0..=QUESTIONS_MAX)
            .map(|_| ask_one(&board.desks()[0].1, ReportParts::default()))
            .collect();
        assert!(responses[..QUESTIONS_MAX].iter().all(Option::is_some));
        assert!(responses[QUESTIONS_MAX].is_none());
        assert!(responder.0.recv().await.is_some());
    }
}
