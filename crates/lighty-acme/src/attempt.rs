//! What is done for one certificate at a time: the authority is asked when it wants a renewal, and
//! an order is made. Of all processes that share a store, one orders; the others find the
//! certificate there. Dropping the future ends the order, and leaves neither a lock nor a proof.

use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::file::small_file::Stamp;
use lighty_io::tls::{CertificateFacts, examine};
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::dns_hook::Leftovers;
use crate::error::OrderError;
use crate::order::{Accounts, Orders};
use crate::schedule::{Progress, due_s, late_s};
use crate::store::{Lock, Reserved, Store, TOUCH_EVERY};
use crate::wanted::{Issuer, Wanted};

/// What is said: whether it is trouble, and the words.
pub type Say = std::sync::Arc<dyn Fn(bool, &str) + Send + Sync>;

/// Longest time that one order may take.
const ORDER_PATIENCE: Duration = Duration::from_secs(1_200);

/// Seconds to wait while another process orders.
const HELD_S: i64 = 2;

/// Seconds until an authority is asked again that has not said when it wants a renewal.
const ASK_AGAIN_S: i64 = 21_600;

/// Seconds from one word about a certificate that nobody renews to the next.
const WARN_EVERY_S: i64 = 86_400;

/// What is known of one certificate.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) stamp: Option<Stamp>,
    pub(crate) facts: Option<CertificateFacts>,
    pub(crate) progress: Progress,
    is_read: bool,
    /// The progress could not be written down.
    is_unkept: bool,
    /// The file that asks for a renewal and has had its order.
    answered: Option<Stamp>,
    /// Another process orders it until then.
    held_until_s: i64,
    is_said_held: bool,
    /// The authority is asked then when it wants a renewal.
    ask_s: i64,
    warned_s: i64,
}

impl Known {
    /// Reads what has changed in the store.
    pub(crate) fn read(&mut self, store: &Store, name: &str) {
        let path = store.certificate(name);
        let stamp = Stamp::of(&path).ok();
        if self.is_read && stamp == self.stamp {
            return;
        }
        // A failure that could not be written down is still one.
        if !self.is_unkept || stamp != self.stamp {
            (self.is_unkept, self.progress) = (false, store.progress(name));
        }
        (self.is_read, self.stamp) = (true, stamp);
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

/// A number that is the same as long as the certificate is.
fn luck(names: &[String], facts: Option<&CertificateFacts>) -> u64 {
    let digest = Sha256::digest(format!("{names:?} {:?}", facts.map(|facts| &facts.serial)));
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A certificate to look after.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) store: Store,
    pub(crate) wanted: Wanted,
    /// The certificate's name in the store.
    pub(crate) name: String,
    pub(crate) accounts: Accounts,
    pub(crate) leftovers: Leftovers,
    pub(crate) say: Say,
}

impl Task {
    /// Whether there is anything to do that takes long.
    pub(crate) fn is_due(&self, known: &Known, now_s: i64) -> bool {
        self.is_order_due(known, now_s) || self.issuer_to_ask(known, now_s).is_some()
    }

    /// Does what is due. Returns what is known then.
    pub(crate) async fn run(self, mut known: Known) -> Known {
        self.ask(&mut known, now_s()).await;
        if self.is_order_due(&known, now_s()) {
            self.attempt(&mut known).await;
        }
        known
    }

    /// A file that asks for a renewal leads to one order; then the waits after failures rule again.
    fn is_order_due(&self, known: &Known, now_s: i64) -> bool {
        let is_asked_for = || {
            let asked = self.store.renewal_asked_for(&self.name);
            asked.is_some() && asked != known.answered
        };
        now_s >= known.held_until_s && (now_s >= known.due_s(&self.wanted.names) || is_asked_for())
    }

    fn issuer_to_ask(&self, known: &Known, now_s: i64) -> Option<&Issuer> {
        let told_s = known.progress.window.as_ref().map_or(0, |window| window.ask_again_s);
        known.fitting(&self.wanted.names)?;
        let issuers = &self.wanted.options.issuers;
        let issuer = issuers.iter().find(|issuer| issuer.name == known.progress.issuer);
        issuer.filter(|_| now_s >= known.ask_s.max(told_s))
    }

    /// Asks the authority when it wants the certificate to be renewed.
    async fn ask(&self, known: &mut Known, now_s: i64) {
        let Some(issuer) = self.issuer_to_ask(known, now_s) else { return };
        let Some(facts) = known.fitting(&self.wanted.names) else { return };
        let Self { store, wanted, accounts, leftovers, .. } = self;
        let window = match Client::trusting(wanted.options.ca_file.as_deref()) {
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
            // What is not kept is asked for again.
            let _ = store.keep_progress(&self.name, &known.progress);
        }
    }

    /// Orders a certificate, unless another process does.
    async fn attempt(&self, known: &mut Known) {
        let Self { store, name, .. } = self;
        let asked = store.renewal_asked_for(name);
        // The store may have vanished while the server runs.
        let held = match store.prepare(None).and_then(|()| store.take_lock(name)) {
            Ok(Some(held)) => held,
            Ok(None) => return self.wait_for_other(known),
            Err(error) => {
                known.answered = asked;
                return self.fail(known, (OrderError::Store(error), 0));
            }
        };
        store.sweep(name);
        // Another process may have been here before.
        (known.is_read, known.is_said_held, known.held_until_s) = (false, false, 0);
        known.read(store, name);
        if !self.is_order_due(known, now_s()) {
            return;
        }
        known.answered = asked;
        let done = self.obtain(held, known).await;
        store.renewal_done(name);
        match done {
            Ok(issuer) => self.succeed(known, &issuer),
            Err(why) => self.fail(known, why),
        }
    }

    /// Puts a certificate in its place. Returns who has signed it.
    async fn obtain(&self, held: Lock, known: &Known) -> Result<Issuer, Failure> {
        let room = Reserved::for_certificate(&self.store.certificate(&self.name));
        let room = room.map_err(|error| (OrderError::Store(error), 0))?;
        let (issuer, pem) = guarded(held, order(self, known)).await?;
        room.commit_pair(pem.as_bytes()).map_err(|error| (error, 0))?;
        Ok(issuer)
    }

    fn wait_for_other(&self, known: &mut Known) {
        known.held_until_s = now_s() + HELD_S;
        if !std::mem::replace(&mut known.is_said_held, true) {
            let (names, path) = (self.wanted.names.join(", "), self.store.lock(&self.name));
            let path = path.display();
            let text = format!("acme: {names}: waiting for another server, which holds {path}");
            (self.say)(false, &text);
        }
    }

    fn succeed(&self, known: &mut Known, issuer: &Issuer) {
        known.progress.succeed(&issuer.name);
        let kept = self.store.keep_progress(&self.name, &known.progress);
        (known.is_read, known.is_unkept, known.ask_s) = (false, false, 0);
        known.read(&self.store, &self.name);
        let names = self.wanted.names.join(", ");
        (self.say)(false, &format!("acme: {names}: {} has signed the certificate", issuer.name));
        if let Err(error) = kept {
            (self.say)(true, &format!("acme: {error}"));
        }
    }

    pub(crate) fn fail(&self, known: &mut Known, (why, retry_after_s): Failure) {
        let now_s = now_s();
        let luck = luck(&self.wanted.names, known.facts.as_ref());
        let again_s = (retry_after_s - now_s).max(0);
        known.progress.fail(now_s, why.to_string(), again_s, luck);
        // On a full disk it is kept in memory alone.
        known.is_unkept = self.store.keep_progress(&self.name, &known.progress).is_err();
        let wait_s = known.progress.not_before_s - now_s;
        let names = self.wanted.names.join(", ");
        let is_served = known.fitting(&self.wanted.names).is_some_and(|f| now_s < f.valid_s.end);
        let what = if is_served { "not renewed" } else { "no certificate" };
        let text = format!("acme: {names}: {what}: {why}; the next order is in {wait_s} s");
        (self.say)(true, &text);
    }

    /// Says once a day that a certificate should have been renewed long ago.
    pub(crate) fn warn(&self, known: &mut Known, now_s: i64) {
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

/// Why there is no certificate, and the second since 1970 before which the authority wants no other
/// order.
pub(crate) type Failure = (OrderError, i64);

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
async fn order(task: &Task, known: &Known) -> Result<(Issuer, String), Failure> {
    let Task { store, wanted, accounts, leftovers, .. } = task;
    let client = Client::trusting(wanted.options.ca_file.as_deref()).map_err(|why| (why, 0))?;
    let mut failed = Vec::new();
    for issuer in &wanted.options.issuers {
        let at =
            |directory| Orders { store, wanted, accounts, leftovers, directory, client: &client };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::Options;

    fn task(directory: &std::path::Path) -> Task {
        let store = Store::new(directory);
        store.prepare(None).expect("a store");
        let names = ["a.test".to_owned()].into();
        let options = std::sync::Arc::new(Options::default());
        Task {
            store,
            wanted: Wanted { names, options },
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
        let mut known = Known::default();
        let why = || (OrderError::Late, 0);
        assert!(task.is_order_due(&known, now_s()), "there is no certificate");
        task.fail(&mut known, why());
        assert!(!task.is_order_due(&known, now_s()), "it waits after a failure");
        task.store.ask_for_renewal("a.test").expect("asked");
        assert!(task.is_order_due(&known, now_s()), "it is asked for");
        // It cannot be removed.
        known.answered = task.store.renewal_asked_for("a.test");
        task.fail(&mut known, why());
        assert!(!task.is_order_due(&known, now_s()), "it had its order");
        assert!(task.is_order_due(&known, known.progress.not_before_s));
        task.store.ask_for_renewal("a.test").expect("asked again");
        assert!(task.is_order_due(&known, now_s()), "it is asked for again");
    }

    #[test]
    fn a_failure_that_cannot_be_written_down_is_still_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let task = task(directory.path());
        let mut known = Known::default();
        known.read(&task.store, &task.name);
        let progress = directory.path().join("progress");
        std::fs::remove_dir(&progress).expect("removed");
        for failures in 1..3 {
            task.fail(&mut known, (OrderError::Late, 0));
            known.is_read = false;
            known.read(&task.store, &task.name);
            assert_eq!(known.progress.failures, failures);
        }
        std::fs::create_dir(&progress).expect("made");
        task.fail(&mut known, (OrderError::Late, 0));
        assert_eq!(task.store.progress("a.test").failures, 3);
    }
}
