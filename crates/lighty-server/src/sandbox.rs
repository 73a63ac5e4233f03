//! The sandbox of the server: its rules come from the configuration, and a reload that needs more
//! than them is refused.
//!
//! `derive` turns the needs that directives declare into rules, `places` decides which directory a
//! path's rule is for, `links` finds symbolic links in served directories, and `programs` lists the
//! programs that the launcher starts.

mod derive;
mod links;
mod places;
mod programs;
mod system;

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::log::Level;
use lighty_core::settings::SandboxMode;
use lighty_io::listen::BindSpec;
use lighty_io::sandbox::{self, Coverage, SandboxPlan, launcher};

use crate::boot::error::BootError;
use crate::control::socket_path::socket_of;
use derive::Derived;
use programs::Programs;

/// Restrictions of the process that depend on its caller.
#[derive(Clone, Debug, Default)]
pub struct SandboxOptions {
    /// The files that the configuration was read from.
    pub config_files: Vec<PathBuf>,
    /// Reason why the caller itself starts programs, if it does.
    pub starts_programs: Option<&'static str>,
}

/// Facts about the process that the rules depend on.
pub(crate) struct SandboxContext<'a> {
    pub options: &'a SandboxOptions,
    /// The addresses of all listeners.
    pub listening: Vec<BindSpec>,
    /// Root started the process, which became another user.
    pub has_changed_user: bool,
}

/// A sandbox that the process has entered.
struct Applied {
    coverage: Coverage,
    derived: Derived,
    programs: Programs,
}

static APPLIED: OnceLock<Applied> = OnceLock::new();

/// Environment variable with the highest Landlock version to use, for tests of older kernels.
const LANDLOCK_MAX: &str = "LIGHTY_LANDLOCK_MAX";

/// Enters the sandbox that the configuration permits. Call it after privileges were dropped and
/// before the first thread was started.
///
/// # Errors
/// A layer that the configuration requires cannot be applied to the whole process.
pub(crate) fn enter(
    config: &Config<Settings>,
    context: &SandboxContext<'_>,
) -> Result<(), BootError> {
    let server = &config.global().server;
    if server.sandbox == SandboxMode::Off {
        return Ok(());
    }
    let derived = derive::derive(config, context);
    let programs = programs::of(config, &derived.rules);
    let outside = context.options.starts_programs.map(str::to_owned);
    let outside = outside.or_else(|| derived.programs.clone()).or(programs.obstacle.clone());
    let plan = SandboxPlan {
        coverage: if outside.is_some() { Coverage::Serving } else { Coverage::Process },
        why_in_part: outside.map(|why| in_part(&why)).unwrap_or_default(),
        rules: derived.rules.clone(),
        landlock_max: std::env::var(LANDLOCK_MAX).ok().and_then(|text| text.parse().ok()),
        hides_memory: context.has_changed_user && !server.core_files,
    };
    // Without the control socket, nobody can order an upgrade.
    let needs_launcher = socket_of(server).is_some() || !programs.plan.programs.is_empty();
    if plan.coverage == Coverage::Process && needs_launcher {
        let failed = |error| BootError::Step("the launcher of programs".to_owned(), error);
        launcher::begin(programs.plan.clone()).map_err(failed)?;
    }
    sandbox::enter(&plan).map_err(|error| BootError::Step("server.sandbox".to_owned(), error))?;
    let _ = APPLIED.set(Applied { coverage: plan.coverage, derived, programs });
    let incomplete = sandbox::layers().into_iter().find(|layer| layer.word() != "on");
    match incomplete.filter(|_| server.sandbox == SandboxMode::Required) {
        Some(layer) => {
            let error = io::Error::other(layer.to_string());
            Err(BootError::Step("server.sandbox = \"required\"".to_owned(), error))
        }
        None => Ok(()),
    }
}

/// Reason why only serving threads are restricted.
fn in_part(why: &str) -> String {
    format!("for threads that serve requests, because programs are started ({why})")
}

/// Messages about the layers at the start: a layer that the kernel lacks is a notice.
pub(crate) fn report(say: &dyn Fn(Level, &str)) {
    for layer in sandbox::layers() {
        let level = if layer.is_off() { Level::Notice } else { Level::Info };
        say(level, &format!("sandbox: {layer}"));
    }
}

/// Reasons why the running process cannot serve a configuration: its sandbox lacks rights that the
/// configuration needs. Empty without a sandbox.
pub(crate) fn refusals(next: &Config<Settings>) -> Vec<String> {
    let Some(applied) = APPLIED.get() else { return Vec::new() };
    let options = SandboxOptions::default();
    // Listeners are compared elsewhere.
    let context =
        SandboxContext { options: &options, listening: Vec::new(), has_changed_user: false };
    let (programs, next) = {
        let derived = derive::derive(next, &context);
        (programs::of(next, &derived.rules), derived)
    };
    let mut refusals = Vec::new();
    for need in &next.needed {
        let is_known = applied.derived.needed.contains(need);
        if !is_known && !applied.derived.rules.permits(&need.path, need.access) {
            let (name, path) = (need.directive, need.path.display());
            refusals.push(refusal(&format!("{name}: {} {path}", need.access)));
        }
    }
    if let Some(port) = applied.derived.rules.connect.first_missing(&next.rules.connect) {
        refusals.push(refusal(&format!("connections to {port}")));
    }
    if next.rules.reaches_abstract && !applied.derived.rules.reaches_abstract {
        refusals.push(refusal("connections to abstract sockets"));
    }
    if applied.coverage == Coverage::Process {
        let unknown = next.programs.map(|why| format!("{why}: starting programs"));
        let missing = unknown.into_iter().chain(applied.programs.missing(&programs));
        refusals.extend(missing.map(|right| refusal(&right)));
    }
    refusals
}

fn refusal(right: &str) -> String {
    format!(
        "{right} is not permitted by the sandbox of the running process: restart the server, or run \
         \"lighty ctl upgrade\" or \"lighty ctl reload --upgrade\""
    )
}
