//! The sandbox: the process gives up the rights that serving does not need.
//!
//! Layers, each of which works alone: no_new_privs, capabilities, Landlock rules for files and
//! ports, a seccomp filter, io_uring restrictions, and memory that other processes cannot read.
//! The kernel decides which of them are available; [`layers`] has the state of each.
//!
//! Credentials belong to a thread, and new threads inherit them. [`Coverage::Process`] restricts
//! the calling thread before it starts others. [`Coverage::Serving`] restricts the threads that
//! serve requests, and leaves alone those that start programs.
//!
//! Reading order: this file, `layer` (the state of a layer), `rules` (paths and ports), `landlock`,
//! `seccomp` with `syscalls`, `rights` (no_new_privs and capabilities), `refusal` (errors that the
//! sandbox causes), `launcher` (a process outside, for upgrades).

mod landlock;
pub mod launcher;
mod layer;
mod refusal;
mod rights;
mod rules;
mod seccomp;
mod syscalls;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use layer::{Layer, LayerFault, LayerState};
pub(crate) use refusal::note_refusal;
pub use refusal::{cause, explained, explained_write};
pub use rules::{Access, MissingPort, Ports, SandboxRules};

use crate::threads;
use crate::threads::outside;
use landlock::Landlock;
use seccomp::{Filter, FilterScope};

/// The threads that a sandbox restricts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// All threads of the process.
    Process,
    /// Threads that serve requests. Programs start from others, without restrictions.
    Serving,
}

/// A sandbox to enter.
#[derive(Clone, Debug)]
pub struct SandboxPlan {
    /// The threads that it restricts.
    pub coverage: Coverage,
    /// The reason for [`Coverage::Serving`], for the operator.
    pub why_in_part: String,
    /// Paths and ports that stay accessible.
    pub rules: SandboxRules,
    /// Highest Landlock version to use, to behave like an older kernel; `None`: the kernel's.
    pub landlock_max: Option<u32>,
    /// The process was started by root and became another user, and may leave no core dump: other
    /// processes of that user must not read its memory.
    pub hides_memory: bool,
}

/// Restrictions of a thread.
struct Restrictions {
    coverage: Coverage,
    landlock: Result<Landlock, LayerFault>,
    filter: Result<Filter, LayerFault>,
    /// Denies rings besides those that exist.
    ring_filter: Option<Filter>,
}

static RESTRICTIONS: OnceLock<Restrictions> = OnceLock::new();

static LAYERS: Mutex<Vec<Layer>> = Mutex::new(Vec::new());

/// State of the io_uring layer, which the first ring determines.
static RING: AtomicU8 = AtomicU8::new(RING_UNUSED);

const RING_UNUSED: u8 = 0;
const RING_RESTRICTED: u8 = 1;
const RING_FREE: u8 = 2;

/// Enters the sandbox. Call it once, after privileges were dropped and before the first thread was
/// started. Layers that the kernel lacks are left out; [`layers`] names them with the reason.
///
/// # Errors
/// A thread cannot be created.
pub fn enter(plan: &SandboxPlan) -> io::Result<()> {
    let scope = match plan.coverage {
        Coverage::Process => FilterScope::Process,
        Coverage::Serving => FilterScope::Serving,
    };
    let restrictions = RESTRICTIONS.get_or_init(|| Restrictions {
        coverage: plan.coverage,
        landlock: Landlock::build(&plan.rules, plan.coverage, plan.landlock_max),
        filter: Filter::build(scope),
        ring_filter: Filter::build(FilterScope::NoRings).ok(),
    });
    let mut layers = match plan.coverage {
        Coverage::Process => restrictions.apply(),
        Coverage::Serving => {
            // Started before any restricted thread, so that the threads it starts have no
            // restrictions.
            outside::begin()?;
            let trial = threads::start("sandbox", None, || restrictions.apply())?;
            let layers = trial.join().unwrap_or_default();
            layers.into_iter().map(|layer| layer.in_part(&plan.why_in_part)).collect()
        }
    };
    if plan.hides_memory {
        layers.push(Layer::new("memory", rights::hide_memory()));
    }
    *LAYERS.lock().unwrap_or_else(PoisonError::into_inner) = layers;
    refusal::begin();
    Ok(())
}

impl Restrictions {
    /// Restricts the calling thread. Returns the state of each layer.
    fn apply(&self) -> Vec<Layer> {
        // Landlock and seccomp need it. Capabilities go before both, because CAP_SYS_ADMIN could
        // undo much.
        let privileges = rights::forbid_new_privileges();
        let capabilities = rights::reduce_capabilities();
        let on_landlock = self.landlock.as_ref().map_err(LayerFault::clone);
        let landlock = on_landlock.and_then(Landlock::restrict);
        let filter = self.filter.as_ref().map_err(LayerFault::clone).and_then(Filter::install);
        vec![
            Layer::new("no_new_privs", privileges),
            Layer::new("capabilities", capabilities),
            Layer::new("landlock", landlock),
            Layer::new("seccomp", filter),
        ]
    }
}

/// Restricts the calling thread, which serves requests and has created its ring. Without a sandbox
/// this does nothing.
pub fn restrict_thread() {
    let Some(restrictions) = RESTRICTIONS.get() else { return };
    // Restrictions are inherited, and the kernel has a limit on how often they can be applied.
    if threads::mark_restricted() {
        return;
    }
    if restrictions.coverage == Coverage::Serving {
        // The trial of `enter` has shown which layers work.
        drop(restrictions.apply());
    }
    if let Some(filter) = &restrictions.ring_filter {
        let _ = filter.install();
    }
}

/// True if the sandbox keeps serving threads from connecting to a TCP port.
pub fn forbids_port(port: u16) -> bool {
    let landlock = RESTRICTIONS.get().and_then(|restrictions| restrictions.landlock.as_ref().ok());
    landlock.is_some_and(|landlock| landlock.forbids_port(port))
}

/// Notes a ring that was created.
pub(crate) fn note_ring(is_restricted: bool) {
    let state = if is_restricted { RING_RESTRICTED } else { RING_FREE };
    RING.store(state, Ordering::Relaxed);
}

/// State of each layer; empty without a sandbox.
pub fn layers() -> Vec<Layer> {
    let mut layers = LAYERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !layers.is_empty() {
        layers.push(ring_layer());
    }
    layers
}

fn ring_layer() -> Layer {
    let state = match RING.load(Ordering::Relaxed) {
        RING_RESTRICTED => LayerState::On("rings open and read files, nothing else".to_owned()),
        RING_FREE => LayerState::Off("this kernel cannot restrict rings (Linux 5.10)".to_owned()),
        _ => LayerState::On("no ring is in use".to_owned()),
    };
    Layer { name: "io_uring", state }
}

/// Layers that this kernel has, without entering a sandbox.
pub fn available() -> Vec<Layer> {
    let abi = landlock::kernel_version();
    let filter = seccomp::availability();
    vec![
        Layer::new("no_new_privs", Ok(String::new())),
        Layer::new("capabilities", Ok(String::new())),
        Layer::new("landlock", abi.map(|abi| format!("version {abi}, {}", landlock::gains(abi)))),
        Layer::new("seccomp", filter.map(|()| String::new())),
    ]
}
