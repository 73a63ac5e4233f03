//! Runs the commands of the command line.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::CommandFactory;
use clap::error::ErrorKind;
use lighty_admin::ctl::{CtlError, Verb};
use lighty_admin::passwords::{MemoryFile, PasswordScheme};
use lighty_admin::{browser, check, ctl, passwords};
use lighty_config::{
    Config, Diagnostic, Diagnostics, FsLoader, Level, LoadOptions, Main, Sources, Style,
};
use lighty_core::Settings;
use lighty_server::background::{self, DetachedSide};
use lighty_server::control::client::CallError;
use lighty_server::explain::ExplainedRequest;
use lighty_server::sandbox::SandboxOptions;
use lighty_server::{boot, reload};

#[cfg(feature = "acme")]
use crate::cert;
use crate::cli::{Cli, Command, Format, RunningServer, Serve};
use crate::failure::{CommandFailure, say};
#[cfg(feature = "scripts")]
use crate::script_run;
use crate::{explain, programs, report, site, table};

/// Exit status of a configuration or start that failed.
const FAILED: u8 = 1;

/// Exit status of a wrong command line.
const MISUSED: u8 = 2;

/// Directives of a configuration that a command has written, and the options behind them.
type OptionNames = [(&'static str, &'static str)];

const SERVE_OPTIONS: [(&str, &str); 3] =
    [("server.bind = ", "--listen "), ("server.port", "--port"), ("ssl.pemfile", "--tls")];

const PROXY_OPTIONS: [(&str, &str); 5] = [
    ("server.bind = ", "--from "),
    ("server.port", "--from"),
    ("proxy-core.backends", "--to"),
    ("proxy-core.protocol", "--protocol"),
    ("ssl.pemfile", "--tls"),
];

/// Returns the options behind the configuration that a command writes, if it writes one.
fn options_of(cli: &Cli) -> Option<&'static OptionNames> {
    match cli.command {
        Some(Command::Serve(_)) => Some(&SERVE_OPTIONS),
        Some(Command::Proxy { .. }) => Some(&PROXY_OPTIONS),
        _ => None,
    }
}

/// Runs the command; every error has been printed when it returns.
pub(crate) fn run(cli: Cli) -> ExitCode {
    if let Some(text) = misplaced(&cli) {
        Cli::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    // Before the configuration is read, because `include_shell` starts a program. A supervisor
    // passes its capabilities on to its workers.
    if !programs::is_supervisor(&cli) {
        lighty_server::keep_capabilities_from_programs();
    }
    let done = match &cli.command {
        Some(Command::Serve(serve)) => self::serve(&cli, serve),
        Some(Command::Proxy { from, to, protocol, tls, quiet }) => {
            let shows_requests = !quiet && std::io::stderr().is_terminal();
            site::proxy(from, to, protocol, shows_requests)
                .and_then(|text| Ok(text + &self::tls(tls.as_deref(), from)?))
                .and_then(|text| start_text(&cli, &PROXY_OPTIONS, &text))
        }
        Some(Command::Check { .. }) => check_config(&cli),
        Some(Command::Print { .. }) => print_config(&cli),
        Some(Command::Explain { url, method, headers, from, socket, .. }) => {
            let request = ExplainedRequest {
                url: url.clone(),
                method: method.clone(),
                headers: headers.clone(),
                from: *from,
                socket: socket.clone(),
            };
            load_with_sources(&cli).and_then(|(config, sources)| {
                explain::print(config, &sources, &request, cli.format)
            })
        }
        Some(Command::Reload { server, .. }) => control(&cli, server, &Verb::Change("/reload")),
        Some(Command::Ctl { what, server, .. }) => control(&cli, server, &what.verb()),
        #[cfg(feature = "acme")]
        Some(Command::Cert { what, .. }) => load(&cli).and_then(|config| cert::run(&config, what)),
        Some(Command::HashPassword { user, scheme, cost }) => {
            hash_password(user.as_deref(), scheme.with(*cost))
        }
        #[cfg(feature = "scripts")]
        Some(Command::Script { what }) => script_run::script(what),
        Some(Command::Fmt { files, check }) => format_files(files, *check),
        #[cfg(feature = "tools")]
        Some(Command::Tool(tool)) => programs::run(tool),
        None => run_flags(&cli),
    };
    ExitCode::from(exit_code(done))
}

/// Prints a failure and returns the exit status.
fn exit_code(done: Result<(), CommandFailure>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(CommandFailure::Reported) => FAILED,
        Err(CommandFailure::Says(text)) => {
            say(&format!("lighty: {text}\n"));
            FAILED
        }
        Err(CommandFailure::Usage(text)) => {
            say(&format!("lighty: {text}\n"));
            MISUSED
        }
    }
}

/// Serves a directory or a file.
fn serve(cli: &Cli, serve: &Serve) -> Result<(), CommandFailure> {
    let shows_requests = !serve.quiet && std::io::stderr().is_terminal();
    let users = serve.user.as_deref().map(users).transpose()?;
    let path = users.as_ref().map(MemoryFile::path);
    let text = site::configuration(serve, path.as_deref(), shows_requests)?;
    let text = text + &tls(serve.tls.as_deref(), &serve.address())?;
    start_text(cli, &SERVE_OPTIONS, &text)
}

/// Returns the user file of `--user`, which is only in memory.
fn users(given: &str) -> Result<MemoryFile, CommandFailure> {
    let mut line = given.as_bytes().to_vec();
    if !given.contains(':') {
        line.push(b':');
        line.extend(passwords::ask()?);
    }
    line.push(b'\n');
    MemoryFile::new(&line).map_err(|error| CommandFailure::Says(format!("--user: {error}")))
}

/// Returns an option that the command does not accept.
fn misplaced(cli: &Cli) -> Option<&'static str> {
    let command = cli.command.as_ref()?;
    let takes_none = match command {
        Command::Serve(_)
        | Command::Proxy { .. }
        | Command::Fmt { .. }
        | Command::HashPassword { .. } => true,
        #[cfg(feature = "tools")]
        Command::Tool(_) => true,
        _ => false,
    };
    if takes_none && cli.config.is_some() {
        return Some("this command reads no configuration: -f has no place beside it");
    }
    if cli.background || cli.idle_timeout.is_some() {
        return Some("--background and -i have no place beside a command");
    }
    (cli.test > 0 || cli.print || cli.version || cli.build_info)
        .then_some("-t, -p, -v and -V have no place beside a command")
}

fn run_flags(cli: &Cli) -> Result<(), CommandFailure> {
    if cli.version {
        writeln!(std::io::stdout(), "{}", report::version_line())?;
        return Ok(());
    }
    if cli.build_info {
        write!(std::io::stdout(), "{}", report::build_info())?;
        return Ok(());
    }
    if cli.print {
        return print_config(cli);
    }
    if cli.test > 0 {
        return check_config(cli);
    }
    if cli.config.is_none() {
        return Err(CommandFailure::Says(
            "no configuration: use -f FILE, or `lighty serve DIR` to serve a directory at once \
             (lighty --help says more)"
                .into(),
        ));
    }
    // A process that takes over is in the background already, if the one before is.
    match cli.goes_to_background() && !lighty_server::takes_over() {
        true => start_in_background(cli),
        false => start(cli, load_with_sources(cli)?),
    }
}

/// Runs the server.
fn start(cli: &Cli, loaded: (Config<Settings>, Sources)) -> Result<(), CommandFailure> {
    let running = begin(cli, loaded)?;
    match &cli.command {
        Some(Command::Serve(serve)) if serve.open => {
            // The line with the address precedes messages about the browser.
            running.flush_to_stderr();
            browser::open(running.url(serve.public_name()), say);
        }
        _ => {}
    }
    running.serve().map_err(CommandFailure::of)
}

/// Starts the server. If a configured file, address or program prevents that, the message shows its
/// place.
fn begin(
    cli: &Cli,
    (config, sources): (Config<Settings>, Sources),
) -> Result<boot::Running, CommandFailure> {
    let config = Arc::new(config);
    let rights = check::Rights::now();
    let loader: Option<reload::Loader> = match (&cli.command, cli.config.as_deref()) {
        (None, Some(path)) if path != Path::new("-") => {
            let cli = cli.clone();
            Some(Arc::new(move || load_again(&cli)))
        }
        _ => None,
    };
    let idle_timeout = cli
        .idle_timeout
        .filter(|limit_s| *limit_s > 0)
        .map(|limit_s| Duration::from_secs(limit_s.into()));
    let is_of_command_line = matches!(cli.command, Some(Command::Serve(_) | Command::Proxy { .. }));
    let starts_browser = matches!(&cli.command, Some(Command::Serve(serve)) if serve.open);
    let sandbox = Some(SandboxOptions {
        config_files: sources.iter().filter_map(|(_, source)| source.path.clone()).collect(),
        starts_programs: starts_browser.then_some("--open starts a browser"),
    });
    let options = boot::Options { loader, idle_timeout, is_of_command_line, sandbox };
    boot::start(Arc::clone(&config), options).map_err(|error| {
        let mut findings = Diagnostics::default();
        check::after_failed_start(&config, rights).into_iter().for_each(|one| findings.push(one));
        findings.sort();
        match options_of(cli) {
            // The user has not seen the generated text, so places in it mean nothing.
            Some(names) => findings.iter().for_each(|found| say(&about_options(found, names))),
            None => report_diagnostics(cli, &findings, &sources),
        }
        CommandFailure::Says(error.to_string())
    })
}

/// Runs the server in the background. The original process exits when the server serves, or has
/// reported why it does not.
fn start_in_background(cli: &Cli) -> Result<(), CommandFailure> {
    let sides = background::detach();
    let starting =
        match sides.map_err(|error| CommandFailure::of(format!("background: {error}")))? {
            DetachedSide::Starter(Some(0)) => return Ok(()),
            DetachedSide::Starter(Some(status)) => std::process::exit(status.into()),
            DetachedSide::Starter(None) => {
                return Err(CommandFailure::Says("the server has ended during its start".into()));
            }
            DetachedSide::Server(starting) => starting,
        };
    let code = match load_with_sources(cli).and_then(|loaded| begin(cli, loaded)) {
        Ok(running) => {
            if running.flush_to_stderr() {
                say("lighty: server.errorlog is not set: messages are discarded from now on\n");
            }
            let left = starting.succeed().map_err(CommandFailure::from);
            exit_code(left.and_then(|()| running.serve().map_err(CommandFailure::of)))
        }
        Err(failure) => {
            let code = exit_code(Err(failure));
            starting.fail(code);
            code
        }
    };
    // After a fork, returning from this thread may not end the process.
    std::process::exit(code.into())
}

/// Reads the configuration of the running server again. All messages go to the caller of the
/// reload.
fn load_again(cli: &Cli) -> Result<reload::Loaded, reload::Refusal> {
    let path = cli.config.as_deref().unwrap_or(Path::new("-"));
    let refusals = lighty_config::sandbox_refusals();
    let (config, diagnostics, sources) = read(cli, &Main::File(path));
    let warnings = diagnostics.render(&sources, Style { color: false });
    match config {
        Some(config) if !diagnostics.has_errors() => Ok(reload::Loaded { config, warnings }),
        // Other errors may be there as well: the new process of an upgrade names them.
        _ if lighty_config::sandbox_refusals() > refusals => {
            Err(reload::Refusal::by_sandbox(warnings.trim_end()))
        }
        _ => Err(reload::Refusal::new(warnings.trim_end())),
    }
}

/// Finds the control socket of a running server.
fn socket_of(cli: &Cli, server: &RunningServer) -> Result<PathBuf, CommandFailure> {
    if let Some(path) = server.named_socket() {
        return Ok(path);
    }
    let config = load(cli)?;
    lighty_server::control::socket_of(&config.global().server).ok_or_else(|| {
        CommandFailure::Says(
            "the configuration has no control socket, because it names neither a \
             server.control-socket nor a server.pid-file: use --socket or --pid-file"
                .into(),
        )
    })
}

/// Sends a request to the control socket of a running server, and prints its reply.
fn control(cli: &Cli, server: &RunningServer, verb: &Verb) -> Result<(), CommandFailure> {
    let socket = socket_of(cli, server)?;
    let reply = ctl::perform(&socket, verb).map_err(|error| match error {
        // The outcome of a reload is a list of diagnostics.
        CtlError::Call(CallError::Refused { reason, .. }) => CommandFailure::Says(reason),
        other => CommandFailure::Says(format!("{}: {other}", socket.display())),
    })?;
    let text = match cli.prints_json(verb.is_query()) {
        true => format!("{reply:#}\n"),
        false => verb.text(&reply),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    match ctl::expected_refusal(&reply) {
        Some(why) => Err(CommandFailure::Says(format!("the reload would be refused:\n{why}"))),
        None => Ok(()),
    }
}

/// Returns the configuration lines for TLS, if it is requested. Without names, prints the authority
/// that clients have to trust.
fn tls(names: Option<&[String]>, listen: &str) -> Result<String, CommandFailure> {
    let Some(names) = names else { return Ok(String::new()) };
    if !names.is_empty() {
        return site::public_tls(names, listen);
    }
    let (text, authority) = site::local_tls(listen)?;
    say(&format!("lighty: clients that trust {authority} take this site for genuine\n"));
    Ok(text)
}

/// Starts a server with a configuration made from the command's options. Users do not see that
/// text, so messages name the options.
fn start_text(cli: &Cli, names: &OptionNames, text: &str) -> Result<(), CommandFailure> {
    let main = Main::Text { name: "command line", text: text.as_bytes() };
    let (config, diagnostics, sources) = read(cli, &main);
    let is_value = |one: &Diagnostic| one.level == Level::Error && one.code == "value";
    let is_misuse = diagnostics.iter().any(is_value);
    for found in diagnostics.iter() {
        say(&about_options(found, names));
    }
    match config {
        Some(config) if !diagnostics.has_errors() => start(cli, (config, sources)),
        _ if is_misuse => {
            Err(CommandFailure::Usage("for more information, try '--help'".to_owned()))
        }
        _ => Err(CommandFailure::Reported),
    }
}

/// Rewords a message about a directive as one about the option behind it.
fn about_options(found: &Diagnostic, names: &OptionNames) -> String {
    let level = match found.level {
        Level::Error => "error: ",
        Level::Warning => "warning: ",
        Level::Note => "note: ",
    };
    let renamed = |text: &str| {
        names
            .iter()
            .fold(text.to_owned(), |text, (directive, option)| text.replace(directive, option))
    };
    let help = found
        .help
        .as_deref()
        .map_or_else(String::new, |help| format!("  help: {}\n", renamed(help)));
    format!("lighty: {level}{}\n{help}", renamed(&found.message))
}

fn load(cli: &Cli) -> Result<Config<Settings>, CommandFailure> {
    load_with_sources(cli).map(|(config, _)| config)
}

fn load_with_sources(cli: &Cli) -> Result<(Config<Settings>, Sources), CommandFailure> {
    let missing = || CommandFailure::Says("no configuration: which one? Use -f FILE".into());
    let path = cli.config.as_deref().ok_or_else(missing)?;
    if path == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text)?;
        return load_main(cli, &Main::Text { name: "standard input", text: &text });
    }
    load_main(cli, &Main::File(path))
}

/// Codes of warnings that `--strict` turns into errors: directives without effect, and missing
/// features of the machine.
const STRICT: [&str; 4] = ["unknown-directive", "not-yet", "gone", "machine"];

fn load_main(cli: &Cli, main: &Main<'_>) -> Result<(Config<Settings>, Sources), CommandFailure> {
    let (config, diagnostics, sources) = read(cli, main);
    report_diagnostics(cli, &diagnostics, &sources);
    match config {
        Some(config) if !diagnostics.has_errors() => Ok((config, sources)),
        _ => Err(CommandFailure::Reported),
    }
}

fn read(cli: &Cli, main: &Main<'_>) -> (Option<Config<Settings>>, Diagnostics, Sources) {
    // Strict mode is applied after all checks, so that its errors prevent none of them.
    let options = LoadOptions { strict: false };
    let (mut config, mut diagnostics, sources) =
        lighty_config::load(&FsLoader, main, &table::of_build(), options);
    if let Some(config) = &mut config {
        check::together(config).into_iter().for_each(|problem| diagnostics.push(problem));
        config.keep_places(&sources);
    }
    if let Some(config) = config.as_ref().filter(|_| checks_deeply(cli)) {
        for problem in check::deep(config) {
            // Conflicts between directives also make the deep check fail: report them once.
            if !diagnostics.iter().any(|known| *known == problem) {
                diagnostics.push(problem);
            }
        }
    }
    if cli.strict {
        diagnostics.make_strict(&STRICT);
    }
    // Never errors: the server starts without them, and they may exist on another machine.
    if let Some(config) = config.as_ref().filter(|_| !checks_deeply(cli)) {
        check::missing(config).into_iter().for_each(|problem| diagnostics.push(problem));
    }
    if let Some(config) = config.as_ref().filter(|_| is_for_server(cli)) {
        check::missing_roots(config).into_iter().for_each(|problem| diagnostics.push(problem));
    }
    diagnostics.sort();
    let diagnostics = check::name_foreign(diagnostics, &sources);
    (config, diagnostics, sources)
}

/// Returns true if a server will run with the configuration, on this machine.
fn is_for_server(cli: &Cli) -> bool {
    cli.command.is_none() && cli.test == 0 && !cli.print
}

/// Returns true if the files and programs in the configuration are to be checked too.
fn checks_deeply(cli: &Cli) -> bool {
    match cli.command {
        Some(Command::Check { deep, .. }) => deep,
        Some(_) => false,
        None => cli.test > 1,
    }
}

/// Prints all diagnostics at once.
fn report_diagnostics(cli: &Cli, diagnostics: &Diagnostics, sources: &Sources) {
    let checking = cli.test > 0 || matches!(cli.command, Some(Command::Check { .. }));
    match cli.format {
        Format::Json if checking => {
            let _ = writeln!(std::io::stdout(), "{}", diagnostics.to_json(sources));
        }
        Format::Json if diagnostics.is_empty() => {}
        Format::Json => say(&format!("{}\n", diagnostics.to_json(sources))),
        Format::Text => {
            let color = std::io::stderr().is_terminal();
            say(&diagnostics.render(sources, Style { color }));
        }
    }
}

fn check_config(cli: &Cli) -> Result<(), CommandFailure> {
    load(cli)?;
    if cli.format == Format::Text {
        writeln!(std::io::stdout(), "Syntax OK")?;
    }
    Ok(())
}

fn print_config(cli: &Cli) -> Result<(), CommandFailure> {
    let config = load(cli)?;
    std::io::stdout().write_all(config.dump().as_bytes())?;
    Ok(())
}

fn format_files(files: &[PathBuf], check: bool) -> Result<(), CommandFailure> {
    if files.is_empty() {
        let text = std::io::read_to_string(std::io::stdin())
            .map_err(|error| CommandFailure::Says(format!("standard input: {error}")))?;
        let formatted = formatted("standard input", &text)?;
        if check && formatted != text {
            return Err(CommandFailure::Says("standard input is not formatted".into()));
        }
        if !check {
            write!(std::io::stdout(), "{formatted}")?;
        }
        return Ok(());
    }
    let mut unformatted = false;
    for file in files {
        let name = file.display().to_string();
        let named = |error: std::io::Error| CommandFailure::Says(format!("{name}: {error}"));
        let text = std::fs::read_to_string(file).map_err(named)?;
        let formatted = formatted(&name, &text)?;
        if formatted == text {
            continue;
        }
        if check {
            unformatted = true;
            say(&format!("lighty: {name} is not formatted\n"));
        } else {
            replace_file(file, &formatted).map_err(named)?;
        }
    }
    if unformatted { Err(CommandFailure::Reported) } else { Ok(()) }
}

fn formatted(name: &str, text: &str) -> Result<String, CommandFailure> {
    lighty_config::format(name, text).map_err(|(diagnostics, sources)| {
        let color = std::io::stderr().is_terminal();
        let diagnostics = check::name_foreign(diagnostics, &sources);
        say(&diagnostics.render(&sources, Style { color }));
        CommandFailure::Reported
    })
}

/// Writes to a temporary file and renames it, so that a full disk loses nothing. Keeps the mode.
fn replace_file(file: &Path, text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    let mut beside = file.clone().into_os_string();
    beside.push(".lighty-fmt");
    let result = std::fs::write(&beside, text)
        .and_then(|()| std::fs::set_permissions(&beside, std::fs::metadata(&file)?.permissions()))
        .and_then(|()| std::fs::rename(&beside, &file));
    if result.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    result
}

/// Prints a line of a user file for the password typed, or for the first line of standard input.
fn hash_password(user: Option<&str>, scheme: PasswordScheme) -> Result<(), CommandFailure> {
    if let Some(user) = user.filter(|user| user.is_empty() || user.contains([':', '\n', '#'])) {
        return Err(CommandFailure::Says(format!(
            "{user:?}: a name is not empty and has no `:` or `#`"
        )));
    }
    let password = passwords::ask()?;
    let hash = passwords::hash(&password, scheme)?;
    let user = user.map_or_else(String::new, |user| format!("{user}:"));
    writeln!(std::io::stdout(), "{user}{hash}")?;
    Ok(())
}
