//! Limits of time and memory that a store keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lighty_cache::flight::FlightHead;
use lighty_cache::object::StoredHead;
use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::rules::{Freshness, FreshnessFlags};
use lighty_cache::store::{Joined, ResponseStore};
use lighty_http::{Fields, Status};

use super::counting;
use super::requests::{key, store};

/// Stores a body under a target, with these tags. Returns false if it is not stored afterwards.
fn put(store: &Arc<ResponseStore>, target: &[u8], body: &[u8], tags: &[u64]) {
    let joined = store.join(&key(target), &Fields::default(), false, 0);
    let Joined::Begins(mut pilot, _passenger) = joined else { panic!("a flight") };
    let freshness = Freshness {
        received_s: 0,
        initial_age_s: 0,
        lifetime_s: 60,
        stale_while_revalidate_s: 0,
        stale_if_error_s: 0,
        flags: FreshnessFlags::default(),
    };
    let (status, fields) = (Status::OK, Fields::default());
    let head = StoredHead {
        status,
        fields,
        freshness,
        names: Box::default(),
        tags: tags.into(),
        language: None,
    };
    pilot.depart(FlightHead { head, selecting: Box::default(), length: None });
    pilot.push(Bytes::copy_from_slice(body));
    pilot.land();
}

fn has(store: &ResponseStore, target: &[u8]) -> bool {
    store.find(&key(target), &Fields::default()).is_some()
}

#[test]
fn purge_of_a_tag_takes_no_time_for_its_objects() {
    let store = store(1 << 30, 32);
    let tags = [store.tag(b"news"), store.tag(b"other")];
    let targets: Vec<String> = (0..100_000).map(|number| format!("/{number}")).collect();
    for target in &targets {
        put(&store, target.as_bytes(), b"page", &tags);
    }
    assert!(targets.iter().step_by(1000).all(|target| has(&store, target.as_bytes())));
    let mut shortest = Duration::MAX;
    for target in targets.iter().take(5) {
        let begun = Instant::now();
        store.purge(PurgeScope::Tag(b"news"), PurgeKind::Hard);
        shortest = shortest.min(begun.elapsed());
        assert!(!has(&store, target.as_bytes()), "the next hit misses already");
    }
    println!("purge of a tag with 100,000 objects: {shortest:?}");
    assert!(shortest < Duration::from_millis(1), "{shortest:?}");
    assert!(targets.iter().all(|target| !has(&store, target.as_bytes())));
    assert_eq!(store.extent(), (0, 0));
}

#[test]
fn many_rules_cost_a_hit_nothing() {
    let store = store(1 << 30, 32);
    put(&store, b"/hot", b"page", &[]);
    let time = || {
        let key = key(b"/hot");
        let fields = Fields::default();
        let once = || {
            let begun = Instant::now();
            (0..20_000).for_each(|_| assert!(store.find(&key, &fields).is_some()));
            begun.elapsed() / 20_000
        };
        (0..7).map(|_| once()).min().unwrap_or_default()
    };
    let before = time();
    for number in 0..90_000 {
        store.purge(PurgeScope::Tag(format!("tag{number}").as_bytes()), PurgeKind::Hard);
    }
    let after = time();
    println!("a hit: {before:?}, with 90,000 rules {after:?}");
    assert!(after < before * 2 + Duration::from_micros(1), "{before:?} {after:?}");
}

#[test]
fn million_rules_leave_with_the_responses_before_them() {
    let store = store(64 << 20, 32);
    put(&store, b"/hot", b"page", &[]);
    let mut most = 0;
    for number in 0..1_000_000_u32 {
        let tag = number.to_le_bytes();
        store.purge(PurgeScope::Tag(&tag), PurgeKind::Hard);
        // Responses come and go, and one is used all the time.
        if number % 100 == 0 {
            let target = format!("/{}", number % 5_000);
            put(&store, target.as_bytes(), b"page", &[store.tag(b"news")]);
            assert!(has(&store, b"/hot"), "{number}");
        }
        most = most.max(store.beside_bytes());
    }
    println!("a million rules: {} left, at most {most} bytes", store.purge_rules());
    assert!(most <= 64 << 20 >> 4, "{most}");
    store.purge(PurgeScope::Tag(b"news"), PurgeKind::Hard);
    assert!((0..50).all(|number| !has(&store, format!("/{}", number * 100).as_bytes())));
    store.purge(PurgeScope::All, PurgeKind::Hard);
    assert!(!has(&store, b"/hot"));
    assert_eq!(store.purge_rules(), 0, "everything from before is gone");
}

#[test]
fn hit_allocates_nothing() {
    let store = store(1 << 20, 32);
    put(&store, b"/hot", b"page", &[]);
    let (key, fields) = (key(b"/hot"), Fields::default());
    assert!(store.find(&key, &fields).is_some());
    let before = counting::own_allocations();
    for _ in 0..1000 {
        assert!(store.find(&key, &fields).is_some());
    }
    assert_eq!(counting::own_allocations() - before, 0);
}

#[test]
fn scan_leaves_the_hot_set_in_the_store() {
    const OBJECTS: u64 = 2000;
    let body = vec![b'x'; 1000];
    // An object takes about 1.6 KB with all that belongs to it.
    let store = store(OBJECTS * 1600, 32);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    // Half of the store's objects, the low numbers more often.
    let mut hot_hits = |count: u32, scan: &mut dyn FnMut()| {
        let mut hits = 0_u32;
        for _ in 0..count {
            let number = next(OBJECTS / 2).min(next(OBJECTS / 2));
            let target = format!("/hot/{number}");
            if has(&store, target.as_bytes()) {
                hits += 1;
            } else {
                put(&store, target.as_bytes(), &body, &[]);
            }
            scan();
        }
        f64::from(hits) * 100.0 / f64::from(count)
    };
    let _ = hot_hits(20_000, &mut || {});
    let before = hot_hits(20_000, &mut || {});
    let mut scanned = 0_u64;
    let during = hot_hits(20_000, &mut || {
        if scanned < OBJECTS * 10 {
            let target = format!("/scan/{scanned}");
            scanned += 1;
            assert!(!has(&store, target.as_bytes()));
            put(&store, target.as_bytes(), &body, &[]);
        }
    });
    let after = hot_hits(20_000, &mut || {});
    println!("hits of the hot set: {before:.2} %, beside the scan {during:.2}, after {after:.2}");
    assert!(before - during <= 2.0 && before - after <= 2.0, "{before} {during} {after}");
}

#[test]
fn objects_stay_within_the_budget() {
    let memory = 1 << 20;
    let store = store(memory, 4);
    for number in 0..5000_u32 {
        let tags: Vec<u64> = (0..number % 64).map(u64::from).collect();
        let body = vec![b'x'; (number % 7000) as usize];
        put(&store, format!("/{}", number % 3000).as_bytes(), &body, &tags);
        assert!(store.extent().1 <= memory);
    }
    assert!(store.counters().evicted.load(Ordering::Relaxed) > 0);
    assert_eq!(store.counters().flights.load(Ordering::Relaxed), 0);
    assert_eq!(store.counters().arriving_bytes.load(Ordering::Relaxed), 0);
}

/// Private memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn counted_bytes_are_those_that_objects_take() {
    const COUNT: u64 = 20_000;
    for size in [0, 100, 1000, 10_000] {
        let before = resident();
        let store = store(1 << 40, 32);
        let body = vec![b'x'; size];
        for number in 0..COUNT {
            put(&store, format!("/some/path/{number}").as_bytes(), &body, &[]);
        }
        let (counted, taken) = (store.extent().1, resident() - before);
        println!("{size} bytes: counted {}, taken {}", counted / COUNT, taken / COUNT);
        assert!(taken <= counted + counted / 10, "{size}: counted {counted}, taken {taken}");
        // The next round is to find no free memory.
        std::mem::forget(store);
    }
}
