//! The small programs that this binary contains under other names, and as subcommands.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory as _;
use lighty_admin::manual::conf_page;
use lighty_programs::app::{self, ApplicationLimits, ApplicationSocket};
use lighty_programs::load::{self, Expected, LoadTestOptions, LoadUrl, RecordedRun, Tally, Until};
#[cfg(feature = "scripts")]
use lighty_programs::magnet;
use lighty_programs::supervisor::{self, StopSignal};
use lighty_programs::timing_plot::{Plot, Summary};
use lighty_programs::top::{self, View};
use lighty_programs::{spawn_fcgi as spawner, stat_accel as accel};

#[cfg(feature = "scripts")]
use crate::cli::ScriptLimits;
use crate::cli::{
    Cli, Command, Document, LoadArguments, LoadCommand, ManPage, ProgramSite, Spawn, StopWith,
    Timing, Tool, Top, TopView,
};
use crate::failure::CommandFailure;
use crate::{http_load, man, table};

/// The program selected by the binary's name.
pub(crate) enum Called {
    /// The command line of lighty, its own name first.
    Lighty(Vec<OsString>),
    /// spawn-fcgi, with its arguments.
    SpawnFcgi(Vec<OsString>),
    /// http_load, with arguments that it does not have.
    HttpLoad(http_load::Wrong),
}

/// Names of links to the binary, and the subcommands that they stand for.
const LINKS: [(&str, &str); 2] =
    [("fcgi-stat-accel", "stat-accel"), ("lua-fastcgi-magnet", "magnet-fcgi")];

const SPAWN_FCGI: &str = "spawn-fcgi";

/// Selects the program by the name of the binary. spawn-fcgi and http_load have command lines of
/// their own, which must not be parsed as lighty's.
pub(crate) fn called(line: impl Iterator<Item = OsString>) -> Called {
    let mut line: Vec<OsString> = line.collect();
    let name = line.first().and_then(|path| Path::new(path).file_name()).map(OsStr::to_owned);
    let name = name.unwrap_or_default();
    if name == SPAWN_FCGI {
        return Called::SpawnFcgi(line.split_off(1));
    }
    if line.get(1).is_some_and(|word| word == SPAWN_FCGI) {
        return Called::SpawnFcgi(line.split_off(2));
    }
    let is_load = name == http_load::NAME;
    let of_load = if is_load { line.get(1..) } else { line.get(2..) }.unwrap_or_default();
    if is_load || line.get(1).is_some_and(|word| word == "load") && http_load::is_meant(of_load) {
        return match http_load::translate(of_load) {
            Ok(arguments) => Called::Lighty(line.into_iter().take(1).chain(arguments).collect()),
            Err(wrong) => Called::HttpLoad(wrong),
        };
    }
    if let Some((_, command)) = LINKS.iter().find(|(link, _)| name == *link) {
        line.insert(1, OsString::from(command));
    }
    Called::Lighty(line)
}

/// Runs the selected program, unless it is lighty itself; then returns its command line.
pub(crate) fn run_called(called: Called) -> Result<Vec<OsString>, ExitCode> {
    match called {
        Called::SpawnFcgi(arguments) => Err(ExitCode::from(spawner::run(arguments))),
        Called::HttpLoad(wrong) => {
            eprintln!("lighty: {wrong}");
            Err(ExitCode::from(2))
        }
        Called::Lighty(line) => Ok(line),
    }
}

/// Returns true if the command starts other programs and passes its capabilities on to them.
pub(crate) fn is_supervisor(cli: &Cli) -> bool {
    matches!(cli.command, Some(Command::Tool(Tool::Spawn(_))))
}

/// Runs a program.
pub(crate) fn run(tool: &Tool) -> Result<(), CommandFailure> {
    match tool {
        // Handled by its name, before the command line is parsed.
        Tool::SpawnFcgi { .. } => Ok(()),
        Tool::Spawn(options) => spawn(options),
        #[cfg(feature = "scripts")]
        Tool::MagnetFcgi { site, limits } => magnet_fcgi(site, limits),
        Tool::StatAccel { site, threads } => stat_accel(site, *threads),
        Tool::Timing { what } => timing(what),
        Tool::Load(what) => load(what),
        Tool::Top(what) => top(what),
        Tool::Generate { what } => generate(what),
    }
}

fn generate(what: &Document) -> Result<(), CommandFailure> {
    match what {
        Document::Man { page: ManPage::Program } => man::render(&mut std::io::stdout())?,
        Document::Man { page: ManPage::Configuration } => {
            let page = conf_page::page(&table::of_build(), env!("CARGO_PKG_VERSION"));
            io::stdout().write_all(page.as_bytes())?;
        }
        Document::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "lighty", &mut std::io::stdout());
        }
        Document::Manual { dir } => lighty_admin::manual::write(&table::of_build(), dir)?,
    }
    Ok(())
}

/// Runs fcgi-stat-accel until it is stopped.
fn stat_accel(site: &ProgramSite, threads: Option<u16>) -> Result<(), CommandFailure> {
    let variable = std::env::var(accel::THREADS_VARIABLE).ok();
    let threads =
        threads.map_or_else(|| accel::StatAccel::threads_of(variable.as_deref()), usize::from);
    let (socket, _file) = listening(site)?.listen()?;
    app::run("fcgi-stat-accel", socket, limits(site), accel::StatAccel::new(threads))?;
    Ok(())
}

/// Runs lua-fastcgi-magnet until it is stopped.
#[cfg(feature = "scripts")]
fn magnet_fcgi(site: &ProgramSite, script: &ScriptLimits) -> Result<(), CommandFailure> {
    let of_script = magnet::RunLimits {
        time_ms: script.max_time,
        instructions: script.max_instructions,
        memory: script.max_memory.saturating_mul(1024),
    };
    let body_bytes_max = script.max_body.saturating_mul(1024);
    let limits = ApplicationLimits { body_bytes_max, ..limits(site) };
    let (socket, _file) = listening(site)?.listen()?;
    let application = magnet::Magnet::new(of_script, script.allows_unsafe)?;
    app::run(magnet::NAME, socket, limits, application)?;
    Ok(())
}

/// Generates load. Fails if a response was not as expected.
fn load(what: &LoadArguments) -> Result<(), CommandFailure> {
    if let Some(LoadCommand::Compare { one, other }) = &what.command {
        print!("{}", load::compare(&RecordedRun::read(one)?, &RecordedRun::read(other)?));
        return Ok(());
    }
    let options = load_options(what)?;
    // Report a file that cannot be written before the run.
    let mut plot = what.plot.as_deref().map(PlotFile::create).transpose()?;
    let tally = load::run_attended(&options, what.progress)?;
    match (what.json, what.http_load) {
        (true, _) => println!("{:#}", load::json(&options, &tally)),
        (_, true) => print!("{}", load::http_load(&tally)),
        // A table without responses is useless.
        _ if tally.responses == 0 => print!("{}", load::failures(&tally)),
        _ => print!("{}", load::text(&options, &tally)),
    }
    if let Some(plot) = &mut plot {
        plot.write(&options, &tally)?;
    }
    match tally.failed() + tally.unsent {
        0 => Ok(()),
        failed => Err(CommandFailure::of(format!("{failed} requests failed"))),
    }
}

/// File for the picture of a run.
struct PlotFile<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> PlotFile<'a> {
    fn create(path: &'a Path) -> Result<Self, CommandFailure> {
        let created = File::create(path).map_err(|error| Self::failure(path, &error))?;
        Ok(Self { path, file: BufWriter::new(created) })
    }

    fn write(&mut self, options: &LoadTestOptions, tally: &Tally) -> Result<(), CommandFailure> {
        let written = load::svg(options, tally, &mut self.file).and_then(|()| self.file.flush());
        written.map_err(|error| Self::failure(self.path, &error))
    }

    fn failure(path: &Path, error: &io::Error) -> CommandFailure {
        CommandFailure::of(format!("{}: {error}", path.display()))
    }
}

/// Default duration of a run without another limit.
const DURATION: Duration = Duration::from_secs(10);

fn load_options(what: &LoadArguments) -> Result<LoadTestOptions, CommandFailure> {
    let mut lines = what.urls.clone();
    if let Some(path) = &what.urls_from {
        let text = std::fs::read_to_string(path);
        let text =
            text.map_err(|error| CommandFailure::of(format!("{}: {error}", path.display())))?;
        lines.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    let url = |text: &String| {
        LoadUrl::parse(text)
            .ok_or_else(|| CommandFailure::of(format!("{text}: no URL of http or https")))
    };
    let urls = lines.iter().map(url).collect::<Result<Vec<_>, _>>()?;
    let field = |text: &String| {
        let message = || format!("{text}: no field, as in \"Accept: text/html\"");
        load::parse_field(text).ok_or_else(|| CommandFailure::of(message()))
    };
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|error| CommandFailure::of(format!("{}: {error}", path.display())))
    };
    let body = what.body.as_ref().map(read).transpose()?;
    let duration = what.duration.or(what.requests.is_none().then_some(DURATION));
    Ok(LoadTestOptions {
        connections: what.connections as usize,
        threads: what.threads.into(),
        rate: what.rate.map(|rate| rate as f64),
        until: Until { requests: what.requests, duration },
        warm_up: what.warm_up,
        timeout: what.timeout,
        http2: what.http2,
        streams: what.streams as usize,
        unix_socket: what.unix_socket.clone(),
        keep_alive: !what.no_keep_alive,
        method: what.method.clone(),
        fields: what.fields.iter().map(field).collect::<Result<_, _>>()?,
        body: body.unwrap_or_default().into(),
        expected: Expected {
            status: what.expect_status,
            length: what.expect_length,
            same: what.same_length,
            checksum: what.checksum,
        },
        ca_file: what.trust.cacert.as_deref().map(Into::into),
        insecure: what.trust.insecure,
        ..LoadTestOptions::new(urls)
    })
}

/// Shows a server's activity.
fn top(what: &Top) -> Result<(), CommandFailure> {
    let options = top::TopOptions {
        url: what.url.clone(),
        socket: what.server.named_socket(),
        view: match what.view {
            TopView::Routes => View::Routes,
            TopView::Stages => View::Stages,
            TopView::Backends => View::Backends,
            TopView::Workers => View::Workers,
            TopView::Connections => View::Connections,
            TopView::Hosts => View::Hosts,
        },
        sort: what.sort.clone(),
        filter: what.filter.clone(),
        interval: Duration::from_secs(what.interval.into()),
        ca_file: what.trust.cacert.as_deref().map(Into::into),
        insecure: what.trust.insecure,
    };
    match what.once || what.json {
        true => top::once(&options, what.json, &mut io::stdout().lock())?,
        false => top::run(&options)?,
    }
    Ok(())
}

/// Draws the distribution of request times.
fn timing(what: &Timing) -> Result<(), CommandFailure> {
    let Timing::Plot { log, output, gnuplot } = what;
    let at =
        |path: &Path, error: io::Error| CommandFailure::of(format!("{}: {error}", path.display()));
    let input: Box<dyn io::Read> = match log.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(log).map_err(|error| at(log, error))?),
    };
    let plot = Plot::read(BufReader::new(input)).map_err(|error| at(log, error))?;
    let Summary { requests, others, broken, first_broken } = &plot.summary;
    if let Some((line, why)) = first_broken {
        let lines = if *broken == 1 { "line" } else { "lines" };
        let name = log.display();
        eprintln!("lighty: {name}: {broken} {lines} left out; the first is {line}: {why}");
    }
    // Keeps an older picture rather than write an empty one.
    if *requests == 0 {
        return Err(CommandFailure::of(format!(
            "{}: no request with times in {others} lines; debug.log-timing or accesslog.json \
             writes them",
            log.display()
        )));
    }
    let create = |path: &Path| File::create(path).map(BufWriter::new);
    match output {
        None => plot.write_svg(&mut BufWriter::new(io::stdout().lock()))?,
        Some(path) => {
            let written = create(path).and_then(|mut file| {
                plot.write_svg(&mut file)?;
                file.flush()
            });
            written.map_err(|error| at(path, error))?;
        }
    }
    if let Some(path) = gnuplot {
        let written = create(path).and_then(|mut file| {
            plot.write_gnuplot(&mut file)?;
            file.flush()
        });
        written.map_err(|error| at(path, error))?;
    }
    Ok(())
}

fn limits(site: &ProgramSite) -> ApplicationLimits {
    ApplicationLimits {
        connections_max: site.max_connections,
        io_timeout_s: site.io_timeout,
        stop_timeout_s: site.stop_timeout,
        ..ApplicationLimits::default()
    }
}

fn listening(site: &ProgramSite) -> Result<ApplicationSocket, CommandFailure> {
    let address = match &site.listen {
        Some(text) => Some(ApplicationSocket::address(text).map_err(CommandFailure::of)?),
        None => None,
    };
    let backlog = i32::try_from(site.backlog).unwrap_or(i32::MAX);
    Ok(ApplicationSocket { address, mode: site.mode, backlog })
}

/// Runs the supervisor of FastCGI workers, or sends a request to a running one.
fn spawn(spawn: &Spawn) -> Result<(), CommandFailure> {
    use std::io::Write;
    let order = spawn.restart.as_deref().map(|file| (file, "restart"));
    let order = order.or_else(|| spawn.status.as_deref().map(|file| (file, "status")));
    if let Some((pid_file, request)) = order {
        let reply = supervisor::ask(pid_file, request).map_err(CommandFailure::of)?;
        writeln!(std::io::stdout(), "{reply}")?;
        return Ok(());
    }
    let address = spawn.listen.as_deref().unwrap_or_default();
    let options = supervisor::SupervisorOptions {
        address: ApplicationSocket::address(address).map_err(CommandFailure::of)?,
        mode: spawn.mode,
        backlog: i32::try_from(spawn.backlog).unwrap_or(i32::MAX),
        workers: usize::from(spawn.workers),
        command: spawn.command.clone(),
        directory: spawn.dir.clone(),
        user: spawn.user.clone(),
        group: spawn.group.clone(),
        stop_signal: match spawn.stop_signal {
            StopWith::Term => StopSignal::Term,
            StopWith::Usr1 => StopSignal::Usr1,
            StopWith::Int => StopSignal::Int,
            StopWith::Quit => StopSignal::Quit,
        },
        grace_s: spawn.grace,
        settle_ms: spawn.settle,
        ping: ping(spawn)?,
        pid_file: spawn.pid_file.clone(),
    };
    supervisor::run(options)?;
    Ok(())
}

fn ping(spawn: &Spawn) -> Result<Option<supervisor::Ping>, CommandFailure> {
    let path = match spawn.ping.as_str() {
        "none" => return Ok(None),
        "values" => None,
        path if path.starts_with('/') => Some(path.to_owned()),
        other => {
            let text = format!("--ping {other}: expected values, none or a path such as /ping");
            return Err(CommandFailure::Says(text));
        }
    };
    Ok(Some(supervisor::Ping {
        path,
        interval_s: spawn.ping_interval,
        timeout_s: spawn.ping_timeout,
        failures: spawn.ping_failures,
    }))
}
