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

/// Maximum number of logins that a directory checks at the same time.
const CHECKS_MAX: usize = 64;

/// The directories of all configurations in use.
#[derive(Default)]
pub(super) struct LdapUsers(Mutex<BySettings>);

type BySettings = HashMap<Arc<LdapSettings>, DirectoryUsers, foldhash::fast::RandomState>;

/// The users of a directory. One that hangs holds its own slots alone.
#[derive(Clone)]
struct DirectoryUsers {
    accounts: Arc<DirectoryAccounts>,
    slots: Slots,
}

impl LdapUsers {
    /// The right to checks at a directory.
    pub(super) fn slots(&self, settings: &Arc<LdapSettings>) -> Result<Slots, FaultReport> {
        Ok(self.of(settings)?.slots)
    }

    fn of(&self, settings: &Arc<LdapSettings>) -> Result<DirectoryUsers, FaultReport> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(users) = all.get(settings) {
            return Ok(users.clone());
        }
        let accounts = Arc::new(settings.accounts().map_err(broken)?);
        let users = DirectoryUsers { accounts, slots: Slots::new(CHECKS_MAX) };
        // A configuration that has ended owns its settings no more.
        all.retain(|settings, _| Arc::strong_count(settings) > 1);
        all.insert(Arc::clone(settings), users.clone());
        Ok(users)
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
        let accounts = self.cache.outside.ldap.of(ldap(ex))?.accounts;
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
        let accounts = self.cache.outside.ldap.of(ldap(ex))?.accounts;
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
