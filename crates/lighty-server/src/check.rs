//! The deep check behind `-tt`: opens what the configuration names and binds nothing; and the
//! probes behind `-V`.

use std::path::Path;

use lighty_config::{Active, Config};
use lighty_core::Settings;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::privileges::Identity;
use lighty_io::send::NetworkBackend;

use crate::listeners;

/// Every problem that the configuration would meet on this machine, in words.
pub fn deep(config: &Config<Settings>) -> Vec<String> {
    let global = config.settings(&Active::default());
    let server = &global.server;
    let mut problems = Vec::new();
    if global.core.document_root.is_empty() {
        problems.push("server.document-root is not set".to_owned());
    }
    for path in assigned(config, "server.document-root") {
        require_directory("server.document-root", path, &mut problems);
    }
    for dir in server.upload_dirs.iter() {
        require_directory("server.upload-dirs", dir, &mut problems);
    }
    for (name, file) in
        [("server.errorlog", &server.errorlog), ("server.pid-file", &server.pid_file)]
    {
        if let Some(path) = file.as_deref().filter(|path| !path.starts_with('|')) {
            require_parent(name, path, &mut problems);
        }
    }
    for path in assigned(config, "accesslog.filename").filter(|path| !path.starts_with('|')) {
        require_parent("accesslog.filename", path, &mut problems);
    }
    if let Some(root) = &server.chroot {
        require_directory("server.chroot", root, &mut problems);
    }
    if let Err(error) = Identity::lookup(server.username.as_deref(), server.groupname.as_deref()) {
        problems.push(format!("server.username, server.groupname: {error}"));
    }
    if let Err(error) = listeners::wanted(config, server) {
        problems.push(error);
    }
    problems
}

/// Every value that some block gives a directive.
fn assigned<'a>(config: &'a Config<Settings>, name: &'a str) -> impl Iterator<Item = &'a str> {
    let settings = config.blocks().iter().flat_map(|block| &block.settings);
    settings.filter(move |setting| setting.name == name).filter_map(|s| s.value.value.as_str())
}

fn require_directory(name: &str, path: &str, problems: &mut Vec<String>) {
    match std::fs::read_dir(path) {
        Ok(_) => {}
        Err(error) => problems.push(format!("{name} = \"{path}\": {error}")),
    }
}

fn require_parent(name: &str, path: &str, problems: &mut Vec<String>) {
    if path.is_empty() {
        return;
    }
    let parent = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        problems.push(format!("{name} = \"{path}\": the directory does not exist"));
    } else if Path::new(path).is_dir() {
        problems.push(format!("{name} = \"{path}\": is a directory"));
    }
}

/// What each file engine says of this machine: whether `auto` takes it, or why it cannot run.
pub fn file_engines() -> Vec<(&'static str, Result<String, String>)> {
    let taken = probe(EngineChoice::Auto).unwrap_or_default();
    [("io-uring", EngineChoice::Uring), ("threads", EngineChoice::Threads)]
        .into_iter()
        .map(|(name, choice)| {
            let said = if name == taken { "the default here" } else { "can be asked for" };
            (name, probe(choice).map(|_| said.to_owned()))
        })
        .collect()
}

/// Name of the engine that runs when this one is asked for, or why none does.
fn probe(choice: EngineChoice) -> Result<&'static str, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        FileEngine::start(choice, EngineLimits::default())
            .map(|engine| engine.report().name)
            .map_err(|error| error.to_string())
    })
}

/// Network backends by name, and whether they can run here.
pub fn network_backends() -> Vec<(&'static str, bool)> {
    NetworkBackend::ALL.into_iter().map(|b| (b.name(), b.available().is_ok())).collect()
}
