//! The thread that maintains certificates. It orders missing ones and renews others when due,
//! several concurrently, so that a slow order does not delay others.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::clock::deadline::Deadline;
use lighty_io::threads;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, LocalSet};

use crate::admission::Admissions;
use crate::attempt::{CertificateState, CertificateTask, Say};
use crate::demand::Demand;
use crate::dns_hook::Leftovers;
use crate::error::OrderError;
use crate::order::Accounts;
use crate::plan::CertificatePlan;
use crate::store::{Store, file_name};
use crate::wanted::CertificateSpec;

/// Interval of checking certificates.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Up to this number of names, all files are checked each time. Larger numbers are checked less
/// often in proportion, and not because one of many orders has ended.
const LOOKED_AT_ONCE: usize = 200;

/// Maximum number of concurrent orders.
const ORDERS_MAX: usize = 8;

/// Threads for requests to authorities: one for each order, and as many for requests of aborted
/// orders that still wait for a response.
const CLIENT_THREADS_MAX: usize = 2 * ORDERS_MAX;

/// Timeout for removing a record left by an aborted order.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(4);

/// Maximum time that a stop waits for orders to end, and for the removal of their records.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Names and values about the certificates, for the status page.
type Figures = Vec<(String, String)>;

#[derive(Default)]
struct ServiceState {
    plan: Mutex<Option<CertificatePlan>>,
    figures: Mutex<Figures>,
    is_stopping: AtomicBool,
    /// The plan has changed, or the service is stopping.
    changed: Notify,
}

/// The service; its thread runs once there is a plan.
pub struct Service {
    shared: Arc<ServiceState>,
    demand: Demand,
    say: Say,
    /// Disconnected when the thread has ended; `None`: it is not running.
    ended: Option<mpsc::Receiver<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Creates a service without a plan.
    pub fn new(say: Say, demand: &Demand) -> Self {
        Self { shared: Arc::default(), demand: demand.clone(), say, ended: None }
    }

    /// Maintains these certificates from now on, and no others.
    ///
    /// # Errors
    /// The system's, if no thread can be created.
    pub fn follow(&mut self, plan: Option<CertificatePlan>) -> io::Result<()> {
        let has_work = plan.is_some();
        let (on_demand, wanted) =
            plan.as_ref().map_or((None, &[][..]), |plan| (plan.on_demand.clone(), &plan.wanted));
        self.demand.follow(on_demand, wanted);
        *lock(&self.shared.plan) = plan;
        self.shared.changed.notify_one();
        if has_work && self.ended.is_none() {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(CLIENT_THREADS_MAX)
                .thread_name("acme client")
                .build()?;
            let keeper = Keeper::new(&self.say, &self.demand);
            let shared = Arc::clone(&self.shared);
            let (ends, ended) = mpsc::channel();
            threads::start("acme", None, move || {
                run(runtime, keeper, &shared);
                drop(ends);
            })?;
            self.ended = Some(ended);
        }
        Ok(())
    }

    /// Aborts the orders in progress, with their programs, locks and proofs. Waits for that at most
    /// five seconds; only DNS records can take this long.
    pub fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.changed.notify_one();
        if let Some(ended) = self.ended.take() {
            // Disconnected or late: there is nothing more to do.
            let _ = ended.recv_timeout(STOP_PATIENCE);
        }
    }

    /// A function that returns the latest figures, without waiting for the thread.
    pub fn figures(&self) -> impl Fn() -> Figures + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared.figures).clone()
    }
}

fn run(runtime: Runtime, keeper: Keeper, shared: &ServiceState) {
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(keeper.look_after(shared)));
    // Does not wait for requests without a response.
    runtime.shutdown_background();
}

/// State of the thread.
struct Keeper {
    say: Say,
    accounts: Accounts,
    leftovers: Leftovers,
    /// Removals of records that orders have left.
    removals: JoinSet<()>,
    known: HashMap<String, CertificateState>,
    orders: JoinSet<CertificateState>,
    running: HashMap<Id, (CertificateTask, AbortHandle)>,
    /// Certificates to be ordered once fewer orders are in progress.
    waiting: VecDeque<CertificateSpec>,
    /// Time until which not all certificates are checked, unless the plan changes.
    rests: Option<Deadline>,
    on_demand: Admissions,
}

impl Keeper {
    fn new(say: &Say, demand: &Demand) -> Self {
        Self {
            on_demand: Admissions::new(say, demand),
            say: Arc::clone(say),
            accounts: Accounts::default(),
            leftovers: Leftovers::default(),
            removals: JoinSet::new(),
            known: HashMap::new(),
            orders: JoinSet::new(),
            running: HashMap::new(),
            waiting: VecDeque::new(),
            rests: None,
        }
    }

    async fn look_after(mut self, shared: &ServiceState) {
        while !shared.is_stopping.load(Ordering::Acquire) {
            while let Some(done) = self.orders.try_join_next_with_id() {
                self.take(done);
            }
            let plan = lock(&shared.plan).clone();
            let on_demand = self.on_demand.turn(plan.as_ref());
            self.end_unwanted(plan.as_ref(), &on_demand);
            if let Some(plan) = &plan {
                let has_looked = self.look_at_all(plan);
                on_demand.iter().for_each(|wanted| self.look_on_demand(plan, wanted));
                if has_looked {
                    let mut figures = self.figures(plan);
                    figures.extend(self.on_demand.demand.figures());
                    *lock(&shared.figures) = figures;
                }
            }
            self.remove_leftovers();
            let demand = self.on_demand.demand.clone();
            tokio::select! {
                biased;
                () = shared.changed.notified() => self.rests = None,
                Some(done) = self.orders.join_next_with_id() => self.take(done),
                () = self.on_demand.answered() => {}
                () = demand.wanted() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        self.orders.shutdown().await;
        self.remove_leftovers();
        while self.removals.join_next().await.is_some() {}
    }

    /// Starts the removal of records that orders have left. Logs errors.
    fn remove_leftovers(&mut self) {
        while self.removals.try_join_next().is_some() {}
        for record in self.leftovers.take() {
            let say = Arc::clone(&self.say);
            self.removals.spawn_local(async move {
                let removing = tokio::time::timeout(REMOVAL_PATIENCE, record.clean_up());
                if let Ok(Err(why)) = removing.await {
                    say(true, &format!("acme: {why}"));
                }
            });
        }
    }

    /// Processes the end of a task.
    fn take(&mut self, done: Result<(Id, CertificateState), JoinError>) {
        let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some((task, _)) = self.running.remove(&id) else { return };
        self.on_demand.look_soon(&task.wanted);
        match done {
            Ok((_, known)) => drop(self.known.insert(task.name, known)),
            Err(error) if error.is_panic() => {
                let known = self.known.entry(task.name.clone()).or_default();
                task.fail(known, (OrderError::Malformed("the order has panicked"), 0));
            }
            Err(_) => {}
        }
    }

    /// Aborts orders that are no longer in the plan, or have changed in it.
    fn end_unwanted(&self, plan: Option<&CertificatePlan>, on_demand: &[CertificateSpec]) {
        for (task, order) in self.running.values() {
            let is_wanted = plan.is_some_and(|plan| {
                let mut wanted = plan.wanted.iter().chain(on_demand);
                plan.store == task.store && wanted.any(|wanted| *wanted == task.wanted)
            });
            if !is_wanted {
                order.abort();
            }
        }
    }

    fn is_running(&self, name: &str) -> bool {
        self.running.values().any(|(task, _)| task.name == name)
    }

    fn look_on_demand(&mut self, plan: &CertificatePlan, wanted: &CertificateSpec) {
        let is_running = self.is_running(&file_name(&wanted.names));
        if !is_running && self.on_demand.is_due(wanted, &self.known) {
            self.look(&plan.store, wanted);
            self.on_demand.looked(wanted, plan, &mut self.known);
        }
    }

    /// Checks all certificates and returns true, if that is due. Otherwise only orders the waiting
    /// ones.
    fn look_at_all(&mut self, plan: &CertificatePlan) -> bool {
        if self.rests.is_some_and(|rests| !rests.is_over()) {
            while self.running.len() < ORDERS_MAX
                && let Some(wanted) = self.waiting.pop_front()
            {
                self.look(&plan.store, &wanted);
            }
            return false;
        }
        let times = plan.wanted.len() / LOOKED_AT_ONCE;
        let rest = LOOK_EVERY * u32::try_from(times).unwrap_or(u32::MAX);
        self.rests = Some(Deadline::after(rest));
        self.waiting.clear();
        for wanted in &plan.wanted {
            if self.look(&plan.store, wanted) {
                self.waiting.push_back(wanted.clone());
            }
        }
        true
    }

    /// Checks a certificate, and orders it if that is due. Returns true if it is due and must wait
    /// for other orders.
    fn look(&mut self, store: &Store, wanted: &CertificateSpec) -> bool {
        let name = file_name(&wanted.names);
        if self.is_running(&name) {
            return false;
        }
        let task = CertificateTask {
            store: store.clone(),
            wanted: wanted.clone(),
            name: name.clone(),
            accounts: self.accounts.clone(),
            leftovers: self.leftovers.clone(),
            say: Arc::clone(&self.say),
        };
        let known = self.known.entry(name).or_default();
        known.read(store, &task.name);
        let now_s = Clock::start().unix_s();
        task.warn(known, now_s);
        if !task.is_due(known, now_s) {
            return false;
        }
        if self.running.len() >= ORDERS_MAX {
            return true;
        }
        let order = self.orders.spawn_local(task.clone().run(known.clone()));
        self.running.insert(order.id(), (task, order));
        false
    }

    fn figures(&self, plan: &CertificatePlan) -> Figures {
        let mut figures = Vec::new();
        for wanted in &plan.wanted {
            let name = file_name(&wanted.names);
            let Some(known) = self.known.get(&name) else { continue };
            let mut add = |what: &str, value: String| {
                figures.push((format!("acme.{name}.{what}"), value));
            };
            let expires_s = known.facts.as_ref().map_or(0, |facts| facts.valid_s.end);
            add("expires", expires_s.to_string());
            add("next-order", known.due_s(&wanted.names).to_string());
            add("failures", known.progress.failures.to_string());
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::CertificateOptions;

    /// Reading certificate files costs time: the end of an order must not cause thousands of other
    /// names' files to be read.
    #[test]
    fn many_certificates_are_not_looked_at_for_each_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let wanted = |nth: usize| CertificateSpec {
            names: Arc::from([format!("n{nth}.a.test")]),
            options: Arc::new(CertificateOptions::default()),
        };
        let plan = CertificatePlan {
            store: Store::new(directory.path()),
            wanted: (0..1000).map(wanted).collect(),
            on_demand: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let say: Say = Arc::new(|_, _| {});
            let mut keeper = Keeper::new(&say, &Demand::default());
            assert!(keeper.look_at_all(&plan));
            let seen = (keeper.known.len(), keeper.running.len(), keeper.waiting.len());
            assert_eq!(seen, (1000, ORDERS_MAX, 1000 - ORDERS_MAX));
            keeper.known.clear();
            assert!(!keeper.look_at_all(&plan) && keeper.known.is_empty(), "all are under way");
            let ended = *keeper.running.keys().next().expect("an order");
            keeper.running.remove(&ended);
            assert!(!keeper.look_at_all(&plan));
            assert_eq!((keeper.known.len(), keeper.running.len()), (1, ORDERS_MAX), "the next one");
            // A new plan is checked completely.
            keeper.rests = None;
            assert!(keeper.look_at_all(&plan));
            assert_eq!(keeper.known.len(), 1000 - ORDERS_MAX + 1);
        });
    }
}
