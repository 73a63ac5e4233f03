//! The memory of a store stays within its budget, and a tenth more, under any load.

use std::sync::Arc;

use bytes::Bytes;
use lighty_cache::flight::{FetchFailure, FlightHead, Passenger};
use lighty_cache::object::StoredHead;
use lighty_cache::purge::{PurgeKind, PurgeScope};
use lighty_cache::rules::{Freshness, FreshnessFlags, selecting_key};
use lighty_cache::store::{Joined, Pilot, ResponseStore, SliceMark, SliceVersion};
use lighty_http::{Fields, Status};

use super::counting;
use super::requests::{HOST, key, store};

/// Requests of a flood.
const COUNT: u32 = 6_000;

/// The head of a fresh response.
fn head(fields: Fields, names: &[&str], tags: &[u64]) -> StoredHead {
    let freshness = Freshness {
        received_s: 0,
        initial_age_s: 0,
        lifetime_s: 60,
        stale_while_revalidate_s: 0,
        stale_if_error_s: 0,
        flags: FreshnessFlags::default(),
    };
    let names = names.iter().map(|name| name.as_bytes().into()).collect();
    StoredHead { status: Status::OK, fields, freshness, names, language: None, tags: tags.into() }
}

/// Begins a flight, unless the store refuses.
fn begin(store: &Arc<ResponseStore>, target: &str, request: &Fields) -> Option<(Pilot, Passenger)> {
    match store.join(&key(target.as_bytes()), request, false, 1) {
        Joined::Begins(pilot, passenger) => Some((pilot, passenger)),
        _ => None,
    }
}

fn put(store: &Arc<ResponseStore>, target: &str, head: StoredHead, request: &Fields, body: &[u8]) {
    let Some((mut pilot, _passenger)) = begin(store, target, request) else { return };
    let selecting = selecting_key(&head.names, request).into();
    pilot.depart(FlightHead { head, selecting, length: None });
    for piece in body.chunks(1_000) {
        pilot.push(Bytes::copy_from_slice(piece));
    }
    pilot.land();
}

fn flood_field(number: u32) -> Fields {
    let mut fields = Fields::default();
    fields.push(b"X-Flood", number.to_string().as_bytes());
    fields
}

/// A load, and the parts of it that stay until its end.
type Flood = fn(&Arc<ResponseStore>, &mut Vec<Pilot>, &mut Vec<Passenger>, u32);

const FLOODS: [(&str, Flood); 17] = [
    ("objects", |store, _, _, number| {
        let target = format!("/o{number}");
        put(store, &target, head(Fields::default(), &[], &[]), &Fields::default(), &[b'x'; 2000]);
        // Every other one is used, and goes to the main queue.
        let uses = if number % 2 == 0 { 2 } else { 0 };
        (0..uses).for_each(|_| drop(store.find(&key(target.as_bytes()), &Fields::default())));
    }),
    ("replaced objects", |store, _, _, number| {
        let target = format!("/r{}", number % 300);
        put(store, &target, head(Fields::default(), &[], &[]), &Fields::default(), b"page");
        if let Some(object) = store.find(&key(target.as_bytes()), &Fields::default()) {
            store.remove(&object);
        }
    }),
    ("variants", |store, _, _, number| {
        let head = head(Fields::default(), &["x-flood"], &[]);
        put(store, "/v", head, &flood_field(number), &[b'x'; 200]);
    }),
    ("variants by many fields", |store, _, _, number| {
        let names: Vec<String> = (0..60).map(|name| format!("x-{name}-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let head = head(Fields::default(), &names, &[]);
        put(store, &format!("/n{number}"), head, &flood_field(number), b"page");
    }),
    ("tags", |store, _, _, number| {
        let tags: Vec<u64> = (0..60).map(|tag| u64::from(number) * 60 + tag).collect();
        let head = head(Fields::default(), &[], &tags);
        put(store, &format!("/t{number}"), head, &Fields::default(), b"page");
    }),
    ("fields without a body", |store, _, _, number| {
        let mut fields = Fields::default();
        (0..50).for_each(|_| fields.push(b"X-Fill", &[b'x'; 50]));
        put(store, &format!("/e{number}"), head(fields, &[], &[]), &Fields::default(), b"");
    }),
    ("long keys", |store, _, _, number| {
        let target = format!("/{number}{}", "k".repeat(6_000));
        put(store, &target, head(Fields::default(), &[], &[]), &Fields::default(), b"page");
    }),
    ("flights", |store, pilots, passengers, number| {
        let flight = begin(store, &format!("/f{number}"), &Fields::default());
        if let Some((pilot, passenger)) = flight {
            pilots.push(pilot);
            passengers.push(passenger);
        }
    }),
    ("flights with long keys", |store, pilots, passengers, number| {
        let target = format!("/{number}{}", "k".repeat(6_000));
        if let Some((pilot, passenger)) = begin(store, &target, &Fields::default()) {
            pilots.push(pilot);
            passengers.push(passenger);
        }
    }),
    ("passengers", |store, pilots, passengers, number| {
        let target = format!("/p{}", number / 9_000);
        match store.join(&key(target.as_bytes()), &Fields::default(), false, 1) {
            Joined::Begins(pilot, passenger) => {
                pilots.push(pilot);
                passengers.push(passenger);
            }
            Joined::Passenger(passenger) => passengers.push(passenger),
            _ => {}
        }
    }),
    ("arriving bodies", |store, pilots, passengers, number| {
        let flight = begin(store, &format!("/a{number}"), &Fields::default());
        if let Some((mut pilot, passenger)) = flight {
            let head = head(Fields::default(), &[], &[]);
            pilot.depart(FlightHead { head, selecting: Box::default(), length: None });
            (0..8).for_each(|_| _ = pilot.push(Bytes::from(vec![b'x'; 8_000])));
            pilots.push(pilot);
            passengers.push(passenger);
        }
    }),
    ("bodies in small pieces", |store, pilots, passengers, number| {
        if number % 100 == 0
            && let Some((mut pilot, passenger)) =
                begin(store, &format!("/s{number}"), &Fields::default())
        {
            let head = head(Fields::default(), &[], &[]);
            pilot.depart(FlightHead { head, selecting: Box::default(), length: None });
            // Parts of large buffers.
            (0..100).for_each(|_| _ = pilot.push(Bytes::from(vec![b'x'; 16_000]).slice(..1)));
            pilots.push(pilot);
            passengers.push(passenger);
        }
    }),
    ("marks", |store, _, _, number| {
        let flight = begin(store, &format!("/m{number}"), &Fields::default());
        if let Some((pilot, _passenger)) = flight {
            pilot.mark(1_000_000, number % 2 == 0);
            pilot.part();
        }
    }),
    ("failures", |store, _, _, number| {
        let flight = begin(store, &format!("/g{number}"), &Fields::default());
        if let Some((pilot, _passenger)) = flight {
            let failure = FetchFailure { status: 502, fault: Some(3) };
            pilot.hold(1_000_000, false, failure);
            pilot.fail(failure);
        }
    }),
    ("slices", |store, _, _, number| {
        let key = key(format!("/l{number}").as_bytes());
        store.mark_slices(&key, SliceMark::Passes, false, 1_000_000);
        let etag = format!("\"{number}\"").into_bytes().into();
        store.note_version(&key, b"", &SliceVersion { etag, total: 1 });
        store.drop_slices(&key, 1_000);
    }),
    ("purges", |store, _, _, number| {
        // As long as it stays, no rule is too old.
        if number == 0 {
            put(store, "/old", head(Fields::default(), &[], &[]), &Fields::default(), b"page");
        }
        let name = format!("name-{number}");
        store.purge(PurgeScope::Tag(name.as_bytes()), PurgeKind::Hard);
        store.purge(PurgeScope::Url(HOST, name.as_bytes()), PurgeKind::Soft);
    }),
    ("purges of prefixes", |store, _, _, number| {
        if number == 0 {
            put(store, "/old", head(Fields::default(), &[], &[]), &Fields::default(), b"page");
        }
        let path = format!("/{number}/{}", "x".repeat(4_000));
        store.purge(PurgeScope::Prefix(HOST, path.as_bytes()), PurgeKind::Hard);
    }),
];

/// Runs floods one after the other. Returns the largest memory after any request.
fn most_bytes(store: &Arc<ResponseStore>, floods: &[(&str, Flood)], before: i64) -> i64 {
    let mut all = 0;
    for (name, flood) in floods {
        let mut most = 0;
        // Room for all of them, so that the lists do not count while they grow.
        let (mut pilots, mut passengers) =
            (Vec::with_capacity(COUNT as usize), Vec::with_capacity(COUNT as usize));
        let lists = counting::live_bytes() - before;
        let empty = (COUNT as usize * (size_of::<Pilot>() + size_of::<Passenger>())) as i64;
        assert!(lists >= empty);
        for number in 0..COUNT {
            flood(store, &mut pilots, &mut passengers, number);
            most = most.max(counting::live_bytes() - before - empty);
        }
        let (objects, beside) = (store.extent().1 >> 10, store.beside_bytes() >> 10);
        println!("{name}: {} KiB, counted {objects} + {beside}", most >> 10);
        all = all.max(most);
    }
    all
}

fn share_of(memory: u64, most: i64) -> i64 {
    most * 100 / memory as i64
}

#[test]
fn each_flood_stays_within_the_budget() {
    let mut report = String::new();
    let mut worst = 0;
    for flood in &FLOODS {
        let before = counting::live_bytes();
        let store = store(2 << 20, 1024);
        let share = share_of(2 << 20, most_bytes(&store, &[*flood], before));
        report.push_str(&format!("{}: {share} %\n", flood.0));
        worst = worst.max(share);
    }
    println!("{report}");
    assert!(worst <= 110, "{report}");
}

#[test]
fn all_floods_together_stay_within_the_budget() {
    for memory in [2 << 20, 4 << 20] {
        let before = counting::live_bytes();
        let store = store(memory, 1024);
        let share = share_of(memory, most_bytes(&store, &FLOODS, before));
        println!("{} MiB: {share} %", memory >> 20);
        assert!(share <= 110, "{share} %");
        // Once they are over, objects have the room again.
        for number in 0..COUNT {
            let head = head(Fields::default(), &[], &[]);
            put(&store, &format!("/after/{number}"), head, &Fields::default(), &[b'x'; 2000]);
        }
        let objects = store.extent().1;
        println!("{} MiB: {} % are objects", memory >> 20, objects * 100 / memory);
        assert!(objects >= memory / 100 * 80, "{objects}");
    }
}

#[test]
fn no_fetch_is_shared_while_fetches_take_the_whole_budget() {
    let store = store(1 << 20, 4);
    let (none, mut flights) = (Fields::default(), Vec::new());
    let mut number = 0;
    while let Some(flight) = begin(&store, &format!("/{number}"), &none) {
        flights.push(flight);
        number += 1;
    }
    assert!((300..3_000).contains(&number), "{number}");
    let joined = |target: &[u8]| store.join(&key(target), &none, false, 1);
    assert!(matches!(joined(b"/new"), Joined::Crowded));
    assert!(matches!(joined(b"/0"), Joined::Passenger(_)), "a flight under way is joined");
    flights.truncate(flights.len() / 2);
    assert!(matches!(joined(b"/new"), Joined::Begins(..)));
}
