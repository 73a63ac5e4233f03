//! The worker threads of the process: starts them, passes them orders, and ends those that a reload
//! makes superfluous.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use lighty_core::log::Level;
use lighty_io::clock::deadline::Deadline;
use tokio::sync::watch;

use crate::boot::error::BootError;
use crate::reload::Plan;
use crate::worker::thread::{self, Command, Order, Ready, Setup, WorkerParts};

/// The workers. They end when this is dropped.
pub(crate) struct Crew {
    parts: WorkerParts,
    ending: mpsc::Sender<u64>,
    state: Mutex<CrewState>,
}

struct CrewState {
    members: Vec<CrewMember>,
    ended: mpsc::Receiver<u64>,
    last_ticket: u64,
    /// The order of workers that serve, also of those that are still to start.
    command: Command,
}

/// A worker. It ends when this is dropped.
pub(crate) struct CrewMember {
    pub(crate) index: usize,
    /// Unique, unlike the index.
    ticket: u64,
    orders: watch::Sender<Order>,
    /// Set once it drains because a reload has made it superfluous.
    retired: Option<Deadline>,
}

/// Report of workers that have started.
#[derive(Debug, Default)]
pub(crate) struct CrewReport {
    /// Number of the workers.
    pub(crate) workers: usize,
    /// The engine that opens their files, and the reason for it.
    pub(crate) engine: String,
    /// Reasons why inotify does not watch files for a worker although it was configured.
    pub(crate) unwatched: Vec<String>,
}

impl CrewReport {
    /// Warns of workers that look at files by themselves although inotify is configured.
    pub(crate) fn warn_of_unwatched(&self, say: &dyn Fn(Level, &str)) {
        let (Some(why), workers) = (self.unwatched.first(), self.workers) else { return };
        let (count, instead) = (self.unwatched.len(), "look at files again once a second instead");
        let text = format!("{why}; {count} of {workers} workers {instead}, as with \"simple\"");
        say(Level::Warning, &format!("server.stat-cache-engine: {text}"));
    }
}

impl Crew {
    /// Creates a crew whose workers begin with this order.
    pub(crate) fn new(parts: WorkerParts, command: Command) -> Self {
        let (ending, ended) = mpsc::channel();
        let state = CrewState { members: Vec::new(), ended, last_ticket: 0, command };
        Self { parts, ending, state: Mutex::new(state) }
    }

    /// Starts workers with these indexes, and waits until they serve. They open their listeners
    /// once `first` is the published plan. Dropping the result ends them.
    ///
    /// # Errors
    /// A thread or a part of it cannot be started.
    pub(crate) fn start(
        &self,
        indexes: &[usize],
        first: &Arc<Plan>,
    ) -> Result<(Vec<CrewMember>, CrewReport), BootError> {
        let (report, ready) = mpsc::channel();
        let mut members = Vec::new();
        for index in indexes {
            let command = self.lock().command;
            let (orders, order) = watch::channel(Order { command, ..Order::default() });
            let ticket = self.next_ticket();
            let setup = Setup {
                index: *index,
                ticket,
                parts: self.parts.clone(),
                order,
                ready: report.clone(),
                done: self.ending.clone(),
            };
            let spawned = thread::spawn(setup, Arc::clone(first));
            spawned.map_err(|error| BootError::Step("starting a worker".to_owned(), error))?;
            members.push(CrewMember { index: *index, ticket, orders, retired: None });
        }
        drop(report);
        let mut all = CrewReport { workers: indexes.len(), ..CrewReport::default() };
        for _ in indexes {
            match ready.recv() {
                Ok(Ready::Serving { engine, unwatched }) => {
                    all.engine = engine;
                    all.unwatched.extend(unwatched);
                }
                Ok(Ready::Failed(why)) => return Err(why),
                Err(_) => return Err(BootError::WorkerEnded),
            }
        }
        Ok((members, all))
    }

    /// Adds started workers.
    pub(crate) fn enlist(&self, members: Vec<CrewMember>) {
        self.lock().members.extend(members);
    }

    /// Returns the indexes of the workers that are not superfluous, in the order of their start.
    pub(crate) fn serving(&self) -> Vec<usize> {
        let state = self.lock();
        let serving = state.members.iter().filter(|member| member.retired.is_none());
        serving.map(|member| member.index).collect()
    }

    /// Returns so many indexes that no worker has, the lowest first.
    pub(crate) fn free_indexes(&self, count: usize) -> Vec<usize> {
        let mut state = self.lock();
        state.note_ends();
        let is_free = |index: &usize| state.members.iter().all(|member| member.index != *index);
        (0..).filter(is_free).take(count).collect()
    }

    /// Drains the workers that are not among these. They end at the latest after `patience`.
    pub(crate) fn retire_others(&self, kept: &[usize], patience: Duration) {
        let mut state = self.lock();
        for member in state.members.iter_mut().filter(|member| !kept.contains(&member.index)) {
            if member.retired.is_none() {
                member.retired = Some(Deadline::after(patience));
                member.orders.send_modify(|order| order.command = Command::Drain);
            }
        }
    }

    /// Ends superfluous workers whose time is over. Returns the number of those that still drain.
    pub(crate) fn end_retired(&self) -> usize {
        let mut state = self.lock();
        state.note_ends();
        let retired = state.members.iter().filter_map(|member| Some((member, member.retired?)));
        let mut draining = 0;
        for (member, deadline) in retired {
            draining += 1;
            if deadline.is_over() {
                member.orders.send_modify(|order| order.command = Command::Stop);
            }
        }
        draining
    }

    /// Has all workers that serve do so, or hold. Later ones begin with it, too.
    pub(crate) fn command(&self, command: Command) {
        let mut state = self.lock();
        state.command = command;
        for member in state.members.iter().filter(|member| member.retired.is_none()) {
            member.orders.send_modify(|order| order.command = command);
        }
    }

    /// Changes the order of every worker. One that drains already is not ordered to serve again.
    pub(crate) fn order(&self, change: impl Fn(&mut Order)) {
        self.lock().members.iter().for_each(|member| member.orders.send_modify(&change));
    }

    /// Returns the number of workers that have not ended.
    pub(crate) fn left(&self) -> usize {
        let mut state = self.lock();
        state.note_ends();
        state.members.len()
    }

    /// Waits for the end of a worker. Returns false if none ends in time.
    pub(crate) fn await_end(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        match state.ended.recv_timeout(patience) {
            Ok(ticket) => {
                state.remove(ticket);
                true
            }
            Err(_) => false,
        }
    }

    fn next_ticket(&self) -> u64 {
        let mut state = self.lock();
        state.last_ticket += 1;
        state.last_ticket
    }

    fn lock(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CrewState {
    fn note_ends(&mut self) {
        while let Ok(ticket) = self.ended.try_recv() {
            self.remove(ticket);
        }
    }

    fn remove(&mut self, ticket: u64) {
        self.members.retain(|member| member.ticket != ticket);
    }
}
