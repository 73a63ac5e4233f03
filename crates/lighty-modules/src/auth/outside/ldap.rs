//! `auth.backend = "ldap"`: logins and groups of a directory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_core::{Exchange, Fault, FaultReport};
use lighty_identity::directory::{DirectoryAccounts, DirectoryError, Login};
use lighty_io::clock::deadline::Deadline;

use super::ldap_settings::LdapSettings;
use super::{OutsideUser, ldap, warn};
use crate::auth::answer::shown;
use crate::auth::slots::Slots;
use crate::auth::{Auth, broken};

/// Maximum number of logins that directories check at the same time.
const CHECKS_MAX: usize = 64;

/// The directories of all configurations in use.
pub(super) struct LdapUsers {
    accounts:
        Mutex<HashMap<Arc<LdapSettings>, Arc<DirectoryAccounts>, foldhash::fast::RandomState>>,
    slots: Slots,
}

impl Default for LdapUsers {
    fn default() -> Self {
        Self { accounts: Mutex::default(), slots: Slots::new(CHECKS_MAX) }
    }
}

impl LdapUsers {
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    fn of(&self, settings: &Arc<LdapSettings>) -> Result<Arc<DirectoryAccounts>, FaultReport> {
        let mut all = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(accounts) = all.get(settings) {
            return Ok(Arc::clone(accounts));
        }
        let accounts = Arc::new(settings.accounts().map_err(broken)?);
        // A configuration that has ended owns its settings no more.
        all.retain(|settings, _| Arc::strong_count(settings) > 1);
        all.insert(Arc::clone(settings), Arc::clone(&accounts));
        Ok(accounts)
    }
}

impl Auth {
    pub(super) async fn ldap_login(
        &self,
        ex: &Exchange,
        name: &[u8],
        password: &[u8],
        deadline: Deadline,
    ) -> Result<Option<OutsideUser>, FaultReport> {
        let accounts = self.cache.outside.ldap.of(ldap(ex))?;
        match accounts.login(name, password, deadline).await.map_err(report)? {
            Login::Right { dn } => Ok(Some(OutsideUser { name: name.to_vec(), dn: Some(dn) })),
            Login::Wrong => Ok(None),
            Login::Ambiguous => {
                let name = shown(name);
                warn(ex, &format!("auth.backend.ldap.filter finds several entries for {name}"));
                Ok(None)
            }
        }
    }

    pub(super) async fn ldap_member(
        &self,
        ex: &Exchange,
        user: &OutsideUser,
        group: &Arc<str>,
        deadline: Deadline,
    ) -> Result<bool, FaultReport> {
        let accounts = self.cache.outside.ldap.of(ldap(ex))?;
        let member = accounts.is_member(&user.name, user.dn.as_deref(), group, deadline);
        member.await.map_err(report)
    }
}

/// An unreachable directory is no fault of the configuration, and logins may succeed later.
fn report(error: DirectoryError) -> FaultReport {
    match error.is_unreachable() {
        true => FaultReport::new(Fault::AuthUnreachable, error.to_string()),
        false => broken(error.to_string()),
    }
}
