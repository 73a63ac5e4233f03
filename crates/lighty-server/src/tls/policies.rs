//! A worker's part in handshakes: policies for the settings of connections, and turns for their
//! computations.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use lighty_core::Settings;
use lighty_core::exchange::environment::Variables;
use lighty_core::settings::limits;
use lighty_core::settings::tls::TlsSettings;
use lighty_io::tls::{Policy, PolicyOptions, TlsError};
use tokio::sync::Semaphore;

use super::Tls;
use super::causes::Causes;
use crate::acme::Demand;

/// A worker's TLS state.
pub(crate) struct WorkerTls {
    shared: RefCell<Tls>,
    policies: RefCell<Policies>,
    /// A handshake needs a permit to compute.
    turn: Semaphore,
    /// Number of handshakes that wait for a permit.
    waiting: Cell<u32>,
    /// Sets of variables that many connections have.
    pub variables: SharedVariables,
    /// Causes of failed handshakes, so that the log is not written for each client.
    pub causes: Causes,
}

/// Policies by settings variant, whether connections carry HTTP, and the address that clients
/// without a host name want.
#[derive(Default)]
struct Policies {
    known: HashMap<(u64, bool, Option<IpAddr>), Arc<Policy>>,
    /// Version of the materials that they were made from.
    version: u64,
}

/// Sets of variables that many connections have: one for each version and suite.
#[derive(Default)]
pub(crate) struct SharedVariables(RefCell<Vec<Rc<Variables>>>);

/// Limit on the sets kept: there are fewer suites.
const VARIABLES_MAX: usize = 16;

impl SharedVariables {
    /// Returns the kept set that is equal, or keeps this one.
    pub(crate) fn share(&self, variables: Rc<Variables>) -> Rc<Variables> {
        let mut all = self.0.borrow_mut();
        if let Some(known) = all.iter().find(|known| **known == variables) {
            return Rc::clone(known);
        }
        if all.len() < VARIABLES_MAX {
            all.push(Rc::clone(&variables));
        }
        variables
    }
}

impl Default for WorkerTls {
    fn default() -> Self {
        Self {
            shared: RefCell::default(),
            policies: RefCell::default(),
            turn: Semaphore::new(1),
            waiting: Cell::new(0),
            variables: SharedVariables::default(),
            causes: Causes::default(),
        }
    }
}

impl WorkerTls {
    /// Switches to the files of another configuration.
    pub(crate) fn adopt(&self, shared: &Tls) {
        self.policies.take();
        self.shared.replace(shared.clone());
    }

    /// Returns the queue for names that are not in the configuration, if these settings permit
    /// certificates for such names.
    pub(crate) fn demand(&self, settings: &Settings) -> Option<Demand> {
        let shared = self.shared.borrow();
        let may_be = shared.demand.is_on() && settings.module::<TlsSettings>().is_managed;
        may_be.then(|| shared.demand.clone())
    }

    /// Like [`Materials::unnamed`](lighty_io::tls::Materials::unnamed).
    pub(crate) fn unnamed(&self, reached: Option<IpAddr>) -> Option<IpAddr> {
        self.shared.borrow().materials.unnamed(reached)
    }

    /// Returns the policy for connections under these settings.
    ///
    /// # Errors
    /// There is no policy; the message has the reason.
    pub(crate) fn policy(
        &self,
        settings: &Settings,
        is_raw: bool,
        unnamed: Option<IpAddr>,
    ) -> Result<Arc<Policy>, TlsError> {
        let shared = self.shared.borrow();
        let mut policies = self.policies.borrow_mut();
        let version = shared.materials.version();
        if policies.version != version || policies.known.len() >= limits::SETTINGS_VARIANTS_MAX {
            policies.known.clear();
            policies.version = version;
        }
        let key = (settings.variant.number(), is_raw, unnamed);
        if let Some(policy) = policies.known.get(&key) {
            return Ok(Arc::clone(policy));
        }
        let tls = settings.module::<TlsSettings>();
        let alpn = super::alpn(settings, is_raw);
        let options = tls.policy_options(alpn).map_err(|error| error.to_string())?;
        let options = PolicyOptions { unnamed, ..options };
        let policy = Policy::new(&options, &shared.materials, &shared.tickets)?;
        let policy = Arc::new(policy.logging_keys_to(shared.key_log.as_ref()));
        policies.known.insert(key, Arc::clone(&policy));
        Ok(policy)
    }

    /// Waits until a handshake may take an expensive step. Each turn of the event loop has one such
    /// step, in the order of arrival, so that other connections wait for one at most.
    pub(crate) async fn take_turn(&self) {
        let _waiting = TurnWait::begin(&self.waiting);
        // It is never closed.
        let Ok(_turn) = self.turn.acquire().await else { return };
        tokio::task::yield_now().await;
    }

    /// Handshakes that wait for their turn.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.get()
    }
}

/// Counts a handshake that waits.
struct TurnWait<'a>(&'a Cell<u32>);

impl<'a> TurnWait<'a> {
    fn begin(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for TurnWait<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
