//! The work of the service's thread.

use crate::demand::OnDemand;
use crate::store::Store;
use crate::wanted::CertificateSpec;

/// The certificates to maintain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePlan {
    /// Store of all files.
    pub store: Store,
    /// The certificates.
    pub wanted: Vec<CertificateSpec>,
    /// Options of certificates on demand, if enabled.
    pub on_demand: Option<OnDemand>,
}
