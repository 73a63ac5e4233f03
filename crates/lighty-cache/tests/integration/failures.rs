//! Keys whose fetch has failed.

use lighty_cache::flight::FetchFailure;
use lighty_cache::key::{Key, KeyWriter};
use lighty_cache::purge::KeyPlaces;
use lighty_cache::store::{Joined, Limits, ResponseStore};
use lighty_http::Fields;

fn key(target: &str) -> Key {
    KeyWriter::default().part(b"backend").part(b"host").part(target.as_bytes()).finish()
}

#[test]
fn fetch_that_failed_holds_its_key_for_a_while() {
    let limits =
        Limits { memory: 1 << 20, object_bytes: 1 << 20, disk_from_bytes: u64::MAX, variants: 4 };
    let store = ResponseStore::new(limits, KeyPlaces { host: 1, target: 2 }, [1; 16]);
    let join = |target: &str, has_credentials: bool, now_ms: u64| {
        store.join(&key(target), &Fields::new(), has_credentials, now_ms)
    };
    let Joined::Begins(pilot, passenger) = join("/a", false, 500) else { panic!("first") };
    let Joined::Passenger(other) = join("/a", false, 500) else { panic!("second") };
    let failure = FetchFailure { status: 504, fault: Some(7) };
    pilot.hold(1500, false, failure);
    pilot.fail(failure);
    drop((passenger, other));
    assert!(matches!(join("/a", false, 1499), Joined::Failed(held) if held == failure));
    assert!(matches!(join("/a", true, 1499), Joined::Begins(..)), "with other credentials");
    assert!(matches!(join("/b", false, 1499), Joined::Begins(..)), "another key");
    assert!(matches!(join("/a", false, 1500), Joined::Begins(..)), "afterwards");
}

#[test]
fn silent_backend_gets_two_flights_at_most() {
    let limits =
        Limits { memory: 1 << 20, object_bytes: 1 << 20, disk_from_bytes: u64::MAX, variants: 4 };
    let store = ResponseStore::new(limits, KeyPlaces { host: 1, target: 2 }, [1; 16]);
    let join = || store.join(&key("/a"), &Fields::new(), false, 0);
    let Joined::Begins(first, _first) = join() else { panic!("first") };
    let Joined::Passenger(other) = join() else { panic!("joins the first one") };
    assert!(!first.is_second() && other.is_promoted(1_000, 1_000));
    store.forsake(&key("/a"), &other);
    assert!(store.is_forsaken(&key("/a"), &other));
    let Joined::Begins(second, _second) = join() else { panic!("second") };
    let Joined::Passenger(late) = join() else { panic!("joins the second one") };
    assert!(second.is_second() && !store.is_forsaken(&key("/a"), &late));
    assert!(!late.is_promoted(9_000, 1_000));
    // The next ones are like the first one.
    drop((first, second));
    let Joined::Begins(next, _) = join() else { panic!("next") };
    assert!(!next.is_second());
}
