//! Reload: replaces the configuration of the running process. It takes effect as a whole or not at
//! all: every step that can fail precedes the first change to state in use.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{Active, Config, Diagnostic};
use lighty_core::Settings;
use lighty_core::log::{About, Level, Log};
use lighty_core::settings::ServerSettings;
use lighty_io::clock::Clock;
use lighty_io::log_writer::{self, LogTarget, LogWriter};
use lighty_io::process::memory;
use lighty_io::threads::{self, panics};
use lighty_modules::accesslog::Sinks;
use lighty_modules::health::Readiness;
use lighty_modules::status;
use lighty_modules::tracing::{Exporters, Telemetry};
use lighty_modules::webdav;
use lighty_proxy::route::WorkerProxy;
use lighty_proxy::upstream::configured::{self, Configured};
use lighty_proxy::upstream::registry::{Naming, Registry};
use tokio::sync::{mpsc, oneshot, watch};

use crate::acme;
use crate::boot::database_directories::check_database_directories;
use crate::boot::document_root::check_document_root;
use crate::boot::error::BootError;
use crate::boot::error_log;
use crate::listen::listeners;
use crate::modules::{self, Shared, State};
use crate::report::config_figures::ConfigFigures;
use crate::tls::{self, Keeper, Tls};

/// A configuration that was read, and its warnings.
pub struct Loaded {
    /// The configuration, checked.
    pub config: Config<Settings>,
    /// Warnings, as they are printed.
    pub warnings: String,
}

/// All reasons against a reload, as they are printed. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

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

/// Time limit for writing the messages of a start, before standard error is given up. A terminal or
/// pipe that takes nothing must not block the start forever; a busy machine may need a second.
const ERRORS_PATIENCE: Duration = Duration::from_secs(10);

/// Stack size of the thread, equal to the usual one of the main thread.
const LOADER_STACK_BYTES: usize = 8 << 20;

/// Data from which workers make a generation.
pub(crate) struct Plan {
    /// 0 for the first configuration.
    pub number: u64,
    pub config: Arc<Config<Settings>>,
    pub shared: Shared,
    /// Each worker's share of `server.max-connections`.
    pub connections_max: usize,
}

/// The main thread's part in reloads.
pub(crate) struct Reloader {
    /// The loader, or the reason why the configuration cannot be read again.
    pub loader: Result<Loader, NoReload>,
    pub plans: watch::Sender<Arc<Plan>>,
    /// Each worker sends the generation that it has begun with.
    pub swapped: mpsc::UnboundedReceiver<u64>,
    pub workers: usize,
    /// The process's descriptor limit.
    pub fds: u64,
    pub upstreams: Arc<Registry>,
    pub log: Log,
    /// Writes the error log.
    pub errors: LogWriter,
    /// Keeps certificates up to date.
    pub keeper: Keeper,
    /// Figures of the configuration, for the status page.
    pub figures: Arc<ConfigFigures>,
    /// Obtains certificates.
    pub service: acme::Service,
    /// Exports metrics and the error log.
    pub telemetry: Telemetry,
    /// Configurations that may still have requests in progress.
    pub old: Vec<Arc<Config<Settings>>>,
    /// True while requests in progress use a database that is no longer configured.
    pub holds_databases: bool,
}

impl Reloader {
    /// Reads the configuration and, if it has no errors, has all workers begin with it. Both
    /// results contain the message for the caller.
    ///
    /// The future may be dropped: then either nothing has changed, or everything has.
    pub(crate) async fn reload(&mut self) -> Result<String, Refusal> {
        self.forget();
        let loaded = self.load().await;
        let prepared = match loaded {
            Ok(loaded) => self.prepare(loaded).await,
            Err(why) => Err(why),
        };
        let done = match prepared {
            Ok(prepared) => Ok(self.commit(prepared).await),
            Err(why) => Err(why),
        };
        let (level, text) = match &done {
            Ok(text) => (Level::Notice, text),
            Err(Refusal(why)) => (Level::Error, why),
        };
        if done.is_err() {
            self.figures.refuse();
            self.say(level, "reload refused, the configuration stays as it was:");
        }
        text.lines().filter(|line| !line.trim().is_empty()).for_each(|line| self.say(level, line));
        done
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

    /// Time limit of a graceful stop under the present configuration.
    pub(crate) fn graceful_patience(&self) -> Duration {
        match self.plans.borrow().config.global().server.graceful_shutdown_timeout_s {
            0 => Duration::MAX,
            limit_s => Duration::from_secs(limit_s.into()),
        }
    }

    /// Time limit for a new process to become ready under the present configuration, in seconds.
    pub(crate) fn upgrade_timeout_s(&self) -> u64 {
        self.plans.borrow().config.global().server.upgrade_timeout_s.into()
    }

    /// Reads the configuration on a thread of its own: a file on a dead network disk, or a command
    /// that hangs, must not keep the server from being stopped.
    async fn load(&self) -> Result<Loaded, Refusal> {
        let loader = self.loader.as_ref();
        let loader = loader.map_err(|why| Refusal(format!("{why}: restart the server")))?;
        let (loader, (done, loaded)) = (Arc::clone(loader), oneshot::channel());
        let body = move || drop(done.send(loader()));
        threads::start("reload", Some(LOADER_STACK_BYTES), body)
            .map_err(|error| Refusal(error.to_string()))?;
        loaded.await.unwrap_or_else(|_| Err(Refusal("reading the configuration panicked".into())))
    }

    /// Performs all steps that may fail. If the reload is refused, dropping the plan releases
    /// everything acquired.
    async fn prepare(&self, loaded: Loaded) -> Result<Prepared, Refusal> {
        let Loaded { config, warnings } = loaded;
        let present = Arc::clone(&self.plans.borrow());
        let config = Arc::new(config);
        let refused = |why: String| Refusal(format!("{warnings}{why}"));
        // On a thread of its own: a certificate may be on a dead disk.
        let (done, opened) = oneshot::channel();
        let (before, next) = (Arc::clone(&present), Arc::clone(&config));
        let body = move || drop(done.send(open_files(&before, &next)));
        threads::start("reload files", Some(LOADER_STACK_BYTES), body)
            .map_err(|error| refused(error.to_string()))?;
        let opened = opened.await.map_err(|_| refused("opening the files panicked".to_owned()))?;
        let Opened { logs, errors, tls } =
            opened.map_err(|refusals| refused(refusals.join("\n")))?;
        // Starts programs, so it follows all steps that may be refused without.
        let naming = self.name(configured::upstreams(&config)).await;
        let naming = naming.map_err(|Refusal(why)| refused(why))?;
        let shared = Shared { access_logs: logs, naming, tls, ..present.shared.clone() };
        // A module that would fail in a worker fails here first.
        panics::caught_in(|| {
            modules::instances(&config, &shared, &WorkerProxy::new(Arc::clone(&self.upstreams)))
        })
        .map_err(|panicked| refused(format!("building the modules: {}", panicked.0)))?;
        let connections_max = connections(&config.global().server, self.fds, self.workers);
        let number = present.number + 1;
        let plan = Plan { number, config, shared, connections_max };
        Ok(Prepared { plan, errors, warnings })
    }

    /// Names the upstreams and starts their programs, on a thread of its own: a program may be on a
    /// dead disk.
    async fn name(&self, upstreams: Vec<Configured>) -> Result<Arc<Naming>, Refusal> {
        let (registry, (done, named)) = (Arc::clone(&self.upstreams), oneshot::channel());
        let body = move || drop(done.send(registry.name(&upstreams)));
        threads::start("reload upstreams", None, body)
            .map_err(|error| Refusal(error.to_string()))?;
        let named = named.await.map_err(|_| Refusal("naming the upstreams panicked".into()))?;
        named.map_err(|error| Refusal(error.to_string()))
    }

    /// Applies the prepared configuration. Cannot fail. Returns the message for the caller.
    async fn commit(&mut self, prepared: Prepared) -> String {
        let Prepared { plan, errors, warnings } = prepared;
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
        self.upstreams.trust(Arc::clone(&plan.shared.tls.materials));
        self.upstreams.commit(&plan.shared.naming);
        self.figures.adopt(plan.number, &plan.shared.tls.materials);
        let number = plan.number;
        let old = self.plans.send_replace(Arc::new(plan));
        self.old.push(Arc::clone(&old.config));
        drop(old);
        self.export();
        let late = self.await_workers(number).await;
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
    async fn await_workers(&mut self, number: u64) -> usize {
        let mut left = self.workers;
        let all = async {
            while left > 0 {
                match self.swapped.recv().await {
                    Some(swapped) if swapped == number => left -= 1,
                    Some(_) => {}
                    None => break,
                }
            }
        };
        let _ = tokio::time::timeout(WORKERS_PATIENCE, all).await;
        left
    }

    /// Exports metrics and the error log as the present configuration says.
    pub(crate) fn export(&mut self) {
        let plan = Arc::clone(&self.plans.borrow());
        let (board, started_s) = (plan.shared.board.clone(), plan.shared.started_s);
        let metrics = Arc::new(move |service: &str| status::export(&board, started_s, service));
        let exporters: Exporters = self.state_of("mod_tracing");
        self.telemetry.follow(plan.config.global(), &exporters, &self.log, metrics);
    }

    /// Drops configurations that have no requests left. Done here and not in a worker, because
    /// dropping a large one takes time.
    pub(crate) fn forget(&mut self) {
        let before = self.old.len();
        self.old.retain(|config| Arc::strong_count(config) > 1);
        if self.old.len() < before {
            // Frees memory of this thread now, and of event loops within a second: a configuration
            // may be hundreds of megabytes, which the next reload needs for the next one.
            memory::note_freed();
            memory::give_back();
        }
        let plan = Arc::clone(&self.plans.borrow());
        let named: Vec<&Path> =
            webdav::databases(&plan.config).map(|(path, _)| path.as_ref()).collect();
        self.holds_databases = !plan.shared.stores.close_others(&named);
    }

    /// Returns true if nothing is left of earlier configurations.
    pub(crate) fn is_settled(&self) -> bool {
        self.old.is_empty() && !self.holds_databases
    }

    fn say(&self, level: Level, text: &str) {
        self.log.line(level, Clock::start().unix_s(), text, About::default());
    }
}

/// A configuration that is ready to take the place of the present one.
struct Prepared {
    plan: Plan,
    /// The error log's new target, if it changes.
    errors: Option<log_writer::Prepared>,
    /// Warnings, as they are printed.
    warnings: String,
}

/// Files opened for the next configuration.
struct Opened {
    logs: Sinks,
    /// The error log's new target, if it changes.
    errors: Option<log_writer::Prepared>,
    tls: Tls,
}

/// Opens the files of the next configuration while the present one is in use. Returns all reasons
/// for a refusal on failure.
fn open_files(present: &Plan, next: &Arc<Config<Settings>>) -> Result<Opened, Vec<String>> {
    let mut refusals = Vec::new();
    match needs_restart(&present.config, next) {
        Ok(names) if names.is_empty() => {}
        Ok(names) => {
            refusals.push(format!("changed, but needs a restart: {}", names.join(", ")));
        }
        Err(why) => refusals.push(why.to_string()),
    }
    match check_document_root(next) {
        Ok(missing) => refusals.extend(missing),
        Err(why) => refusals.push(why.to_string()),
    }
    refusals.extend(check_database_directories(next).err().map(|why| why.to_string()));
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
    match (logs, errors, tls) {
        (Ok(logs), Ok(errors), Ok(tls)) if refusals.is_empty() => Ok(Opened { logs, errors, tls }),
        _ => Err(refusals),
    }
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

/// Returns a worker's share of `server.max-connections`.
pub(crate) fn connections(server: &ServerSettings, fds: u64, workers: usize) -> usize {
    let all = match server.max_connections {
        0 => usize::try_from(fds / 3).unwrap_or(usize::MAX),
        limit => limit as usize,
    };
    all.div_ceil(workers)
}

type SettingText = fn(&ServerSettings) -> String;

/// Directives of the process: they take effect only at the start, or need privileges that are
/// dropped.
const FIXED: &[(&str, SettingText)] = &[
    ("server.chroot", |s| format!("{:?}", s.chroot)),
    ("server.username", |s| format!("{:?}", s.username)),
    ("server.groupname", |s| format!("{:?}", s.groupname)),
    ("server.pid-file", |s| format!("{:?}", s.pid_file)),
    ("server.max-worker", |s| format!("{:?}", s.max_worker)),
    ("server.max-fds", |s| s.max_fds.to_string()),
    ("server.core-files", |s| s.core_files.to_string()),
    ("server.network-backend", |s| s.network_backend.to_string()),
    ("server.io-engine", |s| s.io_engine.to_string()),
    ("server.max-stat-threads", |s| s.max_stat_threads.to_string()),
    ("server.max-read-threads", |s| s.max_read_threads.to_string()),
    ("server.read-chunk", |s| s.read_chunk_bytes.to_string()),
    ("server.stat-cache-engine", |s| s.stat_cache_engine.to_string()),
    ("server.stat-cache-entries", |s| s.stat_cache_entries_max.to_string()),
    ("server.stat-cache-file-size", |s| s.stat_cache_small_file_bytes.to_string()),
    ("server.stat-cache-memory", |s| s.stat_cache_small_total_bytes.to_string()),
    ("server.systemd-socket-activation", |s| s.systemd_socket_activation.to_string()),
    ("server.syslog-facility", |s| s.syslog_facility.to_string()),
];

/// Directives of a listener.
const OF_LISTENERS: &[(&str, SettingText)] = &[
    ("server.listen-backlog", |s| s.listen_backlog.to_string()),
    ("server.set-v6only", |s| s.v6only.to_string()),
    ("server.defer-accept", |s| s.defer_accept.to_string()),
    ("server.mptcp", |s| s.mptcp.to_string()),
    ("server.socket-perms", |s| format!("{:?}", s.socket_perms)),
];

/// Returns the names of changed directives that a running process cannot apply.
fn needs_restart(
    present: &Config<Settings>,
    next: &Config<Settings>,
) -> Result<Vec<String>, BootError> {
    let (before, after) = (&present.global().server, &next.global().server);
    let changed =
        |rows: &[(&'static str, SettingText)], before: &ServerSettings, after: &ServerSettings| {
            let differ = rows.iter().filter(|(_, text)| text(before) != text(after));
            differ.map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>()
        };
    let mut names = changed(FIXED, before, after);
    let resolver = |c: &Config<Settings>| {
        format!("{:?}", configured::resolve_options(&c.settings(&Active::default())))
    };
    if resolver(present) != resolver(next) {
        names.push("proxy-core.resolver".to_owned());
    }
    let (old, new) = (listeners::wanted(present, before)?, listeners::wanted(next, after)?);
    if old.first() != new.first() {
        names.push("server.bind or server.port".to_owned());
    }
    let (old, new) = (old.get(1..).unwrap_or_default(), new.get(1..).unwrap_or_default());
    let gone = old.iter().filter(|listener| !new.contains(listener));
    let added = new.iter().filter(|listener| !old.contains(listener));
    names.extend(gone.chain(added).map(|l| format!("$SERVER[\"socket\"] == \"{}\"", l.name)));
    let kept = listeners::wanted(next, after)?;
    for listener in kept.iter().take(1).chain(new.iter().filter(|listener| old.contains(listener)))
    {
        let at = |config| listeners::settings_at(config, &listener.name).server;
        names.extend(changed(OF_LISTENERS, &at(present), &at(next)));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
