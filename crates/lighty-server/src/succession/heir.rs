//! Counters of a process that drains, for the one that has taken its place: so that a sum never
//! falls, and in the end misses nothing.

use std::sync::Arc;
use std::time::Duration;

use lighty_core::machine::status_board::StatusBoard;
use lighty_core::machine::status_board::carried::CarriedQuestions;
use lighty_io::clock::deadline::Deadline;
use lighty_io::process::succession::SuccessionLink;
use lighty_io::process::usage;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::stats;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{ProcessCounts, SuccessionStep};

/// Interval at which the new process asks without a reader: it keeps the answer if the old process
/// is killed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Time limit for a message to be taken by the other process.
const SEND_PATIENCE: Duration = Duration::from_secs(5);

/// Time limit for the word that a process stops in order.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(500);

/// Place of the counters of this process.
#[derive(Clone)]
pub(crate) struct CounterSource {
    pub(crate) board: StatusBoard,
    pub(crate) upstreams: Arc<Registry>,
}

impl CounterSource {
    /// Reads the counters. `None` if a worker does not report in time.
    pub(crate) async fn read(&self) -> Option<ProcessCounts> {
        let board = self.board.carried(usage::cpu_us()).await?;
        Some(ProcessCounts { board, upstreams: stats::counts(&self.upstreams) })
    }
}

impl ProcessCounts {
    /// Adds them to the counters of this process, in place of earlier ones.
    pub(crate) fn continue_in(self, board: &StatusBoard, upstreams: &Registry) {
        board.inherit(self.board);
        upstreams.inherit(self.upstreams);
    }
}

/// The old process's end: sends counters while it drains. Dropping it leaves the link as it is.
pub(crate) struct CountingDown {
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// Resolves when the new process stops in order.
    leaves: oneshot::Receiver<()>,
}

impl CountingDown {
    /// Begins to respond.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn start(link: SuccessionLink, source: CounterSource) -> Self {
        let (finish, finishes) = oneshot::channel();
        let (left, leaves) = oneshot::channel();
        Self { finish, task: tokio::spawn(count_down(link, source, finishes, left)), leaves }
    }

    /// True if the new process, which has ended, has stopped in order.
    pub(crate) async fn has_left(&mut self) -> bool {
        matches!(timeout(FAREWELL_PATIENCE, &mut self.leaves).await, Ok(Ok(())))
    }

    /// Sends the last counters.
    pub(crate) async fn finish(self) {
        if self.finish.send(()).is_ok() {
            let _ = timeout(SEND_PATIENCE, self.task).await;
        }
    }
}

async fn count_down(
    mut link: SuccessionLink,
    source: CounterSource,
    mut finishes: oneshot::Receiver<()>,
    left: oneshot::Sender<()>,
) {
    let mut left = Some(left);
    let is_last = loop {
        let is_last = tokio::select! {
            biased;
            finished = &mut finishes => match finished {
                Ok(()) => true,
                // The new process has failed, and this one serves on.
                Err(_) => return,
            },
            question = link.receive() => match question {
                Ok(text) => match serde_json::from_slice(&text) {
                    Ok(SuccessionStep::Count) => false,
                    Ok(SuccessionStep::Leaving) => {
                        left.take().map(|left| left.send(()));
                        continue;
                    }
                    // Of another version.
                    _ => continue,
                },
                Err(_) => break false,
            },
        };
        let counts = SuccessionStep::Counted(source.read().await.map(Box::new));
        let Ok(text) = serde_json::to_vec(&counts) else { break is_last };
        let is_sent = matches!(timeout(SEND_PATIENCE, link.send(&text)).await, Ok(Ok(())));
        if is_last || !is_sent {
            break is_last;
        }
    };
    drop(left);
    if !is_last {
        // The link tells the new process that this one is there.
        let _ = finishes.await;
    }
}

/// The new process's end: has readers of counters ask the old process, until that ends.
///
/// # Panics
/// Outside a tokio runtime.
pub(crate) fn follow(
    link: SuccessionLink,
    source: CounterSource,
    questions: CarriedQuestions,
) -> Farewell {
    let (farewell, farewells) = mpsc::unbounded_channel();
    let following = Following { link, source, questions, farewells };
    tokio::spawn(async move { following.run().await });
    Farewell(farewell)
}

/// Tells the old process that this one stops in order. Without it, the old one would serve again.
#[derive(Debug)]
pub(crate) struct Farewell(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl Farewell {
    /// Says it. Waits until it is sent, or the old process is gone.
    pub(crate) async fn say(&self) {
        let (sent, is_sent) = oneshot::channel();
        if self.0.send(sent).is_ok() {
            let _ = timeout(FAREWELL_PATIENCE, is_sent).await;
        }
    }
}

struct Following {
    link: SuccessionLink,
    source: CounterSource,
    questions: CarriedQuestions,
    farewells: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
}

impl Following {
    async fn run(mut self) {
        let question = serde_json::to_vec(&SuccessionStep::Count).unwrap_or_default();
        // Readers whose question is on its way, and readers that came later.
        let (mut pending, mut waiting) = (Vec::new(), Vec::new());
        // No reader waits for a process that has not answered for a second.
        let (mut is_under_way, mut is_late) = (false, false);
        let mut late_at = Deadline::after(ASK_EVERY);
        let mut ticks = tokio::time::interval(ASK_EVERY);
        loop {
            let asks = tokio::select! {
                biased;
                frame = self.link.receive() => {
                    let Ok(text) = frame else { return };
                    self.take(&text);
                    pending.drain(..).for_each(|reader: oneshot::Sender<()>| _ = reader.send(()));
                    (is_under_way, is_late) = (false, false);
                    !waiting.is_empty()
                }
                Some(_sent) = self.farewells.recv() => {
                    let text = serde_json::to_vec(&SuccessionStep::Leaving).unwrap_or_default();
                    let _ = timeout(SEND_PATIENCE, self.link.send(&text)).await;
                    false
                }
                reader = self.questions.next() => {
                    waiting.extend(reader.filter(|_| !is_late));
                    true
                }
                _ = ticks.tick() => {
                    is_late = is_under_way && late_at.is_over();
                    if is_late {
                        waiting.clear();
                        pending.clear();
                    }
                    true
                }
            };
            if asks && !is_under_way {
                pending.append(&mut waiting);
                (is_under_way, late_at) = (true, Deadline::after(ASK_EVERY));
                // A process that takes nothing is as good as ended.
                if !matches!(timeout(SEND_PATIENCE, self.link.send(&question)).await, Ok(Ok(()))) {
                    self.read_on().await;
                    return;
                }
            }
            waiting.retain(|reader| !reader.is_closed());
        }
    }

    /// Takes counters. Any other message, and a malformed one, leaves those that there are.
    fn take(&self, text: &[u8]) {
        if let Ok(SuccessionStep::Counted(Some(counts))) = serde_json::from_slice(text) {
            counts.continue_in(&self.source.board, &self.source.upstreams);
        }
    }

    /// Takes the messages that were sent before the link broke.
    async fn read_on(&mut self) {
        while let Ok(text) = self.link.receive().await {
            self.take(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_core::machine::status_board::{Report, ReportParts};
    use tokio::net::UnixStream;

    use super::*;

    fn source(requests: u64) -> CounterSource {
        let board = StatusBoard::default();
        board.leave(Report { requests, ..Report::default() });
        CounterSource { board, upstreams: Arc::default() }
    }

    async fn sum(source: &CounterSource) -> u64 {
        let (reports, _) = source.board.ask(ReportParts::default()).await;
        reports.iter().map(|report| report.requests).sum()
    }

    #[tokio::test]
    async fn counters_of_the_old_process_are_in_every_reading() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (old, new) = (source(5), source(1));
        let counting = CountingDown::start(SuccessionLink::over(one), old.clone());
        let _farewell =
            follow(SuccessionLink::over(other), new.clone(), new.board.follow_predecessor());
        assert_eq!(sum(&new).await, 6);
        old.board.leave(Report { requests: 10, ..Report::default() });
        assert_eq!(sum(&new).await, 16);
        old.board.leave(Report { requests: 100, ..Report::default() });
        counting.finish().await;
        let is_whole = async {
            while sum(&new).await != 116 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SEND_PATIENCE, is_whole).await.expect("the last counters");
    }

    #[tokio::test]
    async fn orderly_stop_of_the_new_process_is_known_and_a_crash_is_not() {
        for says in [true, false] {
            let (one, other) = UnixStream::pair().expect("a pair");
            let new = source(1);
            let mut counting = CountingDown::start(SuccessionLink::over(one), source(5));
            let link = SuccessionLink::over(other);
            if says {
                let farewell = follow(link, new.clone(), new.board.follow_predecessor());
                farewell.say().await;
            } else {
                drop(link);
            }
            assert_eq!(counting.has_left().await, says);
        }
    }

    #[tokio::test]
    async fn malformed_messages_leave_the_counters() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (mut old, new) = (SuccessionLink::over(one), source(1));
        let _farewell =
            follow(SuccessionLink::over(other), new.clone(), new.board.follow_predecessor());
        let answers = async {
            for text in [r#"{"counted":{"board":{"requests":4}}}"#, "?", r#"{"counted":null}"#] {
                old.receive().await.expect("a question");
                old.send(text.as_bytes()).await.expect("sent");
            }
            drop(old);
        };
        let readings = async {
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(sum(&new).await);
            }
            all
        };
        let ((), all) = tokio::join!(answers, readings);
        assert_eq!(all, [5, 5, 5, 5]);
    }

    #[tokio::test]
    async fn link_stays_until_its_owner_leaves_it() {
        let (one, mut other) = UnixStream::pair().expect("a pair");
        let counting = CountingDown::start(SuccessionLink::over(one), source(1));
        tokio::task::yield_now().await;
        // The new process has failed: its end is closed, or it is killed.
        let CountingDown { finish, task, .. } = counting;
        drop(finish);
        task.await.expect("no panic");
        let read = tokio::io::AsyncReadExt::read(&mut other, &mut [0]).await;
        assert_eq!(read.expect("an end"), 0);

        let (one, other) = UnixStream::pair().expect("a pair");
        let CountingDown { finish, task, .. } =
            CountingDown::start(SuccessionLink::over(one), source(1));
        drop(other);
        tokio::task::yield_now().await;
        assert!(!task.is_finished(), "it is kept");
        drop(finish);
        task.await.expect("no panic");
    }

    #[tokio::test]
    async fn readers_do_not_wait_for_a_process_that_hangs() {
        let (_hangs, other) = UnixStream::pair().expect("a pair");
        let new = source(1);
        let _farewell =
            follow(SuccessionLink::over(other), new.clone(), new.board.follow_predecessor());
        for _ in 0..3 {
            assert_eq!(sum(&new).await, 1);
        }
        // Longer than three seconds if each waited.
        let begun = Deadline::after(ASK_EVERY);
        for _ in 0..5 {
            assert_eq!(sum(&new).await, 1);
        }
        assert!(!begun.is_over());
    }
}
