//! Properties of every balancer, and figures that depend on balancing alone.

use proptest::prelude::*;

use super::HashKey;
use super::*;

mod simulation;

/// Returns idle addresses with these weights, named `10.0.0.N:80`.
pub(super) fn addresses(weights: &[u32]) -> Vec<Choice> {
    (0..).zip(weights).map(|(index, weight)| address(index, *weight)).collect()
}

fn address(index: u32, weight: u32) -> Choice {
    let name_hash = name_hash(format!("10.0.0.{index}:80").as_bytes());
    Choice { index, name_hash, weight: weight * 1000, busy: 0, first_byte_us: 0 }
}

/// Returns how often each choice is picked in `rounds` requests that differ only in their random
/// number, client and URL.
pub(super) fn pick_counts(balancer: &dyn Balancer, choices: &[Choice], rounds: u64) -> Vec<usize> {
    let mut counts = vec![0; choices.len()];
    for n in 0..rounds {
        let target = format!("/images/{n}.png");
        counts[balancer.pick(choices, &key(&target, n))] += 1;
    }
    counts
}

fn key(target: &str, n: u64) -> BalanceKey<'_> {
    BalanceKey {
        authority: b"www.example.org",
        target: target.as_bytes(),
        client: Some(std::net::Ipv4Addr::from_bits(n as u32).into()),
        sticky: None,
        random: name_hash(&n.to_le_bytes()),
    }
}

/// Returns a balancer by its word.
pub(super) fn spec(word: &str) -> BalancerSpec {
    let algorithm = Algorithm::named(word).unwrap_or_else(|| panic!("{word} is a balancer"));
    BalancerSpec { algorithm, ..BalancerSpec::default() }
}

/// Returns every algorithm, and variants of some with options and cookies.
fn kinds() -> Vec<BalancerSpec> {
    let mut kinds: Vec<_> = REGISTRY.iter().map(|entry| spec(entry.names[0])).collect();
    let options = BalancerOptions { hash_key: HashKey::Client, load_percent: 110 };
    kinds.push(BalancerSpec { options, ..spec("bounded-hash") });
    kinds.push(BalancerSpec { cookie: Some("ID".into()), ..BalancerSpec::default() });
    kinds
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let one = (0u32..64, any::<u64>(), 1u32..=u32::MAX, any::<u32>(), any::<u32>());
    prop::collection::vec(one, 1..40).prop_map(|all| {
        let choice = |(index, name_hash, weight, busy, first_byte_us)| Choice {
            index,
            name_hash,
            weight,
            busy,
            first_byte_us,
        };
        all.into_iter().map(choice).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_pick_is_out_of_bounds(rounds in prop::collection::vec((choices(), any::<u64>()), 1..20)) {
        for kind in kinds() {
            let balancer = create(&kind);
            for (choices, random) in &rounds {
                let key = BalanceKey { random: *random, sticky: Some(*random), ..BalanceKey::default() };
                prop_assert!(balancer.pick(choices, &key) < choices.len(), "{kind:?}");
            }
        }
    }

    /// Each address gets its share by weight: of turns nearly exactly, of random draws and of
    /// hashes to within five standard deviations.
    #[test]
    fn shares_go_by_weight(weights in prop::collection::vec(1u32..=20, 2..8)) {
        const ROUNDS: u32 = 10_000;
        let choices = addresses(&weights);
        let total: u32 = weights.iter().sum();
        for kind in kinds().into_iter().filter(|kind| *kind != spec("static")) {
            let exact = kind == spec("round-robin") || kind == spec("sqf");
            let counts = pick_counts(&*create(&kind), &choices, u64::from(ROUNDS));
            for (weight, count) in weights.iter().zip(counts) {
                let share = f64::from(*weight) / f64::from(total);
                let mean = share * f64::from(ROUNDS);
                let slack = if exact { 8.0 } else { 5.0 * (mean * (1.0 - share)).sqrt() };
                let off = (count as f64 - mean).abs();
                prop_assert!(off <= slack, "{kind:?} {weights:?}: {count} for {mean}");
            }
        }
    }

    /// While requests arrive and stay, an address that is left out has no longer queue than others:
    /// only `static` leaves an address idle forever.
    #[test]
    fn no_client_starves(weights in prop::collection::vec(1u32..=5, 2..8)) {
        for kind in kinds().into_iter().filter(|kind| *kind != spec("static")) {
            let balancer = create(&kind);
            let mut choices = addresses(&weights);
            for n in 0..2_000 {
                let target = format!("/{n}");
                let picked = balancer.pick(&choices, &key(&target, n));
                choices[picked].busy += 1;
                choices[picked].first_byte_us = 1_000;
            }
            prop_assert!(choices.iter().all(|c| c.busy > 0), "{kind:?} {weights:?}");
        }
    }
}

#[test]
fn an_algorithm_is_a_file_and_a_line_of_the_registry() {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/upstream/balance"));
    let texts = folder.expect("the sources").flatten().map(|file| file.path());
    let entries = texts
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .filter(|text| text.contains("\npub(super) const ENTRY: BalancerRow"));
    assert_eq!(entries.count(), REGISTRY.len());
}

#[test]
fn static_takes_the_first_of_those_left() {
    let balancer = create(&spec("static"));
    let choices = addresses(&[1, 9, 9]);
    assert_eq!(balancer.pick(&choices, &BalanceKey::default()), 0);
    assert_eq!(balancer.pick(&choices[1..], &BalanceKey::default()), 0);
}

const URLS: usize = 100_000;

/// Returns the index of the backend for each URL.
fn chosen_of(choices: &[Choice]) -> Vec<u32> {
    let balancer = create(&spec("carp"));
    let index = |n| {
        let target = format!("/images/{n}.png");
        choices[balancer.pick(choices, &key(&target, 0))].index
    };
    (0..URLS).map(index).collect()
}

#[test]
fn carp_shares_urls_evenly_and_moves_only_those_of_the_lost_backend() {
    let choices = addresses(&[1; 5]);
    let before = chosen_of(&choices);
    for index in 0..5 {
        let count = before.iter().filter(|p| **p == index).count();
        let share = count as f64 / (URLS / 5) as f64;
        println!("carp: backend {index} has {share:.4} of its share");
        assert!((share - 1.0).abs() < 0.02, "{index}: {share}");
    }
    let mut left = choices;
    left.remove(2);
    let after = chosen_of(&left);
    let moved = before.iter().zip(&after).filter(|(b, a)| **b != 2 && a != b).count();
    assert_eq!(moved, 0);
    for index in [0, 1, 3, 4] {
        let share = after.iter().filter(|p| **p == index).count() as f64 / (URLS / 4) as f64;
        assert!((share - 1.0).abs() < 0.02, "{index}: {share}");
    }
}

#[test]
fn carp_shares_by_weight_and_a_grown_weight_only_attracts() {
    let weights = [1, 2, 3, 4, 10];
    let mut choices = addresses(&weights);
    let before = chosen_of(&choices);
    for (index, weight) in (0..).zip(weights) {
        let count = before.iter().filter(|p| **p == index).count();
        let share = count as f64 / (URLS as f64 * f64::from(weight) / 20.0);
        assert!((share - 1.0).abs() < 0.03, "{index}: {share}");
    }
    choices[0].weight *= 2;
    let after = chosen_of(&choices);
    assert!(before.iter().zip(&after).all(|(b, a)| b == a || *a == 0));
}

#[test]
fn carp_chooses_the_same_on_every_machine() {
    let chosen: Vec<u32> = chosen_of(&addresses(&[1, 1, 2, 1, 3]))[..16].to_vec();
    assert_eq!(chosen, PLACES_OF_THE_FIRST_URLS);
}

/// Fixed values: a change here means a cold cache everywhere.
const PLACES_OF_THE_FIRST_URLS: [u32; 16] = [4, 1, 1, 1, 2, 4, 4, 4, 4, 4, 2, 4, 2, 4, 3, 2];
