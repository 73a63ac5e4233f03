//! Rates of clients, for the process that takes this one's place.

use lighty_config::Config;
use lighty_core::Settings;
use serde::{Deserialize, Serialize};

use super::continued::limits_of;
use super::table::EvasiveKey;

/// Maximum keys of all limits together that pass to another process. Those that wait longest are
/// the first.
pub const CARRIED_KEYS_MAX: usize = 100_000;

/// Keys that have used a limit of requests up. Members may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CarriedRate {
    /// The conditions around the limit.
    place: String,
    /// Its number within the place.
    number: usize,
    /// The kind of its keys, as in the configuration.
    counts_by: String,
    keys: Vec<CarriedKey>,
}

/// A key of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedKey {
    /// The halves of the key.
    key: (u64, u64),
    /// Microseconds for which its admitted requests are ahead of the rate.
    ahead_us: u64,
}

impl CarriedKey {
    fn new(key: EvasiveKey, ahead_us: u64) -> Self {
        Self { key: ((key >> 64) as u64, key as u64), ahead_us }
    }

    fn key(self) -> EvasiveKey {
        EvasiveKey::from(self.key.0) << 64 | EvasiveKey::from(self.key.1)
    }
}

/// Returns the rates of all clients under a configuration. `now_us` is monotonic.
pub fn remember_rates(config: &Config<Settings>, now_us: u64) -> Vec<CarriedRate> {
    let mut all = Vec::new();
    for ((place, _, number), limit) in limits_of(config) {
        let Some(rate) = &limit.requests else { continue };
        let ahead = rate.table.ahead_us(now_us).into_iter();
        let keys = ahead.map(|(key, ahead_us)| CarriedKey::new(key, ahead_us)).collect();
        all.push(CarriedRate { place, number, counts_by: rate.key.to_string(), keys });
    }
    keep_longest(&mut all, CARRIED_KEYS_MAX);
    all.retain(|rate| !rate.keys.is_empty());
    all
}

/// Keeps the keys that wait longest, so many of them.
fn keep_longest(all: &mut [CarriedRate], keys_max: usize) {
    let mut waits_us: Vec<u64> =
        all.iter().flat_map(|rate| &rate.keys).map(|key| key.ahead_us).collect();
    if waits_us.len() <= keys_max {
        return;
    }
    waits_us.sort_unstable_by_key(|wait_us| std::cmp::Reverse(*wait_us));
    let least_us = waits_us.get(keys_max).copied().unwrap_or(0);
    // Room for keys that wait as long as the first one that is left out.
    let mut room = keys_max - waits_us.partition_point(|wait_us| *wait_us > least_us);
    for rate in all {
        rate.keys.retain(|key| {
            let is_kept = key.ahead_us > least_us || key.ahead_us == least_us && room > 0;
            room -= usize::from(is_kept && key.ahead_us == least_us);
            is_kept
        });
    }
}

/// Continues the rates of the process before this one, in limits at the same places that count by
/// the same key. No client waits longer than the limit of this configuration has it wait.
pub fn recall_rates(config: &Config<Settings>, rates: Vec<CarriedRate>, now_us: u64) {
    let limits = limits_of(config);
    let mut room = CARRIED_KEYS_MAX;
    for rate in rates {
        let found = limits.iter().find(|((place, _, number), limit)| {
            let own = limit.requests.as_ref();
            *place == rate.place
                && *number == rate.number
                && own.is_some_and(|own| own.key.to_string() == rate.counts_by)
        });
        let Some(own) = found.and_then(|(_, limit)| limit.requests.as_ref()) else { continue };
        for key in rate.keys.into_iter().take(room) {
            own.table.recall(key.key(), key.ahead_us, now_us);
            room = room.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(place: &str, ahead_us: &[u64]) -> CarriedRate {
        let key = |ahead_us: &u64| CarriedKey::new(u128::MAX - 1, *ahead_us);
        let keys = ahead_us.iter().map(key).collect();
        CarriedRate { place: place.to_owned(), keys, ..CarriedRate::default() }
    }

    #[test]
    fn keys_that_wait_longest_are_kept() {
        let mut all = [rate("a", &[5, 1, 9]), rate("b", &[7, 2])];
        keep_longest(&mut all, 5);
        assert_eq!(all, [rate("a", &[5, 1, 9]), rate("b", &[7, 2])]);
        keep_longest(&mut all, 2);
        assert_eq!(all, [rate("a", &[9]), rate("b", &[7])]);
        keep_longest(&mut all, 0);
        assert_eq!(all, [rate("a", &[]), rate("b", &[])]);
        let mut equal = [rate("a", &[4, 4]), rate("b", &[4, 6])];
        keep_longest(&mut equal, 3);
        assert_eq!(equal, [rate("a", &[4, 4]), rate("b", &[6])]);
    }

    #[test]
    fn keys_survive_as_json() {
        let rates = [rate("a", &[5])];
        let text = serde_json::to_string(&rates).expect("JSON");
        let read: Vec<CarriedRate> = serde_json::from_str(&text).expect("the same");
        assert_eq!((read[0].keys[0].key(), &read[..]), (u128::MAX - 1, &rates[..]));
        let read: CarriedRate = serde_json::from_str(r#"{"of_the_future": 1}"#).expect("a rate");
        assert_eq!(read, CarriedRate::default());
    }
}
