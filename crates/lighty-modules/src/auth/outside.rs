//! Users of another machine or process, which checks their passwords.
//!
//! Checks take slots, and clients take turns for them. A login and the groups of its user share one
//! time limit. Right passwords and memberships are cached as with files.

mod address;
mod ldap;
mod ldap_settings;
mod pam;

use std::sync::Arc;

use lighty_config::Directive;
use lighty_core::{Exchange, Fault, FaultReport, Level, Settings, module_settings};
use lighty_identity::directory::DirectoryServer;
use lighty_io::clock::deadline::Deadline;
use lighty_io::process::pam::CHECK_MAX;
use tokio::time::timeout;

pub use address::DirectoryAddress;

use super::backend::OutsideBackend;
use super::require::Rule;
use super::settings::AuthSettings;
use super::verified::Key;
use super::{Auth, Verdict};
use ldap::LdapUsers;
use ldap_settings::LdapSettings;
pub use pam::services as pam_services;
use pam::{PamSettings, PamUsers};

/// Settings of these backends.
#[derive(Clone, Debug, Default)]
struct OutsideSettings {
    ldap: Arc<LdapSettings>,
    pam: PamSettings,
}
module_settings!(OutsideSettings);

/// State of these backends, shared by the workers.
#[derive(Default)]
pub(super) struct OutsideUsers {
    ldap: LdapUsers,
    pam: PamUsers,
}

/// A user with the right password.
struct OutsideUser {
    name: Vec<u8>,
    /// The name of the user's entry in the directory.
    dn: Option<Arc<str>>,
}

/// All rows.
pub(super) fn directives() -> Vec<Directive<Settings>> {
    let mut rows = ldap_settings::directives(|s| &mut s.module_mut::<OutsideSettings>().ldap);
    rows.extend(pam::directives(|s| &mut s.module_mut::<OutsideSettings>().pam));
    rows
}

/// Returns the addresses of directory servers; empty if the text is no list of them.
#[must_use]
pub fn directory_addresses(text: &str) -> Vec<DirectoryAddress> {
    let servers = DirectoryServer::parse_list(text).unwrap_or_default();
    servers.into_iter().map(DirectoryAddress::from).collect()
}

/// The result of a check.
enum OutsideVerdict {
    Wrong,
    Right {
        /// True if the user may pass; `None` if the backend has no groups.
        is_admitted: Option<bool>,
    },
}

/// Parts of the keys of verified logins and memberships.
enum Proof<'a> {
    Login { realm: &'a str, name: &'a [u8], password: &'a [u8] },
    Member { group: &'a str, name: &'a [u8] },
}

impl Auth {
    /// True if the password was verified recently, and the user may pass.
    pub(super) fn is_known_outside(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        name: &[u8],
        password: &[u8],
    ) -> bool {
        self.is_proven(ex, own, &Proof::Login { realm: &rule.realm, name, password })
            && (rule.admits(name, None)
                || rule
                    .groups()
                    .any(|group| self.is_proven(ex, own, &Proof::Member { group, name })))
    }

    /// Checks a password, and the user's groups if the rule asks for them.
    pub(super) async fn basic_outside(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        backend: OutsideBackend,
        name: Vec<u8>,
        password: Vec<u8>,
    ) -> Verdict {
        if self.is_known_outside(ex, own, rule, &name, &password) {
            return Verdict::Known { name, scheme: "Basic", is_admitted: Some(true) };
        }
        let check = self.check_outside(ex, own, rule, backend, &name, &password);
        tokio::select! {
            biased;
            checked = check => match checked {
                Ok(OutsideVerdict::Wrong) => Verdict::Wrong { name },
                Ok(OutsideVerdict::Right { is_admitted }) => {
                    Verdict::Known { name, scheme: "Basic", is_admitted }
                }
                Err(report) => report.into(),
            },
            fault = ex.client_gone() => fault.into(),
        }
    }

    async fn check_outside(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        backend: OutsideBackend,
        name: &[u8],
        password: &[u8],
    ) -> Result<OutsideVerdict, FaultReport> {
        let deadline = deadline_of(ex, backend);
        let _slot = self.slot(ex, own, backend, deadline).await?;
        let login = Proof::Login { realm: &rule.realm, name, password };
        let user = if self.is_proven(ex, own, &login) {
            // Requests for a page's resources arrive concurrently.
            OutsideUser { name: name.to_vec(), dn: None }
        } else {
            let user = match backend {
                OutsideBackend::Ldap => self.ldap_login(ex, name, password, deadline).await?,
                OutsideBackend::Pam => {
                    let settings = &ex.settings.module::<OutsideSettings>().pam;
                    self.pam_login(ex, settings, name, password, deadline).await?
                }
            };
            let Some(user) = user else { return Ok(OutsideVerdict::Wrong) };
            self.prove(ex, own, &login);
            user
        };
        let is_admitted = match backend.has_groups() {
            true => Some(self.admits_user(ex, own, rule, backend, &user, deadline).await?),
            false => None,
        };
        Ok(OutsideVerdict::Right { is_admitted })
    }

    /// True if a user that was verified before may pass.
    pub(super) async fn admits_outside(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        backend: OutsideBackend,
        name: &[u8],
    ) -> Result<bool, FaultReport> {
        if rule.admits(name, None) || !rule.needs_groups() {
            return Ok(rule.admits(name, None));
        }
        let check = async {
            let deadline = deadline_of(ex, backend);
            let _slot = self.slot(ex, own, backend, deadline).await?;
            let user = OutsideUser { name: name.to_vec(), dn: None };
            self.admits_user(ex, own, rule, backend, &user, deadline).await
        };
        tokio::select! {
            biased;
            admitted = check => admitted,
            fault = ex.client_gone() => Err(fault.into()),
        }
    }

    async fn admits_user(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        rule: &Rule,
        backend: OutsideBackend,
        user: &OutsideUser,
        deadline: Deadline,
    ) -> Result<bool, FaultReport> {
        if rule.admits(&user.name, None) {
            return Ok(true);
        }
        for group in rule.groups() {
            let membership = Proof::Member { group, name: &user.name };
            if self.is_proven(ex, own, &membership) {
                return Ok(true);
            }
            let is_member = match backend {
                OutsideBackend::Ldap => self.ldap_member(ex, user, group, deadline).await?,
                OutsideBackend::Pam => false,
            };
            if is_member {
                self.prove(ex, own, &membership);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for the right to one check.
    async fn slot(
        &self,
        ex: &Exchange,
        own: &AuthSettings,
        backend: OutsideBackend,
        deadline: Deadline,
    ) -> Result<super::slots::Slot, FaultReport> {
        let slots = match backend {
            OutsideBackend::Ldap => self.cache.outside.ldap.slots(ldap(ex))?,
            OutsideBackend::Pam => self.cache.outside.pam.slots(),
        };
        let slot = slots.enter(own.pending_max, ex.request.remote_ip());
        match timeout(deadline.left(), slot).await {
            Ok(Some(slot)) => Ok(slot),
            Ok(None) => Err(Fault::AuthBusy.into()),
            Err(_) => {
                let detail = "too many logins wait for an answer";
                Err(FaultReport::new(Fault::AuthUnreachable, detail))
            }
        }
    }

    fn proof_key(&self, ex: &Exchange, own: &AuthSettings, proof: &Proof<'_>) -> Option<Key> {
        let source = match own.outside_backend()? {
            OutsideBackend::Ldap => ldap(ex).source(),
            OutsideBackend::Pam => ex.settings.module::<OutsideSettings>().pam.source(),
        };
        let parts: [&[u8]; 4] = match proof {
            Proof::Login { realm, name, password } => [b"login", realm.as_bytes(), name, password],
            Proof::Member { group, name } => [b"member", group.as_bytes(), name, b""],
        };
        Some(self.cache.verified.key(&[&source[..], &parts[..]].concat()))
    }

    fn is_proven(&self, ex: &Exchange, own: &AuthSettings, proof: &Proof<'_>) -> bool {
        let now_ms = ex.machine.clock.mono_ms();
        self.proof_key(ex, own, proof)
            .is_some_and(|key| self.cache.verified.contains(&key, 0, now_ms, own.cache_ms))
    }

    fn prove(&self, ex: &Exchange, own: &AuthSettings, proof: &Proof<'_>) {
        if own.cache_ms > 0
            && let Some(key) = self.proof_key(ex, own, proof)
        {
            self.cache.verified.insert(key, 0, ex.machine.clock.mono_ms(), own.cache_ms);
        }
    }
}

/// The end of the time for a login with its groups, which begins now.
fn deadline_of(ex: &Exchange, backend: OutsideBackend) -> Deadline {
    Deadline::after(match backend {
        OutsideBackend::Ldap => ldap(ex).patience(),
        OutsideBackend::Pam => CHECK_MAX * 2,
    })
}

/// The request's directory.
fn ldap(ex: &Exchange) -> &Arc<LdapSettings> {
    &ex.settings.module::<OutsideSettings>().ldap
}

/// Logs a warning about a login.
fn warn(ex: &Exchange, text: &str) {
    ex.log(Level::Warning, text);
}
