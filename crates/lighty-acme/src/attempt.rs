//! Work on one certificate: asking the authority for its renewal window, and ordering. Of all
//! processes that share a store, one orders; the others find the certificate there. Dropping the
//! future ends the order, and leaves neither a lock nor a proof.
//!
//! A [`CertificateState`] is the memory between two runs of a [`CertificateTask`]: `read` compares
//! it with the store, `is_due` says whether to run, `run` asks and orders, and returns the next
//! state. The service owns the timer, and calls `is_due` with its time. `warn` logs at most once a
//! day.

use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::file::small_file::Stamp;
use lighty_io::tls::{CertificateFacts, examine};
use sha2::{Digest, Sha256};

use crate::client::AcmeClient;
use crate::dns_hook::Leftovers;
use crate::error::OrderError;
use crate::order::{Accounts, Orders};
use crate::order_step::{OrderAction, OrderEvent, OrderStep};
use crate::progress_copy::{CopyAction, CopyEvent, ProgressCopy};
use crate::schedule::{OrderProgress, due_s, late_s};
use crate::store::{Lock, Reserved, Store, TOUCH_EVERY};
use crate::wanted::{CertificateSpec, Issuer};

/// Writes a log message; the first argument is true for problems.
pub type Say = std::sync::Arc<dyn Fn(bool, &str) + Send + Sync>;

/// Maximum duration of an order.
const ORDER_PATIENCE: Duration = Duration::from_secs(1_200);

/// Seconds to wait while another process orders.
const HELD_S: i64 = 2;

/// Seconds until an authority that stated no renewal window is asked again.
const ASK_AGAIN_S: i64 = 21_600;

/// Seconds between two warnings about a certificate that is not renewed.
const WARN_EVERY_S: i64 = 86_400;

/// State of one certificate.
#[derive(Clone, Default)]
pub(crate) struct CertificateState {
    pub(crate) stamp: Option<Stamp>,
    pub(crate) facts: Option<CertificateFacts>,
    pub(crate) progress: OrderProgress,
    copy: ProgressCopy,
    /// The request for a renewal (a file in the store) that has already led to an order.
    answered: Option<Stamp>,
    step: OrderStep,
    /// Time to try the lock again that another process had, in seconds since 1970.
    held_until_s: i64,
    /// Time of the next question for the renewal window, in seconds since 1970.
    ask_s: i64,
    warned_s: i64,
}

impl CertificateState {
    /// Reads the certificate and its progress again if the certificate has changed.
    pub(crate) fn read(&mut self, store: &Store, name: &str) {
        let stamp = Stamp::of(&store.certificate(name)).ok();
        if stamp != self.stamp {
            self.step.handle(OrderEvent::Replaced);
        }
        if self.copy == ProgressCopy::Unread || stamp != self.stamp {
            self.read_again(store, name);
        }
    }

    /// Reads the certificate and its progress. Keeps a failure that could not be saved.
    fn read_again(&mut self, store: &Store, name: &str) {
        let path = store.certificate(name);
        let stamp = Stamp::of(&path).ok();
        let has_changed = stamp != self.stamp;
        let event = if has_changed { CopyEvent::ReadChanged } else { CopyEvent::ReadSame };
        if self.copy.handle(event) == CopyAction::Load {
            self.progress = store.progress(name);
        }
        self.stamp = stamp;
        self.facts = examine(&path).ok();
    }

    /// The certificate, if it is for these names.
    fn fitting(&self, names: &[String]) -> Option<&CertificateFacts> {
        let is_for =
            |facts: &&CertificateFacts| names.iter().all(|name| facts.names.contains(name));
        self.facts.as_ref().filter(is_for)
    }

    pub(crate) fn due_s(&self, names: &[String]) -> i64 {
        let facts = self.fitting(names);
        due_s(facts.map(|facts| &facts.valid_s), &self.progress, luck(names, facts))
    }
}

/// A pseudo-random number that is constant for a certificate.
fn luck(names: &[String], facts: Option<&CertificateFacts>) -> u64 {
    let digest = Sha256::digest(format!("{names:?} {:?}", facts.map(|facts| &facts.serial)));
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Work on one certificate.
#[derive(Clone)]
pub(crate) struct CertificateTask {
    pub(crate) store: Store,
    pub(crate) wanted: CertificateSpec,
    /// The certificate's name in the store.
    pub(crate) name: String,
    pub(crate) accounts: Accounts,
    pub(crate) leftovers: Leftovers,
    pub(crate) say: Say,
}

impl CertificateTask {
    /// True if there is anything to do that takes long.
    pub(crate) fn is_due(&self, known: &CertificateState, now_s: i64) -> bool {
        self.is_order_due(known, now_s) || self.issuer_to_ask(known, now_s).is_some()
    }

    /// Asks for the renewal window and orders, if either is due. Returns the new state.
    pub(crate) async fn run(self, mut known: CertificateState) -> CertificateState {
        self.ask(&mut known, now_s()).await;
        if self.is_order_due(&known, now_s()) {
            self.attempt(&mut known).await;
        }
        known
    }

    /// A request for a renewal leads to one order, even during the delay after failures.
    fn is_order_due(&self, known: &CertificateState, now_s: i64) -> bool {
        let is_requested = || {
            let requested = self.store.requested_renewal(&self.name);
            requested.is_some() && requested != known.answered
        };
        now_s >= known.held_until_s && (now_s >= known.due_s(&self.wanted.names) || is_requested())
    }

    fn issuer_to_ask(&self, known: &CertificateState, now_s: i64) -> Option<&Issuer> {
        let window_s = known.progress.window.as_ref().map_or(0, |window| window.ask_again_s);
        known.fitting(&self.wanted.names)?;
        let issuers = &self.wanted.options.issuers;
        let issuer = issuers.iter().find(|issuer| issuer.name == known.progress.issuer);
        issuer.filter(|_| now_s >= known.ask_s.max(window_s))
    }

    /// Asks the authority for the certificate's renewal window.
    async fn ask(&self, known: &mut CertificateState, now_s: i64) {
        let Some(issuer) = self.issuer_to_ask(known, now_s) else { return };
        let Some(facts) = known.fitting(&self.wanted.names) else { return };
        let Self { store, wanted, accounts, leftovers, .. } = self;
        let window = match AcmeClient::trusting(wanted.options.ca_file.as_deref()) {
            Ok(client) => {
                let directory = &issuer.directory;
                let orders =
                    Orders { store, wanted, accounts, leftovers, directory, client: &client };
                orders.window(facts, now_s).await
            }
            Err(_) => None,
        };
        known.ask_s = now_s + ASK_AGAIN_S;
        if let Some(window) = window {
            known.ask_s = window.ask_again_s;
            known.progress.window = Some(window);
            // If it cannot be saved, it is asked for again after a restart.
            let _ = store.keep_progress(&self.name, &known.progress);
        }
    }

    /// Orders a certificate, unless another process does.
    async fn attempt(&self, known: &mut CertificateState) {
        let Self { store, name, .. } = self;
        let requested = store.requested_renewal(name);
        known.step.handle(OrderEvent::Due);
        // The store may have disappeared while the server runs.
        let mut held = match store.prepare(None).and_then(|()| store.take_lock(name)) {
            Ok(Some(held)) => held,
            Ok(None) => return self.wait_for_other(known),
            Err(error) => {
                known.step.handle(OrderEvent::LockFailed);
                known.answered = requested;
                return self.fail(known, (OrderError::Store(error), 0));
            }
        };
        known.step.handle(OrderEvent::LockTaken);
        store.sweep(name);
        // Another process may have ordered the certificate meanwhile.
        known.held_until_s = 0;
        known.read_again(store, name);
        let is_due = self.is_order_due(known, now_s());
        let event = if is_due { OrderEvent::StillDue } else { OrderEvent::NotDue };
        if known.step.handle(event) != OrderAction::Order {
            return;
        }
        known.answered = requested;
        let done = self.obtain(&mut held, known).await;
        store.renewal_done(name);
        match done {
            Ok(issuer) => {
                known.step.handle(OrderEvent::Signed);
                self.succeed(known, &issuer);
            }
            Err(why) => {
                known.step.handle(OrderEvent::OrderFailed);
                self.fail(known, why);
            }
        }
        // Only now may another process sweep the store, and read how the order ended.
        drop(held);
    }

    /// Orders a certificate and stores it. Returns the authority that signed it.
    async fn obtain(&self, held: &mut Lock, known: &CertificateState) -> Result<Issuer, Failure> {
        let room = Reserved::for_certificate(&self.store.certificate(&self.name));
        let room = room.map_err(|error| (OrderError::Store(error), 0))?;
        let (issuer, pem) = guarded(held, order(self, known)).await?;
        room.commit_pair(pem.as_bytes()).map_err(|error| (error, 0))?;
        Ok(issuer)
    }

    fn wait_for_other(&self, known: &mut CertificateState) {
        known.held_until_s = now_s() + HELD_S;
        if known.step.handle(OrderEvent::LockHeld) == OrderAction::LogHolder {
            let (names, path) = (self.wanted.names.join(", "), self.store.lock(&self.name));
            let path = path.display();
            let text = format!("acme: {names}: waiting for another server, which holds {path}");
            (self.say)(false, &text);
        }
    }

    fn succeed(&self, known: &mut CertificateState, issuer: &Issuer) {
        known.progress.succeed(&issuer.name);
        let kept = self.store.keep_progress(&self.name, &known.progress);
        known.copy.handle(CopyEvent::Replaced);
        known.ask_s = 0;
        known.read(&self.store, &self.name);
        let names = self.wanted.names.join(", ");
        (self.say)(false, &format!("acme: {names}: {} has signed the certificate", issuer.name));
        if let Err(error) = kept {
            (self.say)(true, &format!("acme: {error}"));
        }
    }

    pub(crate) fn fail(&self, known: &mut CertificateState, (why, retry_after_s): Failure) {
        let now_s = now_s();
        let luck = luck(&self.wanted.names, known.facts.as_ref());
        let again_s = (retry_after_s - now_s).max(0);
        known.progress.fail(now_s, why.to_string(), again_s, luck);
        // On a full disk it is only kept in memory.
        known.copy.handle(match self.store.keep_progress(&self.name, &known.progress) {
            Ok(()) => CopyEvent::Saved,
            Err(_) => CopyEvent::NotSaved,
        });
        let wait_s = known.progress.not_before_s - now_s;
        debug_assert!(wait_s > 0 && known.progress.failures > 0, "{wait_s} s");
        let names = self.wanted.names.join(", ");
        let is_served = known.fitting(&self.wanted.names).is_some_and(|f| now_s < f.valid_s.end);
        let what = if is_served { "not renewed" } else { "no certificate" };
        let text = format!("acme: {names}: {what}: {why}; the next order is in {wait_s} s");
        (self.say)(true, &text);
    }

    /// Warns once a day if a certificate should have been renewed long ago.
    pub(crate) fn warn(&self, known: &mut CertificateState, now_s: i64) {
        let name = &self.name;
        let Some(facts) = known.fitting(&self.wanted.names) else { return };
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
}

fn now_s() -> i64 {
    Clock::start().unix_s()
}

/// Reason for a failed order, and the time before which the authority accepts no other order, in
/// seconds since 1970.
pub(crate) type Failure = (OrderError, i64);

/// Runs an order while keeping the lock.
async fn guarded<T>(
    held: &mut Lock,
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

/// Tries the authorities in order.
async fn order(
    task: &CertificateTask,
    known: &CertificateState,
) -> Result<(Issuer, String), Failure> {
    let CertificateTask { store, wanted, accounts, leftovers, .. } = task;
    let client = AcmeClient::trusting(wanted.options.ca_file.as_deref()).map_err(|why| (why, 0))?;
    let mut failed = Vec::new();
    for issuer in &wanted.options.issuers {
        let at =
            |directory| Orders { store, wanted, accounts, leftovers, directory, client: &client };
        // After a failure, the order is first tested at the staging directory, whose limits are
        // separate.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::CertificateOptions;

    fn task(directory: &std::path::Path) -> CertificateTask {
        let store = Store::new(directory);
        store.prepare(None).expect("a store");
        let names = ["a.test".to_owned()].into();
        let options = std::sync::Arc::new(CertificateOptions::default());
        CertificateTask {
            store,
            wanted: CertificateSpec { names, options },
            name: "a.test".to_owned(),
            accounts: Accounts::default(),
            leftovers: Leftovers::default(),
            say: std::sync::Arc::new(|_, _| {}),
        }
    }

    #[test]
    fn a_file_that_asks_for_a_renewal_leads_to_one_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let task = task(directory.path());
        let mut known = CertificateState::default();
        let why = || (OrderError::Late, 0);
        assert!(task.is_order_due(&known, now_s()), "there is no certificate");
        task.fail(&mut known, why());
        assert!(!task.is_order_due(&known, now_s()), "it waits after a failure");
        task.store.ask_for_renewal("a.test").expect("asked");
        assert!(task.is_order_due(&known, now_s()), "it is asked for");
        // Simulates a request file that cannot be removed.
        known.answered = task.store.requested_renewal("a.test");
        task.fail(&mut known, why());
        assert!(!task.is_order_due(&known, now_s()), "it had its order");
        assert!(task.is_order_due(&known, known.progress.not_before_s));
        task.store.ask_for_renewal("a.test").expect("asked again");
        assert!(task.is_order_due(&known, now_s()), "it is asked for again");
    }

    #[test]
    fn lock_is_held_until_the_end_of_an_order_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let task = task(directory.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let mut held = task.store.take_lock("a.test").expect("no error").expect("it is free");
        let order = async { Ok::<_, Failure>("signed") };
        let done = runtime.expect("a runtime").block_on(guarded(&mut held, order));
        assert!(done.is_ok());
        assert!(task.store.take_lock("a.test").expect("no error").is_none());
        drop(held);
        assert!(task.store.take_lock("a.test").expect("no error").is_some());
    }

    #[test]
    fn wait_for_another_process_is_logged_once_for_each_certificate() {
        let directory = tempfile::tempdir().expect("a directory");
        let (sender, lines) = std::sync::mpsc::channel();
        let say: Say = std::sync::Arc::new(move |_, line| sender.send(line.to_owned()).expect(""));
        let task = CertificateTask { say, ..task(directory.path()) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut known = CertificateState::default();
        let _held = task.store.take_lock("a.test").expect("no error").expect("it is free");
        let mut logged = || {
            for _ in 0..3 {
                known.read(&task.store, &task.name);
                runtime.block_on(task.attempt(&mut known));
            }
            lines.try_iter().filter(|line| line.contains("waiting for another server")).count()
        };
        assert_eq!(logged(), 1);
        std::fs::write(task.store.certificate("a.test"), "ordered by the other").expect("written");
        assert_eq!(logged(), 1, "the next renewal has a line of its own");
    }

    #[test]
    fn a_failure_that_cannot_be_written_down_is_still_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let task = task(directory.path());
        let mut known = CertificateState::default();
        known.read(&task.store, &task.name);
        let progress = directory.path().join("progress");
        std::fs::remove_dir(&progress).expect("removed");
        for failures in 1..3 {
            task.fail(&mut known, (OrderError::Late, 0));
            known.read_again(&task.store, &task.name);
            assert_eq!(known.progress.failures, failures);
        }
        std::fs::create_dir(&progress).expect("made");
        task.fail(&mut known, (OrderError::Late, 0));
        assert_eq!(task.store.progress("a.test").failures, 3);
    }
}
