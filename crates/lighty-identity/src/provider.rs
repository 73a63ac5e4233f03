//! OpenID providers, and providers of plain OAuth 2.0: their endpoints and keys.
//!
//! Requests to a provider run on threads of its own, up to [`JOBS_MAX`] of them wait. Event loops
//! await the results.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use lighty_fetch::Fetcher;
use lighty_io::file::followed::{Followed, FollowedContents};
use lighty_io::threads::pool::{Lane, ThreadPool};
use tokio::sync::oneshot;

use crate::ended_file::EndedFile;
use crate::key_source::KeySource;
use crate::provider_requests;
use crate::provider_spec::{DiscoveredUrls, JOBS_MAX, ProviderError, ProviderKind, ProviderSpec};
use crate::refreshes::Refreshes;
use crate::remote_keys;
use crate::revocations::Revocations;
use crate::session::PendingSignIn;

/// Threads of a provider.
const THREADS: usize = 4;

/// Maximum size of a provider's response in bytes.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// Time after which endpoints are discovered again, in milliseconds.
const DISCOVERY_MS: u64 = 3_600_000;

/// Pause after a failed discovery, in milliseconds.
const DISCOVERY_PAUSE_MS: u64 = 2000;

/// Time limit for a discovery that a request waits for.
const DISCOVERY_WAIT: Duration = Duration::from_secs(5);

/// Maximum size of a client's secret in bytes.
const SECRET_BYTES_MAX: u64 = 4096;

/// Endpoints of a provider.
pub struct Endpoints {
    pub(crate) urls: DiscoveredUrls,
    /// `None` for OAuth 2.0.
    pub(crate) keys: Option<KeySource>,
    found_ms: u64,
}

impl Endpoints {
    /// The URL of the page where a user signs in.
    #[must_use]
    pub fn sign_in_url(
        &self,
        pending: &PendingSignIn,
        spec: &ProviderSpec,
        redirect_uri: &str,
    ) -> String {
        pending.url(&self.urls, spec, redirect_uri)
    }

    /// The page that ends the session at the provider.
    #[must_use]
    pub fn end_session(&self) -> Option<&str> {
        self.urls.end_session.as_deref()
    }
}

type Job = Box<dyn FnOnce(&Fetcher) + Send>;

/// A provider. Equal specifications are one provider in the whole process.
pub struct Provider {
    spec: ProviderSpec,
    secret: Option<Arc<Followed<ClientSecret>>>,
    jobs: Mutex<Option<Sender<Job>>>,
    waiting: Arc<AtomicUsize>,
    endpoints: RwLock<Option<Arc<Endpoints>>>,
    /// Monotonic time before which endpoints are not discovered again. Held by the request that
    /// discovers them.
    discovery: tokio::sync::Mutex<u64>,
    /// Sessions that the provider or the user has ended. They outlive this specification: a reload
    /// revives none.
    ended: Arc<Revocations>,
    /// States of sign-ins that were completed.
    pub used: Revocations,
    /// Refreshes under way.
    pub(crate) refreshes: Refreshes,
}

/// Ended sessions by the identity of their provider. An identity takes up little memory, and a
/// process sees few of them.
static ENDED: Mutex<BTreeMap<String, Arc<Revocations>>> = Mutex::new(BTreeMap::new());

static PROVIDERS: Mutex<Vec<Weak<Provider>>> = Mutex::new(Vec::new());

/// Starts the threads of all providers that are in use. Call it when threads may start.
///
/// # Errors
/// A thread cannot be started.
pub fn start_all() -> io::Result<()> {
    let providers: Vec<_> = unpoisoned(&PROVIDERS).iter().filter_map(Weak::upgrade).collect();
    providers.iter().try_for_each(Provider::start)
}

impl Provider {
    /// The provider with this specification.
    #[must_use]
    pub fn of(spec: ProviderSpec) -> Arc<Self> {
        let mut providers = unpoisoned(&PROVIDERS);
        providers.retain(|provider| provider.strong_count() > 0);
        let mut known = providers.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|known| known.spec == spec) {
            return known;
        }
        let secret = spec.secret_file.as_deref();
        let provider = Arc::new(Self {
            secret: secret.map(secret_file),
            jobs: Mutex::default(),
            waiting: Arc::default(),
            endpoints: RwLock::default(),
            discovery: tokio::sync::Mutex::default(),
            ended: Arc::clone(unpoisoned(&ENDED).entry(spec.identity()).or_default()),
            used: Revocations::default(),
            refreshes: Refreshes::default(),
            spec,
        });
        if provider.spec.kind == ProviderKind::OAuth2 {
            let urls = provider.spec.urls.clone();
            provider.adopt(Endpoints { urls, keys: None, found_ms: u64::MAX });
        }
        providers.push(Arc::downgrade(&provider));
        provider
    }

    /// The specification.
    #[must_use]
    pub fn spec(&self) -> &ProviderSpec {
        &self.spec
    }

    /// Reads the client's secret. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is empty.
    pub fn read_secret(&self) -> io::Result<()> {
        self.secret.as_ref().map_or(Ok(()), |file| file.read())
    }

    pub(crate) fn secret(&self) -> Option<Arc<ClientSecret>> {
        self.secret.as_ref().and_then(|file| file.contents())
    }

    /// Discovers the endpoints on the caller's thread, to check a configuration. Blocks.
    ///
    /// # Errors
    /// The provider cannot be reached, or its metadata are wrong.
    pub fn probe(&self) -> Result<(), ProviderError> {
        if self.spec.kind == ProviderKind::OAuth2 {
            return Ok(());
        }
        provider_requests::discover(&fetcher(self.spec.ca_file.as_deref()), &self.spec).map(drop)
    }

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut jobs = unpoisoned(&self.jobs);
        if jobs.is_some() {
            return Ok(());
        }
        let (sender, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let (receiver, ca_file) = (Arc::clone(&receiver), self.spec.ca_file.clone());
            let thread = std::thread::Builder::new().name("sign-in".into());
            thread.spawn(move || work(&receiver, ca_file.as_deref()))?;
        }
        *jobs = Some(sender);
        drop(jobs);
        if self.spec.kind == ProviderKind::OpenId {
            let provider = Arc::downgrade(self);
            // A failure is reported to the first request that needs the endpoints.
            let _ = self.submit(Box::new(move |fetcher| {
                if let Some(provider) = provider.upgrade() {
                    let _ = provider.discover(fetcher, 1);
                }
            }));
        }
        Ok(())
    }

    fn submit(&self, job: Job) -> Result<(), ProviderError> {
        let waiting = Arc::clone(&self.waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) >= JOBS_MAX {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(ProviderError::Busy);
        }
        let counted: Job = Box::new(move |fetcher| {
            job(fetcher);
            waiting.fetch_sub(1, Ordering::Relaxed);
        });
        let jobs = unpoisoned(&self.jobs);
        let sent = jobs.as_ref().is_some_and(|jobs| jobs.send(counted).is_ok());
        if !sent {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(ProviderError::Busy);
        }
        Ok(())
    }

    /// Runs a job on a thread of the provider even if the caller goes away.
    pub(crate) fn run_detached(
        &self,
        job: impl FnOnce(&Fetcher) + Send + 'static,
    ) -> Result<(), ProviderError> {
        self.submit(Box::new(job))
    }

    /// Runs a job on a thread of the provider and awaits its result.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Fetcher) -> Result<T, ProviderError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let (done, outcome) = oneshot::channel();
        // The receiver of a request that has ended does not matter.
        self.submit(Box::new(move |fetcher| drop(done.send(job(fetcher)))))?;
        outcome.await.map_err(|_| ProviderError::Busy)?
    }

    /// Ends the sessions with this name that began until now, and notes it in the file.
    ///
    /// # Errors
    /// The file cannot be written. They have ended in this process.
    pub async fn end(&self, end: SessionEnd, file: Option<&EndedFile>) -> io::Result<()> {
        self.ended.add(&end.name, end.now_s, end.until_s);
        let Some(file) = file.cloned() else { return Ok(()) };
        let provider = self.spec.identity();
        let note = move || file.add(&provider, &end.name, end.now_s, end.until_s);
        ThreadPool::global().run(Lane::Other, note).await?
    }

    /// True if a session with one of these names that began in this second has been ended.
    #[must_use]
    pub fn has_ended(&self, names: &[String], began_s: i64, file: Option<&EndedFile>) -> bool {
        self.ended.has_ended(names.iter().map(String::as_str), began_s)
            || file.is_some_and(|file| self.is_noted(names, began_s, file))
    }

    /// True if the file has the end of a session with one of these names.
    #[must_use]
    pub fn is_noted(&self, names: &[String], began_s: i64, file: &EndedFile) -> bool {
        file.has_ended(&self.spec.identity(), names, began_s)
    }

    /// The endpoints; discovered first if they are unknown.
    ///
    /// # Errors
    /// The provider cannot be reached, or its metadata are wrong.
    pub async fn endpoints(self: &Arc<Self>, now_ms: u64) -> Result<Arc<Endpoints>, ProviderError> {
        if let Some(known) = self.known_endpoints() {
            if known.found_ms.saturating_add(DISCOVERY_MS) < now_ms {
                self.rediscover(now_ms);
            }
            return Ok(known);
        }
        let mut not_before_ms = self.discovery.lock().await;
        if let Some(known) = self.known_endpoints() {
            return Ok(known);
        }
        if now_ms < *not_before_ms {
            return Err(ProviderError::NoEndpoints);
        }
        let provider = Arc::clone(self);
        let job = self.run(move |fetcher| provider.discover(fetcher, now_ms));
        let outcome = match tokio::time::timeout(DISCOVERY_WAIT, job).await {
            Ok(outcome) => outcome,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        if outcome.is_err() {
            *not_before_ms = now_ms + DISCOVERY_PAUSE_MS;
        }
        outcome
    }

    fn known_endpoints(&self) -> Option<Arc<Endpoints>> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Discovers the endpoints again in the background. The known ones stay until then.
    fn rediscover(self: &Arc<Self>, now_ms: u64) {
        let Ok(mut not_before_ms) = self.discovery.try_lock() else { return };
        if now_ms < *not_before_ms {
            return;
        }
        *not_before_ms = now_ms + DISCOVERY_MS / 10;
        let provider = Arc::clone(self);
        // The next request tries again if there is no room.
        let _ = self.run_detached(move |fetcher| drop(provider.discover(fetcher, now_ms)));
    }

    fn discover(&self, fetcher: &Fetcher, now_ms: u64) -> Result<Arc<Endpoints>, ProviderError> {
        let (urls, jwks) = provider_requests::discover(fetcher, &self.spec)?;
        let keys = KeySource::url(&jwks, self.spec.ca_file.as_deref())
            .map_err(|_| ProviderError::Malformed("the keys are at no https URL"))?;
        remote_keys::fetch_all()?;
        Ok(self.adopt(Endpoints { urls, keys: Some(keys), found_ms: now_ms }))
    }

    fn adopt(&self, endpoints: Endpoints) -> Arc<Endpoints> {
        let endpoints = Arc::new(endpoints);
        let mut known = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        *known = Some(Arc::clone(&endpoints));
        endpoints
    }
}

/// The end of sessions before their time.
#[derive(Clone, Debug)]
pub struct SessionEnd {
    /// One of their [names](crate::session::Session::names).
    pub name: String,
    /// The second in which they end.
    pub now_s: i64,
    /// The second in which they would end by themselves.
    pub until_s: i64,
}

/// A client's secret.
pub struct ClientSecret(String);

impl std::ops::Deref for ClientSecret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl FollowedContents for ClientSecret {
    const KIND: &'static str = "secret";

    fn entries(&self) -> u64 {
        1
    }
}

/// The file with a client's secret. A line break at its end does not belong to it.
#[must_use]
pub fn secret_file(path: &Path) -> Arc<Followed<ClientSecret>> {
    let parse = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        match text.trim() {
            "" => Err(io::Error::other("it has no secret")),
            secret => Ok(ClientSecret(secret.to_owned())),
        }
    };
    Followed::at(path, SECRET_BYTES_MAX, parse)
}

/// Reads a file with authorities. Blocks.
///
/// # Errors
/// It cannot be read, or has none.
pub fn check_authorities(file: &Path) -> io::Result<()> {
    Fetcher::trusting(Some(file)).map(drop).map_err(io::Error::other)
}

/// A client that trusts the authorities in a file, or the system's; without them, for this machine
/// alone.
fn fetcher(ca_file: Option<&Path>) -> Fetcher {
    let fetcher = Fetcher::trusting(ca_file).unwrap_or_else(|_| Fetcher::in_the_clear());
    fetcher.receiving(RESPONSE_BYTES_MAX)
}

/// The loop of a provider's thread. It ends with the provider.
fn work(jobs: &Mutex<Receiver<Job>>, ca_file: Option<&Path>) {
    let fetcher = fetcher(ca_file);
    loop {
        let job = unpoisoned(jobs).recv();
        match job {
            Ok(job) => job(&fetcher),
            Err(_) => return,
        }
    }
}

// The guarded state is consistent between any two statements.
fn unpoisoned<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
