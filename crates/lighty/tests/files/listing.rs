//! Directory listings: as a page and as JSON, with hostile names, streamed when they are long.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use lighty_testkit::lighty;
use lighty_testkit::server::Setup;
use lighty_testkit::stopwatch::Stopwatch;

fn listed() -> Setup {
    lighty!().config("dir-listing.activate = \"enable\"")
}

#[test]
fn a_page_names_directories_first_and_links_them() {
    let server = listed()
        .file("dir/b.txt", "12345")
        .file("dir/a.txt", "x")
        .file("dir/zoo/inside", "x")
        .file("dir/.hidden", "x")
        .start();
    let page = server.get("/dir/");
    assert_eq!(page.status, 200);
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    let at = |what: &str| page.text().find(what).unwrap_or_else(|| panic!("{what}: {page:?}"));
    assert!(at("href=\"zoo/\"") < at("href=\"a.txt\""));
    assert!(at("href=\"a.txt\"") < at("href=\"b.txt\""));
    assert!(page.text().contains("href=\"../\""));
    assert!(!page.text().contains("hidden\""));
    assert_eq!(server.get("/dir").status, 301, "only with its slash");
}

#[test]
fn a_client_that_prefers_json_gets_it() {
    let server = listed().file("dir/b.txt", "12345").file("dir/sub/x", "").start();
    let json = server.get_with("/dir/", "Accept: application/json\r\n");
    assert!(json.field("Content-Type").unwrap_or("").starts_with("application/json"));
    assert!(json.field("Vary").unwrap_or("").to_ascii_lowercase().contains("accept"));
    let text: String = json.text().split_whitespace().collect();
    assert!(text.starts_with('[') && text.ends_with(']'), "{text}");
    assert!(text.contains("{\"name\":\"b.txt\",\"type\":\"file\",\"size\":5,\"mtime\":"), "{text}");
    assert!(text.contains("{\"name\":\"sub\",\"type\":\"directory\""), "{text}");
    let page = server.get_with("/dir/", "Accept: text/html, application/json;q=0.5\r\n");
    assert!(page.field("Content-Type").unwrap_or("").starts_with("text/html"));
    assert!(page.field("Vary").unwrap_or("").to_ascii_lowercase().contains("accept"));
}

#[test]
fn hostile_names_are_text() {
    let setup =
        listed().file("dir/<script>alert(1)<script>", "content").file("dir/a\"b'c&d", "content");
    for name in
        [&b"new\nline"[..], b"not \xff utf-8", b"nor \xe4", b"100% #1?", b"javascript:alert(1)"]
    {
        let path = setup.root("dir").join(std::ffi::OsStr::from_bytes(name));
        fs::write(path, "content").expect("a file");
    }
    let server = setup.start();
    let page = server.get("/dir/");
    let text = page.text();
    assert!(!text.contains("<script>alert"), "{text}");
    assert!(text.contains("&lt;script&gt;alert"), "{text}");
    assert!(!text.contains("href=\"javascript:"), "{text}");
    assert!(page.field("Content-Security-Policy").is_some());
    // Every link leads to the file that it names.
    let mut followed = 0;
    for link in text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let link = link.replace("&amp;", "&").replace("&#39;", "'");
        if link.starts_with("..") || link.starts_with('/') || link.ends_with('/') {
            continue;
        }
        let target = format!("/dir/{}", link.trim_start_matches("./"));
        assert_eq!(server.get(&target).text(), "content", "{target}");
        followed += 1;
    }
    assert_eq!(followed, 5, "{text}");
    // Names that the server refuses by default in URLs are shown without a link.
    for (shown, url) in
        [("new\u{240a}line", "new%0Aline"), ("not \u{fffd} utf-8", "not%20%FF%20utf-8")]
    {
        assert!(text.contains(&format!("><bdi>{shown}</bdi>")), "{text}");
        assert_eq!(server.get(&format!("/dir/{url}")).status, 400);
    }
}

#[test]
fn listings_are_validated() {
    let server = listed().file("dir/a", "x").start();
    let first = server.get("/dir/");
    let etag = first.field("ETag").expect("an entity tag");
    let again = server.get_with("/dir/", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(again.status, 304);
    let json = server.get_with("/dir/", "Accept: application/json\r\n");
    assert_ne!(json.field("ETag"), Some(etag), "two forms, two tags");
}

#[test]
fn archive_follows_the_rewritten_url() {
    let server = listed()
        .config(
            "dir-listing.zip = \"enable\"\n\
             url.rewrite-once = ( \"^/old/(.*)$\" => \"/dir/$1\", \"^/hidden/\" => \"/none\" )",
        )
        .file("dir/a", "first text")
        .file("dir/sub/b", "second text")
        .start();
    for target in ["/dir/?zip", "/old/?zip"] {
        let archive = server.get(target);
        assert_eq!(archive.field("Content-Type"), Some("application/zip"), "{target}");
        for name in ["dir/a", "dir/sub/b"] {
            let has_it = archive.body.windows(name.len()).any(|window| window == name.as_bytes());
            assert!(has_it, "{target}: {name}");
        }
    }
    assert_eq!(server.get("/hidden/?zip").status, 404);
}

#[test]
fn excluded_names_are_not_shown() {
    let server = listed()
        .file("dir/a.txt", "x")
        .file("dir/a.txt~", "x")
        .file("dir/README.txt", "read <me>")
        .config("dir-listing.exclude = ( \"~$\" )\ndir-listing.show-readme = \"enable\"")
        .config("dir-listing.hide-readme-file = \"enable\"")
        .start();
    let page = server.get("/dir/");
    assert!(!page.text().contains("a.txt~"), "{page:?}");
    assert!(page.text().contains("read &lt;me&gt;"), "{}", page.text());
    assert!(!page.text().contains("href=\"README.txt\""));
}

#[test]
fn head_and_other_methods() {
    let server = listed().file("dir/a", "x").start();
    let mut client = server.connect();
    client.send("HEAD /dir/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let (of_head, of_get) = (client.response_to_head(), server.get("/dir/"));
    assert_eq!(of_head.status, 200);
    for field in ["ETag", "Content-Length", "Content-Type", "Vary", "Content-Security-Policy"] {
        assert!(of_get.field(field).is_some(), "{field}");
        assert_eq!(of_head.field(field), of_get.field(field), "{field}");
    }
    let tag = of_get.field("ETag").expect("a tag");
    client.send(format!("HEAD /dir/ HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n"));
    assert_eq!(client.response_to_head().status, 304);
    client.send("DELETE /dir/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let status = client.response().status;
    assert!(matches!(status, 403 | 405), "{status}");
}

#[test]
fn head_of_a_long_or_unsorted_listing_has_no_tag_as_get_has_none() {
    let long =
        with_names(listed().config("dir-listing.cache = ( \"max-age\" => 60 )"), 600).start();
    let unsorted = listed().config("dir-listing.sort = \"disable\"").file("dir/a", "x").start();
    // Twice: the second time from the cache.
    for (server, target) in [(&long, "/long/"), (&long, "/long/"), (&unsorted, "/dir/")] {
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let of_head = client.response_to_head();
        let of_get = server.get(target);
        for response in [of_head, of_get] {
            assert_eq!(response.status, 200);
            assert_eq!((response.field("ETag"), response.field("Content-Length")), (None, None));
        }
    }
}

#[test]
fn a_long_directory_is_streamed_whole_and_delays_no_client() {
    const FILES: usize = 20_000;
    let setup = listed().file("hot", "x");
    fs::create_dir(setup.root("long")).expect("a directory");
    for index in 0..FILES {
        fs::File::create(setup.root(&format!("long/file-{index:06}"))).expect("a file");
    }
    let server = setup.start();
    assert_eq!(server.get("/hot").text(), "x");
    let mut client = server.connect();
    client.send("GET /long/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let start = Instant::now();
    let mut waits = Vec::new();
    while start.elapsed() < Duration::from_millis(700) {
        let requested = Stopwatch::start(&server);
        assert_eq!(server.get("/hot").text(), "x");
        waits.push(requested.took());
    }
    waits.sort();
    let p90 = waits[waits.len() * 9 / 10];
    assert!(p90 < Duration::from_millis(100), "{p90:?} beside a listing (debug build)");
    let page = client.response();
    assert_eq!(page.text().matches("href=\"file-").count(), FILES);
    let json = server.get_with("/long/", "Accept: application/json\r\n");
    assert_eq!(json.text().matches("\"name\":").count(), FILES);
}

/// A directory `long` with `count` names of 60 bytes each.
fn with_names(setup: Setup, count: u32) -> Setup {
    let directory = setup.root("long");
    fs::create_dir(&directory).expect("a directory");
    for number in 0..count {
        fs::File::create(directory.join(format!("{number:060}"))).expect("a file");
    }
    setup
}

#[test]
fn a_listing_whose_client_has_left_is_given_up() {
    const REQUESTS: u32 = 20;
    let setup = listed().config("dir-listing.max-concurrent = 1");
    let server = with_names(setup, 20_000).start();
    let before = server.cpu_time();
    assert_eq!(server.get("/long/").status, 200);
    let one = server.cpu_time() - before;
    for _ in 0..REQUESTS {
        let mut client = server.connect();
        client.send("GET /long/ HTTP/1.1\r\nHost: a\r\n\r\n");
        client.reset();
    }
    // The server handles this request after all of them.
    assert_eq!(server.get("/long/").status, 200);
    let all = server.cpu_time() - before;
    assert!(all < one * (2 + REQUESTS / 2), "{one:?} for one, {all:?} for all");
}

#[test]
fn a_listing_for_which_there_is_no_room_is_sent_as_it_is_read() {
    // 2000 names of 60 bytes, plus 28 bytes each: 172 KB.
    for (kbytes, is_sorted) in [(100, false), (250, true)] {
        let setup = listed().config(&format!("dir-listing.max-memory = {kbytes}"));
        let server = with_names(setup, 2000).start();
        let json = server.get_with("/long/", "Accept: application/json\r\n");
        let names: Vec<&str> = json
            .text()
            .split("\"name\":")
            .skip(1)
            .filter_map(|rest| rest.split('"').nth(1))
            .collect();
        assert_eq!(names.len(), 2000);
        assert_eq!(names.is_sorted(), is_sorted, "{kbytes} KB: {}", server.log());
        // The log is written by a thread of its own.
        match is_sorted {
            true => assert!(!server.log().contains("dir-listing.max-memory"), "{kbytes} KB"),
            false => server.await_log("dir-listing.max-memory"),
        }
    }
}

#[test]
fn memory_of_a_long_listing_is_given_back() {
    let server = with_names(listed(), 100_000).start();
    assert_eq!(server.get("/none").status, 404);
    let before = server.own_kib();
    let mut client =
        lighty_testkit::client::Client::tcp_with_receive_buffer(server.address(), 4096);
    client.set_deadline(Duration::from_secs(200));
    client.send("GET /long/ HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    // 88 bytes for each name.
    let held = server.own_kib();
    assert!(held > before + 7 * 1024, "{before} KiB before, {held} now");
    client.reset();
    let given_back = lighty_testkit::wait_until(Duration::from_secs(60), || {
        server.own_kib() < before + 4 * 1024
    });
    assert!(given_back, "{before} KiB before, {} after", server.own_kib());
}
