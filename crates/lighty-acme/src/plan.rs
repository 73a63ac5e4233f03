//! The work of the service's thread.

use crate::demand::OnDemand;
use crate::store::Store;
use crate::wanted::Wanted;

/// The certificates to maintain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Store of all files.
    pub store: Store,
    /// The certificates.
    pub wanted: Vec<Wanted>,
    /// Options of certificates on demand, if enabled.
    pub on_demand: Option<OnDemand>,
}
