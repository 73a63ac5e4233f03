//! Certificates on demand: names that clients request in handshakes and that are not in the
//! configuration. A list or a server decides which names are admitted, never the clients.
//!
//! Workers report the requested names, and wait. The service's thread asks, orders, and reports the
//! result. Refusals are remembered for a while, and the number of names is limited.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::tls::OnDemandPairs;
use tokio::sync::Notify;

use crate::wanted::{CertificateOptions, CertificateSpec, public_name};

/// Maximum time that a handshake waits for a certificate.
const PATIENCE: Duration = Duration::from_secs(10);

/// Seconds for which a refusal is remembered.
pub(crate) const REFUSED_S: i64 = 60;

/// Seconds until an unreachable server is asked again.
pub(crate) const RETRY_S: i64 = 10;

/// Seconds for which a name is admitted; a later order requires another question.
const ADMITTED_S: i64 = 3_600;

/// Maximum number of names that await a first request to the server.
const WAITING_MAX: usize = 64;

/// Options of certificates on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// URL of the server that admits names.
    pub ask: Option<String>,
    /// Admitted names; `*.` and a name matches every name directly beneath it.
    pub names: Arc<[String]>,
    /// Maximum number of names.
    pub names_max: usize,
    /// Options for obtaining the certificates.
    pub options: Arc<CertificateOptions>,
    /// The loaded certificates, shared with handshakes.
    pub pairs: OnDemandPairs,
}

/// True if the name is one of these, or matches a wildcard among them.
fn covers(names: &[String], name: &str) -> bool {
    let beneath = name.split_once('.').map_or("", |(_, rest)| rest);
    names.iter().any(|own| match own.strip_prefix("*.") {
        Some(rest) => rest == beneath,
        None => own == name,
    })
}

/// State of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmissionState {
    /// No request was sent yet.
    New,
    /// A request to the server is under way.
    Pending,
    /// It may have a certificate.
    Admitted {
        /// Time of the admission, in seconds since 1970.
        since_s: i64,
    },
    /// It gets no certificate before this time, in seconds since 1970.
    Refused { until_s: i64 },
}

struct DemandedName {
    state: AdmissionState,
    client: Option<IpAddr>,
    /// Notified when the certificate is available, or refused.
    settled: Arc<Notify>,
}

/// Counters for the status page.
#[derive(Clone, Copy, Default)]
struct Counts {
    queried: u64,
    refused: u64,
    /// Names refused because of the limit.
    full: u64,
}

#[derive(Default)]
struct DemandedNames {
    rules: Option<OnDemand>,
    /// Names in the configuration.
    configured: Vec<Arc<[String]>>,
    known: HashMap<String, DemandedName>,
    counts: Counts,
}

impl DemandedNames {
    /// The notification that a handshake for this name must wait for, if it must. Records a new
    /// name.
    fn want(&mut self, name: &str, client: Option<IpAddr>, now_s: i64) -> Option<Arc<Notify>> {
        let rules = self.rules.as_ref()?;
        if rules.pairs.has(name) || self.configured.iter().any(|names| covers(names, name)) {
            return None;
        }
        if rules.ask.is_none() && !covers(&rules.names, name) {
            return None;
        }
        let Some(entry) = self.known.get_mut(name) else { return self.add(name, client, now_s) };
        if let AdmissionState::Refused { until_s } = entry.state {
            if now_s < until_s {
                return None;
            }
            (entry.state, entry.client) = (AdmissionState::New, client);
        }
        Some(Arc::clone(&entry.settled))
    }

    /// Records a new name, unless a limit is reached.
    fn add(&mut self, name: &str, client: Option<IpAddr>, now_s: i64) -> Option<Arc<Notify>> {
        if !self.has_room(now_s) {
            self.counts.full += 1;
            return None;
        }
        let settled = Arc::new(Notify::new());
        let entry =
            DemandedName { state: AdmissionState::New, client, settled: Arc::clone(&settled) };
        self.known.insert(name.to_owned(), entry);
        Some(settled)
    }

    fn has_room(&mut self, now_s: i64) -> bool {
        let names_max = self.rules.as_ref().map_or(0, |rules| rules.names_max);
        if self.known.len() >= names_max {
            let is_over = |entry: &DemandedName| matches!(entry.state, AdmissionState::Refused { until_s } if until_s <= now_s);
            self.known.retain(|_, entry| !is_over(entry));
        }
        let waiting =
            self.known.values().filter(|entry| entry.state == AdmissionState::New).count();
        self.known.len() < names_max && waiting < WAITING_MAX
    }
}

/// The requested names. Clones share them.
#[derive(Clone, Default)]
pub struct Demand(Arc<SharedDemand>);

#[derive(Default)]
struct SharedDemand {
    is_on: AtomicBool,
    names: Mutex<DemandedNames>,
    /// Notified about new names.
    wanted: Notify,
}

/// A name to ask about.
pub(crate) struct AdmissionQuery {
    pub(crate) name: String,
    pub(crate) client: Option<IpAddr>,
    /// The server to ask; `None`: the list admits the name.
    pub(crate) ask: Option<String>,
}

impl Demand {
    fn names(&self) -> MutexGuard<'_, DemandedNames> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if certificates on demand are enabled.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// Waits until the certificate for a name is available, or will not be available soon.
    pub async fn certificate(&self, name: &str, client: Option<IpAddr>) {
        let Ok(name) = public_name(name) else { return };
        if name.starts_with("*.") {
            return;
        }
        let settled = self.names().want(&name, client, Clock::start().unix_s());
        let Some(settled) = settled else { return };
        let mut waiting = std::pin::pin!(settled.notified());
        waiting.as_mut().enable();
        self.0.wanted.notify_one();
        // It may have arrived before this started to wait.
        if self.names().rules.as_ref().is_some_and(|rules| rules.pairs.has(&name)) {
            return;
        }
        // On a timeout the client gets the default certificate.
        let _ = tokio::time::timeout(PATIENCE, waiting).await;
    }

    /// Applies new rules, and the names in the configuration.
    pub(crate) fn follow(&self, rules: Option<OnDemand>, configured: &[CertificateSpec]) {
        self.0.is_on.store(rules.is_some(), Ordering::Relaxed);
        let mut names = self.names();
        let is_same = names.rules == rules;
        names.configured = configured.iter().map(|one| Arc::clone(&one.names)).collect();
        if is_same {
            return;
        }
        // The new rules may decide differently.
        let pairs = names.rules.as_ref().map(|rules| rules.pairs.clone());
        for (name, entry) in std::mem::take(&mut names.known) {
            if let Some(pairs) = &pairs {
                pairs.remove(&name);
            }
            entry.settled.notify_waiters();
        }
        names.rules = rules;
    }

    /// Waits for new names.
    pub(crate) async fn wanted(&self) {
        self.0.wanted.notified().await;
    }

    pub(crate) fn rules(&self) -> Option<OnDemand> {
        self.names().rules.clone()
    }

    /// Names to ask about, at most `most`.
    pub(crate) fn questions(&self, most: usize) -> Vec<AdmissionQuery> {
        let mut names = self.names();
        let DemandedNames { rules: Some(rules), known, counts, .. } = &mut *names else {
            return Vec::new();
        };
        let new = known.iter_mut().filter(|(_, entry)| entry.state == AdmissionState::New);
        let question = |(name, entry): (&String, &mut DemandedName)| {
            entry.state = AdmissionState::Pending;
            let ask = rules.ask.clone().filter(|_| !covers(&rules.names, name));
            counts.queried += u64::from(ask.is_some());
            AdmissionQuery { name: name.clone(), client: entry.client, ask }
        };
        new.take(most).map(question).collect()
    }

    /// Admits a name.
    pub(crate) fn admit(&self, name: &str, now_s: i64) {
        if let Some(entry) = self.names().known.get_mut(name) {
            entry.state = AdmissionState::Admitted { since_s: now_s };
        }
    }

    /// Refuses a name until this time, and removes its certificate.
    pub(crate) fn refuse(&self, name: &str, until_s: i64) {
        let mut names = self.names();
        names.counts.refused += 1;
        if let Some(rules) = &names.rules {
            rules.pairs.remove(name);
        }
        if let Some(entry) = names.known.get_mut(name) {
            entry.state = AdmissionState::Refused { until_s };
            entry.settled.notify_waiters();
        }
    }

    /// Reports that the certificate for a name is available.
    pub(crate) fn settle(&self, name: &str) {
        if let Some(entry) = self.names().known.get(name) {
            entry.settled.notify_waiters();
        }
    }

    /// The admitted names.
    pub(crate) fn admitted(&self) -> Vec<String> {
        let names = self.names();
        let is_admitted =
            |entry: &DemandedName| matches!(entry.state, AdmissionState::Admitted { .. });
        let admitted = names.known.iter().filter(|(_, entry)| is_admitted(entry));
        admitted.map(|(name, _)| name.clone()).collect()
    }

    /// True if a certificate for the name may be ordered now. If the admission is too old, it is
    /// renewed first.
    pub(crate) fn may_order(&self, name: &str, now_s: i64) -> bool {
        let mut names = self.names();
        let Some(entry) = names.known.get_mut(name) else { return false };
        match entry.state {
            AdmissionState::Admitted { since_s } if now_s - since_s <= ADMITTED_S => true,
            AdmissionState::Admitted { .. } => {
                entry.state = AdmissionState::New;
                self.0.wanted.notify_one();
                false
            }
            _ => false,
        }
    }

    /// Names and values for the status page; none while certificates on demand are disabled.
    pub(crate) fn figures(&self) -> Vec<(String, String)> {
        let names = self.names();
        if names.rules.is_none() {
            return Vec::new();
        }
        let is_admitted =
            |entry: &&DemandedName| matches!(entry.state, AdmissionState::Admitted { .. });
        let admitted = names.known.values().filter(is_admitted).count() as u64;
        let Counts { queried, refused, full } = names.counts;
        [("names", admitted), ("asked", queried), ("refused", refused), ("full", full)]
            .map(|(what, value)| (format!("acme.on-demand.{what}"), value.to_string()))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Option<IpAddr> = None;

    fn names(ask: bool, list: &[&str], names_max: usize) -> DemandedNames {
        let rules = OnDemand {
            ask: ask.then(|| "http://127.0.0.1/ask".to_owned()),
            names: list.iter().map(|name| (*name).to_owned()).collect(),
            names_max,
            options: Arc::default(),
            pairs: OnDemandPairs::default(),
        };
        DemandedNames { rules: Some(rules), ..DemandedNames::default() }
    }

    #[test]
    fn a_list_decides_alone_where_no_server_is_asked() {
        let mut listed = names(false, &["a.test", "*.b.test"], 9);
        for (name, is_wanted) in [
            ("a.test", true),
            ("x.b.test", true),
            ("b.test", false),
            ("x.y.b.test", false),
            ("x.a.test", false),
        ] {
            assert_eq!(listed.want(name, CLIENT, 0).is_some(), is_wanted, "{name}");
        }
        assert!(names(true, &[], 9).want("any.test", CLIENT, 0).is_some());
        let mut configured = names(true, &[], 9);
        configured.configured = vec![["*.c.test".to_owned()].into()];
        assert!(configured.want("x.c.test", CLIENT, 0).is_none(), "it has a certificate");
    }

    #[test]
    fn a_refusal_holds_for_a_while_and_makes_room_afterwards() {
        let demand = Demand::default();
        *demand.names() = names(true, &[], 2);
        let want = |name: &str, now_s| demand.names().want(name, CLIENT, now_s).is_some();
        assert!(want("a.test", 0) && want("b.test", 0));
        assert!(!want("c.test", 0), "there are two");
        assert_eq!(demand.questions(9).len(), 2);
        demand.refuse("a.test", 60);
        assert!(!want("a.test", 59));
        assert!(!want("c.test", 59));
        assert!(want("c.test", 60), "in the place of the one refused");
        demand.admit("b.test", 60);
        assert_eq!(demand.admitted(), ["b.test"]);
        assert!(demand.may_order("b.test", 60 + ADMITTED_S));
        assert!(!demand.may_order("b.test", 61 + ADMITTED_S), "it is asked about again");
        assert_eq!(demand.questions(9).len(), 2);
    }

    #[test]
    fn no_more_names_wait_than_can() {
        let mut many = names(true, &[], 10_000);
        let wanted = (0..WAITING_MAX + 1)
            .filter(|at| many.want(&format!("n{at}.test"), CLIENT, 0).is_some());
        assert_eq!(wanted.count(), WAITING_MAX);
        assert_eq!(many.counts.full, 1);
    }
}
