//! `mod_auth`: authentication with passwords.
//!
//! Reading order: `require` (access rules) · `claim` (credentials as sent) · `users` and `store`
//! (the files, reloaded on change) · `password` with `md5_crypt` and `sha_crypt` (hashes) ·
//! `verified` (cache of verified credentials) · `turns` (queue for hashing) · `outside` (users of
//! directories) with `slots` · `client_queues` (fair queues of both) · `digest`, `digest_check` and
//! `nonce` (RFC 7616) · `answer` (users and challenges) · `failures` (bans) · `vouched` (tokens,
//! sign-in). Reading files and hashing passwords happens off the event loops.

mod answer;
mod argon2_hash;
mod backend;
mod claim;
mod client_queues;
mod credentials_error;
mod des_crypt;
mod digest;
mod digest_check;
mod failures;
mod md5_crypt;
mod nonce;
#[cfg(feature = "identity")]
mod outside;
#[cfg(not(feature = "identity"))]
#[path = "auth/outside/absent.rs"]
mod outside;
mod password;
mod require;
mod settings;
mod sha_crypt;
#[cfg(feature = "identity")]
mod slots;
mod store;
mod turns;
mod user_line_error;
mod users;
mod verified;
#[cfg(not(feature = "identity"))]
#[path = "auth/vouched/absent.rs"]
mod vouched;
#[cfg(feature = "identity")]
mod vouched;
mod yescrypt_hash;

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_config::Directive;
use lighty_core::exchange::verified_identity::VerifiedIdentity;
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, FaultReport, Level, Settings};
use lighty_http::{Known, Status};
use lighty_io::entropy::random_bytes;
use lighty_io::threads::pool::{Lane, ThreadPool};

use answer::{challenge, delay, grant, shown};
use backend::UserBackend;
use claim::{Claim, claim};
use credentials_error::CredentialsError;
use failures::Failures;
use nonce::Nonces;
use outside::OutsideUsers;
pub use outside::{DirectoryAddress, directory_addresses, pam_services};
pub use password::{PasswordScheme, hash_password};
use require::Rule;
pub use settings::AuthSettings;
use store::{Loaded, Look, Store};
use turns::Turns;
use users::{Groups, UserFileFormat, Users};
use verified::Verified;
pub use vouched::{TokenFaults, fetch_keys, provider_probes, read_key_files, token_faults};

/// Returns the errors in the lines of a user file; empty if `directive` names no user file. The
/// users of invalid lines cannot log in.
#[must_use]
pub fn faults_of_users(directive: &str, text: &[u8]) -> Vec<String> {
    let kind = match directive {
        "auth.backend.plain.userfile" => UserFileFormat::Plain,
        "auth.backend.htpasswd.userfile" => UserFileFormat::Htpasswd,
        "auth.backend.htdigest.userfile" => UserFileFormat::Htdigest,
        _ => return Vec::new(),
    };
    Users::parse(kind, text).1
}

/// Checks that a provider can be reached. Blocks.
pub type ProviderProbe = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

/// Time for which wrong credentials are remembered, in milliseconds.
const WRONG_MS: u64 = 10_000;

/// Files by name.
type Stores<K, T> = Mutex<HashMap<K, Arc<Store<T>>>>;

/// State shared by the workers: files and verified credentials.
pub struct CredentialCache {
    users: Stores<(UserFileFormat, Arc<str>), Users>,
    groups: Stores<Arc<str>, Groups>,
    verified: Verified,
    /// Credentials that failed during a listing, so that they are checked once instead of once per
    /// member.
    wrong: Verified,
    nonces: Nonces,
    turns: Turns,
    failures: Failures,
    #[cfg_attr(not(feature = "identity"), expect(dead_code, reason = "it is empty then"))]
    outside: OutsideUsers,
}

impl CredentialCache {
    /// Creates an empty cache. Nonces of other processes are valid from `now_s` on.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn start(now_s: u64) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            users: Mutex::default(),
            groups: Mutex::default(),
            verified: Verified::new(random_bytes()?),
            wrong: Verified::new(random_bytes()?),
            nonces: Nonces::new(random_bytes()?, now_s),
            turns: Turns::default(),
            failures: Failures::default(),
            outside: OutsideUsers::default(),
        }))
    }

    fn users(&self, kind: UserFileFormat, path: &Arc<str>) -> Arc<Store<Users>> {
        let mut stores = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let make =
            || Store::new(Arc::clone(path), kind, |store, text| Users::parse(store.kind, text));
        Arc::clone(stores.entry((kind, Arc::clone(path))).or_insert_with(|| Arc::new(make())))
    }

    fn groups(&self, path: &Arc<str>) -> Arc<Store<Groups>> {
        let mut stores = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let make =
            || Store::new(Arc::clone(path), UserFileFormat::Plain, |_, text| Groups::parse(text));
        Arc::clone(stores.entry(Arc::clone(path)).or_insert_with(|| Arc::new(make())))
    }
}

/// The module.
pub struct Auth {
    cache: Arc<CredentialCache>,
}

impl Auth {
    /// A worker's instance.
    pub fn new(cache: Arc<CredentialCache>) -> Self {
        Self { cache }
    }
}

/// The result of a check.
enum Verdict {
    /// The password is right.
    Known {
        name: Vec<u8>,
        scheme: &'static str,
        /// True if the user may pass; `None` if that is not known yet.
        is_admitted: Option<bool>,
    },
    Wrong {
        name: Vec<u8>,
    },
    /// The password is right, but a new nonce is needed.
    Stale,
    /// Credentials that can never be valid: challenged again.
    Unfit(CredentialsError),
    /// The check is not possible.
    Failed(FaultReport),
}

impl From<FaultReport> for Verdict {
    fn from(report: FaultReport) -> Self {
        Self::Failed(report)
    }
}

impl From<Fault> for Verdict {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.into())
    }
}

impl Module for Auth {
    fn name(&self) -> &'static str {
        "mod_auth"
    }

    fn traits(&self) -> Traits {
        Hooks { raw_url: true, clean_url: true, authorize: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<AuthSettings>();
        let raw_url = vouched::sets_fields(settings);
        let takes_part = !own.rules.is_empty() || vouched::has_providers(settings);
        Hooks { raw_url, ..self.traits().hooks.only_if(takes_part) }
    }

    fn directives() -> Vec<Directive<Settings>> {
        let mut rows = settings::directives();
        rows.extend(outside::directives());
        rows.extend(vouched::directives());
        rows
    }

    /// Removes forged fields before any rule or script can see them.
    fn raw_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        vouched::clean(ex);
        Step::Next
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        if vouched::has_providers(&ex.settings) {
            vouched::clean(ex);
            if let Some(request) = vouched::find_endpoint(ex) {
                return vouched::serve(ex, request);
            }
        }
        self.check(ex)
    }

    fn authorize<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        self.check(ex)
    }
}

impl Auth {
    fn check<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        vouched::clean(ex);
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<AuthSettings>();
        let fold_case = settings.core.force_lowercase_filenames;
        let Some(rule) = own.rule(&ex.request.path, fold_case) else { return Step::Next };
        let rule = Arc::clone(rule);
        if failures::refuse(ex, own.failures, &self.cache.failures) {
            return Step::Answered;
        }
        if let Some(claim) = vouched::claim(ex, &settings, &rule) {
            return vouched::check(self, ex, settings, rule, claim);
        }
        match claim(ex, &rule) {
            Claim::Basic { name, password } if self.is_known(ex, own, &rule, &name, &password) => {
                grant(ex, &rule, &name, "Basic")
            }
            claim => Step::Wait(Box::pin(self.examine(ex, settings, rule, claim))),
        }
    }

    /// True if the password was verified recently; checked without waiting.
    fn is_known(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        name: &[u8],
        password: &[u8],
    ) -> bool {
        if own.outside_backend().is_some() {
            return self.is_known_outside(ex, own, rule, name, password);
        }
        let Some((kind, path)) = own.users() else { return false };
        let now_ms = ex.machine.clock.mono_ms();
        let Some(users) = self.cache.users(kind, path).peek(now_ms) else { return false };
        let key = self.key(path, rule, name, password);
        if !self.cache.verified.contains(&key, users.generation, now_ms, own.cache_ms) {
            return false;
        }
        let groups = match rule.needs_groups() {
            false => None,
            true => match self.cache.groups(&own.plain_groups).peek(now_ms) {
                None => return false,
                groups => groups,
            },
        };
        rule.admits(name, groups.as_ref().map(|groups| &groups.table))
    }

    fn key(&self, path: &str, rule: &Rule, name: &[u8], password: &[u8]) -> verified::Key {
        self.cache.verified.key(&[path.as_bytes(), rule.realm.as_bytes(), name, password])
    }

    async fn examine(
        &self,
        ex: &mut Exchange,
        settings: Rc<Settings>,
        rule: Arc<Rule>,
        claim: Claim,
    ) -> Step<'static> {
        let own = settings.module::<AuthSettings>();
        if is_vouched_for(ex, own, &rule) {
            let name = ex.request.remote_user.clone();
            if matches!(self.admits(ex, own, &rule, &name).await, Ok(true)) {
                ex.ext_mut::<VerifiedIdentity>().verify();
                return Step::Next;
            }
        }
        // Do not check the credentials again for the 401's own error page.
        if ex.state.error_status == Some(Status::UNAUTHORIZED) {
            ex.fail_status(Status::UNAUTHORIZED);
            return Step::Answered;
        }
        let listed = ex.state.quiet.then(|| self.credentials_key(ex, own, &rule));
        let now_ms = ex.machine.clock.mono_ms();
        if listed.is_some_and(|key| self.cache.wrong.contains(&key, 0, now_ms, WRONG_MS)) {
            challenge(ex, &rule, &self.cache.nonces, Fault::BadCredentials, "", false);
            return Step::Answered;
        }
        let verdict = match claim {
            Claim::None => {
                challenge(ex, &rule, &self.cache.nonces, Fault::NotAuthenticated, "", false);
                return Step::Answered;
            }
            Claim::Unfit(error) => Verdict::Unfit(error),
            Claim::Malformed(error) => {
                FaultReport::new(Fault::AuthMalformed, error.to_string()).into()
            }
            Claim::Basic { name, password } => self.basic(ex, own, &rule, name, password).await,
            Claim::Digest(credentials) => self.digest(ex, own, &rule, *credentials).await,
        };
        if let (Verdict::Wrong { .. }, Some(key)) = (&verdict, listed) {
            self.cache.wrong.insert(key, 0, now_ms, WRONG_MS);
        }
        self.conclude(ex, own, &rule, verdict).await
    }

    /// The cache key of the request's credentials.
    fn credentials_key(&self, ex: &Exchange, own: &AuthSettings, rule: &Rule) -> verified::Key {
        let credentials = ex.request.fields.get(Known::Authorization).unwrap_or_default();
        let users = own.users().map_or("", |(_, path)| path);
        self.cache.wrong.key(&[users.as_bytes(), rule.realm.as_bytes(), credentials])
    }

    async fn conclude(
        &self,
        ex: &mut Exchange,
        own: &AuthSettings,
        rule: &Rule,
        verdict: Verdict,
    ) -> Step<'static> {
        // Others of the same client may have led to a ban while this one waited for its turn.
        if failures::refuse(ex, own.failures, &self.cache.failures) {
            return Step::Answered;
        }
        let nonces = &self.cache.nonces;
        match verdict {
            Verdict::Known { name, scheme, is_admitted } => {
                let admitted = match is_admitted {
                    Some(is_admitted) => Ok(is_admitted),
                    None => self.admits(ex, own, rule, &name).await,
                };
                match admitted {
                    Ok(true) => return grant(ex, rule, &name, scheme),
                    Ok(false) => {
                        let message = format!("user {} is not among those required", shown(&name));
                        challenge(ex, rule, nonces, Fault::BadCredentials, &message, false);
                    }
                    Err(report) => ex.fail_reporting(&report),
                }
            }
            Verdict::Wrong { name } => {
                failures::note(ex, own.failures, &self.cache.failures);
                if own.delay {
                    delay(ex).await;
                }
                let message = format!("user {}", shown(&name));
                // Password guessing is always logged, even in a quiet subrequest.
                let quiet = std::mem::take(&mut ex.state.quiet);
                challenge(ex, rule, nonces, Fault::BadCredentials, &message, false);
                ex.state.quiet = quiet;
            }
            Verdict::Stale => {
                challenge(ex, rule, nonces, Fault::NotAuthenticated, "stale nonce", true);
            }
            Verdict::Unfit(error) => {
                let message = error.to_string();
                challenge(ex, rule, nonces, Fault::BadCredentials, &message, false);
            }
            Verdict::Failed(report) => ex.fail_reporting(&report),
        }
        Step::Answered
    }

    async fn basic(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        name: Vec<u8>,
        password: Vec<u8>,
    ) -> Verdict {
        if let Some(UserBackend::Outside(backend)) = own.backend {
            return self.basic_outside(ex, own, rule, backend, name, password).await;
        }
        let Some((kind, path)) = own.users() else { return no_users() };
        let store = self.cache.users(kind, path);
        let users = match self.load(ex, &store).await {
            Ok(users) => users,
            Err(report) => return report.into(),
        };
        let (generation, key) = (users.generation, self.key(path, rule, &name, &password));
        let (now_ms, cache_ms) = (ex.machine.clock.mono_ms(), own.cache_ms);
        if self.cache.verified.contains(&key, generation, now_ms, cache_ms) {
            return Verdict::Known { name, scheme: "Basic", is_admitted: None };
        }
        let (realm, who) = (Arc::clone(&rule.realm), name.clone());
        let cache = Arc::clone(&self.cache);
        let check = move || {
            // Requests for a page's resources arrive concurrently: a single check serves them all.
            let verified = &cache.verified;
            if verified.contains(&key, generation, now_ms, cache_ms) {
                return true;
            }
            let is_right = users.table.verify(&who, &realm, &password);
            if is_right && cache_ms > 0 {
                verified.insert(key, generation, now_ms, cache_ms);
            }
            is_right
        };
        match self.in_turn(ex, own, check).await {
            Ok(true) => Verdict::Known { name, scheme: "Basic", is_admitted: None },
            Ok(false) => Verdict::Wrong { name },
            Err(verdict) => verdict,
        }
    }

    /// Queues a hash and waits for its result, unless the client disconnects first.
    async fn in_turn<T: Send + 'static>(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Verdict> {
        let done = self.cache.turns.run(own.pending_max, ex.request.remote_ip(), job);
        tokio::select! {
            biased;
            done = done => done.ok_or(Fault::AuthBusy.into()),
            fault = ex.client_gone() => Err(fault.into()),
        }
    }

    async fn admits(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        name: &[u8],
    ) -> Result<bool, FaultReport> {
        #[cfg(feature = "identity")]
        if let Some(UserBackend::Outside(backend)) = own.backend
            && backend.has_groups()
        {
            return self.admits_outside(ex, own, rule, backend, name).await;
        }
        let mut groups = None;
        if rule.needs_groups() && own.plain_groups.is_empty() {
            ex.log(Level::Error, "auth.require: \"group=\" needs auth.backend.plain.groupfile");
        } else if rule.needs_groups() {
            let store = self.cache.groups(&own.plain_groups);
            groups = match self.load(ex, &store).await {
                Ok(groups) => Some(groups),
                Err(report) => return Err(report),
            };
        }
        Ok(rule.admits(name, groups.as_ref().map(|g| &g.table)))
    }

    /// Loads a file where blocking is allowed. Does not wait for password hashes, so cached
    /// credentials skip all queues.
    async fn load<T: Send + Sync + 'static>(
        &self,
        ex: &Exchange,
        store: &Arc<Store<T>>,
    ) -> Result<Arc<Loaded<T>>, FaultReport> {
        let now_ms = ex.machine.clock.mono_ms();
        if let Look::Fresh(loaded) = store.look(now_ms) {
            return Ok(loaded);
        }
        // Until the first read completes, only one request reads and occupies a thread.
        let _turn = match store.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = store.turn.lock().await;
                if let Some(loaded) = store.peek(now_ms) {
                    return Ok(loaded);
                }
                turn
            }
        };
        let (reader, now_s) = (Arc::clone(store), ex.machine.clock.unix_s());
        let refresh = move || reader.refresh(now_ms, now_s);
        match ThreadPool::global().run(Lane::Other, refresh).await {
            Ok(Ok((loaded, problems))) => {
                for problem in problems {
                    ex.log(Level::Warning, &problem);
                }
                Ok(loaded)
            }
            Ok(Err(error)) => Err(broken(error.to_string())),
            Err(_) => Err(Fault::AuthBusy.into()),
        }
    }
}

fn no_users() -> Verdict {
    broken("auth.backend, or its file of users, is not set").into()
}

/// The configuration or its files are at fault.
fn broken(detail: impl Into<Cow<'static, str>>) -> FaultReport {
    FaultReport::new(Fault::AuthBroken, detail)
}

/// True if the user was authenticated already, by another module or by an earlier pass of this
/// request: a nonce count is valid only once.
fn is_vouched_for(ex: &Exchange, own: &AuthSettings, rule: &Rule) -> bool {
    let request = &ex.request;
    match &request.auth_realm {
        Some(realm) => *realm == rule.realm,
        None => (own.extern_authn || rule.is_extern()) && !request.remote_user.is_empty(),
    }
}
