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
use lighty_io::listen::{BindSpec, PrivateDir};
use lighty_io::sandbox::launcher::{self, LaunchPlan, NextLauncher, PermittedPorts, PlanReader};
use lighty_io::sandbox::{self, Access, Coverage, SandboxPlan, SandboxRules};
use lighty_proxy::upstream::registry::SOCKET_DIRECTORY;

use crate::boot::error::BootError;
use crate::control::socket_path::socket_of;
use crate::listen::listeners;
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
/// before the first thread was started. `reader` plans the next configuration of a reload.
///
/// # Errors
/// A layer that the configuration requires cannot be applied to the whole process.
pub(crate) fn enter(
    config: &Config<Settings>,
    context: &SandboxContext<'_>,
    reader: Option<PlanReader>,
) -> Result<(), BootError> {
    let server = &config.global().server;
    if server.sandbox.mode == SandboxMode::Off {
        return Ok(());
    }
    let mut derived = derive::derive(config, context);
    if derived.has_nameless
        && let Ok(directory) = PrivateDir::prepare(SOCKET_DIRECTORY)
    {
        derived.rules.add(&directory, Access::ALL);
    }
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
    let is_restricted = plan.coverage == Coverage::Process;
    let starts = socket_of(server).is_some() || !programs.plan.programs.is_empty();
    if reader.is_some() || (is_restricted && starts) {
        let failed = |error| BootError::Step("the launcher of the sandbox".to_owned(), error);
        let launch = launch_plan(&derived, &programs);
        launcher::begin(launch, reader, plan.coverage).map_err(failed)?;
    }
    sandbox::enter(&plan).map_err(|error| BootError::Step("server.sandbox".to_owned(), error))?;
    if plan.coverage == Coverage::Process {
        lighty_config::refuse_commands(NO_COMMANDS);
    }
    lighty_config::explain_errors(sandbox::cause);
    let _ = APPLIED.set(Applied { coverage: plan.coverage, derived, programs });
    let incomplete = sandbox::layers().into_iter().find(|layer| layer.word() != "on");
    match incomplete.filter(|_| server.sandbox.mode == SandboxMode::Required) {
        Some(layer) => {
            let error = io::Error::other(layer.to_string());
            Err(BootError::Step("server.sandbox = \"required\"".to_owned(), error))
        }
        None => Ok(()),
    }
}

/// Reason why `include_shell` fails in a process that is restricted as a whole.
const NO_COMMANDS: &str = "the sandbox of the running process permits no programs: restart the \
                           server, or run \"lighty ctl upgrade\"";

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

/// Rights for the next configuration beyond those of the process, to be kept once the configuration
/// is in use.
pub(crate) type NextRights = Option<NextLauncher>;

/// Gets the rights that a configuration needs beyond those of the process: the launcher binds and
/// connects at further ports, and starts further programs, after it has read the configuration
/// itself.
///
/// # Errors
/// Reasons why the running process cannot serve the configuration: its sandbox lacks rights.
pub(crate) fn widen(
    next: &Config<Settings>,
    listening: Vec<BindSpec>,
) -> Result<NextRights, Vec<String>> {
    let Some(applied) = APPLIED.get() else { return Ok(None) };
    let options = SandboxOptions::default();
    let context = SandboxContext { options: &options, listening, has_changed_user: false };
    let derived = derive::derive(next, &context);
    let programs = programs::of(next, &derived.rules);
    let mut refusals = applied.missing_for_ever(&derived, &programs);
    let missing = applied.missing_so_far(&derived, &programs);
    let plan = launch_plan(&derived, &programs);
    if missing.is_empty() || launcher::has_plan(&plan) {
        return if refusals.is_empty() { Ok(None) } else { Err(refusals) };
    }
    match launcher::read_again(plan) {
        Ok(launcher) if refusals.is_empty() => return Ok(Some(launcher)),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refusals.extend(missing.iter().map(|right| refusal(right)));
        }
        Err(error) => refusals.push(format!("the launcher of the sandbox: {error}")),
    }
    Err(refusals)
}

impl Applied {
    /// Rights that only another process can have.
    fn missing_for_ever(&self, next: &Derived, programs: &Programs) -> Vec<String> {
        let mut missing = Vec::new();
        for need in &next.needed {
            let is_known = self.derived.needed.contains(need);
            if !is_known && !self.derived.rules.permits(&need.path, need.access) {
                let (name, path) = (need.directive, need.path.display());
                missing.push(format!("{name}: {} {path}", need.access));
            }
        }
        if next.rules.reaches_abstract && !self.derived.rules.reaches_abstract {
            missing.push("connections to abstract sockets".to_owned());
        }
        if self.coverage == Coverage::Process {
            if next.has_nameless && !self.derived.has_nameless {
                missing.push("bin-path without socket: making a directory for it".to_owned());
            }
            missing.extend(next.programs.iter().map(|why| format!("{why}: starting programs")));
            let obstacle = programs.obstacle.iter();
            missing.extend(obstacle.map(|why| format!("{why}: starting programs")));
        }
        missing.iter().map(|right| refusal(right)).collect()
    }

    /// Rights that a launcher can have.
    fn missing_so_far(&self, next: &Derived, programs: &Programs) -> Vec<String> {
        let mut missing = Vec::new();
        if let Some(port) = self.derived.rules.connect.first_missing(&next.rules.connect) {
            missing.push(format!("connections to {port}"));
        }
        if self.coverage == Coverage::Process {
            if let Some(port) = self.derived.rules.bind.first_missing(&next.rules.bind) {
                missing.push(format!("listening on {port}"));
            }
            missing.extend(self.programs.missing(programs));
        }
        missing
    }
}

/// The launcher's part of the rights of a configuration.
fn launch_plan(derived: &Derived, programs: &Programs) -> LaunchPlan {
    let SandboxRules { bind, connect, .. } = derived.rules.clone();
    LaunchPlan { ports: PermittedPorts { bind, connect }, ..programs.plan.clone() }
}

/// The launcher's part of the rights of a configuration that is to be reloaded.
///
/// # Errors
/// A listener has no valid address.
pub(crate) fn next_plan(config: &Config<Settings>) -> Result<LaunchPlan, BootError> {
    let wanted = listeners::wanted(config, &config.global().server)?;
    let listening = wanted.into_iter().map(|wanted| wanted.spec).collect();
    let options = SandboxOptions::default();
    let context = SandboxContext { options: &options, listening, has_changed_user: false };
    let derived = derive::derive(config, &context);
    Ok(launch_plan(&derived, &programs::of(config, &derived.rules)))
}

fn refusal(right: &str) -> String {
    format!(
        "{right} is not permitted by the sandbox of the running process: restart the server, or run \
         \"lighty ctl upgrade\" or \"lighty ctl reload --upgrade\""
    )
}
