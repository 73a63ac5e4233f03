//! Names of backends: looked up by DNS, and looked up again when the answer has lived its time.
//!
//! A [`Resolver`] is shared by the workers. It works on a thread of its own, which starts with
//! the first name that needs it; literal addresses never do. A worker asks once
//! ([`Resolver::lookup`]) or keeps a [`Watch`], whose present answer it reads for the price of an
//! atomic load as long as nothing has changed.
//!
//! Reading order: this file (what is asked and answered), `watch` (how an answer is kept fresh),
//! `system` (which servers and which hosts file), `lookup` (one question). Without the feature
//! `dns` the C library looks names up (`c_library`).

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

pub use watch::{Resolved, Standing, Watch};

/// True if this build resolves SRV records; the C library does not.
pub const FINDS_SERVICES: bool = cfg!(feature = "dns");
/// Addresses that an answer may have; what comes beyond is left out.
pub const ENDPOINTS_MAX: usize = 256;
/// Hosts of a service that are looked up; what comes beyond is left out.
pub const SERVICE_HOSTS_MAX: usize = 64;
/// Look-ups that may be under way at once. Watches are not counted: the configuration has as many
/// as it has names.
pub const QUESTIONS_MAX: usize = 1_024;
/// How long an answer from the hosts file is believed, in milliseconds: it has no time to live.
pub const HOSTS_TTL_MS: u64 = 5_000;

/// What is to be looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
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

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::Host { host, port } => write!(f, "{host}:{port}"),
            Question::Service(name) => f.write_str(name),
        }
    }
}

impl Question {
    /// The endpoint that the question names by itself, without any look-up.
    pub fn literal(&self) -> Option<Endpoint> {
        let Question::Host { host, port } = self else { return None };
        let digits = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let address = digits.unwrap_or(host).parse::<IpAddr>().ok()?;
        Some(Endpoint::of_host(SocketAddr::new(address, *port), host))
    }
}

/// One address that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Lower ones come first (SRV); 0 for addresses of a host.
    pub priority: u16,
    /// Where to connect to.
    pub address: SocketAddr,
    /// Share among those of the same priority (SRV); 0 for addresses of a host.
    pub weight: u16,
    /// The host whose address it is.
    pub host: Arc<str>,
}

impl Endpoint {
    fn of_host(address: SocketAddr, host: &str) -> Endpoint {
        Endpoint { priority: 0, address, weight: 0, host: host.into() }
    }
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// By priority and address, without doubles: never empty.
    pub endpoints: Arc<[Endpoint]>,
    /// How long that is good for, in milliseconds, within the limits of the options. `None`: for
    /// ever.
    pub ttl_ms: Option<u64>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The name servers say that there is no such name, or nothing of the kind under it.
    NoSuchName(String),
    /// No name server gave an answer in time (`timeout_ms`).
    Timeout,
    /// The name is none: a label is too long, or the like.
    BadName(String),
    /// Whatever else a name server or the network to it reported.
    Failed(String),
    /// [`QUESTIONS_MAX`] look-ups are under way already.
    Busy,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::NoSuchName(text) => write!(f, "no such name: {text}"),
            ResolveError::Timeout => f.write_str("no name server answered in time"),
            ResolveError::BadName(text) => write!(f, "not a name: {text}"),
            ResolveError::Failed(text) => write!(f, "look-up failed: {text}"),
            ResolveError::Busy => write!(f, "{QUESTIONS_MAX} look-ups are under way already"),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Both.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveOptions {
    /// The name servers; none: those of `resolv_conf`.
    pub name_servers: Vec<SocketAddr>,
    /// The system's list of name servers and search domains.
    pub resolv_conf: PathBuf,
    /// The system's list of hosts, which goes before DNS.
    pub hosts_file: PathBuf,
    /// Which addresses are asked for.
    pub family: Family,
    /// How long a name server may take, in milliseconds; it is asked twice.
    pub timeout_ms: u64,
    /// The shortest time an answer is kept, in milliseconds.
    pub ttl_ms_min: u64,
    /// The longest.
    pub ttl_ms_max: u64,
    /// How long a watch waits after a failure before it asks again, in milliseconds; the time
    /// doubles with each further failure.
    pub retry_ms_min: u64,
    /// The longest that it waits.
    pub retry_ms_max: u64,
}

impl Default for ResolveOptions {
    fn default() -> Self {
        ResolveOptions {
            name_servers: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            hosts_file: "/etc/hosts".into(),
            family: Family::Any,
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
pub struct Resolver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Arc<ResolveOptions>,
    files: Mutex<Option<lookup::Files>>,
    thread: OnceLock<mpsc::UnboundedSender<Job>>,
    room: Arc<Semaphore>,
    watches: Mutex<HashMap<Question, Weak<watch::Shared>>>,
}

/// What the thread is asked to do.
enum Job {
    Lookup(Question, OwnedSemaphorePermit, oneshot::Sender<Result<Answer, ResolveError>>),
    Watch(watch::Task),
}

impl Resolver {
    /// A resolver that has read the system's files, so that it works in a chroot too, and has
    /// started nothing. A file that is missing counts as empty; without any name server, the one
    /// of this machine is asked, as the C library does.
    pub fn new(options: ResolveOptions) -> Resolver {
        let files = lookup::Files::read(&options);
        Resolver(Arc::new(Inner {
            options: Arc::new(options),
            files: Mutex::new(Some(files)),
            thread: OnceLock::new(),
            room: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            watches: Mutex::default(),
        }))
    }

    /// Looks a name up now.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn lookup(&self, question: &Question) -> Result<Answer, ResolveError> {
        if let Some(endpoint) = question.literal() {
            return Ok(Answer { endpoints: Arc::new([endpoint]), ttl_ms: None });
        }
        let room = Arc::clone(&self.0.room).try_acquire_owned();
        let room = room.map_err(|_| ResolveError::Busy)?;
        let (give, take) = oneshot::channel();
        self.send(Job::Lookup(question.clone(), room, give))?;
        take.await.unwrap_or_else(|_| Err(broken_off()))
    }

    /// Looks a name up and keeps its answer fresh for as long as somebody holds the watch.
    /// Returns at once; those who watch the same name share one watch.
    pub fn watch(&self, question: &Question) -> Watch {
        let mut watches = unpoisoned(&self.0.watches);
        if let Some(shared) = watches.get(question).and_then(Weak::upgrade) {
            return Watch::new(shared, self.clone());
        }
        watches.retain(|_, shared| shared.strong_count() > 0);
        let (shared, task) = watch::start(question.clone(), &self.0.options);
        watches.insert(question.clone(), Arc::downgrade(&shared));
        drop(watches);
        if let Some(task) = task
            && let Err(error) = self.send(Job::Watch(task))
        {
            shared.fail(&error);
        }
        Watch::new(shared, self.clone())
    }

    fn send(&self, job: Job) -> Result<(), ResolveError> {
        let thread = self.thread().map_err(|error| ResolveError::Failed(error.to_string()))?;
        thread.send(job).map_err(|_| thread_ended())
    }

    fn thread(&self) -> io::Result<&mpsc::UnboundedSender<Job>> {
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

/// What a name server sends is read by a library: should it panic, the look-up fails and no more.
fn broken_off() -> ResolveError {
    ResolveError::Failed("the look-up broke off".into())
}

fn thread_ended() -> ResolveError {
    ResolveError::Failed("the resolver's thread has ended".into())
}

fn start_thread(
    options: Arc<ResolveOptions>,
    files: lookup::Files,
) -> io::Result<mpsc::UnboundedSender<Job>> {
    let (sender, jobs) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    threads::start("resolver", None, move || {
        runtime.block_on(serve(options, files, jobs));
        // A look-up may be under way whose caller has gone: it is not waited for.
        runtime.shutdown_timeout(Duration::ZERO);
    })?;
    Ok(sender)
}

/// Until the last handle to the resolver is gone.
async fn serve(
    options: Arc<ResolveOptions>,
    files: lookup::Files,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let asker = Arc::new(lookup::Asker::new(options, files));
    while let Some(job) = jobs.recv().await {
        let asker = Arc::clone(&asker);
        match job {
            Job::Lookup(question, room, give) => drop(tokio::spawn(async move {
                // The caller may have gone.
                let _ = give.send(asker.ask(&question).await);
                drop(room);
            })),
            Job::Watch(task) => drop(tokio::spawn(async move {
                while let Err(panicked) = panics::catch(task.run(&asker)).await {
                    keep::rest("resolver", &panicked).await;
                }
            })),
        }
    }
}

// What is guarded is whole between any two statements.
fn unpoisoned<T>(lock: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
