//! Key sets of issuers, fetched from their URLs. Each set has a thread of its own, so that an
//! issuer that hangs delays neither other issuers nor an event loop.
//!
//! A set is fetched at the start, before it becomes stale, and when a token names an unknown key:
//! then at most once in [`FORCED_INTERVAL_MS`], because an attacker can invent names of keys.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, HeaderMap};
use http::{Request, Uri};
use lighty_fetch::{Fetcher, parse_url, without_credentials};
use lighty_io::clock::Clock;
use lighty_io::log_writer;
use tokio::sync::watch;

use crate::key_set::{KEY_SET_BYTES_MAX, KeySet};

/// Maximum wait of a request for keys that are being fetched.
pub const WAIT: Duration = Duration::from_secs(2);

/// Minimum time between two fetches because of unknown keys, in milliseconds.
pub const FORCED_INTERVAL_MS: u64 = 30_000;

/// Time limit of a fetch.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time until a set is fetched again if the response does not limit it.
const INTERVAL: Duration = Duration::from_secs(600);

/// Limits of that time for `max-age` of a response.
const INTERVAL_MIN: Duration = Duration::from_secs(60);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Pauses after failed fetches.
const RETRY_MIN: Duration = Duration::from_secs(10);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Time for which the last set stays in use while its issuer fails, in milliseconds.
const KEPT_MS: u64 = 24 * 3600 * 1000;

/// A URL is not that of a key set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteKeysError {
    /// Not a URL.
    #[error("it is no URL")]
    NoUrl,
    /// Keys that could be replaced on the way.
    #[error("keys come by https; http is for addresses of this machine only")]
    NotSecure,
    /// Name and password.
    #[error("a URL of keys has neither name nor password")]
    Credentials,
}

/// The reason why a fetch failed.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Tls(#[from] lighty_io::tls::TlsError),
    #[error("the response has status {0}")]
    Status(u16),
    #[error("{0}")]
    Keys(#[from] crate::key_set::KeySetError),
}

/// A key set at a URL. Equal URLs with the same authorities are one set in the whole process.
pub struct RemoteKeys {
    url: String,
    uri: Uri,
    /// File with the authorities that vouch for the issuer; `None`: the system's.
    ca_file: Option<PathBuf>,
    keys: RwLock<Option<Arc<KeySet>>>,
    schedule: Mutex<FetchSchedule>,
    /// Number of fetches that have ended.
    ended: watch::Sender<u64>,
}

/// The state of a set's fetches.
#[derive(Default)]
struct FetchSchedule {
    /// Wakes the thread; `None` until it runs.
    wake: Option<Sender<()>>,
    is_fetching: bool,
    /// Monotonic time from which the next fetch because of an unknown key is permitted.
    forced_from_ms: u64,
}

/// The sets of the process.
static SETS: Mutex<Vec<Weak<RemoteKeys>>> = Mutex::new(Vec::new());

/// Sets that conditions bring up later are fetched at once.
static THREADS_MAY_START: AtomicBool = AtomicBool::new(false);

/// Starts to fetch every set that is in use and not fetched yet. Call it when threads may start.
///
/// # Errors
/// A thread cannot be started.
pub fn fetch_all() -> std::io::Result<()> {
    THREADS_MAY_START.store(true, Ordering::Relaxed);
    let sets: Vec<_> = unpoisoned(&SETS).iter().filter_map(Weak::upgrade).collect();
    sets.iter().try_for_each(RemoteKeys::start)
}

impl RemoteKeys {
    /// Parses a URL.
    ///
    /// # Errors
    /// Keys cannot come from this URL.
    pub fn check(url: &str) -> Result<Uri, RemoteKeysError> {
        let uri = parse_url(url).ok_or(RemoteKeysError::NoUrl)?;
        if without_credentials(url) != url {
            return Err(RemoteKeysError::Credentials);
        }
        if uri.scheme_str() != Some("https") && !is_loopback(uri.host().unwrap_or_default()) {
            return Err(RemoteKeysError::NotSecure);
        }
        Ok(uri)
    }

    /// The set at a URL, whose server the authorities in a file vouch for, or the system's. It is
    /// not fetched yet, unless another part of the process uses it.
    ///
    /// # Errors
    /// Keys cannot come from this URL.
    pub fn at(url: &str, ca_file: Option<&Path>) -> Result<Arc<Self>, RemoteKeysError> {
        let uri = Self::check(url)?;
        let mut sets = unpoisoned(&SETS);
        sets.retain(|set| set.strong_count() > 0);
        let is_equal = |set: &Arc<Self>| set.url == url && set.ca_file.as_deref() == ca_file;
        if let Some(known) = sets.iter().filter_map(Weak::upgrade).find(is_equal) {
            return Ok(known);
        }
        let set = Arc::new(Self {
            url: url.to_owned(),
            uri,
            ca_file: ca_file.map(Path::to_owned),
            keys: RwLock::default(),
            schedule: Mutex::default(),
            ended: watch::Sender::new(0),
        });
        sets.push(Arc::downgrade(&set));
        if THREADS_MAY_START.load(Ordering::Relaxed) {
            // Without a thread, requests with tokens get 503, and the next reload tries again.
            let _ = set.start();
        }
        Ok(set)
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The keys; `None` before the first successful fetch, and once the last one is too old.
    #[must_use]
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the set at once, or takes part in a fetch that has begun, and waits for its end up
    /// to [`WAIT`]. Returns false immediately if the next fetch is not permitted yet.
    pub async fn renew(&self, now_ms: u64) -> bool {
        let Some(mut ended) = self.request(now_ms) else { return false };
        let _ = tokio::time::timeout(WAIT, ended.changed()).await;
        true
    }

    fn request(&self, now_ms: u64) -> Option<watch::Receiver<u64>> {
        let mut schedule = unpoisoned(&self.schedule);
        if !schedule.is_fetching {
            if now_ms < schedule.forced_from_ms {
                return None;
            }
            // At most one waits, because a fetch is under way from now on.
            schedule.wake.as_ref()?.send(()).ok()?;
            schedule.is_fetching = true;
            schedule.forced_from_ms = now_ms + FORCED_INTERVAL_MS;
        }
        // Under the lock, so that the end of the fetch is not missed.
        Some(self.ended.subscribe())
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let mut schedule = unpoisoned(&self.schedule);
        if schedule.wake.is_some() {
            return Ok(());
        }
        let (wake, woken) = channel();
        let set = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("token keys".into());
        thread.spawn(move || KeyFetcher::default().run(&set, &woken))?;
        schedule.wake = Some(wake);
        schedule.is_fetching = true;
        Ok(())
    }

    /// Takes the outcome of a fetch. An equal set keeps the tokens that it has verified.
    fn end_fetch(&self, replaced: Option<Option<Arc<KeySet>>>) {
        if let Some(keys) = replaced {
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        let mut schedule = unpoisoned(&self.schedule);
        schedule.is_fetching = false;
        self.ended.send_modify(|count| *count += 1);
    }
}

/// The thread of a set.
#[derive(Default)]
struct KeyFetcher {
    fetcher: Option<Fetcher>,
    /// The body of the last good response.
    body: Bytes,
    /// Monotonic time of the last good response.
    good_ms: Option<u64>,
    failures: u32,
    /// The fault that was reported last.
    fault: Option<String>,
}

impl KeyFetcher {
    /// Fetches until the set is not used any more.
    fn run(mut self, set: &Weak<RemoteKeys>, woken: &Receiver<()>) {
        loop {
            let pause = match set.upgrade() {
                Some(set) => self.fetch(&set),
                None => return,
            };
            match woken.recv_timeout(pause) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Fetches the set once. Returns the time until the next fetch.
    fn fetch(&mut self, set: &RemoteKeys) -> Duration {
        unpoisoned(&set.schedule).is_fetching = true;
        let outcome = self.receive(set);
        let now_ms = Clock::start().mono_ms();
        match outcome {
            Ok((keys, pause)) => {
                if self.fault.take().is_some() {
                    log_writer::report(&format!("keys of {}: fetched again", set.url));
                }
                (self.good_ms, self.failures) = (Some(now_ms), 0);
                set.end_fetch(keys.map(Some));
                pause
            }
            Err(error) => {
                let is_too_old = self.good_ms.is_some_and(|good_ms| now_ms >= good_ms + KEPT_MS);
                if is_too_old {
                    (self.good_ms, self.body) = (None, Bytes::new());
                }
                self.report(set, &error.to_string());
                set.end_fetch(is_too_old.then_some(None));
                let doubled = RETRY_MIN.saturating_mul(1 << self.failures.min(8));
                self.failures += 1;
                doubled.min(RETRY_MAX)
            }
        }
    }

    fn report(&mut self, set: &RemoteKeys, fault: &str) {
        if self.fault.as_deref() == Some(fault) {
            return;
        }
        let rest = match self.good_ms {
            Some(_) => "the keys that were fetched before stay in use for a day",
            None => "requests with tokens get 503",
        };
        log_writer::report(&format!("keys of {}: {fault}; {rest}", set.url));
        self.fault = Some(fault.to_owned());
    }

    /// Returns the new keys, unless they are the known ones, and the time for which they are good.
    fn receive(&mut self, set: &RemoteKeys) -> Result<(Option<Arc<KeySet>>, Duration), FetchError> {
        let request = Request::get(set.uri.clone())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body("")
            .map_err(std::io::Error::other)?;
        let fetcher = match self.fetcher.take() {
            Some(fetcher) => fetcher,
            None => {
                let fetcher = match &set.ca_file {
                    Some(file) => Fetcher::trusting(Some(file))?,
                    None => Fetcher::for_url(&set.url)?,
                };
                fetcher.receiving(KEY_SET_BYTES_MAX)
            }
        };
        let response = fetcher.fetch(&request, PATIENCE);
        self.fetcher = Some(fetcher);
        let response = response?;
        if response.status().as_u16() != 200 {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let pause = interval(response.headers());
        if self.good_ms.is_some() && *response.body() == self.body {
            return Ok((None, pause));
        }
        let keys = KeySet::parse(response.body())?;
        self.body = response.into_body();
        Ok((Some(Arc::new(keys)), pause))
    }
}

/// The time for which a response is good (RFC 9111 section 5.2.2.1), within its limits.
fn interval(fields: &HeaderMap) -> Duration {
    let values = fields.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let max_age = values.flat_map(|value| value.split(',')).find_map(|directive| {
        let (name, seconds) = directive.split_once('=')?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| seconds.trim().trim_matches('"'))
    });
    let seconds = max_age.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    seconds.unwrap_or(INTERVAL).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

/// True if connections to this host stay on this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

// The guarded state is consistent between any two statements.
fn unpoisoned<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_by_https_or_from_this_machine() {
        for (url, fault) in [
            ("https://issuer.example/jwks", None),
            ("http://127.0.0.1:80/jwks", None),
            ("http://localhost/jwks", None),
            ("http://[::1]/jwks", None),
            ("http://issuer.example/jwks", Some(RemoteKeysError::NotSecure)),
            ("http://127.0.0.1.example/jwks", Some(RemoteKeysError::NotSecure)),
            ("http://localhost.example/", Some(RemoteKeysError::NotSecure)),
            ("http://127.0.0.1@issuer.example/", Some(RemoteKeysError::Credentials)),
            ("https://u:p@issuer.example/", Some(RemoteKeysError::Credentials)),
            ("ftp://127.0.0.1/", Some(RemoteKeysError::NoUrl)),
            ("/etc/keys", Some(RemoteKeysError::NoUrl)),
        ] {
            assert_eq!(RemoteKeys::at(url, None).err(), fault, "{url}");
        }
    }

    #[test]
    fn responses_limit_the_time_until_the_next_fetch() {
        for (value, seconds) in [
            ("", 600),
            ("no-cache", 600),
            ("max-age=0", 60),
            ("public, Max-Age=\"300\"", 300),
            ("max-age=99999999", 86_400),
            ("max-age=x", 600),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(CACHE_CONTROL, value.parse().expect("a value"));
            assert_eq!(interval(&fields), Duration::from_secs(seconds), "{value}");
        }
    }

    #[test]
    fn unknown_keys_cause_one_fetch_in_half_a_minute() {
        let set = RemoteKeys::at("http://127.0.0.1:9/unknown", None).expect("a URL");
        assert!(set.request(0).is_none(), "its thread does not run");
        let (wake, woken) = channel();
        unpoisoned(&set.schedule).wake = Some(wake);
        let first = set.request(1000).expect("permitted");
        assert!(set.request(1001).is_some(), "shared");
        assert_eq!(woken.try_iter().count(), 1);
        set.end_fetch(None);
        assert!(first.has_changed().expect("its sender lives"));
        assert!(set.request(1000 + FORCED_INTERVAL_MS - 1).is_none());
        assert!(set.request(1000 + FORCED_INTERVAL_MS).is_some());
        assert_eq!(woken.try_iter().count(), 1);
    }

    #[test]
    fn equal_urls_are_one_set_as_long_as_it_is_used() {
        let url = "http://127.0.0.1:9/equal";
        let one = RemoteKeys::at(url, None).expect("a URL");
        assert!(Arc::ptr_eq(&one, &RemoteKeys::at(url, None).expect("a URL")));
        let file = Some(Path::new("/ca.pem"));
        let other = RemoteKeys::at(url, file).expect("a URL");
        assert!(!Arc::ptr_eq(&one, &other), "other authorities");
        assert!(Arc::ptr_eq(&other, &RemoteKeys::at(url, file).expect("a URL")));
        let gone = Arc::downgrade(&one);
        drop(one);
        assert!(gone.upgrade().is_none());
    }
}
