//! One worker slot: start, restart with back-off, replacement.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::listen::BoundSocket;
use lighty_io::process::privileges::Identity;
use lighty_io::process::spawn::{Child, ChildInput, ChildOutput, ChildSignal, Exit, Program};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::{Ping, ReplaceError, SupervisorOptions, WorkerOrder, ping};

/// Initial pause in milliseconds before a worker that ended early is restarted. Doubles each time.
pub(super) const PAUSE_MS_MIN: u64 = 100;

/// Maximum pause, in milliseconds.
pub(super) const PAUSE_MS_MAX: u64 = 10_000;

/// A worker that ran for this many milliseconds did not fail to start.
pub(super) const LIVED_MS: u64 = 10_000;

/// Like [`LIVED_MS`], for a worker that ended with exit code 0.
const DONE_MS: u64 = 1_000;

/// A worker that ends with exit code 0 sooner than this failed to start, even if others answer.
const BEGUN_MS: u64 = 20;

/// Milliseconds after an answer to a ping during which workers that end with exit code 0 are
/// assumed to have served their number of requests.
const ANSWERED_MS: u64 = 30_000;

/// Time limit of a ping after an orderly end, in seconds: workers may be busy.
const PROBE_TIMEOUT_S: u64 = 10;

/// Minimum pause, in milliseconds, in which connections are closed rather than queued: four
/// successive starts have failed by then.
const REFUSE_MS: u64 = 800;

/// Interval of checks for a worker's remaining child processes, in milliseconds.
const COMPANY_MS: u64 = 50;

/// All workers.
pub(super) struct Crew {
    pub(super) options: SupervisorOptions,
    pub(super) socket: BoundSocket,
    identity: Identity,
    clock: Clock,
    places: RefCell<Vec<WorkerSlot>>,
    /// Time of the last answer to a ping; 0 if there was none.
    answered_ms: Cell<u64>,
    /// A ping after an orderly end is in progress.
    probes: Cell<bool>,
    /// Notified of each answer, which ends the pauses of workers that ended with exit code 0.
    answers: Notify,
    /// Replaced workers that are finishing their last request.
    retired: RefCell<Vec<JoinHandle<()>>>,
}

/// State of a worker slot.
#[derive(Clone, Copy, Default)]
struct WorkerSlot {
    /// Process id; 0 if there is none.
    pid: i32,
    began_ms: u64,
    starts: u64,
}

/// A worker's end.
struct WorkerEnd {
    /// Its process id and exit code, or the reason why it was not started.
    why: String,
    /// True if the exit code was 0.
    is_done: bool,
    /// True if it ended after its number of requests.
    is_orderly: bool,
    lived_ms: u64,
}

/// The outcome of waiting for a worker.
enum WorkerOutcome {
    Ended(WorkerEnd),
    /// This process replaces it.
    Replaced(Child),
    Stopped,
}

impl Crew {
    pub(super) fn new(
        options: SupervisorOptions,
        identity: Identity,
        socket: BoundSocket,
        clock: Clock,
    ) -> Self {
        let places = RefCell::new(vec![WorkerSlot::default(); options.workers]);
        Self {
            options,
            socket,
            identity,
            clock,
            places,
            answered_ms: Cell::new(0),
            probes: Cell::new(false),
            answers: Notify::new(),
            retired: RefCell::default(),
        }
    }

    pub(super) fn say(&self, text: &str) {
        crate::print_error("spawn", &text);
    }

    fn now_ms(&self) -> u64 {
        self.clock.refresh();
        self.clock.mono_ms()
    }

    /// Records that a worker has answered a ping.
    pub(super) fn note_answer(&self) {
        self.answered_ms.set(self.now_ms());
        self.answers.notify_waiters();
    }

    /// True if a worker that ended has served its number of requests: busy workers with such a
    /// limit, like php-cgi, may live for less than a second.
    fn ended_in_order(&self, ended: &io::Result<Exit>, lived_ms: u64) -> bool {
        let answered_ms = self.answered_ms.get();
        matches!(ended, Ok(Exit::Code(0)))
            && lived_ms >= BEGUN_MS
            && answered_ms > 0
            && self.now_ms().saturating_sub(answered_ms) < ANSWERED_MS
    }

    /// Pings the workers in the background.
    pub(super) fn probe(self: &Rc<Self>) {
        if self.probes.replace(true) {
            return;
        }
        let crew = Rc::clone(self);
        let path = self.options.ping.as_ref().and_then(|ping| ping.path.clone());
        tokio::task::spawn_local(async move {
            let ping = Ping { path, interval_s: 0, timeout_s: PROBE_TIMEOUT_S, failures: 0 };
            if ping::ask(crew.socket.address(), &ping).await.is_ok() {
                crew.note_answer();
            }
            crew.probes.set(false);
        });
    }

    /// One line for each worker.
    pub(super) fn status(&self) -> String {
        let now_ms = self.now_ms();
        let places = self.places.borrow();
        let lines = places.iter().enumerate().map(|(number, place)| {
            let restarts = place.starts.saturating_sub(1);
            if place.pid == 0 {
                return format!("worker {number}: not running, {restarts} restarts");
            }
            let seconds = now_ms.saturating_sub(place.began_ms) / 1_000;
            let pid = place.pid;
            format!("worker {number}: process {pid}, up {seconds} s, {restarts} restarts")
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Keeps one worker running until it is told to stop.
    pub(super) async fn keep(
        self: Rc<Self>,
        number: usize,
        mut orders: mpsc::UnboundedReceiver<WorkerOrder>,
    ) {
        let (mut running, mut pause_ms) = (None, PAUSE_MS_MIN);
        loop {
            let end = match self.run(number, running.take(), &mut orders).await {
                WorkerOutcome::Ended(end) => end,
                WorkerOutcome::Replaced(child) => {
                    running = Some(child);
                    continue;
                }
                WorkerOutcome::Stopped => return,
            };
            self.places.borrow_mut()[number].pid = 0;
            let answered = self.answers.notified();
            if end.is_done {
                self.probe();
            }
            let why = end.why;
            if end.is_orderly {
                self.say(&format!("worker {number}: {why}; started again"));
                pause_ms = PAUSE_MS_MIN;
                continue;
            }
            // A worker that ends after its number of requests did not fail to start either.
            if end.lived_ms >= if end.is_done { DONE_MS } else { LIVED_MS } {
                pause_ms = PAUSE_MS_MIN;
            }
            self.say(&format!("worker {number}: {why}; started again in {pause_ms} ms"));
            let pause = tokio::time::sleep(Duration::from_millis(pause_ms));
            let refuses = pause_ms >= REFUSE_MS;
            pause_ms = pause_ms.saturating_mul(2).min(PAUSE_MS_MAX);
            tokio::select! {
                () = pause => {}
                () = self.refuse(), if refuses => {}
                // Other workers answer, so this one has served its number of requests.
                () = answered, if end.is_done && end.lived_ms >= BEGUN_MS => {
                    pause_ms = PAUSE_MS_MIN;
                }
                order = orders.recv() => match order {
                    Some(WorkerOrder::Replace(done)) => match self.start_settled().await {
                        Ok(child) => {
                            running = Some(child);
                            let _ = done.send(Ok(()));
                        }
                        Err(why) => drop(done.send(Err(why))),
                    },
                    Some(WorkerOrder::Stop) | None => return,
                }
            }
        }
    }

    /// Closes all connections while no worker is running: their requests fail now instead of after
    /// the front end's time-out. Returns only if the socket is broken.
    async fn refuse(&self) {
        let has_worker = || {
            self.places.borrow().iter().any(|place| place.pid != 0)
                || self.retired.borrow().iter().any(|task| !task.is_finished())
        };
        loop {
            if has_worker() {
                tokio::time::sleep(Duration::from_millis(COMPANY_MS)).await;
            } else if self.socket.has_caller().await.is_err() {
                return std::future::pending().await;
            } else if !has_worker() {
                let _ = self.socket.refuse_caller();
            }
        }
    }

    /// Starts a worker, unless one is running, and waits until it ends or an order arrives.
    async fn run(
        self: &Rc<Self>,
        number: usize,
        running: Option<Child>,
        orders: &mut mpsc::UnboundedReceiver<WorkerOrder>,
    ) -> WorkerOutcome {
        let now_ms = self.now_ms();
        let child = match running {
            Some(child) => Ok(child),
            None => self.start().await,
        };
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let lived_ms = self.now_ms().saturating_sub(self.began_ms(number, now_ms));
                let why = error.to_string();
                return WorkerOutcome::Ended(WorkerEnd {
                    why,
                    lived_ms,
                    is_done: false,
                    is_orderly: false,
                });
            }
        };
        self.enter(number, &child);
        tokio::select! {
            ended = child.wait() => {
                let lived_ms = self.now_ms().saturating_sub(self.began_ms(number, now_ms));
                WorkerOutcome::Ended(WorkerEnd {
                    why: format!("process {} {}", child.id(), outcome(&ended)),
                    is_done: matches!(ended, Ok(Exit::Code(0))),
                    is_orderly: self.ended_in_order(&ended, lived_ms),
                    lived_ms,
                })
            }
            order = orders.recv() => match order {
                Some(WorkerOrder::Replace(done)) => WorkerOutcome::Replaced(self.replace(child, done).await),
                Some(WorkerOrder::Stop) | None => {
                    self.retire(child).await;
                    WorkerOutcome::Stopped
                }
            }
        }
    }

    fn enter(&self, number: usize, child: &Child) {
        let began_ms = self.now_ms();
        let place = &mut self.places.borrow_mut()[number];
        if place.pid != child.id() {
            *place = WorkerSlot { pid: child.id(), began_ms, starts: place.starts + 1 };
        }
    }

    fn began_ms(&self, number: usize, otherwise_ms: u64) -> u64 {
        let place = self.places.borrow()[number];
        if place.starts == 0 { otherwise_ms } else { place.began_ms }
    }

    /// Starts another worker, and asks the old one to exit once the new one has settled. Returns
    /// the one that keeps running.
    async fn replace(
        self: &Rc<Self>,
        old: Child,
        done: tokio::sync::oneshot::Sender<Result<(), ReplaceError>>,
    ) -> Child {
        let new = match self.start_settled().await {
            Ok(new) => new,
            Err(why) => {
                let _ = done.send(Err(why));
                return old;
            }
        };
        let crew = Rc::clone(self);
        let mut retired = self.retired.borrow_mut();
        retired.retain(|task| !task.is_finished());
        retired.push(tokio::task::spawn_local(async move {
            crew.retire(old).await;
            let _ = done.send(Ok(()));
        }));
        new
    }

    /// Starts a worker and waits until it has settled. If it ends in order before, it has responded
    /// to requests, and another one is started.
    async fn start_settled(self: &Rc<Self>) -> Result<Child, ReplaceError> {
        let settle = Duration::from_millis(self.options.settle_ms);
        let began_ms = self.now_ms();
        let new = self.start().await.map_err(ReplaceError::Start)?;
        let Ok(ended) = tokio::time::timeout(settle, new.wait()).await else { return Ok(new) };
        let lived_ms = self.now_ms().saturating_sub(began_ms);
        if self.ended_in_order(&ended, lived_ms) {
            return self.start().await.map_err(ReplaceError::Start);
        }
        Err(ReplaceError::Ended(new.id(), ended))
    }

    /// Asks a worker to finish and exit, and kills it after its grace period.
    async fn retire(&self, child: Child) {
        child.signal(self.options.stop_signal.number());
        let in_order = async {
            let ended = child.ended().await;
            // Its child processes may serve requests longer than it lives.
            while child.has_company() {
                tokio::time::sleep(Duration::from_millis(COMPANY_MS)).await;
            }
            ended
        };
        let grace = Duration::from_secs(self.options.grace_s);
        if tokio::time::timeout(grace, in_order).await.is_err() {
            let (pid, grace_s) = (child.id(), self.options.grace_s);
            self.say(&format!("process {pid} is killed: it did not end within {grace_s} s"));
            child.signal(ChildSignal::KILL);
        }
        let _ = child.wait().await;
    }

    pub(super) async fn await_retired(&self) {
        for task in self.retired.take() {
            let _ = task.await;
        }
    }

    async fn start(&self) -> io::Result<Child> {
        let options = &self.options;
        let mut command = options.command.iter();
        let mut program = Program::new(command.next().cloned().unwrap_or_default());
        program.args = command.cloned().collect();
        program.copy_whole_environment();
        program.working_dir.clone_from(&options.directory);
        program.identity = (!self.identity.is_unchanged()).then(|| self.identity.clone());
        program.stdin = ChildInput::Fd(self.socket.duplicate()?);
        program.stdout = ChildOutput::Fd(io::stdout().as_fd().try_clone_to_owned()?);
        program.stderr = ChildOutput::Fd(io::stderr().as_fd().try_clone_to_owned()?);
        Child::spawn(program).await
    }
}

/// Describes the end of a worker, to follow its number.
pub(super) fn outcome(ended: &io::Result<Exit>) -> String {
    match ended {
        Ok(exit) => format!("ended: {exit}"),
        Err(error) => format!("is lost: {error}"),
    }
}
