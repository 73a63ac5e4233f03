//! Slices that change, and stale ones that are served all the same.

use std::sync::atomic::AtomicBool;

use super::versions::{PURGE, post, version};
use super::*;

/// A client that has stopped reading a large resource, of which some slices are fetched.
fn stalled(server: &Server, backend: &Backend) -> Client {
    let mut reader = Client::tcp_with_receive_buffer(server.address(), 4_096);
    reader.send("GET /50000000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    assert_eq!(reader.response_head().status, 206);
    await_stall(backend);
    reader
}

/// Waits until the buffers of a socket are full and nothing more is requested.
pub(super) fn await_stall(backend: &Backend) {
    let mut requests = 0;
    assert!(wait_until(SOON, || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut requests, backend.requests().len()) == backend.requests().len()
    }));
}

#[test]
fn whole_for_a_reader_of_an_old_version_drops_nothing() {
    let (resource, is_whole) = (Resource::new(FRESH), Arc::new(AtomicBool::new(false)));
    let (own, own_whole) = (Arc::clone(&resource), Arc::clone(&is_whole));
    let backend = Backend::replying(move |seen| {
        let is_whole = own_whole.load(Ordering::SeqCst);
        let head = if is_whole { seen.head.replace("Range", "X-Else") } else { seen.head.clone() };
        own.respond(&RequestSeen { head, ..RequestSeen::default() })
    });
    let server = slicing(&backend, "");
    let reader = stalled(&server, &backend);
    resource.version.store(2, Ordering::SeqCst);
    let get_last = || {
        let page = server.get_with("/50000000/a", "Range: bytes=-10\r\n");
        assert_eq!((page.status, page.field("ETag")), (206, Some("\"2\"")));
    };
    get_last();
    // A change is taken for another one after a second.
    std::thread::sleep(Duration::from_millis(1_100));
    is_whole.store(true, Ordering::SeqCst);
    let before = backend.requests().len();
    let (body, _) = { reader }.read_to_end();
    assert!(body.len() < 49_000_000, "{} bytes", body.len());
    let requests = backend.requests().len();
    assert!(requests > before, "the reader has fetched the next slice");
    get_last();
    assert_eq!(backend.requests().len(), requests);
}

#[test]
fn slice_that_shows_a_change_is_fetched_once() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, PURGE);
    assert_eq!((version(&server, "0-9"), version(&server, "65536-65546")), (1, 1));
    resource.version.store(2, Ordering::SeqCst);
    assert_eq!(version(&server, "131072-131082"), 2);
    assert_eq!(version(&server, "131072-131082"), 2);
    assert_eq!(slices(&backend), [0, 1, 2]);
    // The request for its end finds the change by the last slice, and begins again.
    resource.version.store(3, Ordering::SeqCst);
    let page = server.get_with("/200000/a", "Range: bytes=-10\r\n");
    assert!(page.status == 206 && page.body == content("/200000/a", 3)[199_990..]);
    let mut seen = slices(&backend).split_off(3);
    seen.sort_unstable();
    assert_eq!(seen, [0, 3]);
    // It is purged like others.
    assert_eq!(post(&server, "/purge?all"), 200);
    assert_eq!((version(&server, "196608-196609"), slices(&backend).len()), (3, 6));
}

/// A resource with validations that wait until a gate is open.
fn gated(fields: &'static str) -> (Arc<Resource>, Arc<AtomicBool>, Backend) {
    let (resource, gate) = (Resource::new(fields), Arc::new(AtomicBool::new(false)));
    let (own, own_gate) = (Arc::clone(&resource), Arc::clone(&gate));
    let backend = Backend::replying(move |seen| {
        if seen.field("If-None-Match").is_some() {
            assert!(wait_until(SOON, || own_gate.load(Ordering::SeqCst)));
        }
        own.respond(seen)
    });
    (resource, gate, backend)
}

#[test]
fn stale_slices_are_served_while_they_are_validated() {
    for changed in [1, 2] {
        let (resource, gate, backend) =
            gated("Cache-Control: max-age=600, stale-while-revalidate=600\r\n");
        let server = slicing(&backend, PURGE);
        get(&server, "/200000/a", "1-131071", 1, 131_072);
        assert_eq!(post(&server, "/purge?all&soft"), 200);
        resource.version.store(changed, Ordering::SeqCst);
        let page = server.get_with("/200000/a", "Range: bytes=1-131071\r\n");
        assert!(page.body == content("/200000/a", 1)[1..131_072], "{changed}");
        let status = page.field("Cache-Status").expect("a status");
        assert!(status.starts_with("lighty; hit; ttl="), "{changed}: {status}");
        assert_eq!(results(&server, "updating"), 1);
        gate.store(true, Ordering::SeqCst);
        assert!(wait_until(SOON, || figure(&server, "lighty_cache_flights") == 0));
        for range in ["0-9", "65536-65546"] {
            assert_eq!(version(&server, range), changed);
        }
        let tags: Vec<_> =
            backend.requests().iter().map(|seen| seen.field("If-None-Match").is_some()).collect();
        assert_eq!(tags, [false, false, true, true], "{changed}");
    }
}

/// A backend that ends each connection without a response once it is broken.
fn mortal(resource: Arc<Resource>) -> (Arc<AtomicBool>, Backend) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let backend = Backend::start(move |peer| {
        while let Some(seen) = peer.request() {
            if own.load(Ordering::SeqCst) {
                return peer.reset();
            }
            peer.send(resource.respond(&seen));
        }
    });
    (is_broken, backend)
}

#[test]
fn stale_slices_are_served_in_place_of_a_dead_backend() {
    let fields = "Cache-Control: max-age=600, stale-if-error=600\r\nVary: X-Lang\r\n";
    let (is_broken, backend) = mortal(Resource::new(fields));
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    is_broken.store(true, Ordering::SeqCst);
    get(&server, "/200000/a", "1-", 1, 200_000);
    // Requests of another variant fail, and the next fetch of the slice is held back for a second.
    let mut others: Vec<Client> = (0..5)
        .map(|_| {
            let mut client = server.connect();
            client.send(
                "GET /200000/a HTTP/1.1\r\nHost: localhost\r\nX-Lang: b\r\n\
                 Range: bytes=5-9\r\n\r\n",
            );
            client
        })
        .collect();
    for client in &mut others {
        assert_eq!(client.response().status, 502);
    }
    let page = server.get_with("/200000/a", "Range: bytes=5-9\r\n");
    assert!(page.status == 206 && page.body == content("/200000/a", 1)[5..10], "{}", page.status);
    assert_eq!(post(&server, "/purge?all"), 200);
    assert_eq!(server.get_with("/200000/a", "Range: bytes=1-\r\n").status, 502);
}
