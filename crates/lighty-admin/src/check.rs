//! Configuration checks beyond single directives: the deep check behind `-tt`, which opens the
//! configured files but binds no addresses; the probes behind `-V`; and detection of files written
//! for another server.

mod attempts;
mod cors;
mod foreign;
mod identity;
mod machine;
mod modules;
mod names;
mod needed;
mod services;

use std::io;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{Active, Config, Diagnostic, Level, Span};
use lighty_core::Settings;
use lighty_core::settings::ServerSettings;
use lighty_core::settings::tls::TlsSettings;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::process::privileges::{self, Identity};
use lighty_io::sandbox::{self, Layer};
use lighty_io::send::NetworkBackend;
use lighty_io::tls::{KeyLog, Materials};

use lighty_server::boot::document_root::needs_document_root;
use lighty_server::{acme, followed, listen::listeners, tls};

pub use foreign::name_foreign;

/// Finds errors that only several directives together show, or that depend on this machine.
/// Resolves listener addresses, which conditions then know.
pub fn together(config: &mut Config<Settings>) -> Vec<Diagnostic> {
    let mut findings = listeners::settle(config);
    lighty_modules::status::note_hosts(config);
    findings.extend(lighty_proxy::route::directives::check(config));
    findings.extend(lighty_modules::webdav::check(config));
    findings.extend(modules::check(config));
    findings.extend(cors::check(config));
    findings.extend(identity::check(config));
    findings.extend(acme::check(config));
    findings.extend(tls::check(config));
    findings
}

/// Returns every problem that the configuration would meet on this machine, with its source
/// location. An error prevents the start.
pub fn deep(config: &Config<Settings>) -> Vec<Diagnostic> {
    let global = config.settings(&Active::default());
    let server = &global.server;
    let mut check = Check { config, problems: Vec::new() };
    if global.core.document_root.is_empty() && needs_document_root(config) {
        check.report(None, "server.document-root is not set".to_owned());
    }
    // Under a chroot, sites are looked up beneath it.
    let chroot = server.chroot.as_deref().filter(|_| privileges::is_root()).unwrap_or_default();
    for (path, span) in assigned(config, "server.document-root").filter(|(p, _)| !p.is_empty()) {
        check.served("server.document-root", path, chroot, span);
    }
    for name in ["simple-vhost.server-root", "secdownload.document-root", "userdir.basepath"] {
        for (path, span) in assigned(config, name).filter(|(path, _)| !path.is_empty()) {
            check.served(name, path, chroot, span);
        }
    }
    for (name, file) in [
        ("server.errorlog", &server.errorlog),
        ("server.pid-file", &server.pid_file),
        ("server.control-socket", &server.control_socket),
    ] {
        if let Some(path) = file.as_deref() {
            check.parent(name, path, check.place(name));
        }
    }
    for (path, span) in assigned(config, "accesslog.filename") {
        check.parent("accesslog.filename", path, Some(span));
    }
    if let Some(directory) = &server.state_dir {
        check.directory("server.state-dir", directory, chroot, check.place("server.state-dir"));
    }
    if let Some(root) = &server.chroot {
        check.directory("server.chroot", root, "", check.place("server.chroot"));
    }
    let place = check.place("server.username").or(check.place("server.groupname"));
    match Identity::lookup(server.username.as_deref(), server.groupname.as_deref()) {
        Err(error) => check.report(place, format!("server.username, server.groupname: {error}")),
        Ok(identity) if identity.is_root() => {
            let text = "server.username names root: the server and its programs have all rights";
            check.warn(place, text.to_owned());
        }
        Ok(_) => {}
    }
    check.control_groups(server);
    check.tls();
    for (path, span) in lighty_modules::webdav::databases(config) {
        check.parent("webdav.sqlite-db-name", &format!("{chroot}{path}"), Some(span));
    }
    for path in server.sandbox.paths.iter() {
        let path = path.strip_suffix(":rw").unwrap_or(path);
        if let Err(error) = std::fs::metadata(format!("{chroot}{path}")) {
            let text = format!("server.sandbox-paths = \"{path}\": {error}: it gets no rule");
            check.warn(check.place("server.sandbox-paths"), text);
        }
    }
    for fault in followed::read(config).err().unwrap_or_default() {
        check.report(None, fault);
    }
    needed::look(&mut check, chroot, needed::Depth::Content);
    needed::look_closely(&mut check, chroot);
    machine::look(&mut check, chroot);
    names::look(&mut check);
    services::look(&mut check, chroot);
    services::look_at_providers(&mut check);
    check.problems
}

/// Returns warnings of missing files and directories: the server starts without them, but requests
/// will fail.
pub fn missing(config: &Config<Settings>) -> Vec<Diagnostic> {
    let server = &config.global().server;
    let chroot = server.chroot.as_deref().filter(|_| privileges::is_root()).unwrap_or_default();
    let mut check = Check { config, problems: Vec::new() };
    needed::look(&mut check, chroot, needed::Depth::Presence);
    check.problems
}

/// Returns warnings of document roots in conditions that are not directories: requests for them get
/// 404. The global root is not checked, because the start fails without it.
pub fn missing_roots(config: &Config<Settings>) -> Vec<Diagnostic> {
    let global = config.global();
    let chroot = global.server.chroot.as_deref().filter(|_| privileges::is_root());
    let chroot = chroot.unwrap_or_default();
    let mut check = Check { config, problems: Vec::new() };
    let of_server = &*global.core.document_root;
    for (path, span) in assigned(config, "server.document-root") {
        if path.is_empty() || path == of_server {
            continue;
        }
        if let Err(error) = std::fs::read_dir(format!("{chroot}{path}")) {
            check.warn(span, format!("server.document-root = \"{path}\": {error}"));
        }
    }
    check.problems
}

/// The process's privileges at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    is_root: bool,
}

impl Rights {
    /// The current privileges.
    pub fn now() -> Self {
        Self { is_root: privileges::is_root() }
    }
}

/// Returns the errors that [`deep`] finds, after a failed start. A process that has dropped
/// privileges or changed its root sees too little of the system, so it returns nothing.
pub fn after_failed_start(config: &Config<Settings>, began_with: Rights) -> Vec<Diagnostic> {
    let has_other_root = config.global().server.chroot.is_some() && began_with.is_root;
    if began_with != Rights::now() || has_other_root {
        return Vec::new();
    }
    deep(config).into_iter().filter(|finding| finding.level == Level::Error).collect()
}

/// Returns every text assigned to a directive in any block, and its place.
fn assigned<'a>(
    config: &'a Config<Settings>,
    name: &'a str,
) -> impl Iterator<Item = (&'a str, Span)> {
    config.assigned(name).filter_map(|given| Some((given.value.as_str()?, given.span)))
}

/// A check in progress.
struct Check<'a> {
    config: &'a Config<Settings>,
    problems: Vec<Diagnostic>,
}

impl Check<'_> {
    /// Returns the place where a server-wide directive got its value.
    fn place(&self, name: &str) -> Option<Span> {
        self.config.value(name).map(|value| value.span)
    }

    fn report(&mut self, span: Option<Span>, message: String) {
        self.say(Level::Error, span, message);
    }

    fn warn(&mut self, span: impl Into<Option<Span>>, message: String) {
        self.say(Level::Warning, span.into(), message);
    }

    fn say(&mut self, level: Level, span: Option<Span>, message: String) {
        let (code, help, notes) = ("machine", None, Vec::new());
        self.problems.push(Diagnostic { level, code, message, span, help, notes });
    }

    /// Checks the groups that may use the control socket.
    fn control_groups(&mut self, server: &ServerSettings) {
        for (name, groups) in [
            ("server.control-readers", &server.control_readers),
            ("server.control-admins", &server.control_admins),
        ] {
            for group in groups.iter() {
                if let Err(error) = Identity::lookup(None, Some(group)) {
                    self.report(self.place(name), format!("{name}: {error}"));
                }
            }
        }
    }

    /// Checks the files that listeners and backends need for TLS.
    fn tls(&mut self) {
        let materials = match tls::load(self.config, &Materials::default()) {
            Ok(materials) => materials,
            Err(problems) => {
                // Conflicts between directives are reported before files are checked.
                let before = tls::check(self.config);
                let is_new = |new: &Diagnostic| {
                    !before.iter().any(|old| (old.span, &old.message) == (new.span, &new.message))
                };
                return self.problems.extend(problems.into_iter().filter(is_new));
            }
        };
        let global = self.config.global();
        if let Some(plan) = acme::plan(self.config, materials.on_demand())
            && let Err(error) = plan.store.try_place()
        {
            self.report(self.place("acme.store"), format!("acme.store: {error}"));
        }
        let tls = tls::Tls { materials: Arc::new(materials), ..tls::Tls::default() };
        if let Err(error) = tls::check_keys(global, &tls) {
            let place = self.place("ssl.stek-file");
            match error.kind() {
                io::ErrorKind::NotFound => self.warn(place, error.to_string()),
                _ => self.report(place, error.to_string()),
            }
        }
        if let Some(path) = global.module::<TlsSettings>().key_log_file.as_deref()
            && let Err(error) = KeyLog::try_place(Path::new(path))
        {
            let why = format!("ssl.key-log-file: {path}: {}", lighty_io::os_text(&error));
            self.report(self.place("ssl.key-log-file"), why);
        }
    }

    /// Checks a directory that requests are served from. The server starts without it, because it
    /// may belong to one host among many, or be mounted later.
    fn served(&mut self, name: &str, path: &str, beneath: &str, span: Span) {
        if let Err(error) = std::fs::read_dir(format!("{beneath}{path}")) {
            self.warn(span, format!("{name} = \"{path}\": {error}"));
        }
    }

    fn directory(&mut self, name: &str, path: &str, beneath: &str, span: Option<Span>) {
        if let Err(error) = std::fs::read_dir(format!("{beneath}{path}")) {
            self.report(span, format!("{name} = \"{path}\": {error}"));
        }
    }

    /// Checks the directory of a file created on demand. Pipes are not checked.
    fn parent(&mut self, name: &str, path: &str, span: Option<Span>) {
        if path.is_empty() || path.starts_with('|') {
            return;
        }
        let parent = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
        if !parent.unwrap_or(Path::new(".")).is_dir() {
            self.report(span, format!("{name} = \"{path}\": the directory does not exist"));
        } else if Path::new(path).is_dir() {
            self.report(span, format!("{name} = \"{path}\": is a directory"));
        }
    }
}

/// Each file engine on this machine: whether `auto` selects it, or why it cannot run.
pub fn file_engines() -> Vec<(&'static str, io::Result<&'static str>)> {
    let taken = probe(EngineChoice::Auto).unwrap_or_default();
    [("io-uring", EngineChoice::Uring), ("threads", EngineChoice::Threads)]
        .into_iter()
        .map(|(name, choice)| {
            let note = if name == taken { "the default here" } else { "can be asked for" };
            (name, probe(choice).map(|_| note))
        })
        .collect()
}

/// Returns the engine that runs for this choice, or the reason why none does.
fn probe(choice: EngineChoice) -> io::Result<&'static str> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        FileEngine::start(choice, EngineLimits::default()).map(|engine| engine.report().name)
    })
}

/// Returns the layers of the sandbox that this machine has.
pub fn sandbox_layers() -> Vec<Layer> {
    sandbox::available()
}

/// Returns the network backends, each with true if it can run here.
pub fn network_backends() -> Vec<(&'static str, bool)> {
    NetworkBackend::ALL.into_iter().map(|b| (b.name(), b.available().is_ok())).collect()
}
