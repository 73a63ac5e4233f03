//! Resolves backend names by DNS, and again when the TTL of the answer has expired.
//!
//! A [`Resolver`] is shared by the workers. It works on a thread of its own, which starts with the
//! first name that needs it; literal addresses never do. A worker makes a single look-up
//! ([`Resolver::lookup`]) or keeps a [`NameWatch`]. Reading the current answer of a watch costs an
//! atomic load as long as nothing has changed.
//!
//! Reading order: this file (questions and answers), `watch` (refreshing an answer), `system` (the
//! name servers and the hosts file), `lookup` (one question). Without the feature `dns` the C
//! library looks names up (`c_library`).

#[cfg(feature = "dns")]
mod lookup;
#[cfg(not(feature = "dns"))]
#[path = "resolve/c_library.rs"]
mod lookup;
#[cfg(feature = "dns")]
mod system;
#[cfg(all(test, feature = "dns"))]
mod tests;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::threads;
use crate::threads::{keep, panics};

pub use watch::{NameWatch, Resolved, Standing};

/// True if this build resolves SRV records; the C library does not.
pub const FINDS_SERVICES: bool = cfg!(feature = "dns");
/// Maximum number of addresses in an answer; further ones are dropped.
pub const ENDPOINTS_MAX: usize = 256;
/// Maximum number of a service's hosts that are looked up; further ones are dropped.
pub const SERVICE_HOSTS_MAX: usize = 64;
/// Maximum number of concurrent look-ups. Watches are not counted: there is one for each name in
/// the configuration.
pub const QUESTIONS_MAX: usize = 1_024;
/// Lifetime of an answer from the hosts file, which has no TTL, in milliseconds.
pub const HOSTS_TTL_MS: u64 = 5_000;

/// A name to resolve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookupQuery {
    /// The addresses of a host (A and AAAA), each with this port.
    Host {
        /// A name, or an address in digits.
        host: String,
        /// The port of every endpoint.
        port: u16,
    },
    /// The hosts of a service (SRV, RFC 2782), `_http._tcp.example.com`, and their addresses.
    Service(String),
}

impl fmt::Display for LookupQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LookupQuery::Host { host, port } => write!(f, "{host}:{port}"),
            LookupQuery::Service(name) => f.write_str(name),
        }
    }
}

impl LookupQuery {
    /// The endpoint of a literal address, which needs no look-up.
    pub fn literal(&self) -> Option<Endpoint> {
        let LookupQuery::Host { host, port } = self else { return None };
        let digits = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address = digits.unwrap_or(host).parse::<IpAddr>().ok()?;
        Some(Endpoint::of_host(SocketAddr::new(address, *port), host))
    }
}

/// One address of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Lower ones come first (SRV); 0 for addresses of a host.
    pub priority: u16,
    /// Address to connect to.
    pub address: SocketAddr,
    /// Weight among endpoints of the same priority (SRV); 0 for addresses of a host.
    pub weight: u16,
    /// Name of the address's host.
    pub host: Arc<str>,
}

impl Endpoint {
    fn of_host(address: SocketAddr, host: &str) -> Endpoint {
        Endpoint { priority: 0, address, weight: 0, host: host.into() }
    }
}

/// Result of a look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupResult {
    /// Sorted by priority and address, without duplicates; never empty.
    pub endpoints: Arc<[Endpoint]>,
    /// Lifetime in milliseconds, within the limits of the options. `None`: unlimited.
    pub ttl_ms: Option<u64>,
}

/// Reason for a failed look-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name servers report that the name does not exist, or has no records of this type.
    #[error("no such name: {0}")]
    NoSuchName(String),
    /// No name server replied in time (`timeout_ms`).
    #[error("no name server answered in time")]
    Timeout,
    /// The name is invalid: a label is too long, for example.
    #[error("not a name: {0}")]
    BadName(String),
    /// Any other error of a name server or of the network.
    #[error("look-up failed: {0}")]
    Failed(String),
    /// [`QUESTIONS_MAX`] look-ups are already in progress.
    #[error("{QUESTIONS_MAX} look-ups are under way already")]
    Busy,
}

/// Address families to look up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupFamily {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// Options for resolving names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveOptions {
    /// The name servers. If empty, `resolv_conf` lists them.
    pub name_servers: Vec<SocketAddr>,
    /// The system's list of name servers and search domains.
    pub resolv_conf: PathBuf,
    /// The system's hosts file, which takes precedence over DNS.
    pub hosts_file: PathBuf,
    /// Address families to look up.
    pub family: LookupFamily,
    /// Timeout of a request to a name server, in milliseconds; there are two attempts.
    pub timeout_ms: u64,
    /// Minimum lifetime of an answer, in milliseconds.
    pub ttl_ms_min: u64,
    /// Maximum lifetime of an answer, in milliseconds.
    pub ttl_ms_max: u64,
    /// Delay of a watch's retry after a failure, in milliseconds. It doubles with each further
    /// failure.
    pub retry_ms_min: u64,
    /// Maximum of that delay, in milliseconds.
    pub retry_ms_max: u64,
}

impl Default for ResolveOptions {
    fn default() -> Self {
        ResolveOptions {
            name_servers: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            family: LookupFamily::Any,
            timeout_ms: 2_000,
            ttl_ms_min: 1_000,
            ttl_ms_max: 3_600_000,
            retry_ms_min: 500,
            retry_ms_max: 30_000,
        }
    }
}

/// Looks names up. Clones share the thread and the watches.
#[derive(Clone, Debug)]
pub struct Resolver(Arc<ResolverInner>);

#[derive(Debug)]
struct ResolverInner {
    options: Arc<ResolveOptions>,
    files: Mutex<Option<lookup::Files>>,
    thread: OnceLock<mpsc::UnboundedSender<ResolverJob>>,
    room: Arc<Semaphore>,
    watches: Mutex<HashMap<LookupQuery, Weak<watch::SharedWatch>>>,
}

/// Job for the resolver's thread.
enum ResolverJob {
    Lookup(LookupQuery, OwnedSemaphorePermit, oneshot::Sender<Result<LookupResult, ResolveError>>),
    Watch(watch::Task),
}

impl Resolver {
    /// Creates a resolver. It reads the system's files now, so that it works in a chroot too, and
    /// starts no thread. A missing file counts as empty. Without any name server, the one on this
    /// machine is used, as the C library does.
    pub fn new(options: ResolveOptions) -> Resolver {
        let files = lookup::Files::read(&options);
        Resolver(Arc::new(ResolverInner {
            options: Arc::new(options),
            files: Mutex::new(Some(files)),
            thread: OnceLock::new(),
            room: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            watches: Mutex::default(),
        }))
    }

    /// Its options.
    pub fn options(&self) -> &ResolveOptions {
        &self.0.options
    }

    /// True if both are one resolver.
    pub fn is_same(&self, other: &Resolver) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Looks a name up now.
    ///
    /// # Errors
    /// [`ResolveError`] states the reason.
    pub async fn lookup(&self, question: &LookupQuery) -> Result<LookupResult, ResolveError> {
        if let Some(endpoint) = question.literal() {
            return Ok(LookupResult { endpoints: Arc::new([endpoint]), ttl_ms: None });
        }
        let room = Arc::clone(&self.0.room).try_acquire_owned();
        let room = room.map_err(|_| ResolveError::Busy)?;
        let (give, take) = oneshot::channel();
        self.send(ResolverJob::Lookup(question.clone(), room, give))?;
        take.await.unwrap_or_else(|_| Err(broken_off()))
    }

    /// Looks a name up and refreshes its answer as long as a watch for it exists. Returns
    /// immediately. All watches of a name share one task.
    pub fn watch(&self, question: &LookupQuery) -> NameWatch {
        let mut watches = unpoisoned(&self.0.watches);
        if let Some(shared) = watches.get(question).and_then(Weak::upgrade) {
            return NameWatch::new(shared, self.clone());
        }
        watches.retain(|_, shared| shared.strong_count() > 0);
        let (shared, task) = watch::start(question.clone(), &self.0.options);
        watches.insert(question.clone(), Arc::downgrade(&shared));
        drop(watches);
        if let Some(task) = task
            && let Err(error) = self.send(ResolverJob::Watch(task))
        {
            shared.fail(&error);
        }
        NameWatch::new(shared, self.clone())
    }

    fn send(&self, job: ResolverJob) -> Result<(), ResolveError> {
        let thread = self.thread().map_err(|error| ResolveError::Failed(error.to_string()))?;
        thread.send(job).map_err(|_| thread_ended())
    }

    fn thread(&self) -> io::Result<&mpsc::UnboundedSender<ResolverJob>> {
        if let Some(sender) = self.0.thread.get() {
            return Ok(sender);
        }
        let mut files = unpoisoned(&self.0.files);
        if let Some(sender) = self.0.thread.get() {
            return Ok(sender);
        }
        let read = files.take().unwrap_or_else(|| lookup::Files::read(&self.0.options));
        let started = start_thread(Arc::clone(&self.0.options), read)?;
        Ok(self.0.thread.get_or_init(|| started))
    }
}

/// Name servers' replies are parsed by a library: if it panics, only this look-up fails.
fn broken_off() -> ResolveError {
    ResolveError::Failed("the look-up broke off".into())
}

fn thread_ended() -> ResolveError {
    ResolveError::Failed("the resolver's thread has ended".into())
}

fn start_thread(
    options: Arc<ResolveOptions>,
    files: lookup::Files,
) -> io::Result<mpsc::UnboundedSender<ResolverJob>> {
    // Bounded: a look-up holds a permit, and a name has one watch.
    let (sender, jobs) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    threads::start("resolver", None, move || {
        runtime.block_on(serve(options, files, jobs));
        // Do not wait for look-ups without a caller.
        runtime.shutdown_timeout(Duration::ZERO);
    })?;
    Ok(sender)
}

/// Runs until the last handle to the resolver is dropped.
async fn serve(
    options: Arc<ResolveOptions>,
    files: lookup::Files,
    mut jobs: mpsc::UnboundedReceiver<ResolverJob>,
) {
    let asker = Arc::new(lookup::Asker::new(options, files));
    while let Some(job) = jobs.recv().await {
        let asker = Arc::clone(&asker);
        match job {
            ResolverJob::Lookup(question, room, give) => drop(tokio::spawn(async move {
                // The caller may have been dropped.
                let _ = give.send(asker.ask(&question).await);
                drop(room);
            })),
            ResolverJob::Watch(task) => drop(tokio::spawn(async move {
                while let Err(panicked) = panics::catch(task.run(&asker)).await {
                    keep::pause_after("resolver", &panicked).await;
                }
            })),
        }
    }
}

// Each statement leaves the guarded data consistent, so a poisoned lock can be used.
fn unpoisoned<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
