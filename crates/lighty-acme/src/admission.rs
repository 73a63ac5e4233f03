//! Decides which names get certificates on demand, by asking a server, and loads these certificates
//! for handshakes.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use lighty_fetch::Fetcher;
use lighty_io::clock::Clock;
use lighty_io::file::small_file::Stamp;
use tokio::task::JoinSet;

use crate::attempt::{CertificateState, Say};
use crate::demand::{AdmissionQuery, Demand, OnDemand, REFUSED_S, RETRY_S};
use crate::plan::CertificatePlan;
use crate::store::file_name;
use crate::wanted::CertificateSpec;

/// Maximum number of concurrent questions to the server.
const QUESTIONS_MAX: usize = 4;

/// Timeout of a question.
const PATIENCE: Duration = Duration::from_secs(5);

/// Seconds between two checks of a certificate.
const LOOK_AGAIN_S: i64 = 60;

/// Seconds between two log messages about an unreachable server.
const SAY_AGAIN_S: i64 = 60;

/// The answer to a question: the name, and whether it is admitted.
type AdmissionReply = (String, io::Result<bool>);

/// State of one name's certificate.
#[derive(Default)]
struct Looked {
    next_s: i64,
    loaded: Option<Stamp>,
}

/// Admitted names, and pending questions.
pub(crate) struct Admissions {
    pub(crate) demand: Demand,
    say: Say,
    asking: JoinSet<AdmissionReply>,
    answers: Vec<AdmissionReply>,
    looked: HashMap<String, Looked>,
    logged_s: i64,
}

impl Admissions {
    pub(crate) fn new(say: &Say, demand: &Demand) -> Self {
        Self {
            demand: demand.clone(),
            say: Arc::clone(say),
            asking: JoinSet::new(),
            answers: Vec::new(),
            looked: HashMap::new(),
            logged_s: i64::MIN,
        }
    }

    /// Resolves when an answer arrives.
    pub(crate) async fn answered(&mut self) {
        match self.asking.join_next().await {
            Some(Ok(answer)) => self.answers.push(answer),
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    /// Processes answers, and asks about further names. Returns the certificates of admitted names.
    pub(crate) fn turn(&mut self, plan: Option<&CertificatePlan>) -> Vec<CertificateSpec> {
        let now_s = Clock::start().unix_s();
        while let Some(Ok(answer)) = self.asking.try_join_next() {
            self.answers.push(answer);
        }
        for (name, answer) in std::mem::take(&mut self.answers) {
            match answer {
                Ok(true) => self.demand.admit(&name, now_s),
                Ok(false) => self.refuse(&name, now_s + REFUSED_S),
                // Names with a valid certificate continue to be served.
                Err(_) if has_certificate(plan, &name, now_s) => self.demand.admit(&name, now_s),
                Err(why) => {
                    self.log_failure(&name, &why, now_s);
                    self.refuse(&name, now_s + RETRY_S);
                }
            }
        }
        let Some(OnDemand { options, .. }) = self.demand.rules() else { return Vec::new() };
        let free = QUESTIONS_MAX.saturating_sub(self.asking.len());
        for question in self.demand.questions(free) {
            self.ask(question);
        }
        debug_assert!(self.asking.len() <= QUESTIONS_MAX, "{} questions", self.asking.len());
        let wanted = |name| CertificateSpec { names: [name].into(), options: Arc::clone(&options) };
        self.demand.admitted().into_iter().map(wanted).collect()
    }

    fn ask(&mut self, AdmissionQuery { name, client, ask }: AdmissionQuery) {
        let Some(url) = ask else {
            self.answers.push((name, Ok(true)));
            return;
        };
        self.asking.spawn_local(async move {
            let about = name.clone();
            // The request blocks; meanwhile orders continue.
            let asking = tokio::task::spawn_blocking(move || admits(&url, &about, client));
            let answer = asking.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            (name, answer)
        });
    }

    /// True if the certificate must be checked now.
    pub(crate) fn is_due(
        &self,
        wanted: &CertificateSpec,
        known: &HashMap<String, CertificateState>,
    ) -> bool {
        let (name, now_s) = (&wanted.names[0], Clock::start().unix_s());
        let next_s = self.looked.get(name).map_or(0, |looked| looked.next_s);
        let is_to_order =
            known.get(&file_name(&wanted.names)).is_none_or(|k| now_s >= k.due_s(&wanted.names));
        now_s >= next_s && (!is_to_order || self.demand.may_order(name, now_s))
    }

    /// Schedules an early check after an order has ended.
    pub(crate) fn look_soon(&mut self, wanted: &CertificateSpec) {
        if let Some(looked) = wanted.names.first().and_then(|name| self.looked.get_mut(name)) {
            looked.next_s = 0;
        }
    }

    /// Called after a check: loads a new certificate, and refuses the name as long as it cannot be
    /// ordered.
    pub(crate) fn looked(
        &mut self,
        wanted: &CertificateSpec,
        plan: &CertificatePlan,
        known: &mut HashMap<String, CertificateState>,
    ) {
        let (name, file) = (&wanted.names[0], file_name(&wanted.names));
        let Some(OnDemand { pairs, .. }) = self.demand.rules() else { return };
        let Some(one) = known.get(&file) else { return };
        let now_s = Clock::start().unix_s();
        let is_valid = one.facts.as_ref().is_some_and(|facts| now_s < facts.valid_s.end);
        let looked = self.looked.entry(name.clone()).or_default();
        looked.next_s = now_s + LOOK_AGAIN_S;
        if is_valid {
            let is_new = !pairs.has(name) || looked.loaded != one.stamp;
            if is_new && pairs.load(name, &plan.store.certificate(&file)).is_ok() {
                looked.loaded = one.stamp;
                self.demand.settle(name);
            }
        } else if one.progress.failures > 0 && now_s < one.progress.not_before_s {
            let until_s = one.progress.not_before_s;
            known.remove(&file);
            self.refuse(name, until_s);
        }
    }

    fn refuse(&mut self, name: &str, until_s: i64) {
        self.looked.remove(name);
        self.demand.refuse(name, until_s);
    }

    fn log_failure(&mut self, name: &str, why: &io::Error, now_s: i64) {
        if now_s.saturating_sub(self.logged_s) >= SAY_AGAIN_S {
            self.logged_s = now_s;
            (self.say)(true, &format!("acme.on-demand-ask: {name}: {why}"));
        }
    }
}

/// True if the name has a certificate that is still valid.
fn has_certificate(plan: Option<&CertificatePlan>, name: &str, now_s: i64) -> bool {
    let facts = plan.and_then(|plan| lighty_io::tls::examine(&plan.store.certificate(name)).ok());
    facts.is_some_and(|facts| now_s < facts.valid_s.end)
}

/// Asks a server whether it admits a name: yes with a status of success, no with any other status
/// below 500.
fn admits(url: &str, name: &str, client: Option<IpAddr>) -> io::Result<bool> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let address = client.map_or_else(String::new, |client| format!("&address={client}"));
    let request = Request::get(format!("{url}{separator}domain={name}{address}"));
    let request = request.body([]).map_err(io::Error::other)?;
    let fetcher = Fetcher::for_url(url).map_err(|error| io::Error::other(error.to_string()))?;
    let response = fetcher.fetch(&request, PATIENCE)?;
    match response.status() {
        status if status.is_success() => Ok(true),
        status if status.is_server_error() => Err(io::Error::other(format!("status {status}"))),
        _ => Ok(false),
    }
}
