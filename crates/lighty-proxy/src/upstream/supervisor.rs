//! Background tasks of upstreams: DNS look-ups, health checks, spawned processes. One thread serves
//! all workers; it starts with the first upstream that needs it.
//!
//! Reading order: this file (the thread) · [`names`] · [`checks`] · [`processes`] (which programs
//! run) · [`process`] (one of them).

mod checks;
mod group;
mod names;
mod port;
mod process;
mod processes;

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use lighty_core::ErrorOutput;
use lighty_core::log::{About, Level, Log};
use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::connect::resolve::Resolver;
use lighty_io::threads;
use lighty_io::threads::keep;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::upstream::Upstream;
use crate::upstream::start_error::StartError;
use processes::Processes;

/// Poll interval in milliseconds while stopping: the standard library cannot join a thread with a
/// timeout.
const END_LOOK_MS: u64 = 5;

/// The thread. It gets orders for each upstream, and one to stop.
pub(crate) struct Supervisor {
    orders: UnboundedSender<SupervisorOrder>,
    /// The thread, or the reason why it could not start.
    thread: Result<JoinHandle<()>, StartError>,
}

enum SupervisorOrder {
    /// Start its programs, for the generation of this number.
    Begin(Arc<Upstream>, u64, mpsc::Sender<Result<(), StartError>>),
    /// Move the programs of this generation to their sockets.
    Commit(u64, mpsc::Sender<Result<(), StartError>>),
    /// Look up its names and check its addresses.
    Care(Arc<Upstream>, Resolver),
    /// End the programs that no other upstream uses.
    Release(Arc<Upstream>),
    Stop,
}

/// The pending outcome of an order.
pub(crate) struct Care(mpsc::Receiver<Result<(), StartError>>);

impl Care {
    /// Waits until the order has been carried out.
    pub(crate) fn wait(self) -> Result<(), StartError> {
        self.0
            .recv()
            .unwrap_or_else(|_| Err(StartError("the thread that cares for backends ended".into())))
    }
}

impl Supervisor {
    pub(crate) fn new(log: Log) -> Self {
        // Orders come from the start and from reloads, a few for each.
        let (orders, taken) = unbounded_channel();
        let error_log = log.clone();
        let body = move || {
            if let Err(error) = serve(log, taken) {
                let text = format!("caring for backends: {error}");
                error_log.line(Level::Error, Clock::start().unix_s(), &text, About::default());
            }
        };
        let thread =
            threads::start("upstreams", None, body).map_err(|error| StartError(error.to_string()));
        Self { orders, thread }
    }

    /// Starts the programs of an upstream.
    pub(crate) fn begin(&self, upstream: Arc<Upstream>, naming: u64) -> Care {
        self.order(|reply| SupervisorOrder::Begin(upstream, naming, reply))
    }

    /// Moves the programs of a generation to their sockets.
    pub(crate) fn commit(&self, naming: u64) -> Care {
        self.order(|reply| SupervisorOrder::Commit(naming, reply))
    }

    fn order(
        &self,
        order: impl FnOnce(mpsc::Sender<Result<(), StartError>>) -> SupervisorOrder,
    ) -> Care {
        let (give, take) = mpsc::channel();
        match &self.thread {
            Err(why) => drop(give.send(Err(why.clone()))),
            Ok(_) => drop(self.orders.send(order(give))),
        }
        Care(take)
    }

    pub(crate) fn care(&self, upstream: Arc<Upstream>, resolver: Resolver) {
        let _ = self.orders.send(SupervisorOrder::Care(upstream, resolver));
    }

    pub(crate) fn release(&self, upstream: Arc<Upstream>) {
        let _ = self.orders.send(SupervisorOrder::Release(upstream));
    }

    /// Stops the processes and the thread, within `patience`.
    pub(crate) fn stop(self, patience: Duration) {
        let _ = self.orders.send(SupervisorOrder::Stop);
        let deadline = Deadline::after(patience);
        let is_over = || self.thread.as_ref().map_or(true, JoinHandle::is_finished);
        while !is_over() && !deadline.is_over() {
            std::thread::sleep(Duration::from_millis(END_LOOK_MS));
        }
    }
}

fn serve(log: Log, orders: UnboundedReceiver<SupervisorOrder>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let keeping = Keeping { log: SupervisorLog::new(log) };
    local.block_on(&runtime, keeping.obey(orders));
    Ok(())
}

struct Keeping {
    log: SupervisorLog,
}

impl Keeping {
    async fn obey(self, mut orders: UnboundedReceiver<SupervisorOrder>) {
        let mut processes = Processes::new(self.log.clone());
        while let Some(order) = orders.recv().await {
            match order {
                SupervisorOrder::Begin(upstream, naming, reply) => {
                    let started = processes.begin(&upstream, naming).await;
                    let _ = reply.send(started);
                }
                SupervisorOrder::Commit(naming, reply) => {
                    drop(reply.send(processes.commit(naming)))
                }
                SupervisorOrder::Care(upstream, resolver) => self.follow(upstream, resolver),
                SupervisorOrder::Release(upstream) => processes.release(&upstream),
                SupervisorOrder::Stop => break,
            }
        }
        processes.stop().await;
    }

    fn follow(&self, upstream: Arc<Upstream>, resolver: Resolver) {
        let log = self.log.clone();
        let checked = Rc::default();
        keep::keep("names", move || {
            let (upstream, checked) = (Arc::clone(&upstream), Rc::clone(&checked));
            names::follow(upstream, checked, resolver.clone(), log.clone())
        });
    }
}

/// The thread's clock, and its way to the error log.
#[derive(Clone)]
pub(crate) struct SupervisorLog {
    log: Rc<Log>,
    clock: Clock,
}

impl SupervisorLog {
    fn new(log: Log) -> Self {
        Self { log: Rc::new(log), clock: Clock::start() }
    }

    fn say(&self, level: Level, text: &str) {
        self.clock.refresh();
        self.log.line(level, self.clock.unix_s(), text, About::default());
    }

    /// Creates the log of a process's error output. It has no limit of its own: only the rate of
    /// all programs together is limited.
    fn errors_of(&self, who: String) -> ErrorOutput {
        ErrorOutput::new((*self.log).clone(), self.clock.clone(), who, 0)
    }

    fn take_line(&self, errors: &mut ErrorOutput, line: &[u8]) -> bool {
        self.clock.refresh();
        errors.take_line(line)
    }

    fn now_ms(&self) -> u64 {
        self.clock.refresh();
        self.clock.mono_ms()
    }
}
