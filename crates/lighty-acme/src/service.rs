//! The thread that looks after certificates: it orders what is missing and renews what is due, one
//! after the other. Of all processes that share a store, one orders a certificate; the others find
//! it there.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::file::small_file::Stamp;
use lighty_io::threads;
use lighty_io::tls::{CertificateFacts, examine};
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::client::Client;
use crate::error::OrderError;
use crate::order::Orders;
use crate::schedule::{Progress, due_s, late_s};
use crate::store::{Lock, Reserved, Store, TOUCH_EVERY, file_name};
use crate::wanted::{Issuer, Wanted};

/// How often certificates are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest time that one order may take.
const ORDER_PATIENCE: Duration = Duration::from_secs(1_200);

/// Seconds to wait while another process orders.
const HELD_S: i64 = 2;

/// Seconds until an authority is asked again that has not said when it wants a renewal.
const ASK_AGAIN_S: i64 = 21_600;

/// Seconds from one word about a certificate that nobody renews to the next.
const WARN_EVERY_S: i64 = 86_400;

/// What the thread says: whether it is trouble, and the words.
pub type Say = Arc<dyn Fn(bool, &str) + Send + Sync>;

/// What the thread looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where everything is kept.
    pub store: Store,
    /// The certificates.
    pub wanted: Vec<Wanted>,
}

/// What is known of the certificates, for a status page: names and values.
type Figures = Vec<(String, String)>;

#[derive(Default)]
struct Shared {
    plan: Mutex<Option<Plan>>,
    figures: Mutex<Figures>,
}

/// The thread, once there is something to look after.
pub struct Service {
    shared: Arc<Shared>,
    say: Say,
    is_running: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// One that looks after nothing yet.
    pub fn new(say: Say) -> Self {
        Self { shared: Arc::default(), say, is_running: false }
    }

    /// Looks after these certificates from now on, and after no others.
    ///
    /// # Errors
    /// The system's: no thread can be had.
    pub fn follow(&mut self, plan: Option<Plan>) -> io::Result<()> {
        let has_work = plan.is_some();
        *lock(&self.shared.plan) = plan;
        if has_work && !self.is_running {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let (shared, say) = (Arc::clone(&self.shared), Arc::clone(&self.say));
            let keeper = Keeper { runtime, say, known: HashMap::new() };
            threads::start("acme", None, move || keeper.run(&shared))?;
            self.is_running = true;
        }
        Ok(())
    }

    /// What gives the latest figures, without waiting for the thread.
    pub fn figures(&self) -> impl Fn() -> Figures + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || lock(&shared.figures).clone()
    }
}

/// The thread's own.
struct Keeper {
    runtime: Runtime,
    say: Say,
    known: HashMap<String, Known>,
}

/// What is known of one certificate.
#[derive(Default)]
struct Known {
    stamp: Option<Stamp>,
    facts: Option<CertificateFacts>,
    progress: Progress,
    is_read: bool,
    /// Another process orders it until then.
    held_until_s: i64,
    /// The authority is asked then when it wants a renewal.
    ask_s: i64,
    warned_s: i64,
}

impl Known {
    /// Reads what has changed in the store.
    fn read(&mut self, store: &Store, name: &str) {
        let path = store.certificate(name);
        let stamp = Stamp::of(&path).ok();
        if !self.is_read || stamp != self.stamp {
            (self.is_read, self.stamp) = (true, stamp);
            self.facts = examine(&path).ok();
            self.progress = store.progress(name);
        }
    }

    /// The certificate, if it is for these names.
    fn fitting(&self, names: &[String]) -> Option<&CertificateFacts> {
        let is_for =
            |facts: &&CertificateFacts| names.iter().all(|name| facts.names.contains(name));
        self.facts.as_ref().filter(is_for)
    }

    fn due_s(&self, names: &[String]) -> i64 {
        let facts = self.fitting(names);
        due_s(facts.map(|facts| &facts.valid_s), &self.progress, luck(names, facts))
    }
}

/// A number that is the same as long as the certificate is.
fn luck(names: &[String], facts: Option<&CertificateFacts>) -> u64 {
    let digest = Sha256::digest(format!("{names:?} {:?}", facts.map(|facts| &facts.serial)));
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Keeper {
    fn run(mut self, shared: &Shared) {
        loop {
            let plan = lock(&shared.plan).clone();
            if let Some(plan) = &plan {
                for wanted in &plan.wanted {
                    self.look(&plan.store, wanted);
                    *lock(&shared.figures) = self.figures(plan);
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn look(&mut self, store: &Store, wanted: &Wanted) {
        let name = file_name(&wanted.names);
        let mut known = self.known.remove(&name).unwrap_or_default();
        known.read(store, &name);
        let now_s = Clock::start().unix_s();
        self.ask(store, wanted, &name, &mut known, now_s);
        let is_asked_for = store.is_renewal_asked_for(&name);
        if (is_asked_for || now_s >= known.due_s(&wanted.names)) && now_s >= known.held_until_s {
            self.attempt(store, wanted, &name, &mut known);
        }
        self.warn(wanted, &name, &mut known, now_s);
        self.known.insert(name, known);
    }

    /// Asks the authority when it wants the certificate to be renewed.
    fn ask(&self, store: &Store, wanted: &Wanted, name: &str, known: &mut Known, now_s: i64) {
        let told_s = known.progress.window.as_ref().map_or(0, |window| window.ask_again_s);
        let Some(facts) = known.fitting(&wanted.names) else { return };
        let issuers = &wanted.options.issuers;
        let issuer = issuers.iter().find(|issuer| issuer.name == known.progress.issuer);
        let Some(issuer) = issuer.filter(|_| now_s >= known.ask_s.max(told_s)) else { return };
        let window = Client::trusting(wanted.options.ca_file.as_deref()).ok().and_then(|client| {
            let orders = Orders { store, wanted, directory: &issuer.directory, client: &client };
            self.runtime.block_on(orders.window(facts, now_s))
        });
        known.ask_s = now_s + ASK_AGAIN_S;
        if let Some(window) = window {
            known.ask_s = window.ask_again_s;
            known.progress.window = Some(window);
            // What is not kept is asked for again.
            let _ = store.keep_progress(name, &known.progress);
        }
    }

    /// Orders a certificate, unless another process does.
    fn attempt(&self, store: &Store, wanted: &Wanted, name: &str, known: &mut Known) {
        let held = match Lock::take(&store.lock(name)) {
            Ok(Some(held)) => held,
            Ok(None) => {
                known.held_until_s = Clock::start().unix_s() + HELD_S;
                return;
            }
            Err(error) => {
                let why = (OrderError::Store(error), 0);
                return self.fail(store, wanted, name, known, why);
            }
        };
        // Another process may have been here before.
        *known = Known { warned_s: known.warned_s, ask_s: known.ask_s, ..self.fresh(known) };
        known.read(store, name);
        let is_asked_for = store.is_renewal_asked_for(name);
        if !is_asked_for && Clock::start().unix_s() < known.due_s(&wanted.names) {
            return;
        }
        let done = Reserved::for_certificate(&store.certificate(name))
            .map_err(|error| (OrderError::Store(error), 0))
            .and_then(|room| {
                let ordered = self.runtime.block_on(guarded(held, order(store, wanted, known)))?;
                let (issuer, pem) = ordered;
                room.commit_pair(pem.as_bytes()).map_err(|error| (error, 0))?;
                Ok(issuer)
            });
        store.renewal_done(name);
        match done {
            Ok(issuer) => self.succeed(store, wanted, name, known, &issuer),
            Err(why) => self.fail(store, wanted, name, known, why),
        }
    }

    /// What stays known where the disk does not say otherwise.
    fn fresh(&self, known: &Known) -> Known {
        // A failure that could not be written down is still one.
        Known { progress: known.progress.clone(), ..Known::default() }
    }

    fn succeed(
        &self,
        store: &Store,
        wanted: &Wanted,
        name: &str,
        known: &mut Known,
        issuer: &Issuer,
    ) {
        known.progress.succeed(&issuer.name);
        let kept = store.keep_progress(name, &known.progress);
        (known.is_read, known.ask_s) = (false, 0);
        known.read(store, name);
        let names = wanted.names.join(", ");
        (self.say)(false, &format!("acme: {names}: {} has signed the certificate", issuer.name));
        if let Err(error) = kept {
            (self.say)(true, &format!("acme: {error}"));
        }
    }

    fn fail(
        &self,
        store: &Store,
        wanted: &Wanted,
        name: &str,
        known: &mut Known,
        (why, retry_after_s): Failure,
    ) {
        let now_s = Clock::start().unix_s();
        let luck = luck(&wanted.names, known.facts.as_ref());
        let again_s = (retry_after_s - now_s).max(0);
        known.progress.fail(now_s, why.to_string(), again_s, luck);
        // On a full disk it is kept in memory alone.
        let _ = store.keep_progress(name, &known.progress);
        let wait_s = known.progress.not_before_s - now_s;
        let names = wanted.names.join(", ");
        let text = format!("acme: {names}: no certificate: {why}; the next order is in {wait_s} s");
        (self.say)(true, &text);
    }

    /// Says once a day that a certificate should have been renewed long ago.
    fn warn(&self, wanted: &Wanted, name: &str, known: &mut Known, now_s: i64) {
        let Some(facts) = known.fitting(&wanted.names) else { return };
        if now_s < late_s(&facts.valid_s) || now_s - known.warned_s < WARN_EVERY_S {
            return;
        }
        let hours = (facts.valid_s.end - now_s) / 3_600;
        let state = match hours {
            ..=0 => "has expired".to_owned(),
            hours => format!("expires in {hours} hours"),
        };
        let why = match known.progress.error.as_str() {
            "" => String::new(),
            error => format!(": {error}"),
        };
        (self.say)(
            true,
            &format!("acme: {name}: the certificate {state}, and is not renewed{why}"),
        );
        known.warned_s = now_s;
    }

    fn figures(&self, plan: &Plan) -> Figures {
        let mut figures = Vec::new();
        for wanted in &plan.wanted {
            let name = file_name(&wanted.names);
            let Some(known) = self.known.get(&name) else { continue };
            let mut add = |what: &str, value: String| {
                figures.push((format!("acme.{name}.{what}"), value));
            };
            let expires_s = known.facts.as_ref().map_or(0, |facts| facts.valid_s.end);
            add("expires", expires_s.to_string());
            add("next-order", known.due_s(&wanted.names).to_string());
            add("failures", known.progress.failures.to_string());
        }
        figures
    }
}

/// Why there is no certificate, and the second since 1970 before which the authority wants no other
/// order.
type Failure = (OrderError, i64);

/// Goes on with an order as long as the lock is held.
async fn guarded<T>(
    mut held: Lock,
    order: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let lost = async {
        loop {
            tokio::time::sleep(TOUCH_EVERY).await;
            if let Err(why) = held.refresh() {
                return why;
            }
        }
    };
    tokio::select! {
        biased;
        why = lost => Err((why, 0)),
        done = tokio::time::timeout(ORDER_PATIENCE, order) => {
            done.unwrap_or(Err((OrderError::Late, 0)))
        }
    }
}

/// Asks one authority after the other.
async fn order(store: &Store, wanted: &Wanted, known: &Known) -> Result<(Issuer, String), Failure> {
    let client = Client::trusting(wanted.options.ca_file.as_deref()).map_err(|why| (why, 0))?;
    let mut failed = Vec::new();
    for issuer in &wanted.options.issuers {
        let at = |directory| Orders { store, wanted, directory, client: &client };
        // What has failed there is tried where failures do not count.
        if let Some(staging) = issuer.staging.as_deref().filter(|_| known.progress.failures > 0)
            && let Err(why) = at(staging).obtain(None).await
        {
            failed.push((format!("{}, in rehearsal", issuer.name), why));
            continue;
        }
        let before = known.facts.as_ref().filter(|_| known.progress.issuer == issuer.name);
        match at(&issuer.directory).obtain(before).await {
            Ok(pem) => return Ok((issuer.clone(), pem)),
            Err(why) => failed.push((issuer.name.clone(), why)),
        }
    }
    Err((OrderError::All(failed), client.retry_after_s()))
}
