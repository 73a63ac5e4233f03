//! Times of a store on a disk with many small objects: storing, starting anew, purging.
//!
//! `cargo run --release -p lighty-cache --example many_objects -- DIRECTORY OBJECTS BODY_BYTES`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lighty_cache::disk::{Disk, DiskLimits, DiskState};
use lighty_cache::flight::FlightHead;
use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::object::StoredHead;
use lighty_cache::purge::{KeyPlaces, PurgeKind, PurgeScope};
use lighty_cache::rules::{Freshness, FreshnessFlags};
use lighty_cache::store::{Joined, Limits, ResponseStore};
use lighty_http::{Fields, Status};

const PLACES: KeyPlaces = KeyPlaces { host: 0, target: 1 };

fn open(path: &Path) -> Arc<ResponseStore> {
    let disk = DiskLimits {
        bytes: 1 << 36,
        memory_object_bytes: 64 << 10,
        queued_bytes: 16 << 20,
        free_percent: 0,
        verifies_always: false,
    };
    let report = Box::new(|text: &str| eprintln!("{text}"));
    let disk = Disk::prepare(path, PLACES, disk, report).expect("a usable directory");
    let limits =
        Limits { memory: 1 << 31, object_bytes: 1 << 20, disk_from_bytes: 64 << 10, variants: 32 };
    ResponseStore::on_disk(limits, PLACES, disk).expect("a thread")
}

fn key(number: u64) -> Key {
    let target = format!("/articles/{number}");
    KeyWriter::default().part(b"www.example.org").part(target.as_bytes()).finish()
}

fn head(store: &ResponseStore) -> StoredHead {
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/html");
    fields.push(b"Cache-Control", b"max-age=600");
    let freshness = Freshness {
        received_s: 0,
        initial_age_s: 0,
        lifetime_s: 600,
        stale_while_revalidate_s: 0,
        stale_if_error_s: 0,
        flags: FreshnessFlags::default(),
    };
    let tags = ["all", "articles"].map(|tag| store.tag(tag.as_bytes())).into();
    StoredHead {
        status: Status::OK,
        fields,
        freshness,
        names: Box::default(),
        tags,
        language: None,
    }
}

fn put(store: &Arc<ResponseStore>, number: u64, head: &StoredHead, body: &Bytes) {
    let (key, none) = (key(number), Fields::default());
    let Joined::Begins(mut pilot, _) = store.join(&key, &none, false, 0) else { return };
    let length = Some(body.len() as u64);
    pilot.depart(FlightHead { head: head.clone(), selecting: Box::default(), length });
    pilot.push(body.clone());
    pilot.land();
    // Only what is used again is written.
    let _ = store.find(&key, &none);
}

fn wait(store: &ResponseStore, is_done: impl Fn(&Disk) -> bool) {
    let disk = store.disk().expect("a disk");
    while !is_done(disk) {
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a directory");
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let objects = number(arguments.next()).unwrap_or(1_000_000);
    let body = Bytes::from(vec![b'x'; number(arguments.next()).unwrap_or(1024) as usize]);
    let path = Path::new(&path);

    let store = open(path);
    wait(&store, |disk| disk.state() == DiskState::Ready);
    let (begin, head) = (Instant::now(), head(&store));
    // All are written at once, rather than when they leave memory.
    store.limit(Limits {
        memory: 1 << 31,
        object_bytes: 1 << 20,
        disk_from_bytes: 0,
        variants: 32,
    });
    for one in 0..objects {
        put(&store, one, &head, &body);
        if one % 4_096 == 0 {
            let disk = store.disk().expect("a disk");
            let dropped = |disk: &Disk| disk.counters().written.load(Ordering::Relaxed);
            wait(&store, |_| dropped(disk) + 8_192 > one);
        }
    }
    store.close(Duration::from_secs(600));
    let (took, disk) = (begin.elapsed(), store.disk().expect("a disk"));
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let counters = disk.counters();
    println!(
        "stored {} of {objects} in {took:.2?}: {:.0} MB/s, {:.4} writes each, {} dropped",
        count(&counters.written),
        count(&counters.written_bytes) as f64 / took.as_secs_f64() / 1e6,
        count(&counters.writes) as f64 / count(&counters.written) as f64,
        count(&counters.dropped),
    );
    println!("index: {} bytes each", disk.index_bytes() / disk.count().max(1) as u64);
    drop(store);

    let begin = Instant::now();
    let store = open(path);
    let first = (objects - 1, Fields::default());
    wait(&store, |_| store.locate(&key(first.0), &first.1).is_some());
    let place = store.locate(&key(first.0), &first.1).expect("there");
    store.load(&key(first.0), &first.1, &place).expect("whole");
    println!("first response after {:.2?}", begin.elapsed());
    wait(&store, |disk| disk.state() == DiskState::Ready);
    let disk = store.disk().expect("a disk");
    println!("index of {} complete after {:.2?}", disk.count(), begin.elapsed());
    let begin = Instant::now();
    store.purge(PurgeScope::Tag(b"articles"), PurgeKind::Hard);
    let purged = begin.elapsed();
    let place = store.locate(&key(0), &Fields::default()).expect("in the index");
    assert!(store.load(&key(0), &Fields::default(), &place).is_none(), "purged");
    println!("tag of all purged in {purged:.2?}");
    store.close(Duration::from_secs(600));
}
