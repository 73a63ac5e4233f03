//! Slices together with other features, and the limits of the directive.

use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::server::{Setup, write_file};

use super::super::with_store;
use super::*;

fn sliced(setup: Setup, backend: &Backend, more: &str) -> Server {
    with_store(setup, backend, &format!("cache.slice-size = \"64K\"\n{more}")).start()
}

const RANGE: &str = "Range: bytes=1-\r\n";

#[test]
fn logins_come_before_slices() {
    let backend = backend(&Resource::new("Cache-Control: public, max-age=600\r\n"));
    let server = sliced(
        lighty!().file("../users", "a:b\n"),
        &backend,
        "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
         auth.delay-invalid-creds = \"disable\"\n\
         auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
         \"require\" => \"valid-user\" ) )",
    );
    for _ in 0..2 {
        let page = server.get_with("/200000/a", &format!("{RANGE}Authorization: Basic YTpi\r\n"));
        assert!(page.body == content("/200000/a", 1)[1..]);
        assert_eq!(server.get_with("/200000/a", RANGE).status, 401);
    }
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn slices_for_a_user_are_not_shared() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "");
    for lines in ["Authorization: Basic YTpi\r\n", ""] {
        let page = server.get_with("/200000/a", &format!("{RANGE}{lines}"));
        assert!(page.body == content("/200000/a", 1)[1..]);
    }
    // A slice that is not stored, the range, and four slices without credentials.
    assert_eq!(ranges(&backend)[..2], ["bytes=0-65535", "bytes=1-"]);
    assert_eq!(slices(&backend).len(), 6);
}

#[test]
fn parts_are_not_compressed_and_the_whole_is() {
    let backend =
        backend(&Resource::new("Cache-Control: max-age=600\r\nContent-Type: text/plain\r\n"));
    let server = slicing(
        &backend,
        "server.modules = ( \"mod_deflate\" )\ndeflate.mimetypes = ( \"text/\" )\n\
         deflate.allowed-encodings = ( \"gzip\" )",
    );
    let gzip = "Accept-Encoding: gzip\r\n";
    for _ in 0..2 {
        let page = server.get_with("/200000/a", &format!("{RANGE}{gzip}"));
        assert_eq!((page.status, page.field("Content-Encoding")), (206, None));
        assert!(page.body == content("/200000/a", 1)[1..]);
    }
    let page = server.get_with("/200000/a", gzip);
    assert_eq!((page.status, page.field("Content-Encoding")), (200, Some("gzip")));
    let mut whole = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(&page.body[..]);
    std::io::Read::read_to_end(&mut decoder, &mut whole).expect("decoded");
    assert!(whole == content("/200000/a", 1));
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn clients_of_http2_get_ranges() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "server.h2c = \"enable\"");
    let mut client = Http2::connect(server.address());
    for _ in 0..2 {
        let page = client.get_with("/200000/a", &[("range", "bytes=1-")]);
        assert_eq!(page.status, 206);
        assert_eq!(page.field("content-range").as_deref(), Some("bytes 1-199999/200000"));
        assert!(page.body == content("/200000/a", 1)[1..]);
    }
    let page = client.get_with("/200000/a", &[("range", "bytes=300000-")]);
    assert_eq!(page.status, 416);
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn file_that_a_backend_names_is_cut_into_slices() {
    let setup = lighty!();
    let body = content("/200000/a", 1);
    write_file(&setup.directory().join("files/big"), &body);
    let path = setup.directory().join("files/big").display().to_string();
    let backend = Backend::replying(move |_| {
        let fields = format!("X-Sendfile: {path}\r\n{FRESH}ETag: \"1\"\r\n");
        answer("200 OK", &fields, "")
    });
    let server = sliced(
        setup,
        &backend,
        "proxy-core.allow-x-sendfile = \"enable\"\n\
         proxy-core.x-sendfile-docroot = ( \"@DIR@/files/\" )",
    );
    for _ in 0..2 {
        get(&server, "/200000/a", "70000-150000", 70_000, 150_001);
    }
    assert_eq!(slices(&backend), [1, 2]);
}

#[test]
fn scripts_give_slices_tags_and_lifetimes() {
    let backend = backend(&Resource::new(""));
    let script = "lighty.cache.ttl = 600\nlighty.cache.tags = { \"news\" }\n\
                  if lighty.r.req_attr[\"uri.path\"] == \"/purge\" then\n\
                  lighty.cache.purge { tag = \"news\" }\nreturn 204 end";
    let server = sliced(
        lighty!().file("../tags.lua", script),
        &backend,
        "server.modules = ( \"mod_magnet\" )\n\
         magnet.attract-raw-url-to = ( \"@DIR@/tags.lua\" )",
    );
    for requests in [2, 2] {
        get(&server, "/200000/a", "70000-150000", 70_000, 150_001);
        assert_eq!(backend.requests().len(), requests);
    }
    assert_eq!(server.get("/purge").status, 204);
    get(&server, "/200000/a", "70000-150000", 70_000, 150_001);
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn configured_lifetime_is_for_slices_too() {
    for (rows, requests) in [("\"200\" => 600", 4), ("\"206\" => 600", 4), ("\"404\" => 600", 2)] {
        let backend = backend(&Resource::new(""));
        let server = slicing(&backend, &format!("cache.valid = ( {rows} )"));
        get(&server, "/200000/a", "1-", 1, 200_000);
        assert_eq!(backend.requests().len(), requests, "{rows}");
    }
}

#[test]
fn slices_on_a_disk_outlive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let resource = Resource::new(FRESH);
    let backend = backend(&resource);
    let setup = |slice: &str| {
        lighty!().in_front_of(&backend.name()).config(&format!(
            "cache.stores = ( \"files\" => ( \"path\" => \"{}\", \"size\" => \"64M\", \
             \"min-free\" => \"0%\" ) )\ncache.store = \"files\"\n\
             cache.status-header = \"enable\"\ncache.slice-size = \"{slice}\"\n\
             cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )",
            dir.path().join("store").display()
        ))
    };
    // In segments, and in files of their own.
    for (slice, target) in [("64K", "/300000/a"), ("2M", "/5000000/a")] {
        let end = content(target, 1).len();
        let mut server = setup(slice).start();
        for _ in 0..3 {
            get(&server, target, "1-", 1, end);
        }
        let requests = backend.requests().len();
        server.stop();
        let server = setup(slice).start();
        get(&server, target, "-10", end - 10, end);
        let page = server.get_with(target, RANGE);
        assert!(page.body == content(target, 1)[1..]);
        assert!(is_hit(&page), "{slice}: {:?}", page.field("Cache-Status"));
        assert_eq!(backend.requests().len(), requests, "{slice}");
    }
    let server = setup("2M").start();
    resource.version.store(2, Ordering::SeqCst);
    let mut client = server.connect();
    client.send("POST /purge?all HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert!(server.get_with("/5000000/a", RANGE).body == content("/5000000/a", 2)[1..]);
}

#[test]
fn sizes_of_slices_have_limits() {
    let check = |size: &str, stores: &str| {
        let setup = lighty!().config(&format!("cache.slice-size = {size}\n{stores}"));
        let (code, _, text) = setup.run(&["-tt", "-f", "@CONF@"]);
        (code == 0, text)
    };
    for size in ["0", "\"0\"", "\"64K\"", "65536", "\"1M\"", "\"64M\""] {
        let (is_valid, text) = check(size, "");
        assert!(is_valid, "{size}: {text}");
    }
    for size in ["\"63K\"", "65535", "1", "\"65M\"", "67108865"] {
        let (is_valid, text) = check(size, "");
        assert!(!is_valid && text.contains("must be from 64K to 64M"), "{size}: {text}");
    }
    for size in ["\"much\"", "-1", "\"\""] {
        let (is_valid, text) = check(size, "");
        assert!(!is_valid && text.contains("must be a size"), "{size}: {text}");
    }
    let (is_valid, text) = check("\"2M\"", "cache.stores = ( \"pages\" => () )");
    let fault = "cache.slice-size: no store in cache.stores has a max-object-size of 2097152 bytes";
    assert!(!is_valid && text.contains(fault), "{text}");
    let larger = "cache.stores = ( \"pages\" => ( \"max-object-size\" => \"2M\" ) )";
    assert!(check("\"2M\"", larger).0);
}

#[test]
fn larger_slices_than_a_store_holds_are_not_used() {
    let backend = backend(&Resource::new(FRESH));
    let stores = "cache.stores := ( \"pages\" => ( \"max-object-size\" => \"50K\" ), \
                  \"other\" => () )";
    let server = slicing(&backend, stores);
    for _ in 0..2 {
        get(&server, "/200000/a", "5-9", 5, 10);
    }
    assert_eq!(ranges(&backend), ["bytes=5-9", "bytes=5-9"]);
}

#[test]
fn ranges_are_not_sliced_where_they_are_refused() {
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "server.range-requests = \"disable\"");
    let _ = server.get_with("/200000/a", "Range: bytes=5-9\r\n");
    assert_eq!(ranges(&backend), ["bytes=5-9"]);
}
