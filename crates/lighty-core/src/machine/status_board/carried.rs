//! Counters that a process leaves to the one that takes its place, so that sums never decrease.
//!
//! The old process counts on while it drains. A reader's question therefore goes to it as well, as
//! to a worker; without a reply, its last counters stand.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{FormerWorker, ListenerReport, QUESTIONS_MAX, Report, ReportParts, StatusBoard};
use crate::machine::metrics::carried::CarriedSeries;
use crate::machine::metrics::history::{HISTORY_S, Second};
use crate::machine::metrics::series::SeriesNames;

/// Maximum entries of each list that a process takes from another one, besides series, hosts and
/// seconds, which have limits of their own.
const ENTRIES_MAX: usize = 8_000;

/// Counters of a process and of the ones before it. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedCounters {
    requests: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Processor time of workers, in microseconds.
    cpu_us: u64,
    /// Processor time of the processes, in microseconds.
    process_cpu_us: u64,
    overflows: u64,
    figures: Vec<(String, u64)>,
    workers: Vec<FormerWorker>,
    /// Accepted connections by listener.
    listeners: Vec<(String, u64)>,
    series: CarriedSeries,
    history: Vec<Second>,
}

/// The counters of the processes before this one.
#[derive(Default)]
pub(super) struct Carried {
    report: Mutex<Option<Report>>,
    /// The link to the process that still counts.
    source: Mutex<Option<mpsc::Sender<oneshot::Sender<()>>>>,
}

/// Questions to the process before this one: it is asked for its counters again.
pub struct CarriedQuestions(mpsc::Receiver<oneshot::Sender<()>>);

impl CarriedQuestions {
    /// Waits for the next question. It is answered through the result once
    /// [`StatusBoard::inherit`] has the counters; dropping the result leaves the last ones.
    pub async fn next(&mut self) -> Option<oneshot::Sender<()>> {
        self.0.recv().await
    }
}

impl Carried {
    /// Has the counters brought up to date. `None` if no process counts any more.
    pub(super) fn refresh(&self) -> Option<oneshot::Receiver<()>> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if source.as_ref().is_some_and(mpsc::Sender::is_closed) {
            *source = None;
        }
        let (done, refreshed) = oneshot::channel();
        source.as_ref()?.try_send(done).is_ok().then_some(refreshed)
    }

    pub(super) fn report(&self, wanted: ReportParts) -> Option<Report> {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.as_ref().map(|report| report.copied(wanted))
    }
}

impl StatusBoard {
    /// Continues the counters of the process before this one, in place of those that were
    /// inherited before.
    pub fn inherit(&self, counters: CarriedCounters) {
        let report = counters.into_report(self.names());
        *self.0.carried.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }

    /// Has questions go to the process before this one as well, until the result is dropped.
    pub fn follow_predecessor(&self) -> CarriedQuestions {
        let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
        *self.0.carried.source.lock().unwrap_or_else(PoisonError::into_inner) = Some(ask);
        CarriedQuestions(questions)
    }

    /// True while the process before this one counts.
    pub fn has_predecessor(&self) -> bool {
        let source = self.0.carried.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.as_ref().is_some_and(|source| !source.is_closed())
    }

    /// Returns the counters for the process that takes this one's place. `own_cpu_us` is the
    /// processor time of this process. `None` if a worker has not reported in time.
    pub async fn carried(&self, own_cpu_us: u64) -> Option<CarriedCounters> {
        let wanted = ReportParts { durations: true, ..ReportParts::default() };
        let (reports, workers) = self.ask(wanted).await;
        let live = reports.iter().filter(|report| !report.is_of_ended()).count();
        // One that ended meanwhile is among the ended, and its desk was closed.
        if live < workers.min(self.workers().len()) {
            return None;
        }
        let mut all = Report::of_ended();
        reports.into_iter().for_each(|report| all.absorb(report));
        let figures = self.counters();
        all.absorb(Report { figures, ..Report::of_ended() });
        Some(CarriedCounters {
            requests: all.requests,
            bytes_in: all.bytes_in,
            bytes_out: all.bytes_out,
            cpu_us: all.cpu_us,
            process_cpu_us: all.process_cpu_us.saturating_add(own_cpu_us),
            overflows: all.overflows.saturating_add(self.names().others()),
            figures: all.figures,
            workers: all.former,
            listeners: all.listeners.into_iter().map(|one| (one.name, one.accepted)).collect(),
            series: CarriedSeries::of(&all.durations, &all.hosts, self.names()),
            history: all.history,
        })
    }
}

impl CarriedCounters {
    fn into_report(mut self, names: &SeriesNames) -> Report {
        self.figures.truncate(ENTRIES_MAX);
        self.workers.truncate(ENTRIES_MAX);
        self.listeners.truncate(ENTRIES_MAX);
        let surplus = self.history.len().saturating_sub(HISTORY_S);
        self.history.drain(..surplus);
        let (durations, hosts) = self.series.numbered(names);
        let listener = |(name, accepted)| ListenerReport { name, accepted, open: 0 };
        let mut report = Report::of_ended();
        report.absorb(Report {
            requests: self.requests,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            cpu_us: self.cpu_us,
            process_cpu_us: self.process_cpu_us,
            overflows: self.overflows,
            figures: self.figures,
            former: self.workers,
            listeners: self.listeners.into_iter().map(listener).collect(),
            durations,
            hosts,
            history: self.history,
            ..Report::of_ended()
        });
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(requests: u64) -> CarriedCounters {
        CarriedCounters {
            requests,
            figures: vec![("a".to_owned(), requests)],
            workers: vec![FormerWorker { worker: 0, requests, cpu_us: 0 }],
            ..CarriedCounters::default()
        }
    }

    async fn sum(board: &StatusBoard) -> u64 {
        board.ask(ReportParts::default()).await.0.iter().map(|report| report.requests).sum()
    }

    #[tokio::test]
    async fn later_counters_replace_earlier_ones_and_add_up_with_own() {
        let board = StatusBoard::default();
        board.inherit(counted(3));
        board.inherit(counted(5));
        assert_eq!(sum(&board).await, 5);
        board.leave(Report { requests: 2, ..Report::default() });
        assert_eq!(sum(&board).await, 7);
        let next = board.carried(9).await.expect("no worker hangs");
        assert_eq!((next.requests, next.process_cpu_us), (7, 9));
        assert_eq!(next.workers, [FormerWorker { worker: 0, requests: 7, cpu_us: 0 }]);
        let text = serde_json::to_string(&next).expect("JSON");
        assert_eq!(serde_json::from_str::<CarriedCounters>(&text).expect("the same"), next);
    }

    #[tokio::test]
    async fn questions_go_to_the_process_before_until_it_has_ended() {
        let board = StatusBoard::default();
        let mut questions = board.follow_predecessor();
        let reply = async {
            let done = questions.next().await.expect("a question");
            board.inherit(counted(4));
            done.send(()).expect("a reader waits");
        };
        let (sum_now, ()) = tokio::join!(sum(&board), reply);
        assert_eq!(sum_now, 4);
        drop(questions);
        assert_eq!(sum(&board).await, 4, "the last ones stand");
    }

    #[tokio::test]
    async fn nothing_is_carried_without_a_worker() {
        let board = StatusBoard::default();
        let _hangs = board.join(0);
        assert_eq!(board.carried(0).await, None);
    }

    #[test]
    fn sums_and_lists_have_limits() {
        let board = StatusBoard::default();
        let figures = (0..ENTRIES_MAX + 1).map(|number| (number.to_string(), u64::MAX)).collect();
        let second = |at_s| Second { at_s, ..Second::default() };
        let counters = CarriedCounters {
            requests: u64::MAX,
            figures,
            history: (0..HISTORY_S as i64 + 1).map(second).collect(),
            ..CarriedCounters::default()
        };
        board.inherit(counters);
        board.leave(Report { requests: 1, ..Report::default() });
        let wanted = ReportParts { durations: true, ..ReportParts::default() };
        let all = board.ended(&mut Vec::new(), wanted).expect("counters");
        assert_eq!((all.requests, all.figures.len()), (u64::MAX, ENTRIES_MAX));
        assert_eq!((all.history.len(), all.history[0].at_s), (HISTORY_S, 1));
    }

    #[test]
    fn members_may_be_missing_and_unknown_ones_are_skipped() {
        let text = r#"{"requests": 1, "of_the_future": [1]}"#;
        let counters: CarriedCounters = serde_json::from_str(text).expect("counters");
        assert_eq!(counters, CarriedCounters { requests: 1, ..CarriedCounters::default() });
    }
}
