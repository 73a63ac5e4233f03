//! Keys whose fetch has failed.

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
    pilot.hold(1500, false, 504);
    pilot.fail(504);
    drop((passenger, other));
    assert!(matches!(join("/a", false, 1499), Joined::Failed(504)));
    assert!(matches!(join("/a", true, 1499), Joined::Begins(..)), "with other credentials");
    assert!(matches!(join("/b", false, 1499), Joined::Begins(..)), "another key");
    assert!(matches!(join("/a", false, 1500), Joined::Begins(..)), "afterwards");
}
