//! Starts a server from a checked configuration, and runs it to its end.
//!
//! Order matters: sockets and logs are opened with the initial privileges, then privileges are
//! dropped, then threads are started. After that the main thread only waits for signals.

pub mod block_settings;
pub(crate) mod caches;
mod callers;
mod control_socket;
pub(crate) mod database_directories;
pub mod document_root;
pub mod error;
pub(crate) mod error_log;
mod main_loop;
mod pam_helper;
mod supervision;
mod takeover;
mod upgrade;
mod upkeep;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lighty_config::{Active, Config};
use lighty_core::log::{About, Level, Log};
use lighty_core::settings::ServerSettings;
use lighty_core::{ProgramRate, Settings};
use lighty_io::clock::Clock;
use lighty_io::file::followed::follow;
use lighty_io::log_writer::{self, LogWriter};
use lighty_io::process::capabilities;
use lighty_io::process::control::ControlSocket;
use lighty_io::process::memory;
use lighty_io::process::own_program::OwnProgram;
use lighty_io::process::privileges::{self, Identity, PidFile};
use lighty_io::sandbox::launcher::PlanReader;
use lighty_io::threads::panic_log;
use lighty_io::threads::pool::{Lane, ThreadPool};
use lighty_io::tls::Materials;
use lighty_modules::accesslog;
use lighty_modules::auth::fetch_keys;
use lighty_modules::health::{Readiness, Unready};
use lighty_modules::tracing::{Exporters, Telemetry};
use lighty_modules::webdav::{self, Stores};
use lighty_proxy::upstream::configured;
use lighty_proxy::upstream::registry::Registry;
use tokio::sync::watch;

use crate::acme;
use crate::boot::database_directories::check_database_directories;
use crate::boot::document_root::check_document_root;
use crate::boot::error::BootError;
use crate::boot::supervision::Supervision;
use crate::boot::takeover::{CountedBeside, Takeover};
use crate::control::kept::KeptOrders;
use crate::followed::{self, FollowedFiles};
use crate::listen::handed::{HandedSocket, HandedSockets};
use crate::listen::listeners::{self, Bound};
use crate::listen::live::LiveListeners;
use crate::listen::opened::OpenListeners;
use crate::modules::{Shared, States};
use crate::reload::{self, Leftovers, Loader, Plan, Reloader};
use crate::report;
use crate::report::config_figures::ConfigFigures;
use crate::report::counts;
use crate::sandbox::{self, SandboxContext, SandboxOptions};
use crate::succession::departure::DepartureParts;
use crate::succession::heir::{self, CounterSource, Farewell};
use crate::tls::{self, Keeper, Tls};
use crate::worker::crew::{Crew, CrewReport};
use crate::worker::idle::Activity;
use crate::worker::restarts::Restarts;
use crate::worker::shares::{WorkerShares, worker_count};
use crate::worker::thread::{Command, WorkerParts};
use callers::Main;
use control_socket::OpenedControl;
use main_loop::{MainLoop, start_main_loop, wait_for_end};

fn failed(what: &str) -> impl Fn(std::io::Error) -> BootError + '_ {
    move |error| BootError::Step(what.to_owned(), error)
}

/// Time limit for the exit of spawned backend processes, including KILL.
const BACKENDS_PATIENCE: Duration = Duration::from_secs(4);

/// Warning about a server that stays root.
const AS_ROOT: &str = "the server and the programs that it starts run as root: set server.username to \
                       the name of another user";

/// The same without a configuration.
const COMMAND_AS_ROOT: &str = "the server runs as root: start it as another user";

/// Time limit for the final log flush.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// Options of a start besides the configuration.
#[derive(Default)]
pub struct Options {
    /// Reads the configuration again; `None` if it did not come from a file.
    pub loader: Option<reload::Loader>,
    /// Ends the server after this time without a request or a new connection.
    pub idle_timeout: Option<Duration>,
    /// The configuration comes from a command line: messages name no directives, and the log has
    /// the URLs by which other machines reach listeners of every address.
    pub is_of_command_line: bool,
    /// The process may be restricted as `server.sandbox` says; `None` if it has other tasks, too.
    pub sandbox: Option<SandboxOptions>,
}

/// Starts the server and serves until it ends.
///
/// # Errors
/// As for [`start`] and [`Running::serve`].
pub fn run(config: Arc<Config<Settings>>, options: Options) -> Result<(), BootError> {
    start(config, options)?.serve()
}

/// Starts the server.
///
/// # Errors
/// The server cannot start. Everything that it acquired is released.
pub fn start(config: Arc<Config<Settings>>, options: Options) -> Result<Running, BootError> {
    let program = upgrade::own_program();
    let mut takeover = Takeover::begin()?;
    let activity = options.idle_timeout.map(Activity::new);
    let global = config.settings(&Active::default());
    let server = global.server.clone();
    let missing_root = check_document_root(&config)?;
    check_database_directories(&config)?;
    let workers = worker_count(&server);
    let (fds, limits_kept) = set_limits(&server, workers)?;
    let acquired = acquire(&config, &global, workers, takeover.as_mut())?;
    let Acquired { main_loop, tls, files, bound, logs, pid_file, control, upstreams } = acquired;
    let main_address = listeners::main_address(&bound, |name| tls::is_spoken_at(&config, name));
    let network = network_urls(&options, &bound, &config);
    let was_root = privileges::is_root();
    confine(&config, &options, &bound, takeover.as_mut())?;
    let log = error_log(&logs, &server)?;
    let say = |level, text: &str| log.line(level, wall_s(), text, About::default());
    limits_kept.iter().chain(&control.warning).for_each(|text| say(Level::Warning, text));
    warn_of_rights(&global, options.is_of_command_line, missing_root, &say);
    let keeper = Keeper::start(&log, &global, &tls)?;
    let kept = kept_orders(&server, &upstreams, &say);
    takeover.iter_mut().for_each(|one| one.recall(&upstreams, &tls.tickets));
    let held = Held { tls, files, access_logs: logs.access };
    let shared = shared(&config, takeover.as_ref(), held, &log, &upstreams, workers)?;
    let figures = ConfigFigures::begin(&shared.board, &shared.tls.materials);
    let mut service = certificate_service(&log, &shared);
    let urls = urls(&bound, &config);
    let (listeners, sockets) = OpenListeners::begin(bound, workers)?;
    let shares = WorkerShares::of(&server, fds, workers);
    let first = Arc::new(Plan { number: 0, config, shared, shares, sockets });
    let (plans, published) = watch::channel(Arc::clone(&first));
    // One message for each worker and reload.
    let (swaps, swapped) = tokio::sync::mpsc::unbounded_channel();
    let parts = WorkerParts {
        plans: published,
        swapped: swaps,
        log: log.clone(),
        upstreams: Arc::clone(&upstreams),
        live_listeners: LiveListeners::default(),
        activity: activity.clone(),
    };
    let launched = launch(parts, workers, takeover.is_some());
    let (workers, report) = launched.inspect_err(|_| upstreams.stop(BACKENDS_PATIENCE))?;
    announce((&urls, &network), &report, &server, &say);
    let manager = Supervision::find(&say);
    let own = (&*workers.crew, &listeners, pid_file.as_ref());
    let farewell = take_over((takeover, &main_loop), own, (&first, &log, &upstreams), &say);
    order_certificates(&mut service, &first)?;
    let reloader = Reloader {
        loader: reload::usable(options.loader, server.chroot.is_some() && was_root),
        plans,
        swapped,
        crew: Arc::clone(&workers.crew),
        listeners,
        fds,
        upstreams,
        log,
        errors: Arc::new(logs.errors),
        keeper,
        kept,
        figures,
        service,
        telemetry: Telemetry::default(),
        restarts: Restarts::default(),
        leftovers: Leftovers::default(),
    };
    let own = OwnProcess { program, manager, control: control.socket, pid_file, farewell };
    Ok(Running { main_address, main_loop, workers, own, reloader, activity })
}

/// Takes the old process's place, if there is one. Has readers of counters ask that one until it
/// ends.
fn take_over(
    (takeover, main_loop): (Option<Takeover>, &MainLoop),
    own: (&Crew, &OpenListeners, Option<&PidFile>),
    (plan, log, upstreams): (&Plan, &Log, &Arc<Registry>),
    say: &dyn Fn(Level, &str),
) -> Option<Farewell> {
    let parts = DepartureParts { plan, log, upstreams };
    let old = takeover.and_then(|one| one.finish(&main_loop.runtime, own, &parts, say));
    let CountedBeside { link, questions } = old?;
    let _inside = main_loop.runtime.enter();
    match link.into_link() {
        Ok(link) => {
            let board = plan.shared.board.clone();
            let source = CounterSource { board, upstreams: Arc::clone(upstreams) };
            Some(heir::follow(link, source, questions))
        }
        Err(error) => {
            say(Level::Warning, &format!("later counters of the old process are lost: {error}"));
            None
        }
    }
}

/// Everything that needs the initial privileges.
struct Acquired {
    main_loop: MainLoop,
    tls: Tls,
    files: FollowedFiles,
    bound: Vec<Bound>,
    logs: Logs,
    pid_file: Option<PidFile>,
    control: OpenedControl,
    upstreams: Arc<Registry>,
}

fn acquire(
    config: &Config<Settings>,
    global: &Settings,
    workers: usize,
    mut takeover: Option<&mut Takeover>,
) -> Result<Acquired, BootError> {
    let server = &global.server;
    // Installed before the first socket listens, so that no early signal bypasses an orderly stop.
    let main_loop = start_main_loop()?;
    let tls = load_tls(config, server)?;
    let files = followed::read(config).map_err(BootError::Files)?;
    caches::prepare(config, owner_of_files(server)?)?;
    let handed = takeover.as_mut().map(|takeover| takeover.listeners()).unwrap_or_default();
    let bound = bind(config, server, handed, workers)?;
    let logs = open_logs(config, server)?;
    let pid_file = create_pid_file(server, takeover.as_deref_mut())?;
    let control = control_socket::open(&main_loop.runtime, server, takeover)?;
    // Reads the system's host and name-server files before a chroot hides them.
    let upstreams = Arc::new(Registry::new(configured::resolve_options(global)));
    Ok(Acquired { main_loop, tls, files, bound, logs, pid_file, control, upstreams })
}

/// Reads the orders for backends that an earlier process has kept. They precede the backends.
fn kept_orders(
    server: &ServerSettings,
    upstreams: &Registry,
    say: &dyn Fn(Level, &str),
) -> Arc<KeptOrders> {
    let (kept, warning) = KeptOrders::load(server.state_dir.as_deref());
    warning.iter().for_each(|text| say(Level::Warning, text));
    upstreams.preset(kept.presets());
    Arc::new(kept)
}

/// URLs by which other machines reach the server, if they are announced.
fn network_urls(options: &Options, bound: &[Bound], config: &Config<Settings>) -> Vec<String> {
    match options.is_of_command_line {
        true => listeners::network_urls(bound, |name| tls::is_spoken_at(config, name)),
        false => Vec::new(),
    }
}

/// A started server.
pub struct Running {
    /// Address of the main listener, and whether it speaks TLS.
    main_address: Option<(SocketAddr, bool)>,
    main_loop: MainLoop,
    workers: Workers,
    own: OwnProcess,
    reloader: Reloader,
    activity: Option<Activity>,
}

/// Everything by which others know this process.
struct OwnProcess {
    /// The program, as it was started.
    program: Option<OwnProgram>,
    manager: Supervision,
    control: Option<ControlSocket>,
    pid_file: Option<PidFile>,
    /// To the process whose place this one has taken.
    farewell: Option<Farewell>,
}

impl Running {
    /// Writes the messages of the start. Returns true if they go to standard error, because the
    /// configuration names no error log.
    pub fn flush_to_stderr(&self) -> bool {
        self.reloader.flush_to_stderr()
    }

    /// The URL of the main listener for a browser on this machine; none for a Unix socket. `name`
    /// replaces the IP address.
    pub fn url(&self, name: Option<&str>) -> Option<String> {
        let (address, is_tls) = self.main_address?;
        Some(listeners::browser_url(address, is_tls, name))
    }

    /// Serves until a signal ends the server or no working listener is left.
    ///
    /// # Errors
    /// All listeners have failed, so no client can connect any more.
    pub fn serve(self) -> Result<(), BootError> {
        let Running { main_loop, workers, own, mut reloader, activity, .. } = self;
        let log = reloader.log.clone();
        reloader.export();
        let say = |level, text: &str| log.line(level, wall_s(), text, About::default());
        own.manager.ready(&reloader.listeners);
        let (plans, inside) = (reloader.plans.subscribe(), main_loop.runtime.enter());
        own.manager.watch(plans);
        drop(inside);
        let main = Main { own: &own, reloader: &mut reloader, activity };
        let ended = wait_for_end(main_loop, &workers, main, &say);
        reloader.service.stop();
        // A reload may be waiting for one.
        lighty_config::end_commands();
        caches::close(&reloader.plans.borrow());
        let access = reloader.access_logs();
        let exporters: Exporters = reloader.state_of("mod_tracing");
        drop(own.control);
        reloader.upstreams.stop(BACKENDS_PATIENCE);
        drop(own.pid_file);
        reloader.listeners.close();
        reloader.telemetry.end(&log);
        exporters.finish(FLUSH_PATIENCE);
        counts::panics().iter().for_each(|line| say(Level::Error, line));
        log.settle_repeats(wall_s(), true);
        end_logs(&reloader.errors, &access, &say);
        ended
    }
}

/// Warns of a process with more privileges than it should have, or too few to serve its files.
fn warn_of_rights(
    global: &Settings,
    is_of_command_line: bool,
    missing_root: Option<String>,
    say: &dyn Fn(Level, &str),
) {
    sandbox::report(say);
    if privileges::is_root() {
        say(Level::Warning, if is_of_command_line { COMMAND_AS_ROOT } else { AS_ROOT });
    }
    if let Some(why) = missing_root {
        return say(Level::Warning, &why);
    }
    let root = &*global.core.document_root;
    if root.is_empty() {
        return;
    }
    if let Err(error) = std::fs::metadata(format!("{root}/.")) {
        let text = format!("server.document-root = \"{root}\": {error}: no file can be served");
        say(Level::Warning, &text);
    }
}

/// Opens the error log, which records panics and failures of other logs from now on.
fn error_log(logs: &Logs, server: &ServerSettings) -> Result<Log, BootError> {
    let log = Log::new(logs.errors.handle(), server.errorlog_level, server.errorlog_json)
        .with_program_rate(&ProgramRate::per_second(server.program_log_kbytes_per_second));
    log.levels().replace(server.errorlog_level, &server.errorlog_levels);
    log.limit_repeats(server.errorlog_repeats_max);
    let panicking = log.clone();
    panic_log::report_to(move |text| {
        panicking.line(Level::Error, wall_s(), text, About::default());
    });
    start_threads(logs)?;
    let error_log = log.clone();
    log_writer::report_failures_to(move |text| {
        error_log.line(Level::Error, wall_s(), text, About::default());
    });
    Ok(log)
}

/// Files that were opened with the initial privileges, for the workers.
struct Held {
    tls: Tls,
    files: FollowedFiles,
    access_logs: accesslog::Sinks,
}

/// Creates the state that workers share under the first configuration. Starts its backends'
/// programs.
fn shared(
    config: &Config<Settings>,
    takeover: Option<&Takeover>,
    held: Held,
    log: &Log,
    upstreams: &Arc<Registry>,
    workers: usize,
) -> Result<Shared, BootError> {
    let Held { tls, files, access_logs } = held;
    upstreams.start(log.clone());
    let naming = upstreams.name(&configured::upstreams(config));
    let naming = naming.inspect_err(|_| upstreams.stop(BACKENDS_PATIENCE))?;
    upstreams.trust(Arc::clone(&tls.materials));
    upstreams.commit(&naming);
    let states = States::default();
    readiness(&states).set(Unready::Starting, true);
    follow().map_err(failed("following files"))?;
    fetch_keys().map_err(failed("fetching keys"))?;
    let started_s = takeover.and_then(Takeover::started_s).unwrap_or_else(wall_s);
    Ok(Shared {
        tls,
        files,
        board: report::board(upstreams, &states),
        access_logs,
        states,
        stores: known_databases(config, log),
        memory_share: memory::limit().map(|limit| limit / workers.max(1) as u64),
        ..Shared::new(started_s, naming).map_err(failed("starting"))?
    })
}

/// Readiness of the process, for `health.ready-url`.
fn readiness(states: &States) -> Readiness {
    states.of("mod_health")
}

/// Writes the last log lines. Lines that cannot be written (full disk, hanging command) are lost
/// and can only be reported on standard error.
fn end_logs(errors: &LogWriter, access: &accesslog::Sinks, say: &dyn Fn(Level, &str)) {
    // The workers' lines precede the final one.
    let written = errors.flush(FLUSH_PATIENCE);
    say(Level::Notice, "stopped");
    let mut late = access.flush(FLUSH_PATIENCE);
    if !errors.flush(if written { FLUSH_PATIENCE } else { Duration::ZERO }) {
        late.push(errors.name());
    }
    for name in late {
        let _ = writeln!(std::io::stderr(), "lighty: log {name}: its last lines are lost");
    }
}

/// Registers the WebDAV databases, without opening them, so that their files are never served.
fn known_databases(config: &Config<Settings>, log: &Log) -> Stores {
    let log = log.clone();
    let stores = Stores::new(move |text| log.line(Level::Error, wall_s(), text, About::default()));
    webdav::databases(config).for_each(|(path, _)| stores.expect(path.as_ref()));
    stores
}

fn wall_s() -> i64 {
    Clock::start().unix_s()
}

/// Default limit on descriptors if the hard limit is higher than needed.
const DESCRIPTORS_DEFAULT_MAX: u64 = 65_536;

/// Returns the minimum number of descriptors for this many workers: queues, wake-ups, listeners and
/// reserves of each, and the logs, databases and pipes of all.
fn descriptors_min(workers: usize) -> u64 {
    64 + 32 * workers as u64
}

/// Sets the limits of the process. Returns the number of descriptors that it may have, and warnings
/// of limits that a seccomp filter keeps unchanged. Fails if a limit from the configuration cannot
/// be set.
fn set_limits(server: &ServerSettings, workers: usize) -> Result<(u64, Vec<String>), BootError> {
    let mut warnings = Vec::new();
    if let Err(error) = privileges::allow_core_dumps(server.core_files) {
        if server.core_files {
            return Err(failed("server.core-files")(error));
        }
        warnings.push(format!("core dumps cannot be forbidden: {error}"));
    }
    let raised = match server.max_fds {
        0 => privileges::raise_max_files(None)
            .and_then(|all| privileges::raise_max_files(Some(all.min(DESCRIPTORS_DEFAULT_MAX)))),
        wanted => privileges::raise_max_files(Some(wanted.max(descriptors_min(workers)))),
    };
    let limit = match raised {
        Ok(limit) => limit,
        Err(error) if server.max_fds != 0 => return Err(failed("server.max-fds")(error)),
        Err(error) => {
            let limit = privileges::max_files();
            warnings.push(format!("the limit of {limit} descriptors cannot be raised: {error}"));
            limit
        }
    };
    // Only an optimisation; a million descriptors may exceed available memory.
    let _ = privileges::reserve_descriptors(limit.min(DESCRIPTORS_DEFAULT_MAX));
    Ok((limit, warnings))
}

fn bind(
    config: &Config<Settings>,
    server: &ServerSettings,
    mut handed: HandedSockets,
    workers: usize,
) -> Result<Vec<Bound>, BootError> {
    let wanted = listeners::wanted(config, server)?;
    let inherited = match server.systemd_socket_activation {
        true => lighty_io::listen::inherited_sockets().map_err(failed("LISTEN_FDS"))?,
        false => Vec::new(),
    };
    let (kept, inherited): (Vec<_>, Vec<_>) = inherited.into_iter().partition(supervision::is_kept);
    kept.into_iter().for_each(|one| handed.push(HandedSocket::kept(one.socket)));
    Ok(listeners::bind(config, wanted, inherited, handed, workers)?)
}

/// Starts threads early so that errors surface at start: an unwritable log, a pool without a
/// thread. This must follow the privilege drop, because a thread keeps the privileges it was
/// created with.
fn start_threads(logs: &Logs) -> Result<(), BootError> {
    logs.errors.start().map_err(failed("server.errorlog"))?;
    logs.access.start().map_err(failed("accesslog.filename"))?;
    ThreadPool::global().spawn(Lane::Stat, || {}).map_err(failed("starting the file engine"))
}

/// The error log and the access logs.
struct Logs {
    errors: LogWriter,
    access: accesslog::Sinks,
}

fn open_logs(config: &Config<Settings>, server: &ServerSettings) -> Result<Logs, BootError> {
    let errors = open_error_log(server)?;
    let access = accesslog::Sinks::open(config).map_err(failed("accesslog.filename"))?;
    errors.set_rotation(server.log_rotation);
    access.set_rotation(server.log_rotation);
    Ok(Logs { errors, access })
}

fn open_error_log(server: &ServerSettings) -> Result<LogWriter, BootError> {
    LogWriter::open(error_log::target(server))
        .map_err(|error| BootError::Step(error_log::directive(server), error))
}

fn give_up_rights(server: &ServerSettings) -> Result<(), BootError> {
    let identity = Identity::lookup(server.username.as_deref(), server.groupname.as_deref())
        .map_err(failed("server.username"))?;
    let chroot = server.chroot.as_deref().map(std::path::Path::new);
    // Like lighttpd, a process not started by root keeps its identity.
    if !privileges::is_root() || (identity.is_unchanged() && chroot.is_none()) {
        if !server.core_files {
            capabilities::protect_memory();
        }
        return Ok(());
    }
    privileges::drop_privileges(&identity, chroot).map_err(failed("giving up rights"))?;
    match privileges::allow_core_dumps(server.core_files) {
        // The start has already warned of it.
        Err(_) if !server.core_files => Ok(()),
        done => done.map_err(failed("server.core-files")),
    }
}

/// Gives up the initial privileges, and the rights that serving does not need if the caller permits
/// it.
fn confine(
    config: &Config<Settings>,
    options: &Options,
    bound: &[Bound],
    takeover: Option<&mut Takeover>,
) -> Result<(), BootError> {
    lighty_io::file::survey_disks();
    pam_helper::begin(config, takeover)?;
    let was_root = privileges::is_root();
    give_up_rights(&config.global().server)?;
    let loader = options.loader.clone();
    let Some(options) = &options.sandbox else { return Ok(()) };
    let listening = bound.iter().map(|bound| bound.address.clone()).collect();
    let has_changed_user = was_root && !privileges::is_root();
    let context = SandboxContext { options, listening, has_changed_user };
    sandbox::enter(config, &context, loader.map(plan_reader))
}

/// Reads the configuration again for a reload, in the launcher of the sandbox.
fn plan_reader(loader: Loader) -> PlanReader {
    Box::new(move || {
        let loaded = loader().map_err(|refusal| io::Error::other(refusal.text))?;
        sandbox::next_plan(&loaded.config).map_err(|error| io::Error::other(error.to_string()))
    })
}

/// Creates the directory of managed certificates before privileges are dropped.
fn prepare_store(
    config: &Config<Settings>,
    server: &ServerSettings,
    materials: &Materials,
) -> Result<(), BootError> {
    let Some(plan) = acme::plan(config, materials.on_demand()) else { return Ok(()) };
    plan.store.prepare(owner_of_files(server)?).map_err(failed("acme.store"))
}

/// The user and the group that files of the server are given to, if root starts it.
fn owner_of_files(server: &ServerSettings) -> Result<Option<(u32, u32)>, BootError> {
    let identity = Identity::lookup(server.username.as_deref(), server.groupname.as_deref())
        .map_err(failed("server.username"))?;
    let user = identity.user.as_ref().filter(|_| privileges::is_root());
    Ok(user.map(|user| (user.uid, identity.gid.unwrap_or(user.gid))))
}

/// Creates the service that maintains certificates, and shows its figures.
fn certificate_service(log: &Log, shared: &Shared) -> acme::Service {
    let service = acme::service(log, &shared.tls.demand);
    shared.board.add(Arc::new(acme::AcmeFigures(service.figures())));
    service
}

/// Starts the thread that maintains the certificates of the first configuration. Not before the
/// process has taken over: one that fails before must not have begun an order.
fn order_certificates(service: &mut acme::Service, first: &Plan) -> Result<(), BootError> {
    let plan = acme::plan(&first.config, first.shared.tls.materials.on_demand());
    service.follow(plan).map_err(failed("acme.activate"))
}

/// Loads certificates and keys, which need privileges that are dropped later.
fn load_tls(config: &Config<Settings>, server: &ServerSettings) -> Result<Tls, BootError> {
    let materials = tls::load(config, &Materials::default()).map_err(|problems| {
        BootError::Certificates(problems.into_iter().map(|problem| problem.message).collect())
    })?;
    prepare_store(config, server, &materials)?;
    let key_log = tls::open_key_log(config.global(), None)?;
    Ok(Tls { materials: Arc::new(materials), key_log, ..Tls::default() })
}

/// The running workers.
struct Workers {
    crew: Arc<Crew>,
    live_listeners: LiveListeners,
}

/// Returns the URLs of the listeners.
fn urls(bound: &[Bound], config: &Config<Settings>) -> Vec<String> {
    let url = |one: &Bound| listeners::url(&one.address, tls::is_spoken_at(config, &one.name));
    bound.iter().map(url).collect()
}

/// Starts the first workers.
fn launch(
    parts: WorkerParts,
    workers: usize,
    takes_over: bool,
) -> Result<(Workers, CrewReport), BootError> {
    let (first, live_listeners) = (Arc::clone(&parts.plans.borrow()), parts.live_listeners.clone());
    caches::open(&first, &parts.log)?;
    let indexes: Vec<usize> = (0..workers).collect();
    let command = if takes_over { Command::Hold } else { Command::Serve };
    let crew = Arc::new(Crew::new(parts, command));
    let (members, report) = crew.start(&indexes, &first)?;
    crew.enlist(members);
    readiness(&first.shared.states).set(Unready::Starting, false);
    memory::unmap_startup_pages();
    Ok((Workers { crew, live_listeners }, report))
}

/// Logs that the server serves, and which engine opens its files.
fn announce(
    (urls, network): (&[String], &[String]),
    report: &CrewReport,
    server: &ServerSettings,
    say: &dyn Fn(Level, &str),
) {
    let workers = report.workers;
    report.warn_of_unwatched(say);
    say(
        Level::Notice,
        &format!(
            "lighty {} is serving {} ({workers} worker{}, network backend {}, file engine {})",
            env!("CARGO_PKG_VERSION"),
            urls.join(", "),
            if workers == 1 { "" } else { "s" },
            server.network_backend,
            report.engine,
        ),
    );
    if let Some(text) = lighty_io::file::turns_text(server.max_bulk_reads) {
        say(Level::Info, &format!("server.max-bulk-reads: {text}"));
    }
    if !network.is_empty() {
        say(Level::Notice, &format!("on the network: {}", network.join(", ")));
    }
}

fn create_pid_file(
    server: &ServerSettings,
    takeover: Option<&mut Takeover>,
) -> Result<Option<PidFile>, BootError> {
    let Some(path) = server.pid_file.as_deref() else { return Ok(None) };
    if let Some(handed) = takeover.and_then(|takeover| takeover.pid_file(path)) {
        return Ok(Some(handed));
    }
    PidFile::create(path.as_ref()).map(Some).map_err(failed("server.pid-file"))
}
