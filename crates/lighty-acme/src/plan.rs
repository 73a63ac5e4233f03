//! Everything that the thread looks after.

use crate::demand::OnDemand;
use crate::store::Store;
use crate::wanted::Wanted;

/// What the thread looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where everything is kept.
    pub store: Store,
    /// The certificates.
    pub wanted: Vec<Wanted>,
    /// Certificates of further names, when clients want them.
    pub on_demand: Option<OnDemand>,
}
