//! Reload: replaces the configuration of the running process. It takes effect as a whole or not at
//! all: every step that can fail precedes the first change to state in use.

mod changes;
mod compare;
mod dry_run;
mod fixed;
mod old;
mod plan;
mod refusal;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{Config, Diagnostic};
use lighty_core::Settings;
use lighty_core::log::{About, Level, Log};
use lighty_core::settings::ServerSettings;
use lighty_io::clock::Clock;
use lighty_io::file::followed::follow;
use lighty_io::log_writer::{self, LogTarget, LogWriter};
use lighty_io::process::memory;
use lighty_io::threads::{self, panics};
use lighty_modules::accesslog::Sinks;
use lighty_modules::auth::fetch_keys;
use lighty_modules::evasive::continue_counts;
use lighty_modules::health::Readiness;
use lighty_modules::status;
use lighty_modules::tracing::{Exporters, Telemetry};
use lighty_modules::webdav;
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::registry::{Naming, Registry};
use tokio::sync::{mpsc, oneshot, watch};

use crate::acme;
use crate::boot::database_directories::check_database_directories;
use crate::boot::document_root::check_document_root;
use crate::boot::{caches, error_log};
use crate::control::kept::KeptOrders;
use crate::followed::{self, FollowedFiles};
use crate::listen::listeners;
use crate::listen::opened::{CrewChange, NextListeners, OpenListeners, Preparation};
use crate::listen::planned::PlannedListener;
use crate::modules::{self, Shared, State};
use crate::report::config_figures::ConfigFigures;
use crate::sandbox::{self, NextRights};
use crate::tls::{self, Keeper, Tls};
use crate::worker::crew::{Crew, CrewMember, CrewReport};
use crate::worker::restarts::{NoSuccessor, Restarts};
use crate::worker::shares::{WorkerShares, worker_count};
use changes::ObjectChange;
use compare::Compared;
pub(crate) use dry_run::DryRun;
pub(crate) use old::OldGenerations;
pub(crate) use plan::Plan;
use refusal::Reasons;
pub use refusal::{Refusal, RefusalKind, SANDBOX};

/// A configuration that was read, and its warnings.
pub struct Loaded {
    /// The configuration, checked.
    pub config: Config<Settings>,
    /// Warnings, as they are printed.
    pub warnings: String,
}

/// Reads the configuration again.
pub type Loader = Arc<dyn Fn() -> Result<Loaded, Refusal> + Send + Sync>;

/// Reason why the configuration cannot be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoReload {
    #[error("server.chroot hides the configuration")]
    Hidden,
    #[error("the configuration did not come from a file")]
    NoFile,
}

/// Returns the loader.
///
/// # Errors
/// The configuration cannot be read again.
pub(crate) fn usable(loader: Option<Loader>, is_hidden: bool) -> Result<Loader, NoReload> {
    match is_hidden {
        true => Err(NoReload::Hidden),
        false => loader.ok_or(NoReload::NoFile),
    }
}

/// Time limit for workers to begin with a generation before the log reports a delay.
const WORKERS_PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for workers to close what a reload removed, and the interval of looks at it.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);
const CLOSING_LOOK: Duration = Duration::from_millis(5);

/// Time limit for writing the messages of a start, before standard error is given up. A terminal or
/// pipe that takes nothing must not block the start forever; a busy machine may need a second.
const ERRORS_PATIENCE: Duration = Duration::from_secs(10);

/// Stack size of the thread, equal to the usual one of the main thread.
const LOADER_STACK_BYTES: usize = 8 << 20;

/// The main thread's part in reloads.
pub(crate) struct Reloader {
    /// The loader, or the reason why the configuration cannot be read again.
    pub loader: Result<Loader, NoReload>,
    pub plans: watch::Sender<Arc<Plan>>,
    /// Each worker sends its index and the generation that it has begun with.
    pub swapped: mpsc::UnboundedReceiver<(usize, u64)>,
    pub crew: Arc<Crew>,
    pub listeners: OpenListeners,
    /// The process's descriptor limit.
    pub fds: u64,
    pub upstreams: Arc<Registry>,
    pub log: Log,
    /// Writes the error log.
    pub errors: Arc<LogWriter>,
    /// Keeps certificates up to date.
    pub keeper: Keeper,
    /// Orders for backends that outlive the process.
    pub kept: Arc<KeptOrders>,
    /// Figures of the configuration, for the status page.
    pub figures: Arc<ConfigFigures>,
    /// Obtains certificates.
    pub service: acme::Service,
    /// Exports metrics and the error log.
    pub telemetry: Telemetry,
    pub restarts: Restarts,
    pub leftovers: Leftovers,
}

/// Parts of earlier configurations that are still in use.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Configurations that may still have requests in progress.
    pub old: OldGenerations,
    /// Requests in progress use a database that is no longer configured.
    holds_databases: bool,
    /// Workers that a reload made superfluous and that still have connections.
    draining_workers: usize,
    /// Workers close listeners that a reload removed.
    is_closing: bool,
}

impl Leftovers {
    fn is_empty(&self) -> bool {
        let Self { old, holds_databases, draining_workers, is_closing } = self;
        old.is_empty() && !holds_databases && *draining_workers == 0 && !is_closing
    }
}

impl Reloader {
    /// Reads the configuration and, if it has no errors, has all workers begin with it. Both
    /// results contain the message for the caller.
    ///
    /// The future may be dropped: then either nothing has changed, or everything has.
    pub(crate) async fn reload(&mut self) -> Result<String, Refusal> {
        self.forget();
        let prepared = match self.load().await {
            Ok(loaded) => self.prepare(loaded, Preparation::Reload).await.1,
            Err(why) => Err(why),
        };
        let done = match prepared {
            Ok(prepared) => Ok(self.commit(prepared).await),
            Err(why) => Err(why),
        };
        let (level, text) = match &done {
            Ok(text) => (Level::Notice, text),
            Err(Refusal { text, .. }) => (Level::Error, text),
        };
        if done.is_err() {
            self.figures.refuse();
            self.say(level, "reload refused, the configuration stays as it was:");
        }
        text.lines().filter(|line| !line.trim().is_empty()).for_each(|line| self.say(level, line));
        done
    }

    /// Reads the configuration and does all that a reload does before its first change. Returns the
    /// differences to the present configuration.
    pub(crate) async fn dry_run(&self) -> DryRun {
        let (changes, prepared) = match self.load().await {
            Ok(loaded) => self.prepare(loaded, Preparation::DryRun).await,
            Err(why) => (Vec::new(), Err(why)),
        };
        let done = prepared.map(|prepared| prepared.discard());
        DryRun::new(changes, done)
    }

    /// Returns the access logs of the present configuration.
    pub(crate) fn access_logs(&self) -> Sinks {
        self.plans.borrow().shared.access_logs.clone()
    }

    /// Writes the messages logged so far. Returns true if they go to standard error, because the
    /// configuration names no error log.
    pub(crate) fn flush_to_stderr(&self) -> bool {
        self.errors.flush(ERRORS_PATIENCE);
        let target = error_log::target(&self.plans.borrow().config.global().server);
        target == LogTarget::Stderr
    }

    /// Returns the state that the instances of a module share.
    pub(crate) fn state_of<T: State>(&self, module: &'static str) -> T {
        self.plans.borrow().shared.states.of(module)
    }

    /// Readiness of the process, for `health.ready-url`.
    pub(crate) fn readiness(&self) -> Readiness {
        self.state_of("mod_health")
    }

    /// Time between a graceful stop's order and the end of listening.
    pub(crate) fn drain_delay(&self) -> Duration {
        let delay_s = self.plans.borrow().config.global().server.drain_delay_s;
        Duration::from_secs(delay_s.into())
    }

    /// Time limit for a new process to become ready under the present configuration, in seconds.
    pub(crate) fn upgrade_timeout_s(&self) -> u64 {
        self.plans.borrow().config.global().server.upgrade_timeout_s.into()
    }

    /// Starts another worker in place of one that has ended by a panic, on the same sockets.
    ///
    /// # Errors
    /// There were too many within a minute, or it cannot start.
    pub(crate) fn replace_worker(&mut self, index: usize) -> Result<(), NoSuccessor> {
        let plan = Arc::clone(&self.plans.borrow());
        let max = plan.config.global().server.worker_restarts_max;
        if !self.restarts.admit(Clock::start().unix_s(), max) {
            return Err(NoSuccessor::Limit(max));
        }
        if !plan.sockets.of(index).iter().all(PlannedListener::refill) {
            return Err(NoSuccessor::Listener);
        }
        let (members, _) = self.crew.start(&[index], &plan).map_err(NoSuccessor::Start)?;
        self.crew.enlist(members);
        let text = format!("worker {index} has ended by a panic: another one takes its place");
        self.say(Level::Error, &text);
        Ok(())
    }

    /// Exports metrics and the error log as the present configuration says.
    pub(crate) fn export(&mut self) {
        let plan = Arc::clone(&self.plans.borrow());
        let (board, started_s) = (plan.shared.board.clone(), plan.shared.started_s);
        let metrics = Arc::new(move |service: &str| status::export(&board, started_s, service));
        let exporters: Exporters = self.state_of("mod_tracing");
        self.telemetry.follow(plan.config.global(), &exporters, &self.log, metrics);
    }

    /// Time limit of a graceful stop under the present configuration.
    pub(crate) fn graceful_patience(&self) -> Duration {
        match self.plans.borrow().config.global().server.graceful_shutdown_timeout_s {
            0 => Duration::MAX,
            limit_s => Duration::from_secs(limit_s.into()),
        }
    }

    /// Reads the configuration on a thread of its own: a file on a dead network disk, or a command
    /// that hangs, must not keep the server from being stopped.
    async fn load(&self) -> Result<Loaded, Refusal> {
        let loader = self.loader.as_ref();
        let loader = loader.map_err(|why| Refusal::new(format!("{why}: restart the server")))?;
        let loader = Arc::clone(loader);
        on_thread("reload", move || loader()).await?
    }

    /// Performs all steps that may fail. If the reload is refused, dropping the plan releases
    /// everything acquired. A dry run gets the differences as well.
    async fn prepare(
        &self,
        loaded: Loaded,
        extent: Preparation,
    ) -> (Vec<ObjectChange>, Result<Prepared, Refusal>) {
        let Loaded { config, warnings } = loaded;
        self.await_closed().await;
        let opening = Opening {
            present: Arc::clone(&self.plans.borrow()),
            next: Arc::new(config),
            listeners: self.listeners.clone(),
            upstreams: Arc::clone(&self.upstreams),
            crew: Arc::clone(&self.crew),
            extent,
        };
        let refused = |why: Refusal| why.map(|text| format!("{warnings}{text}"));
        // On a thread of its own: a certificate may be on a dead disk, and a listener may have a
        // name that has to be looked up.
        let opened = on_thread("reload files", move || opening.open()).await;
        let (changes, opened) = match opened {
            Ok(opened) => opened,
            Err(why) => return (Vec::new(), Err(refused(why))),
        };
        let prepared = match opened {
            Ok(opened) => self.acquire(opened, extent).await,
            Err(refusal) => Err(refusal),
        };
        let prepared = prepared.map(|prepared| Prepared { warnings: warnings.clone(), ..prepared });
        (changes, prepared.map_err(refused))
    }

    /// Waits until workers have closed what the last reload removed: the addresses may be wanted.
    async fn await_closed(&self) {
        let closed = async {
            while !self.listeners.are_closed() {
                tokio::time::sleep(CLOSING_LOOK).await;
            }
        };
        let _ = tokio::time::timeout(CLOSING_PATIENCE, closed).await;
    }

    /// Acquires all that needs more than files: programs, modules and worker threads. The listeners
    /// come last, because connections arrive as soon as they listen.
    async fn acquire(&self, opened: Opened, extent: Preparation) -> Result<Prepared, Refusal> {
        let Opened { config, logs, errors, tls, files, mut listeners, crew, rights } = opened;
        let present = Arc::clone(&self.plans.borrow());
        // Starts programs, so it follows all steps that may be refused without.
        let naming = self.name(&config).await?;
        let workers = crew.next.len();
        let shared = Shared {
            access_logs: logs,
            naming,
            tls,
            files,
            memory_share: memory::limit().map(|limit| limit / workers.max(1) as u64),
            ..present.shared.clone()
        };
        // A module that would fail in a worker fails here first.
        panics::caught_in(|| {
            modules::instances(&config, &shared, &WorkerProxy::new(Arc::clone(&self.upstreams)))
        })
        .map_err(|panicked| Refusal::new(format!("building the modules: {}", panicked.0)))?;
        let shares = WorkerShares::of(&config.global().server, self.fds, workers);
        let number = present.number + 1;
        let sockets = std::mem::take(&mut listeners.planned);
        let plan = Arc::new(Plan { number, config, shared, shares, sockets });
        let (members, report) = self.start_workers(&crew, &plan).await?;
        if extent == Preparation::Reload {
            listeners.listen().map_err(|error| Refusal::new(format!("listening: {error}")))?;
        }
        let warnings = String::new();
        Ok(Prepared { plan, errors, listeners, crew, rights, members, report, warnings })
    }

    /// Starts the workers that a configuration adds, on a thread of its own. They wait for the plan
    /// to be published.
    async fn start_workers(
        &self,
        crew: &CrewChange,
        plan: &Arc<Plan>,
    ) -> Result<(Vec<CrewMember>, CrewReport), Refusal> {
        let added: Vec<usize> =
            crew.next.iter().filter(|index| !crew.now.contains(index)).copied().collect();
        if added.is_empty() {
            return Ok(Default::default());
        }
        let (starting, plan) = (Arc::clone(&self.crew), Arc::clone(plan));
        let started = on_thread("reload workers", move || starting.start(&added, &plan)).await?;
        started.map_err(|error| Refusal::new(error.to_string()))
    }

    /// Names the upstreams and starts their programs, on a thread of its own: a program may be on a
    /// dead disk.
    async fn name(&self, config: &Arc<Config<Settings>>) -> Result<Arc<Naming>, Refusal> {
        let (registry, config) = (Arc::clone(&self.upstreams), Arc::clone(config));
        let name = move || {
            let options = configured::resolve_options(config.global());
            registry.name_resolving(&configured::upstreams(&config), options)
        };
        let named = on_thread("reload upstreams", name).await?;
        named.map_err(|error| Refusal::new(error.to_string()))
    }

    /// Applies the prepared configuration. Cannot fail. Returns the message for the caller.
    async fn commit(&mut self, prepared: Prepared) -> String {
        let Prepared { plan, errors, listeners, crew, rights, members, report, warnings } =
            prepared;
        if let Some(rights) = rights {
            rights.keep();
        }
        if let Some(errors) = errors {
            self.errors.switch(errors);
        }
        if let Err(error) = self.keeper.follow(plan.config.global(), &plan.shared.tls) {
            self.say(Level::Error, &error.to_string());
        }
        let certificates = acme::plan(&plan.config, plan.shared.tls.materials.on_demand());
        if let Err(error) = self.service.follow(certificates) {
            self.say(Level::Error, &format!("acme.activate: {error}"));
        }
        let server = &plan.config.global().server;
        self.log.change(server.errorlog_json, server.program_log_kbytes_per_second);
        self.log.levels().replace(server.errorlog_level, &server.errorlog_levels);
        self.log.limit_repeats(server.errorlog_repeats_max);
        self.errors.set_rotation(server.log_rotation);
        plan.shared.access_logs.set_rotation(server.log_rotation);
        webdav::databases(&plan.config)
            .for_each(|(path, _)| plan.shared.stores.expect(path.as_ref()));
        if let Err(error) = caches::open(&plan, &self.log) {
            self.say(Level::Error, &error.to_string());
        }
        self.upstreams.trust(Arc::clone(&plan.shared.tls.materials));
        self.upstreams.commit(&plan.shared.naming);
        self.figures.adopt(plan.number, &plan.shared.tls.materials);
        report.warn_of_unwatched(&|level, text| self.say(level, text));
        self.crew.enlist(members);
        for failure in self.listeners.commit(listeners) {
            self.say(Level::Error, &failure);
        }
        continue_counts(&self.plans.borrow().config, &plan.config);
        let number = plan.number;
        let old = self.plans.send_replace(plan);
        self.leftovers.old.add(old.number, Arc::clone(&old.config));
        drop(old);
        self.figures.set_old_generations(self.leftovers.old.len());
        if let Err(error) = follow() {
            self.say(Level::Error, &format!("following files: {error}"));
        }
        if let Err(error) = fetch_keys() {
            self.say(Level::Error, &format!("fetching keys: {error}"));
        }
        self.export();
        self.crew.retire_others(&crew.next, self.graceful_patience());
        let late = self.await_workers(number, crew.next).await;
        self.forget();
        match late {
            0 => format!("{warnings}reloaded: generation {number}"),
            late => format!(
                "{warnings}reloaded: generation {number}; {late} workers have not begun with it yet"
            ),
        }
    }

    /// Waits until all workers have begun with a generation. Returns the number of workers that
    /// have not.
    async fn await_workers(&mut self, number: u64, mut workers: Vec<usize>) -> usize {
        let all = async {
            while !workers.is_empty() {
                match self.swapped.recv().await {
                    Some((worker, swapped)) if swapped == number => {
                        workers.retain(|index| *index != worker);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(WORKERS_PATIENCE, all).await;
        workers.len()
    }

    /// Drops configurations that have no requests left, and ends superfluous workers whose time is
    /// over. Not done by a worker, because dropping a large configuration takes time.
    pub(crate) fn forget(&mut self) {
        self.leftovers.old.forget();
        self.figures.set_old_generations(self.leftovers.old.len());
        self.leftovers.draining_workers = self.crew.end_retired();
        self.leftovers.is_closing = !self.listeners.settle();
        let plan = Arc::clone(&self.plans.borrow());
        let named: Vec<&Path> =
            webdav::databases(&plan.config).map(|(path, _)| path.as_ref()).collect();
        self.leftovers.holds_databases = !plan.shared.stores.close_others(&named);
    }

    /// Returns true if nothing is left of earlier configurations.
    pub(crate) fn is_settled(&self) -> bool {
        self.leftovers.is_empty()
    }

    fn say(&self, level: Level, text: &str) {
        self.log.line(level, Clock::start().unix_s(), text, About::default());
    }
}

/// Calls a function on a thread of its own: the main thread must not wait for disks or name
/// servers.
async fn on_thread<T: Send + 'static>(
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let (done, result) = oneshot::channel();
    let body = move || drop(done.send(call()));
    threads::start(name, Some(LOADER_STACK_BYTES), body)
        .map_err(|error| Refusal::new(error.to_string()))?;
    result.await.map_err(|_| Refusal::new(format!("the thread \"{name}\" panicked")))
}

/// A configuration that is ready to take the place of the present one.
struct Prepared {
    plan: Arc<Plan>,
    /// The error log's new target, if it changes.
    errors: Option<log_writer::Prepared>,
    listeners: NextListeners,
    crew: CrewChange,
    rights: NextRights,
    /// Workers that have been started for it.
    members: Vec<CrewMember>,
    report: CrewReport,
    /// Warnings, as they are printed.
    warnings: String,
}

impl Prepared {
    /// Releases everything. Returns the warnings.
    fn discard(self) -> String {
        let Self { plan, members, warnings, .. } = self;
        drop(members);
        old::free(plan);
        warnings
    }
}

/// The present and the next configuration, whose files are opened.
struct Opening {
    present: Arc<Plan>,
    next: Arc<Config<Settings>>,
    listeners: OpenListeners,
    upstreams: Arc<Registry>,
    crew: Arc<Crew>,
    extent: Preparation,
}

/// Files and sockets opened for the next configuration.
struct Opened {
    config: Arc<Config<Settings>>,
    logs: Sinks,
    /// The error log's new target, if it changes.
    errors: Option<log_writer::Prepared>,
    tls: Tls,
    files: FollowedFiles,
    listeners: NextListeners,
    crew: CrewChange,
    rights: NextRights,
}

impl Opening {
    /// Opens the files while the present configuration is in use. Returns the differences for a dry
    /// run, and all reasons for a refusal on failure.
    fn open(self) -> (Vec<ObjectChange>, Result<Opened, Refusal>) {
        let Self { present, next, listeners, upstreams, crew, extent } = self;
        let mut reasons = Reasons::default();
        let refusals = &mut reasons.others;
        let names: Vec<_> =
            fixed::needs_restart(&present.config, &next).iter().map(|change| change.name).collect();
        if !names.is_empty() {
            refusals.push(format!("changed, but needs a restart: {}", names.join(", ")));
        }
        let (before, server) = (&present.config.global().server, &next.global().server);
        let wanted = listeners::wanted(&next, server);
        let wanted = wanted.map_err(|why| refusals.push(why.to_string())).ok();
        let listening = wanted.iter().flatten().map(|wanted| wanted.spec.clone()).collect();
        let rights = sandbox::widen(&next, listening);
        let rights = rights.map_err(|missing| reasons.sandbox = missing).unwrap_or_default();
        refusals.extend(missing_directories(&next));
        let files = open_files(&present, &next, &mut reasons.files);
        let crew = next_crew(&crew, before, server);
        let prepared = wanted.as_ref().map(|all| listeners.prepare(&next, all, &crew, extent));
        let sockets =
            prepared.and_then(|prepared| prepared.map_err(|reasons| refusals.extend(reasons)).ok());
        let changes = match extent {
            Preparation::Reload => Vec::new(),
            Preparation::DryRun => {
                let compared = Compared { present: &present.config, next: &next };
                let mut changes = compared.restarts();
                changes.extend(compared.workers());
                let all = wanted.as_deref().unwrap_or_default();
                changes.extend(compared.listeners(&listeners, all));
                changes.extend(compared.upstreams(&upstreams));
                changes.extend(compared.logs());
                if let Some((_, _, tls, _)) = &files {
                    let before = &present.shared.tls.materials;
                    changes.extend(compare::certificates(before, &tls.materials));
                }
                changes.extend(compared.modules());
                changes.extend(compared.settings());
                changes
            }
        };
        let opened = match (files, sockets, reasons.refusal()) {
            (Some((logs, errors, tls, files)), Some(listeners), None) => {
                Ok(Opened { config: next, logs, errors, tls, files, listeners, crew, rights })
            }
            (_, _, refusal) => Err(refusal.unwrap_or_else(|| Refusal::new(""))),
        };
        (changes, opened)
    }
}

/// Chooses the workers under the next configuration.
fn next_crew(crew: &Crew, present: &ServerSettings, next: &ServerSettings) -> CrewChange {
    let now = crew.serving();
    let count = worker_count(next).max(1);
    let kept = match fixed::needs_workers(present, next).is_empty() {
        true => now.len().min(count),
        false => 0,
    };
    let added = crew.free_indexes(count - kept);
    let next = now[..kept].iter().copied().chain(added).collect();
    CrewChange { now, next }
}

/// Opens the logs and certificates of the next configuration. Adds all reasons for a refusal.
fn open_files(
    present: &Plan,
    next: &Arc<Config<Settings>>,
    refusals: &mut Vec<String>,
) -> Option<(Sinks, Option<log_writer::Prepared>, Tls, FollowedFiles)> {
    let logs = present.shared.access_logs.open_next(next);
    let logs = logs.and_then(|logs| logs.start().map(|()| logs));
    let logs = logs.map_err(|error| refusals.push(format!("accesslog.filename: {error}")));
    let server = &next.global().server;
    let errors = next_error_log(&present.config.global().server, server);
    let errors = errors.map_err(|error| refusals.push(error_log::failure(server, &error)));
    let tls = next_tls(&present.shared.tls, next).map_err(|problems| refusals.extend(problems));
    // A process without privileges may be unable to create the directory that it could create at
    // its start.
    if let Some(plan) = acme::plan(next, present.shared.tls.materials.on_demand())
        && let Err(error) = plan.store.prepare(None)
    {
        refusals.push(format!("acme.store: {error}"));
    }
    let files = followed::read(next).map_err(|faults| refusals.extend(faults));
    refusals.extend(caches::faults(next));
    Some((logs.ok()?, errors.ok()?, tls.ok()?, files.ok()?))
}

/// Returns reasons for a refusal: directories that are not there.
fn missing_directories(next: &Config<Settings>) -> Vec<String> {
    let mut refusals = Vec::new();
    match check_document_root(next) {
        Ok(missing) => refusals.extend(missing),
        Err(why) => refusals.push(why.to_string()),
    }
    refusals.extend(check_database_directories(next).err().map(|why| why.to_string()));
    refusals
}

fn next_tls(present: &Tls, next: &Config<Settings>) -> Result<Tls, Vec<String>> {
    let messages = |problems: Vec<Diagnostic>| problems.into_iter().map(|problem| problem.message);
    let materials = tls::load(next, &present.materials);
    let materials = materials.map_err(|all| messages(all).collect::<Vec<_>>())?;
    let key_log = tls::open_key_log(next.global(), present.key_log.as_ref());
    let key_log = key_log.map_err(|error| vec![error.to_string()])?;
    let tls = Tls { materials: Arc::new(materials), key_log, ..present.clone() };
    tls::read_keys(next.global(), &tls).map_err(|error| vec![error.to_string()])?;
    Ok(tls)
}

fn next_error_log(
    present: &ServerSettings,
    next: &ServerSettings,
) -> io::Result<Option<log_writer::Prepared>> {
    let target = error_log::target(next);
    if target == error_log::target(present) {
        return Ok(None);
    }
    LogWriter::prepare(target).map(Some)
}
