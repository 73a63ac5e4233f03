//! Stores on a disk: what comes back after a restart, and what does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lighty_http::{Fields, Known};
use lighty_io::file::store_dir::StoreDir;

use super::*;
use crate::flight::FlightHead;
use crate::key::KeyWriter;
use crate::object::StoredHead;
use crate::purge::{KeyPlaces, PurgeKind, PurgeScope};
use crate::store::{Joined, Limits, ResponseStore};
use crate::sums::BLOCK_BYTES;

const PLACES: KeyPlaces = KeyPlaces { host: 0, target: 1 };

fn disk_limits() -> DiskLimits {
    DiskLimits {
        bytes: 64 << 20,
        memory_object_bytes: 64 << 10,
        queued_bytes: 512 << 10,
        free_percent: 0,
        verifies_always: false,
    }
}

fn limits() -> Limits {
    Limits { memory: 4 << 20, object_bytes: 32 << 20, disk_from_bytes: 64 << 10, variants: 32 }
}

/// A store in a directory, and what it has reported.
struct Bed {
    store: Arc<ResponseStore>,
    reports: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    fn open(path: &Path) -> Self {
        Self::open_with(path, disk_limits(), limits())
    }

    fn open_with(path: &Path, disk: DiskLimits, limits: Limits) -> Self {
        let bed = Self::begin(path, disk, limits);
        bed.wait_until_ready();
        bed
    }

    fn begin(path: &Path, disk: DiskLimits, limits: Limits) -> Self {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let report = {
            let reports = Arc::clone(&reports);
            Box::new(move |text: &str| reports.lock().expect("a lock").push(text.to_owned()))
        };
        let disk = Disk::prepare(path, PLACES, disk, report).expect("usable");
        let store = ResponseStore::on_disk(limits, PLACES, disk).expect("started");
        Self { store, reports }
    }

    fn wait_until_ready(&self) {
        let disk = self.disk();
        let (queue, is_late) = disk
            .has_written
            .wait_timeout_while(disk.queue(), Duration::from_secs(20), |_| !disk.is_ready())
            .expect("a lock");
        drop(queue);
        assert!(!is_late.timed_out());
    }

    fn disk(&self) -> &Arc<Disk> {
        self.store.disk().expect("a disk")
    }

    fn put(&self, target: &str, body: &[u8]) {
        self.put_varied(target, body, &[], &Fields::default());
    }

    fn put_varied(&self, target: &str, body: &[u8], names: &[&str], request: &Fields) {
        let names: Box<[Box<[u8]>]> = names.iter().map(|name| name.as_bytes().into()).collect();
        let Joined::Begins(mut pilot, _) = self.store.join(&key(target), request, false, 0) else {
            panic!("{target}: no flight of its own");
        };
        let mut head = StoredHead::empty();
        head.fields.push(b"Content-Type", b"text/plain");
        head.tags = [self.store.tag(b"all")].into();
        head.names = names;
        let selecting = selecting_key(&head.names, request).into();
        let length = Some(body.len() as u64);
        pilot.depart(FlightHead { head, selecting, length });
        for piece in body.chunks(16_000) {
            pilot.push(Bytes::copy_from_slice(piece));
        }
        pilot.land();
    }

    /// Has an object in memory written.
    fn write(&self, target: &str) {
        let object = self.store.find(&key(target), &Fields::default()).expect("in memory");
        assert!(self.disk().save(&object));
        self.disk().settle();
    }

    /// The body as a request gets it: from memory, or else from the disk.
    fn get(&self, target: &str) -> Option<Vec<u8>> {
        self.get_varied(target, &Fields::default())
    }

    fn get_varied(&self, target: &str, request: &Fields) -> Option<Vec<u8>> {
        let key = key(target);
        let object = self.store.find(&key, request).or_else(|| {
            let place = self.store.locate(&key, request)?;
            self.store.load(&key, request, &place)
        })?;
        assert_eq!(object.head.fields.get(Known::ContentType), Some(&b"text/plain"[..]));
        let content = &object.content;
        let Some(stored) = content.stored() else { return Some(content.pieces().concat()) };
        let length = usize::try_from(content.len()).expect("small");
        let body = stored.file()?.file.read_range(stored.offset, length).expect("read");
        if let Some(check) = stored.check() {
            let blocks = body.chunks(BLOCK_BYTES).enumerate();
            if !blocks.into_iter().all(|(number, block)| check.proves(number as u64, block)) {
                return None;
            }
        }
        Some(body)
    }

    fn close(self) {
        self.store.close(Duration::from_secs(20));
    }

    /// Ends as a killed process does: nothing in memory is written.
    fn kill(self) {
        self.disk().dir.get().expect("open").release();
        std::mem::forget(self);
    }
}

fn key(target: &str) -> Key {
    KeyWriter::default().part(b"host").part(target.as_bytes()).finish()
}

fn body(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + seed * 7) % 251) as u8).collect()
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("a directory").map(|entry| entry.expect("one").path());
    let mut found: Vec<_> =
        entries.filter(|path| path.to_string_lossy().contains("segment-")).collect();
    found.sort();
    found
}

#[test]
fn responses_that_were_used_are_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    // The large body arrives faster than the disk takes it.
    let ample = Limits { memory: 16 << 20, ..limits() };
    let bed = Bed::open_with(dir.path(), disk_limits(), ample);
    for (number, length) in [(0, 0), (1, 1), (2, 44), (3, 64 << 10), (4, 70 << 10), (5, 1 << 20)] {
        let target = format!("/{number}");
        bed.put(&target, &body(number, length));
        assert_eq!(bed.get(&target).expect("stored"), body(number, length), "{number}");
    }
    bed.put("/large", &body(9, 3 << 20));
    lighty_testkit::wait_until(Duration::from_secs(20), || bed.get("/large").is_some());
    bed.put("/once", b"not used again");
    bed.close();
    let bed = Bed::open(dir.path());
    for (number, length) in [(0, 0), (1, 1), (2, 44), (3, 64 << 10), (4, 70 << 10), (5, 1 << 20)] {
        let target = format!("/{number}");
        assert_eq!(bed.get(&target).expect("stored"), body(number, length), "{number}");
        assert_eq!(bed.get(&target).expect("stored"), body(number, length), "{number}, again");
    }
    assert_eq!(bed.get("/large").expect("stored"), body(9, 3 << 20));
    assert_eq!(bed.get("/once"), None);
    assert_eq!(bed.get("/other"), None);
    assert!(bed.reports.lock().expect("a lock").is_empty());
    bed.close();
}

#[test]
fn variants_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    let request = |value: &str| {
        let mut fields = Fields::default();
        fields.push(b"X-Kind", value.as_bytes());
        fields
    };
    for value in ["a", "b"] {
        bed.put_varied("/", value.as_bytes(), &["x-kind"], &request(value));
        bed.get_varied("/", &request(value)).expect("in memory");
    }
    bed.close();
    let bed = Bed::open(dir.path());
    for value in ["a", "b"] {
        assert_eq!(bed.get_varied("/", &request(value)).expect("stored"), value.as_bytes());
    }
    assert_eq!(bed.get_varied("/", &request("c")), None);
    bed.close();
}

#[test]
fn a_killed_process_loses_what_is_only_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.put("/written", b"on the disk");
    bed.write("/written");
    bed.put("/memory", b"in memory");
    bed.get("/memory").expect("stored");
    bed.kill();
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/written").expect("stored"), b"on the disk");
    assert_eq!(bed.get("/memory"), None);
    assert_eq!(segments(dir.path()).len(), 1, "the segment has its footer now");
    bed.close();
}

#[test]
fn no_flipped_byte_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let original = dir.path().join("original");
    let bed = Bed::open(&original);
    bed.put("/small", &body(1, 100));
    bed.get("/small").expect("stored");
    bed.close();
    let segment = segments(&original).pop().expect("a segment");
    let (whole, name) = (fs::read(&segment).expect("read"), segment.file_name().expect("a name"));
    let mut found = 0;
    for at in 0..whole.len() {
        let path = dir.path().join("copy");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("made");
        fs::copy(original.join("store"), path.join("store")).expect("copied");
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(path.join(name), damaged).expect("written");
        let bed = Bed::open(&path);
        if let Some(got) = bed.get("/small") {
            assert_eq!(got, body(1, 100), "byte {at}");
            found += 1;
        }
        bed.close();
    }
    assert!(found > 0, "a damaged footer is not the end");
}

#[test]
fn cut_segments_are_read_up_to_the_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    for number in 0..20 {
        bed.put(&format!("/{number}"), &body(number, 1000));
        bed.write(&format!("/{number}"));
    }
    bed.kill();
    let segment = segments(dir.path()).pop().expect("a segment");
    let length = fs::metadata(&segment).expect("there").len();
    let file = fs::OpenOptions::new().write(true).open(&segment).expect("opened");
    file.set_len(length / 2 + 7).expect("cut");
    let bed = Bed::open(dir.path());
    let found = (0..20).filter(|number| {
        let got = bed.get(&format!("/{number}"));
        assert!(got.as_ref().is_none_or(|got| *got == body(*number, 1000)));
        got.is_some()
    });
    let found = found.count();
    assert!((9..=10).contains(&found), "{found}");
    bed.close();
}

#[test]
fn old_responses_leave_and_the_used_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = DiskLimits { bytes: 16 << 20, ..disk_limits() };
    let bed = Bed::open_with(dir.path(), disk, Limits { memory: 2 << 20, ..limits() });
    let size = 32 << 10;
    bed.put("/used", &body(0, size));
    bed.write("/used");
    for number in 1..1_500 {
        let target = format!("/{number}");
        bed.put(&target, &body(number, size));
        let object = bed.store.find(&key(&target), &Fields::default()).expect("in memory");
        assert!(bed.disk().save(&object));
        if number % 8 == 0 {
            bed.disk().settle();
            assert_eq!(bed.get("/used").expect("kept"), body(0, size), "{number}");
        }
    }
    bed.disk().settle();
    assert!(bed.disk().bytes() <= 16 << 20, "{}", bed.disk().bytes());
    let on_disk: u64 =
        segments(dir.path()).iter().map(|path| fs::metadata(path).expect("there").len()).sum();
    assert!(on_disk <= 16 << 20, "{on_disk}");
    assert_eq!(bed.get("/1"), None);
    assert_eq!(bed.get("/1499").expect("new"), body(1_499, size));
    assert!(bed.disk().counters().kept.load(Ordering::Relaxed) > 0);
    bed.close();
    let bed = Bed::open_with(dir.path(), disk, limits());
    assert_eq!(bed.get("/used").expect("kept"), body(0, size));
    bed.close();
}

#[test]
fn large_bodies_leave_with_their_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = DiskLimits { bytes: 32 << 20, ..disk_limits() };
    let bed = Bed::open_with(dir.path(), disk, limits());
    for number in 0..30 {
        let target = format!("/{number}");
        bed.put(&target, &body(number, 4 << 20));
        lighty_testkit::wait_until(Duration::from_secs(20), || bed.get(&target).is_some());
        bed.disk().settle();
    }
    assert!(bed.disk().bytes() <= (32 << 20) + (4 << 20), "{}", bed.disk().bytes());
    assert_eq!(bed.get("/29").expect("new"), body(29, 4 << 20));
    assert_eq!(bed.get("/0"), None);
    let files = || {
        let dirs = fs::read_dir(dir.path().join("large")).expect("a directory");
        dirs.map(|dir| fs::read_dir(dir.expect("one").path()).expect("a directory").count())
            .sum::<usize>()
    };
    assert!(files() <= 9, "{}", files());
    bed.close();
    fs::write(dir.path().join("part/0000000000000001"), b"left over").expect("written");
    fs::write(dir.path().join("large/01/0000000000000f01"), b"of no record").unwrap_or(());
    let bed = Bed::open_with(dir.path(), disk, limits());
    assert!(!dir.path().join("part/0000000000000001").exists());
    assert!(!dir.path().join("large/01/0000000000000f01").exists());
    assert_eq!(bed.get("/29").expect("still there"), body(29, 4 << 20));
    bed.close();
}

#[test]
fn purges_hold_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    for target in ["/a", "/b/1", "/c"] {
        bed.put(target, target.as_bytes());
        bed.write(target);
    }
    bed.store.purge(PurgeScope::Url(b"host", b"/a"), PurgeKind::Hard);
    bed.store.purge(PurgeScope::Prefix(b"host", b"/b/"), PurgeKind::Soft);
    bed.store.wait_for_purges();
    bed.kill();
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/a"), None);
    let place = bed.store.locate(&key("/b/1"), &Fields::default()).expect("there");
    let stale = bed.store.load(&key("/b/1"), &Fields::default(), &place).expect("stale");
    assert!(stale.is_purged_softly());
    assert_eq!(bed.get("/c").expect("not purged"), b"/c");
    bed.store.purge(PurgeScope::Tag(b"all"), PurgeKind::Hard);
    assert_eq!(bed.get("/c"), None);
    bed.put("/c", b"new");
    assert_eq!(bed.get("/c").expect("sent after the purge"), b"new");
    bed.close();
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/c").expect("sent after the purge"), b"new");
    bed.close();
}

#[test]
fn a_lost_log_of_purges_loses_what_came_after() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.store.purge(PurgeScope::All, PurgeKind::Hard);
    bed.put("/a", b"a");
    bed.write("/a");
    bed.close();
    fs::remove_file(dir.path().join("purges")).expect("removed");
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/a"), None);
    bed.close();
}

#[test]
fn rules_go_with_the_last_response_that_they_concern() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.put("/old", b"old");
    bed.write("/old");
    let purge = |bed: &Bed, count: u32| {
        for number in 0..count {
            let tag = number.to_string();
            bed.store.purge(PurgeScope::Tag(tag.as_bytes()), PurgeKind::Hard);
        }
    };
    purge(&bed, 1_000);
    bed.put("/new", b"new");
    bed.write("/new");
    bed.store.expire_purges();
    assert_eq!(bed.store.purge_rules(), 1_000, "the old response needs them");
    bed.close();
    // Over a restart, too.
    let bed = Bed::open(dir.path());
    assert_eq!(bed.store.purge_rules(), 1_000);
    assert_eq!(bed.get("/old").expect("not purged"), b"old");
    assert_eq!(bed.get("/new").expect("not purged"), b"new");
    bed.close();
    // The segment with both leaves, and with it the rules.
    for segment in segments(dir.path()) {
        fs::remove_file(segment).expect("removed");
    }
    let bed = Bed::open(dir.path());
    // Just behind the end of the recovery.
    let are_gone = || bed.store.purge_rules() == 0;
    assert!(lighty_testkit::wait_until(Duration::from_secs(20), are_gone));
    bed.put("/later", b"later");
    bed.write("/later");
    purge(&bed, 10);
    bed.store.purge(PurgeScope::Url(b"host", b"/later"), PurgeKind::Hard);
    bed.put("/last", b"last");
    bed.write("/last");
    bed.close();
    let log = |path: &Path| fs::metadata(path.join("purges")).expect("there").len();
    assert!(log(dir.path()) < 1_000, "{}", log(dir.path()));
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/later"), None, "a purge of the time before the restart");
    assert_eq!(bed.get("/last").expect("sent after all rules"), b"last");
    bed.kill();
}

#[test]
fn responses_are_there_although_all_rules_have_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    (0..10).for_each(|_| _ = bed.store.purge(PurgeScope::All, PurgeKind::Hard));
    bed.put("/a", b"a");
    bed.write("/a");
    bed.close();
    for _ in 0..2 {
        let bed = Bed::open(dir.path());
        // The moment of the last rule is left, just behind the end of the recovery.
        let are_gone = || bed.store.purge_entries().len() == 1;
        assert!(lighty_testkit::wait_until(Duration::from_secs(20), are_gone));
        assert_eq!(bed.get("/a").expect("sent after all rules"), b"a");
        bed.close();
    }
}

#[test]
fn footers_without_moments_keep_all_rules() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.store.purge(PurgeScope::All, PurgeKind::Hard);
    let segment = Segment::new(9, bed.disk().dir.get().expect("open").create_file("x").expect("x"));
    let hash = KeyHash::from_bytes([1; 12]);
    let row = footer::Row {
        primary: hash,
        hash,
        url: 1,
        unit: 0,
        bytes: 64,
        names: 0,
        file: 0,
        file_bytes: 0,
        // As an earlier version has left it.
        sent_at: 0,
    };
    let footer = footer::Footer { rows: vec![row], names: Vec::new() };
    segment.narrow_urls(&footer);
    bed.disk().add_segment(&segment);
    bed.store.expire_purges();
    assert_eq!(bed.store.purge_entries().len(), 2);
    bed.disk().remove_segment(9);
    bed.store.expire_purges();
    assert_eq!(bed.store.purge_entries().len(), 1);
    bed.close();
}

#[test]
fn a_flood_of_purges_does_not_wait_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = StoreDir::open(dir.path()).expect("another process has the directory");
    let bed = Bed::begin(dir.path(), disk_limits(), limits());
    for number in 0..20_000 {
        let tag = number.to_string();
        bed.store.purge(PurgeScope::Tag(tag.as_bytes()), PurgeKind::Hard);
        assert!(bed.disk().queued_bytes() <= PURGES_QUEUED_BYTES as u64);
    }
    let rules = bed.store.purge_rules();
    assert!((1_000..20_000).contains(&rules), "{rules}");
    drop(other);
    bed.wait_until_ready();
    bed.store.purge(PurgeScope::Url(b"host", b"/late"), PurgeKind::Hard);
    bed.store.wait_for_purges();
    let log = fs::read(dir.path().join("purges")).expect("a log");
    let last = purge_log::parse(&log).0.iter().map(|entry| entry.moment).max();
    assert_eq!(last, bed.store.purge_entries().iter().map(|entry| entry.moment).max());
    bed.close();
}

#[test]
fn stale_responses_without_a_use_are_not_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    for (target, flags) in [
        ("/stale", crate::rules::FreshnessFlags::default()),
        ("/valid", crate::rules::FreshnessFlags::HAS_VALIDATOR),
    ] {
        let joined = bed.store.join(&key(target), &Fields::default(), false, 0);
        let Joined::Begins(mut pilot, _) = joined else { panic!("a flight") };
        let mut head = StoredHead::empty();
        head.fields.push(b"Content-Type", b"text/plain");
        head.freshness.flags = flags;
        pilot.depart(FlightHead { head, selecting: Box::default(), length: None });
        pilot.push(Bytes::from("page"));
        pilot.land();
        assert!(bed.get(target).is_some());
    }
    // As if there were no memory.
    bed.store.limit(Limits { memory: 0, ..limits() });
    bed.disk().settle();
    assert_eq!(bed.store.extent().0, 0);
    assert_eq!(bed.get("/stale"), None);
    assert_eq!(bed.get("/valid").expect("written"), b"page");
    bed.close();
}

#[test]
fn a_successor_takes_over_once_the_directory_is_free() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = Bed::open(dir.path());
    old.put("/a", b"a");
    old.get("/a").expect("stored");
    let new = Bed::begin(dir.path(), disk_limits(), limits());
    new.put("/b", b"b");
    assert_eq!(new.get("/b").expect("in memory"), b"b");
    assert_eq!(new.disk().state(), DiskState::Waiting);
    new.put("/large", &body(1, 2 << 20));
    old.close();
    new.wait_until_ready();
    assert_eq!(new.get("/a").expect("from the old one"), b"a");
    assert_eq!(new.get("/b").expect("in memory"), b"b");
    new.close();
}

#[test]
fn foreign_directories_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("store"), "something else").expect("written");
    let refused = || {
        let report = Box::new(|_: &str| {});
        Disk::prepare(dir.path(), PLACES, disk_limits(), report).expect_err("refused").to_string()
    };
    assert!(refused().contains("is not of a cache of this version"), "{}", refused());
}

#[test]
fn an_index_that_takes_too_much_memory_shrinks() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = Limits { memory: 2 << 20, ..limits() };
    let bed = Bed::open_with(dir.path(), disk_limits(), small);
    let put = |number: usize| {
        let target = format!("/{number}");
        bed.put(&target, b"tiny");
        // It leaves at once if the index takes all of the memory.
        let _ = bed.get(&target);
    };
    (0..120_000).for_each(put);
    bed.disk().settle();
    let bytes = bed.disk().index_bytes() + bed.store.extent().1;
    assert!(bytes <= 3 << 20, "{bytes}");
    assert!(bed.disk().count() > 1_000, "{}", bed.disk().count());
    // Several segments are too many, and nothing else happens that would order more than one away.
    let memory = 512 << 10;
    bed.store.limit(Limits { memory, ..small });
    let fits = || bed.disk().index_bytes() <= memory;
    assert!(lighty_testkit::wait_until(Duration::from_secs(20), fits));
    assert!(bed.disk().counters().evicted.load(Ordering::Relaxed) > 0);
    bed.close();
}

#[test]
fn rules_stay_while_a_segment_cannot_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.put("/a", b"purged");
    bed.write("/a");
    bed.store.purge(PurgeScope::Url(b"host", b"/a"), PurgeKind::Hard);
    bed.close();
    let one = segments(dir.path()).pop().expect("a segment");
    let aside = dir.path().join("aside");
    fs::rename(&one, &aside).expect("renamed");
    fs::create_dir(&one).expect("made");
    let bed = Bed::open(dir.path());
    assert_eq!(bed.disk().oldest_moment(), 0);
    bed.store.expire_purges();
    bed.close();
    fs::remove_dir(&one).expect("removed");
    fs::rename(&aside, &one).expect("renamed");
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/a"), None, "it is purged still");
    bed.close();
}

#[test]
fn errors_while_large_bodies_arrive_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    // In the way of the directory for bodies that arrive.
    fs::write(dir.path().join("part"), "").expect("written");
    bed.put("/large", &body(1, 3 << 20));
    let errors = || bed.disk().counters().write_errors.load(Ordering::Relaxed);
    lighty_testkit::wait_until(Duration::from_secs(20), || errors() > 0);
    assert_eq!(bed.reports.lock().expect("a lock").len(), 1);
    fs::remove_file(dir.path().join("part")).expect("removed");
    bed.wait_until_ready();
    assert_eq!(bed.get("/large"), None, "it was not stored");
    bed.put("/large", &body(1, 3 << 20));
    lighty_testkit::wait_until(Duration::from_secs(20), || bed.get("/large").is_some());
    assert_eq!(bed.get("/large").expect("stored"), body(1, 3 << 20));
    bed.close();
}

#[test]
fn large_bodies_that_are_used_do_not_displace_all_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = DiskLimits { bytes: 32 << 20, ..disk_limits() };
    let bed = Bed::open_with(dir.path(), disk, limits());
    for number in 0..40 {
        let target = format!("/{number}");
        bed.put(&target, &body(number, 3 << 20));
        lighty_testkit::wait_until(Duration::from_secs(20), || bed.get(&target).is_some());
        for earlier in 0..number {
            let place = bed.store.locate(&key(&format!("/{earlier}")), &Fields::default());
            place.inspect(|place| bed.disk().index.touch(place.entry.hash));
        }
        bed.disk().settle();
        assert!(bed.disk().bytes() <= 36 << 20, "{number}: {}", bed.disk().bytes());
    }
    bed.close();
}

#[test]
fn index_forgets_resources_that_have_left_with_their_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = DiskLimits { bytes: 16 << 20, ..disk_limits() };
    let bed = Bed::open_with(dir.path(), disk, Limits { memory: 2 << 20, ..limits() });
    for number in 0..1_500 {
        let target = format!("/{number}");
        bed.put_varied(&target, &body(number, 32 << 10), &["x-kind"], &Fields::default());
        let object = bed.store.find(&key(&target), &Fields::default()).expect("in memory");
        assert!(bed.disk().save(&object));
        if number % 8 == 0 {
            bed.disk().settle();
        }
    }
    bed.disk().settle();
    // Two entries each: a resource and its variant.
    let most = 2 * (16 << 20) / (32 << 10);
    assert!(bed.disk().count() <= most, "{} of {most}", bed.disk().count());
    bed.close();
}

#[test]
fn body_renewed_by_a_304_counts_once_and_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let bed = Bed::open(dir.path());
    bed.put("/large", &body(1, 3 << 20));
    lighty_testkit::wait_until(Duration::from_secs(20), || bed.get("/large").is_some());
    bed.disk().settle();
    let before = bed.disk().bytes();
    for _ in 0..5 {
        let none = Fields::default();
        let stored = bed.store.find(&key("/large"), &none).expect("stored");
        let Joined::Begins(pilot, _) = bed.store.join(&key("/large"), &none, false, 0) else {
            panic!("no flight of its own");
        };
        pilot.renew(&stored, stored.head.clone());
        bed.write("/large");
    }
    assert!(bed.disk().bytes() < before + 10_000, "{} {before}", bed.disk().bytes());
    bed.close();
    let bed = Bed::open(dir.path());
    assert_eq!(bed.get("/large").expect("stored"), body(1, 3 << 20));
    bed.close();
}
