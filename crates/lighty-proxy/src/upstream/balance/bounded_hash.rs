//! `bounded-hash`: like `carp`, but a backend above the mean load passes keys on.

use super::HashKey;
use super::hash::{client_hash, url_hash};
use super::rendezvous::winner;
use super::{BalanceKey, Balancer, BalancerRow, Choice};

pub(super) const ENTRY: BalancerRow = BalancerRow {
    names: &["bounded-hash"],
    doc: "by hash of `proxy-core.hash-key`, unless its load is above `proxy-core.hash-load`",
    create: |options| Box::new(BoundedHash::new(options.hash_key, options.load_percent)),
};

/// Lower bound of `load_percent`: at 100 the last address with room would get every key.
const LOAD_PERCENT_MIN: u32 = 101;

/// Consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam, 2016), with draws
/// instead of a ring: among the addresses with room, the one with the key's best draw gets it.
#[derive(Debug)]
pub(super) struct BoundedHash {
    key: HashKey,
    load_percent: u32,
}

impl BoundedHash {
    pub(super) fn new(key: HashKey, load_percent: u32) -> Self {
        Self { key, load_percent: load_percent.max(LOAD_PERCENT_MIN) }
    }
}

impl Balancer for BoundedHash {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        let hash = match self.key {
            HashKey::Url => url_hash(key.authority, key.target),
            HashKey::Client => key.client.map_or(key.random, client_hash),
        };
        let load = TotalLoad::of(choices, self.load_percent);
        let winner = winner(hash, choices, |choice| load.has_room(choice));
        debug_assert!(winner.is_some() || choices.is_empty(), "some address has room");
        winner.unwrap_or(0)
    }
}

/// Load of all choices together.
struct TotalLoad {
    /// Limit on the requests of all weight together, in hundredths, including the one to place.
    hundredths: u128,
    weight: u128,
}

impl TotalLoad {
    fn of(choices: &[Choice], load_percent: u32) -> TotalLoad {
        let busy: u128 = choices.iter().map(|c| u128::from(c.busy)).sum();
        let weight = choices.iter().map(|c| u128::from(c.weight.max(1))).sum();
        TotalLoad { hundredths: (busy + 1) * u128::from(load_percent), weight }
    }

    /// Returns true if the address has fewer requests than its share of all, rounded up. Since the
    /// shares add up to more than all requests, some address always has room.
    fn has_room(&self, choice: &Choice) -> bool {
        let share = self.hundredths * u128::from(choice.weight.max(1));
        u128::from(choice.busy) < share.div_ceil(self.weight * 100)
    }
}

#[cfg(test)]
mod tests {
    use super::super::carp::Carp;
    use super::super::tests::addresses;
    use super::*;

    fn url(target: &[u8]) -> BalanceKey<'_> {
        BalanceKey { authority: b"example.org", target, ..BalanceKey::default() }
    }

    #[test]
    fn idle_backends_get_what_carp_gives_them() {
        let choices = addresses(&[1, 2, 1, 4, 1]);
        for n in 0..1_000 {
            let target = format!("/{n}");
            let key = url(target.as_bytes());
            let bounded = BoundedHash::new(HashKey::Url, 125).pick(&choices, &key);
            assert_eq!(bounded, Carp.pick(&choices, &key));
        }
    }

    #[test]
    fn one_hot_key_is_spread_within_the_bound() {
        for (percent, most) in [(125, 25), (200, 40), (1, 21)] {
            let balancer = BoundedHash::new(HashKey::Url, percent);
            let mut choices = addresses(&[1, 1, 1, 1, 1]);
            for _ in 0..100 {
                let picked = balancer.pick(&choices, &url(b"/hot"));
                choices[picked].busy += 1;
            }
            let busiest = choices.iter().map(|c| c.busy).max();
            assert_eq!(busiest, Some(most), "{percent} %");
        }
    }

    #[test]
    fn the_bound_goes_by_weight() {
        let balancer = BoundedHash::new(HashKey::Client, 101);
        let mut choices = addresses(&[3, 1]);
        let key = BalanceKey { client: Some([192, 0, 2, 1].into()), ..BalanceKey::default() };
        for _ in 0..1_000 {
            let picked = balancer.pick(&choices, &key);
            choices[picked].busy += 1;
        }
        let busy: Vec<u32> = choices.iter().map(|c| c.busy).collect();
        assert!(busy[0].abs_diff(750) <= 8 && busy[1].abs_diff(250) <= 8, "{busy:?}");
    }
}
