//! Slices of a resource in the store.

use std::sync::Arc;

use bytes::Bytes;
use lighty_cache::flight::FlightHead;
use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::object::StoredHead;
use lighty_cache::purge::{KeyPlaces, PurgeKind, PurgeScope};
use lighty_cache::rules::{Freshness, FreshnessFlags};
use lighty_cache::store::{Joined, Limits, Pilot, ResponseStore, SliceMark, SliceVersion};
use lighty_http::{Fields, Known, Status};

const BYTES: u64 = 1 << 16;

fn store() -> Arc<ResponseStore> {
    let limits =
        Limits { memory: 1 << 20, object_bytes: 1 << 20, disk_from_bytes: u64::MAX, variants: 4 };
    ResponseStore::new(limits, KeyPlaces { host: 1, target: 2 }, [1; 16])
}

fn key(target: &str) -> Key {
    KeyWriter::default().part(b"backend").part(b"host").part(target.as_bytes()).finish()
}

fn begin(store: &Arc<ResponseStore>, key: &Key) -> Pilot {
    match store.join(key, &Fields::new(), false, 0) {
        Joined::Begins(pilot, _) => pilot,
        other => panic!("{other:?}"),
    }
}

/// Ends a flight with a slice of a resource.
fn land(store: &ResponseStore, mut pilot: Pilot, resource: &Key) {
    let freshness = Freshness {
        received_s: 0,
        initial_age_s: 0,
        lifetime_s: 60,
        stale_while_revalidate_s: 0,
        stale_if_error_s: 0,
        flags: FreshnessFlags::default(),
    };
    let head = StoredHead {
        status: Status::PARTIAL_CONTENT,
        fields: Fields::new(),
        freshness,
        names: Box::default(),
        language: None,
        tags: Box::new([store.slices_tag(resource)]),
    };
    pilot.depart(FlightHead { head, selecting: Box::default(), length: Some(3) });
    pilot.push(Bytes::from_static(b"abc"));
    pilot.land();
}

/// The slices of a resource that are stored, of the first three.
fn stored(store: &ResponseStore, key: &Key) -> Vec<u64> {
    let is_stored = |index: &u64| store.peek(&key.slice(BYTES, *index), &Fields::new()).is_some();
    (0..3).filter(is_stored).collect()
}

fn filled() -> (Arc<ResponseStore>, Key, Key) {
    let (store, one, other) = (store(), key("/one"), key("/other"));
    for resource in [&one, &other] {
        for index in 0..3 {
            let pilot = begin(&store, &resource.slice(BYTES, index));
            land(&store, pilot, resource);
        }
        assert_eq!(stored(&store, resource), [0, 1, 2]);
    }
    (store, one, other)
}

#[test]
fn slices_of_one_resource_are_dropped_together() {
    let (store, one, other) = filled();
    let under_way = begin(&store, &one.slice(BYTES, 0));
    assert!(!store.drop_slices(&one, 10_000), "the first time");
    land(&store, under_way, &one);
    assert!(stored(&store, &one).is_empty());
    assert_eq!(stored(&store, &other), [0, 1, 2]);
}

#[test]
fn change_that_many_find_drops_slices_once() {
    let (store, one, _) = filled();
    assert!(!store.drop_slices(&one, 10_000));
    let has_first =
        |store: &ResponseStore| store.find(&one.slice(BYTES, 0), &Fields::new()).is_some();
    let pilot = begin(&store, &one.slice(BYTES, 0));
    land(&store, pilot, &one);
    assert!(!store.drop_slices(&one, 10_900), "just done");
    assert!(has_first(&store), "the new slice stays");
    assert!(store.drop_slices(&one, 11_100), "again");
    assert!(!has_first(&store));
    assert!(!store.drop_slices(&one, 80_000), "after more than a minute");
}

#[test]
fn slices_are_purged_like_the_whole() {
    for (scope, is_purged) in [
        (PurgeScope::All, true),
        (PurgeScope::Host(b"host"), true),
        (PurgeScope::Url(b"host", b"/one"), true),
        (PurgeScope::Prefix(b"host", b"/on"), true),
        (PurgeScope::Url(b"host", b"/two"), false),
    ] {
        let (store, one, _) = filled();
        store.purge(scope, PurgeKind::Hard);
        assert_eq!(stored(&store, &one).is_empty(), is_purged, "{scope:?}");
        let (store, one, _) = filled();
        store.purge(scope, PurgeKind::Soft);
        // Also by a request that only looks.
        assert_eq!(stored(&store, &one), [0, 1, 2]);
        let object = store.find(&one.slice(BYTES, 0), &Fields::new()).expect("stored");
        assert_eq!(object.is_purged_softly(), is_purged, "{scope:?}");
    }
    let (store, one, _) = filled();
    store.invalidate(b"host", b"/one");
    assert!(stored(&store, &one).is_empty());
}

#[test]
fn purge_since_the_request_concerns_a_response_that_another_flight_takes_over() {
    let (store, one) = (store(), key("/one"));
    let first = begin(&store, &one.slice(BYTES, 0));
    store.purge(PurgeScope::All, PurgeKind::Hard);
    let mut second = begin(&store, &one);
    second.succeed(&first);
    land(&store, second, &one);
    assert!(store.peek(&one, &Fields::new()).is_none());
}

#[test]
fn marks_are_apart_and_end() {
    let (store, one) = (store(), key("/one"));
    store.mark_slices(&one, SliceMark::Passes, false, 100);
    let has =
        |mark, has_credentials, now_ms| store.has_slice_mark(&one, mark, has_credentials, now_ms);
    assert!(has(SliceMark::Passes, false, 99));
    assert!(!has(SliceMark::Passes, false, 100));
    assert!(!has(SliceMark::Passes, true, 0) && !has(SliceMark::IgnoresRanges, false, 0));
    // The whole is not concerned.
    assert!(matches!(store.join(&one, &Fields::new(), false, 0), Joined::Begins(..)));
}

#[test]
fn weak_tag_is_no_version() {
    for (etag, is_version) in [("\"1\"", true), ("W/\"1\"", false), ("1", false)] {
        let mut fields = Fields::new();
        fields.push_known(Known::ETag, etag);
        fields.push_known(Known::ContentRange, "bytes 0-1/10");
        assert_eq!(SliceVersion::of(&fields).is_some(), is_version, "{etag}");
    }
}

#[test]
fn last_version_is_known_by_variant() {
    let (store, one) = (store(), key("/one"));
    let version = |etag: &str, total| {
        let mut fields = Fields::new();
        fields.push_known(Known::ETag, etag);
        fields.push_known(Known::ContentRange, format!("bytes 0-1/{total}"));
        SliceVersion::of(&fields).expect("a version")
    };
    assert_eq!(store.is_noted(&one, b"a", &version("\"1\"", 10)), None);
    assert!(store.note_version(&one, b"a", &version("\"1\"", 10)));
    assert_eq!(store.is_noted(&one, b"a", &version("\"1\"", 10)), Some(true));
    assert_eq!(store.is_noted(&one, b"a", &version("\"1\"", 11)), Some(false));
    assert!(store.note_version(&one, b"a", &version("\"1\"", 10)));
    assert!(store.note_version(&one, b"b", &version("\"2\"", 10)));
    assert!(!store.note_version(&one, b"a", &version("\"1\"", 11)), "another length");
    assert!(!store.note_version(&one, b"a", &version("\"2\"", 11)), "another tag");
    assert!(store.note_version(&one, b"a", &version("\"2\"", 11)));
}

#[test]
fn slice_that_shows_a_change_outlives_the_drop_but_no_purge() {
    for scope in [None, Some(PurgeScope::All), Some(PurgeScope::Url(b"host", b"/one"))] {
        for is_before in [false, true] {
            let (store, one, _) = filled();
            let mut pilot = begin(&store, &one.slice(BYTES, 1));
            assert!(!pilot.is_behind_drop(&one));
            let purge = || scope.map(|scope| store.purge(scope, PurgeKind::Hard));
            if is_before {
                purge();
            }
            store.drop_slices(&one, 10_000);
            assert!(pilot.is_behind_drop(&one));
            pilot.outlive_drop(&one, &[store.slices_tag(&one)]);
            if !is_before {
                purge();
            }
            land(&store, pilot, &one);
            let expected: &[u64] = if scope.is_none() { &[1] } else { &[] };
            assert_eq!(stored(&store, &one), expected, "{scope:?} {is_before}");
        }
    }
}
