//! The deep check behind `-tt`: opens what the configuration names and binds nothing; and the
//! probes behind `-V`.

use std::path::Path;

use lighty_config::Config;
use lighty_config::condition::Active;
use lighty_core::Settings;
use lighty_io::file::{EngineChoice, FileEngine};
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
    for root in config.assigned("server.document-root") {
        if let Some(path) = root.value.as_str() {
            require_directory("server.document-root", path, &mut problems);
        }
    }
    for dir in server.upload_dirs.iter() {
        require_directory("server.upload-dirs", dir, &mut problems);
    }
    for (name, file) in [
        ("server.errorlog", &server.errorlog),
        ("server.pid-file", &server.pid_file),
    ] {
        if let Some(path) = file.as_deref().filter(|path| !path.starts_with('|')) {
            require_parent(name, path, &mut problems);
        }
    }
    for log in config.assigned("accesslog.filename") {
        if let Some(path) = log.value.as_str().filter(|path| !path.starts_with('|')) {
            require_parent("accesslog.filename", path, &mut problems);
        }
    }
    if let Some(root) = &server.chroot {
        require_directory("server.chroot", root, &mut problems);
    }
    if let Err(error) =
        Identity::lookup(server.username.as_deref(), server.groupname.as_deref())
    {
        problems.push(format!("server.username, server.groupname: {error}"));
    }
    if let Err(error) = listeners::wanted(config, server) {
        problems.push(error);
    }
    problems
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

/// What each file engine says of this machine: why it runs, or why it cannot.
pub fn file_engines() -> Vec<(&'static str, Result<String, String>)> {
    [("io-uring", EngineChoice::Uring), ("threads", EngineChoice::Threads)]
        .into_iter()
        .map(|(name, choice)| (name, FileEngine::probe(choice)))
        .collect()
}

/// Network backends by name, and whether they can run here.
pub fn network_backends() -> Vec<(&'static str, bool)> {
    NetworkBackend::available()
}
