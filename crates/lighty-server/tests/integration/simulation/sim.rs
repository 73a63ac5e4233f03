//! State that all actors of a run share: the plan, the trace and the faults found.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use lighty_core::module::Traits;
use lighty_core::{Exchange, Fault, Hooks, Module};
use lighty_io::transport::Peer;

use super::auth_service::ServiceBehavior;
use super::plan::PATHS;
use super::raw::RawPair;
use super::rng::Rng;
use super::sabotage::Bug;
use super::site::NETWORK_BACKENDS;

/// Behaviour of a backend towards a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendBehavior {
    Response,
    /// Responds before it has read the body, then reads on.
    AnswerEarly,
    Trickle,
    DieUnread,
    DieBeforeHead,
    DieInHead,
    DieInBody,
    ResetInBody,
    /// Reads no body.
    HangUnread,
    HangBeforeHead,
    HangInBody,
    Garbage,
}

/// Instructions of a request for its backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendTask {
    pub(crate) is_post: bool,
    pub(crate) upload_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) behavior: BackendBehavior,
}

/// Result of a request as the server saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) is_complete: bool,
    pub(crate) fault: Option<Fault>,
}

/// The state of a run.
pub(crate) struct Sim {
    /// No faults occur in this run, so everything must succeed.
    pub(crate) is_calm: bool,
    /// There are fewer connections than clients, so idle ones are closed for new ones.
    pub(crate) is_crowded: bool,
    pub(crate) rng: Rng,
    /// A backend that is asked for more than the others, so that its connections are used again.
    pub(crate) favorite: Option<&'static str>,
    /// `server.network-backend`.
    pub(crate) network_backend: &'static str,
    /// `server.max-bulk-reads`: of every device, and so of the file system in memory.
    pub(crate) bulk_reads: u64,
    /// Directory of the files.
    pub(crate) root: PathBuf,
    /// The planted bug.
    pub(crate) bug: Option<Bug>,
    /// Tasks by request number.
    pub(crate) tasks: RefCell<BTreeMap<u64, BackendTask>>,
    /// Behaviour of the service of `auth.forward` by request number.
    pub(crate) services: RefCell<BTreeMap<u64, ServiceBehavior>>,
    pub(crate) done: RefCell<BTreeMap<u64, Vec<Done>>>,
    /// Number of times that a backend has read each request's head.
    pub(crate) seen: RefCell<BTreeMap<u64, u32>>,
    /// The response to bytes that were no request was cut.
    pub(crate) is_garbage_cut: Cell<bool>,
    /// Addresses that requests come from, by number: PROXY headers may have set them.
    pub(crate) origins: RefCell<BTreeMap<u64, SocketAddr>>,
    /// Raw connections and tunnels by number.
    pub(crate) raw: RefCell<BTreeMap<u64, RawPair>>,
    /// Number of connections of a changing listener that are being accepted.
    pub(crate) accepting: Cell<u32>,
    /// Number of programs that run.
    pub(crate) programs: Cell<u64>,
    next: Cell<u64>,
    hash: Cell<u64>,
    tells: bool,
    wrong: RefCell<Vec<String>>,
}

impl Sim {
    pub(crate) fn new(seed: u64, root: &Path, bug: Option<Bug>) -> Rc<Sim> {
        let rng = Rng::new(seed);
        let (is_calm, is_crowded) = (rng.once_in(6), rng.once_in(3));
        let network_backend = rng.pick(NETWORK_BACKENDS);
        let favorite = rng.once_in(2).then(|| rng.pick(PATHS));
        let favorite = bug.and_then(Bug::path).or(favorite);
        Rc::new(Sim {
            is_calm,
            is_crowded,
            favorite,
            network_backend,
            bulk_reads: seed % 3,
            bug,
            ..Self::empty(rng, root)
        })
    }

    /// Creates a run without random faults.
    pub(crate) fn calm(root: &Path) -> Rc<Sim> {
        Rc::new(Self::empty(Rng::new(0), root))
    }

    fn empty(rng: Rng, root: &Path) -> Sim {
        Sim {
            root: root.to_owned(),
            bug: None,
            network_backend: "auto",
            bulk_reads: 0,
            is_calm: true,
            is_crowded: false,
            favorite: None,
            rng,
            tasks: RefCell::default(),
            services: RefCell::default(),
            done: RefCell::default(),
            seen: RefCell::default(),
            is_garbage_cut: Cell::new(false),
            origins: RefCell::default(),
            raw: RefCell::default(),
            accepting: Cell::new(0),
            programs: Cell::new(0),
            next: Cell::new(1),
            hash: Cell::new(0xCBF2_9CE4_8422_2325),
            tells: std::env::var_os("LIGHTY_SIM_TRACE").is_some(),
            wrong: RefCell::default(),
        }
    }

    /// Returns the number of a new request.
    pub(crate) fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Adds an event to the trace, which is equal in all runs of a seed.
    pub(crate) fn event(&self, text: impl Display) {
        let line = format!("{} {text}", now_ms());
        if self.tells {
            println!("{line}");
        }
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        self.hash.set(line.bytes().fold(self.hash.get(), step));
    }

    /// Reports a violated expectation.
    pub(crate) fn wrong(&self, text: impl Display) {
        self.event(format_args!("WRONG {text}"));
        self.wrong.borrow_mut().push(text.to_string());
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.hash.get()
    }

    pub(crate) fn take_wrong(&self) -> Vec<String> {
        self.wrong.take()
    }

    /// Returns the result of a request, if the server has reported it.
    pub(crate) fn ending(&self, number: u64) -> Option<Done> {
        self.done.borrow().get(&number).and_then(|all| all.last().copied())
    }
}

/// Returns the simulated time in milliseconds.
pub(crate) fn now_ms() -> u64 {
    lighty_io::clock::Clock::start().mono_ms()
}

/// Returns the number in `...?id=N`.
pub(crate) fn number_in(target: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(target).ok()?;
    let (_, rest) = text.split_once("id=")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Module that observes the end of every request.
pub(crate) struct Observer(pub(crate) Rc<Sim>);

impl Module for Observer {
    fn name(&self) -> &'static str {
        "simulation"
    }

    fn traits(&self) -> Traits {
        Hooks { done: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<lighty_core::Settings>> {
        Vec::new()
    }

    fn done(&self, ex: &Exchange) {
        let mut done = Done { is_complete: ex.state.completed, fault: ex.state.fault };
        if self.0.bug == Some(Bug::CutWithoutFault) && !done.is_complete {
            done.fault = None;
        }
        let target = String::from_utf8_lossy(&ex.request.target_raw).into_owned();
        self.0.event(format_args!("done {target} {done:?} {}", ex.state.bytes_sent));
        if done.fault == Some(Fault::Internal) {
            self.0.wrong(format_args!("{target}: an internal error"));
        }
        if !done.is_complete && done.fault.is_none() {
            self.0.wrong(format_args!("{target}: cut without a fault"));
        }
        if let Some(number) = number_in(&ex.request.target_raw) {
            let origin = self.0.origins.borrow().get(&number).copied();
            if origin.is_some_and(|origin| ex.request.peer != Peer::Inet(origin)) {
                let peer = &ex.request.peer;
                self.0.wrong(format_args!("{target}: from {peer:?}, not {origin:?}"));
            }
            let mut all = self.0.done.borrow_mut();
            let all = all.entry(number).or_default();
            all.push(done);
            if all.len() > 1 {
                self.0.wrong(format_args!("{target}: ended twice"));
            }
        } else if !done.is_complete {
            self.0.is_garbage_cut.set(true);
        }
    }
}
