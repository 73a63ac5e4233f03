//! `source-hash`: the same client goes to the same backend.

use super::hash::client_hash;
use super::rendezvous::winner;
use super::{BalanceKey, Balancer, BalancerRow, Choice};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["source-hash"],
    doc: "that the hash of the client's address ranks highest",
    create: |_| Box::new(SourceHash),
};

/// Highest random weight by the client's address; a random address for a client without one (a unix
/// socket).
#[derive(Debug)]
pub(super) struct SourceHash;

impl Balancer for SourceHash {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        winner(key.client.map_or(key.random, client_hash), choices, |_| true).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::addresses;
    use super::*;

    #[test]
    fn a_client_stays_where_it_is_and_clients_spread() {
        let choices = addresses(&[1, 1, 1, 1]);
        let mut counts = [0usize; 4];
        for n in 0..4_000u32 {
            let client = Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into());
            let pick = |random| {
                SourceHash.pick(&choices, &BalanceKey { client, random, ..BalanceKey::default() })
            };
            assert_eq!(pick(1), pick(2));
            counts[pick(1)] += 1;
        }
        assert!(counts.iter().all(|n| n.abs_diff(1_000) < 100), "{counts:?}");
    }
}
