//! `carp`: the same URL goes to the same backend.

use super::hash::url_hash;
use super::rendezvous::winner;
use super::{BalanceKey, Balancer, BalancerRow, Choice};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["carp", "hash"],
    doc: "that the URL's hash ranks highest: the same for the same URL, on every machine; one \
          that is lost moves only its own URLs",
    create: |_| Box::new(Carp),
};

/// Highest random weight by URL (Cache Array Routing Protocol, draft-vinod-carp-v1, with a hash
/// that yields uniform shares). When a backend goes, only its own URLs move.
#[derive(Debug)]
pub(super) struct Carp;

impl Balancer for Carp {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        winner(url_hash(key.authority, key.target), choices, |_| true).unwrap_or(0)
    }
}
