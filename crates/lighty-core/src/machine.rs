//! State of a worker that serves requests under any configuration.

pub mod bad_messages;
pub mod bans;
pub mod counters;
pub mod histogram;
pub mod known_places;
pub mod metrics;
pub mod permits;
pub mod random;
pub mod request_watch;
pub mod status_board;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::clock::alarms::Alarms;
use lighty_io::entropy::random_bytes;
use lighty_io::file::{FileEngine, Root};
use lighty_io::stat_cache::StatCache;

use tokio::sync::Mutex;

use crate::fault::Fault;
use crate::log::Log;
use crate::log::throttle::LogThrottle;
use crate::machine::bad_messages::BadMessages;
use crate::machine::bans::Bans;
use crate::machine::counters::Counters;
use crate::machine::known_places::KnownPlaces;
use crate::machine::metrics::Metrics;
use crate::machine::random::Random;
use crate::machine::request_watch::RequestWatch;
use crate::settings::limits;

/// State with the lifetime of a worker, independent of its requests' configurations.
pub struct Machine {
    /// The worker's clock.
    pub clock: Clock,
    /// Time limits of waiting requests.
    pub alarms: Rc<Alarms>,
    /// Opens, stats and reads files without blocking the event loop.
    pub engine: FileEngine,
    /// Files that were looked up or opened recently.
    pub stat_cache: StatCache,
    /// The error log.
    pub log: Log,
    /// Counts of connections and requests.
    pub counters: Counters,
    /// The latest malformed requests and bad responses of backends.
    pub bad_messages: Rc<BadMessages>,
    /// Clients that are refused, shared by all workers.
    pub bans: Arc<Bans>,
    /// Distributions of request durations.
    pub metrics: Metrics,
    /// Places of clients that were looked up.
    pub known_places: KnownPlaces,
    /// Requests that an operator watches.
    pub watch: RequestWatch,
    /// Source of request ids and trace ids.
    pub random: Random,
    /// Rate-limits the log line about refused WebSockets.
    pub(crate) refused_upgrades: LogThrottle,
    /// Rate-limits the log line about requests for files of a site without a document root.
    pub(crate) no_document_root: LogThrottle,
    roots: RefCell<HashMap<Vec<u8>, Rc<Root>, foldhash::fast::RandomState>>,
    /// The most recently used root, usually the next one needed.
    latest_root: RefCell<Option<(Vec<u8>, Rc<Root>)>>,
    /// Document roots being opened; concurrent requests wait for the same open.
    opening: RefCell<HashMap<Vec<u8>, Rc<Mutex<()>>, foldhash::fast::RandomState>>,
    /// Document roots that do not exist, and the second in which they were found missing.
    missing: RefCell<(i64, HashSet<Vec<u8>, foldhash::fast::RandomState>)>,
    /// Maximum document roots held open. Each holds a descriptor.
    pub roots_max: Cell<usize>,
}

/// Entry in `opening` of a request whose turn it is to open a document root. Removed also if the
/// request is dropped meanwhile: clients name the roots of virtual hosts, so entries must not
/// remain.
struct OpeningEntry<'a> {
    machine: &'a Machine,
    docroot: &'a [u8],
}

impl Drop for OpeningEntry<'_> {
    fn drop(&mut self) {
        self.machine.opening.borrow_mut().remove(self.docroot);
    }
}

impl Machine {
    /// Creates a worker's machine.
    pub fn new(clock: Clock, engine: FileEngine, stat_cache: StatCache, log: Log) -> Self {
        Self {
            alarms: Alarms::new(clock.clone()),
            clock,
            engine,
            stat_cache,
            log,
            counters: Counters::default(),
            bad_messages: Rc::default(),
            bans: Arc::default(),
            metrics: Metrics::default(),
            known_places: KnownPlaces::default(),
            watch: RequestWatch::default(),
            random: Random::new(seed()),
            refused_upgrades: LogThrottle::default(),
            no_document_root: LogThrottle::default(),
            roots: RefCell::default(),
            latest_root: RefCell::default(),
            opening: RefCell::default(),
            missing: RefCell::default(),
            roots_max: Cell::new(limits::ROOTS_MAX),
        }
    }

    /// The held descriptor of a document root, if it is open.
    pub fn root(&self, docroot: &[u8]) -> Option<Rc<Root>> {
        let mut latest = self.latest_root.borrow_mut();
        if let Some((name, root)) = &*latest
            && name == docroot
        {
            return Some(Rc::clone(root));
        }
        let root = Rc::clone(self.roots.borrow().get(docroot)?);
        let (mut name, _) = latest.take().unwrap_or_else(|| (Vec::new(), Rc::clone(&root)));
        name.clear();
        name.extend_from_slice(docroot);
        *latest = Some((name, Rc::clone(&root)));
        Some(root)
    }

    /// True if the document root was found missing within the current second.
    pub fn is_missing(&self, docroot: &[u8]) -> bool {
        let missing = self.missing.borrow();
        missing.0 == self.clock.unix_s() && missing.1.contains(docroot)
    }

    /// Records, for the current second, that the document root is missing.
    pub fn remember_missing(&self, docroot: &[u8]) {
        let mut missing = self.missing.borrow_mut();
        let now_s = self.clock.unix_s();
        if missing.0 != now_s || missing.1.len() >= limits::MISSING_ROOTS_MAX {
            missing.1.clear();
            missing.0 = now_s;
        }
        missing.1.insert(docroot.to_vec());
    }

    /// Opens and holds a document root. If no descriptor is free, closes cached ones.
    pub async fn open_root(&self, docroot: &[u8]) -> std::io::Result<Rc<Root>> {
        let turn = Rc::clone(self.opening.borrow_mut().entry(docroot.to_vec()).or_default());
        let _turn = turn.lock().await;
        let _entry = OpeningEntry { machine: self, docroot };
        match self.root(docroot) {
            Some(root) => Ok(root),
            None => self.open_and_hold(docroot).await,
        }
    }

    async fn open_and_hold(&self, docroot: &[u8]) -> std::io::Result<Rc<Root>> {
        use std::os::unix::ffi::OsStrExt;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(docroot));
        let since_ms = self.clock.mono_ms();
        let root = loop {
            match self.engine.open_root(path).await {
                Err(error) if is_out_of_descriptors(&error) => {
                    self.await_descriptor(since_ms, error).await?;
                }
                opened => break opened?,
            }
        };
        self.hold_root(docroot, &root);
        Ok(root)
    }

    fn hold_root(&self, docroot: &[u8], root: &Rc<Root>) {
        *self.latest_root.borrow_mut() = None;
        let mut roots = self.roots.borrow_mut();
        if roots.len() >= self.roots_max.get() && !roots.contains_key(docroot) {
            // Evicts an arbitrary root: the next one needed is unknown.
            let given_up = roots.keys().next().cloned();
            if let Some(given_up) = given_up {
                roots.remove(&given_up);
            }
        }
        roots.insert(docroot.to_vec(), Rc::clone(root));
    }

    /// Frees descriptors when they have run out: closes half the document roots and some cached
    /// files.
    pub fn shed(&self) {
        *self.latest_root.borrow_mut() = None;
        let mut keep = false;
        self.roots.borrow_mut().retain(|_, _| {
            keep = !keep;
            keep
        });
        self.stat_cache.shed(limits::SHED_ENTRIES);
    }

    /// For a request that found no free descriptor: closes cached ones and waits briefly for others
    /// to be closed.
    ///
    /// # Errors
    /// The original error, once the wait since `since_ms` has reached its limit.
    #[cold]
    pub fn await_descriptor(
        &self,
        since_ms: u64,
        met: std::io::Error,
    ) -> impl Future<Output = std::io::Result<()>> {
        let waited_ms = self.clock.mono_ms().saturating_sub(since_ms);
        self.shed();
        async move {
            if waited_ms >= limits::DESCRIPTOR_WAIT_MS {
                return Err(met);
            }
            tokio::time::sleep(Duration::from_millis(limits::DESCRIPTOR_LOOK_MS)).await;
            Ok(())
        }
    }

    /// Closes idle document roots. Called by the worker's once-a-second tick.
    pub fn sweep_roots(&self) {
        let now_ms = self.clock.mono_ms();
        let is_idle =
            |root: &Rc<Root>| now_ms.saturating_sub(root.checked_ms()) >= limits::ROOT_IDLE_MS;
        let mut roots = self.roots.borrow_mut();
        let before = roots.len();
        roots.retain(|_, root| !is_idle(root));
        if roots.len() < before {
            *self.latest_root.borrow_mut() = None;
        }
    }

    /// Closes everything held open: document roots and the stat cache.
    pub fn drop_caches(&self) {
        *self.latest_root.borrow_mut() = None;
        self.roots.borrow_mut().clear();
        self.stat_cache.clear();
    }
}

/// Start of a worker's request-id sequence, different for each worker and each start.
fn seed() -> u64 {
    let random = random_bytes::<8>().map(u64::from_ne_bytes);
    random.unwrap_or_else(|_| u64::from(std::process::id()))
}

pub(crate) fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    Fault::of_file_error(error) == Fault::DescriptorsExhausted
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use lighty_io::file::{EngineChoice, EngineLimits};
    use lighty_io::log_writer::{LogTarget, LogWriter};
    use lighty_io::stat_cache::{CacheEngine, CacheLimits};

    use super::*;
    use crate::log::Level;

    fn machine() -> Machine {
        let clock = Clock::manual(4_000_000_000);
        let limits = EngineLimits::default();
        let engine = FileEngine::start_with_clock(EngineChoice::Threads, limits, clock.clone())
            .expect("an engine");
        let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
        let errors = LogWriter::open(LogTarget::stderr()).expect("stderr");
        Machine::new(clock, engine, cache, Log::new(errors.handle(), Level::Error, false))
    }

    #[test]
    fn document_root_that_nobody_waits_for_any_more_leaves_no_entry() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let (machine, parent) = (machine(), tempfile::tempdir().expect("a directory"));
            let mut cx = Context::from_waker(Waker::noop());
            // The pool may open a directory before the first poll returns.
            let is_dropped = |path: &std::path::PathBuf| {
                std::fs::create_dir(path).expect("a directory");
                let mut opening = pin!(machine.open_root(path.as_os_str().as_encoded_bytes()));
                let is_pending = opening.as_mut().poll(&mut cx).is_pending();
                assert_eq!(machine.opening.borrow().len(), usize::from(is_pending));
                is_pending
            };
            let mut paths = (0..1_000).map(|number| parent.path().join(number.to_string()));
            let path = paths.find(is_dropped).expect("an open that takes some time");
            assert!(machine.opening.borrow().is_empty(), "the request was dropped");
            let name = path.as_os_str().as_encoded_bytes();
            let (one, other) = tokio::join!(machine.open_root(name), machine.open_root(name));
            assert!(Rc::ptr_eq(&one.expect("a root"), &other.expect("a root")));
            assert!(machine.opening.borrow().is_empty());
        });
    }
}
