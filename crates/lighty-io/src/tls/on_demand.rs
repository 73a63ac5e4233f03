//! Certificates for names that are not in the configuration, added while the server runs.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::sign::CertifiedKey;

use super::pem_file::{PairFiles, read_pair};
use super::tls_error::TlsError;

type CertifiedKeys = HashMap<Box<str>, Arc<CertifiedKey>>;

/// Certificates with their keys, by lower-case name. Clones share them, so they outlive a
/// configuration.
#[derive(Clone, Default)]
pub struct OnDemandPairs(Arc<RwLock<CertifiedKeys>>);

impl OnDemandPairs {
    /// Loads a name's certificate, replacing the previous one. Its file holds the key as well.
    ///
    /// # Errors
    /// A message: the file cannot be read, or does not hold a certificate with its key. The
    /// previous certificate stays.
    pub fn load(&self, name: &str, file: &Path) -> Result<(), TlsError> {
        let chain: Arc<str> = file.to_str().ok_or("a path that is not UTF-8")?.into();
        let pair = Arc::new(read_pair(&PairFiles { chain, key: None })?);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), pair);
        Ok(())
    }

    /// Removes a name's certificate.
    pub fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// True if there is a certificate for this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// The certificate for this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl fmt::Debug for OnDemandPairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDemandPairs")
    }
}

/// Two are equal if they share their certificates.
impl PartialEq for OnDemandPairs {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OnDemandPairs {}
