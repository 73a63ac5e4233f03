//! Versions, purges and validation of slices.

use std::sync::Barrier;

use super::*;

pub(super) const PURGE: &str = "cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )";

pub(super) fn post(server: &Server, target: &str) -> u16 {
    let mut client = server.connect();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
    client.response().status
}

/// The version that a range belongs to, by its bytes and its tag.
pub(super) fn version(server: &Server, range: &str) -> u64 {
    let page = server.get_with("/200000/a", &format!("Range: bytes={range}\r\n"));
    assert_eq!(page.status, 206);
    let (first, last) = bounds(&format!("bytes={range}"), 200_000).expect("a range");
    let found = (1..9).find(|version| {
        page.body == content("/200000/a", *version)[first as usize..=last as usize]
    });
    let found = found.expect("bytes of one version");
    assert_eq!(page.field("ETag"), Some(&*format!("\"{found}\"")));
    found
}

/// Begins to read the whole, and returns once the first slice was read.
fn begin(server: &Server) -> Client {
    let mut client = server.connect();
    client.send("GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    assert_eq!(client.response_head().status, 206);
    assert!(
        client.read_exact(65_535).expect("the first slice") == content("/200000/a", 1)[1..65_536]
    );
    client
}

/// A backend whose resource has another version from its second request on; it may send only wholes
/// then.
fn changing(sends_ranges: bool) -> (Backend, Arc<Resource>) {
    let resource = Resource::new(FRESH);
    let (own, first) = (Arc::clone(&resource), std::sync::atomic::AtomicBool::new(true));
    let backend = Backend::replying(move |seen| {
        let is_second = own.version.load(Ordering::SeqCst) == 1;
        let is_second = !first.swap(false, Ordering::SeqCst) && is_second;
        if is_second {
            own.version.store(2, Ordering::SeqCst);
        }
        let has_range = sends_ranges || !is_second;
        let head = if has_range { seen.head.clone() } else { seen.head.replace("Range", "X-Else") };
        own.respond(&RequestSeen { head, ..RequestSeen::default() })
    });
    (backend, resource)
}

#[test]
fn versions_are_never_mixed() {
    for sends_ranges in [true, false] {
        let (backend, _) = changing(sends_ranges);
        let server = slicing(&backend, "");
        let (rest, _) = begin(&server).read_to_end();
        assert!(rest.is_empty(), "{} bytes of another version", rest.len());
        // The slices of the first version are gone.
        assert_eq!((version(&server, "0-99"), version(&server, "65530-65540")), (2, 2));
        // With a condition, the response could lack fields of the whole.
        assert_eq!(backend.requests()[1].field("If-Range"), None);
    }
}

#[test]
fn change_that_one_request_finds_drops_all_slices() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, "");
    assert_eq!((version(&server, "0-9"), version(&server, "65536-65546")), (1, 1));
    resource.version.store(2, Ordering::SeqCst);
    assert_eq!(version(&server, "131072-131082"), 2);
    assert_eq!((version(&server, "0-9"), version(&server, "65536-65546")), (2, 2));
}

#[test]
fn reader_of_an_old_version_drops_nothing() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, "");
    let mut reader = Client::tcp_with_receive_buffer(server.address(), 4_096);
    reader.send("GET /50000000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    assert_eq!(reader.response_head().status, 206);
    // The socket's buffers are full once nothing more is requested.
    let mut requests = 0;
    assert!(wait_until(SOON, || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut requests, backend.requests().len()) == backend.requests().len()
    }));
    resource.version.store(2, Ordering::SeqCst);
    let get_last = || {
        let page = server.get_with("/50000000/a", "Range: bytes=-10\r\n");
        assert_eq!((page.status, page.field("ETag")), (206, Some("\"2\"")));
    };
    get_last();
    // A change is taken for another one after a second.
    std::thread::sleep(Duration::from_millis(1_100));
    let (body, _) = reader.read_to_end();
    assert!(body.len() < 49_000_000, "{} bytes", body.len());
    let requests = backend.requests().len();
    get_last();
    assert_eq!(backend.requests().len(), requests);
}

#[test]
fn client_that_the_backend_refuses_drops_nothing() {
    let resource = Resource::new(FRESH);
    let backend = Backend::replying(move |seen| match seen.field("X-Bad") {
        Some(status) => answer(status, "", "refused"),
        None => resource.respond(seen),
    });
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-99999", 1, 100_000);
    for status in ["403 Forbidden", "404 Not Found", "301 Moved", "416 Range Not Satisfiable"] {
        let range = "Range: bytes=1-\r\n";
        let mut client = server.connect();
        client.send(format!(
            "GET /200000/a HTTP/1.1\r\nHost: localhost\r\n{range}X-Bad: {status}\r\n\r\n"
        ));
        assert_eq!(client.response_head().status, 206);
        let (body, _) = client.read_to_end();
        assert!(body == content("/200000/a", 1)[1..131_072], "{}", body.len());
        let requests = backend.requests().len();
        get(&server, "/200000/a", "1-99999", 1, 100_000);
        assert_eq!(backend.requests().len(), requests, "{status}");
    }
    // Stale slices are kept, too.
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    let lines = "Range: bytes=5-9\r\nX-Bad: 403 Forbidden\r\n";
    assert_eq!(server.get_with("/200000/a", lines).status, 403);
    get(&server, "/200000/a", "5-9", 5, 10);
    assert_eq!(results(&server, "revalidated"), 1);
}

#[test]
fn change_before_the_response_begins_harms_nobody() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, "");
    assert_eq!(version(&server, "0-9"), 1);
    resource.version.store(2, Ordering::SeqCst);
    // The first slice is stored, and the last one is of another version.
    let page = server.get_with("/200000/a", "Range: bytes=-10\r\n");
    assert_eq!((page.status, page.field("ETag")), (206, Some("\"2\"")));
    assert!(page.body == content("/200000/a", 2)[199_990..]);
}

#[test]
fn backends_with_different_versions_are_not_mixed_either() {
    let (count, resource) = (AtomicU64::new(0), Resource::new(FRESH));
    let backend = Backend::replying(move |seen| {
        resource.version.store(1 + count.fetch_add(1, Ordering::SeqCst) % 2, Ordering::SeqCst);
        resource.respond(seen)
    });
    let server = slicing(&backend, "");
    let versions = [1, 2].map(|version| content("/200000/a", version));
    assert!(wait_until(SOON, || {
        let mut client = server.connect();
        client.send(
            "GET /200000/a HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-150000\r\n\
             Connection: close\r\n\r\n",
        );
        assert_eq!(client.response_head().status, 206);
        let (body, _) = client.read_to_end();
        assert!(versions.iter().any(|whole| whole[1..].starts_with(&body)), "{}", body.len());
        body.len() == 150_000
    }));
}

#[test]
fn purges_concern_all_slices() {
    let resource = Resource::new("Cache-Control: max-age=600\r\nSurrogate-Key: news\r\n");
    let backend = backend(&resource);
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-", 1, 200_000);
    let mut requests = 4;
    for (query, is_purged) in [
        ("url=/200000/b", false),
        ("url=/200000/a", true),
        ("prefix=/200000/", true),
        ("prefix=/3/", false),
        ("tag=news", true),
        ("tag=new", false),
        ("host=localhost", true),
        ("all", true),
    ] {
        assert_eq!(post(&server, &format!("/purge?{query}")), 200);
        requests += if is_purged { 4 } else { 0 };
        get(&server, "/200000/a", "1-", 1, 200_000);
        assert_eq!(backend.requests().len(), requests, "{query}");
    }
    // Another request may have changed the resource.
    assert_eq!(post(&server, "/200000/a"), 200);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(backend.requests().len(), requests + 5);
}

#[test]
fn stale_slices_are_validated_one_by_one() {
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    let page = server.get_with("/200000/a", "Range: bytes=1-\r\n");
    assert!(page.body == content("/200000/a", 1)[1..]);
    assert_eq!(page.field("Cache-Status"), Some("lighty; fwd=partial; stored"));
    let requests = backend.requests();
    assert_eq!(requests.len(), 8);
    for seen in &requests[4..] {
        assert_eq!((seen.field("If-None-Match"), seen.field("If-Range")), (Some("\"1\""), None));
    }
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(backend.requests().len(), 8, "fresh again");
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    get(&server, "/200000/a", "5-9", 5, 10);
    assert_eq!(results(&server, "revalidated"), 1);
    // A changed one: the others of its version are gone.
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    resource.version.store(2, Ordering::SeqCst);
    assert_eq!((version(&server, "5-9"), version(&server, "65536-65546")), (2, 2));
}

#[test]
fn stale_whole_is_validated_for_a_range() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, PURGE);
    assert_eq!(server.get("/200000/a").status, 200);
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    get(&server, "/200000/a", "5-9", 5, 10);
    assert_eq!(ranges(&backend), ["whole", "whole"]);
    assert_eq!(backend.requests()[1].field("If-None-Match"), Some("\"1\""));
    get(&server, "/200000/a", "100000-", 100_000, 200_000);
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn weak_tag_of_a_validation_leaves_the_version_of_a_slice() {
    let resource = Resource::new(FRESH);
    let backend = Backend::replying(move |seen| match seen.field("If-None-Match") {
        Some("\"1\"") => {
            format!("HTTP/1.1 304 Not Modified\r\n{FRESH}ETag: W/\"1\"\r\n\r\n").into_bytes()
        }
        _ => resource.respond(seen),
    });
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    get(&server, "/200000/a", "5-9", 5, 10);
    get(&server, "/200000/a", "1-", 1, 200_000);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(backend.requests().len(), 8);
}

#[test]
fn stale_slice_is_served_in_place_of_an_error() {
    let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let own = Arc::clone(&is_broken);
    let resource = Resource::new("Cache-Control: max-age=600, stale-if-error=600\r\n");
    let backend = Backend::replying(move |seen| match own.load(Ordering::SeqCst) {
        true => answer("503 Service Unavailable", "", "broken"),
        false => resource.respond(seen),
    });
    let server = slicing(&backend, PURGE);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(post(&server, "/purge?all&soft"), 200);
    is_broken.store(true, Ordering::SeqCst);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(post(&server, "/purge?all"), 200);
    assert_eq!(server.get_with("/200000/a", "Range: bytes=1-\r\n").status, 503);
}

#[test]
fn purge_concerns_slices_that_are_under_way() {
    let gate = Arc::new(Barrier::new(2));
    let (own, resource) = (Arc::clone(&gate), Resource::new(FRESH));
    let count = AtomicU64::new(0);
    let backend = Backend::replying(move |seen| {
        if count.fetch_add(1, Ordering::SeqCst) == 1 {
            own.wait();
        }
        resource.respond(seen)
    });
    let server = slicing(&backend, PURGE);
    let mut client = begin(&server);
    assert!(wait_until(SOON, || backend.requests().len() == 2));
    assert_eq!(post(&server, "/purge?all"), 200);
    gate.wait();
    assert!(client.read_exact(134_464).expect("the rest") == content("/200000/a", 1)[65_536..]);
    assert!(wait_until(SOON, || figure(&server, "lighty_cache_flights") == 0));
    assert_eq!(slices(&backend), [0, 1, 2, 3]);
    get(&server, "/200000/a", "1-", 1, 200_000);
    assert_eq!(slices(&backend)[4..], [0, 1], "the ones that were requested before the purge");
}

#[test]
fn variants_have_slices_of_their_own() {
    let backend = Backend::replying(|seen| {
        let language = seen.field("X-Lang").unwrap_or("none");
        let resource = Resource::new("Cache-Control: max-age=600\r\nVary: X-Lang\r\n");
        resource.version.store(if language == "a" { 1 } else { 2 }, Ordering::SeqCst);
        resource.respond(seen)
    });
    let server = slicing(&backend, "");
    for _ in 0..2 {
        for (language, version) in [("a", 1), ("b", 2)] {
            let page =
                server.get_with("/200000/a", &format!("Range: bytes=1-\r\nX-Lang: {language}\r\n"));
            assert!(page.body == content("/200000/a", version)[1..], "{language}");
        }
    }
    assert_eq!(backend.requests().len(), 8);
}
