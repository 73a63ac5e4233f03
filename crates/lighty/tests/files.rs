//! Files: how they are found, described, sent in parts, and what happens when they change.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::wait_until;

#[test]
fn index_files_are_tried_in_their_order() {
    let server = lighty!()
        .file("index.htm", "second")
        .file("both/index.html", "first")
        .file("both/index.htm", "second")
        .file("none/other", "x")
        .file("fallback.html", "for every directory")
        .config("index-file.names = ( \"index.html\", \"index.htm\", \"/fallback.html\" )")
        .start();
    assert_eq!(server.get("/").text(), "second");
    assert_eq!(server.get("/both/").text(), "first");
    assert_eq!(server.get("/none/").text(), "for every directory");
    assert_eq!(server.get("/both").field("Location"), Some("/both/"));
}

#[test]
fn a_directory_without_index_and_listing_is_forbidden() {
    let server = lighty!().file("dir/a", "x").start();
    assert_eq!(server.get("/dir/").status, 403);
}

#[test]
fn types_come_from_the_built_in_table() {
    let server = lighty!()
        .file("a.html", "")
        .file("a.CSS", "")
        .file("a.tar.gz", "")
        .file("a.unknown-ending", "")
        .file("none", "")
        .start();
    let of = |path: &str| server.get(path).field("Content-Type").unwrap_or("").to_owned();
    assert!(of("/a.html").starts_with("text/html"), "{}", of("/a.html"));
    assert!(of("/a.CSS").starts_with("text/css"), "{}", of("/a.CSS"));
    assert_eq!(of("/a.unknown-ending"), "application/octet-stream");
    assert_eq!(of("/none"), "application/octet-stream");
}

#[test]
fn types_are_assigned_by_the_longest_ending() {
    let server = lighty!()
        .file("x.gz", "")
        .file("x.tar.gz", "")
        .file("README", "")
        .file("x.html", "")
        .config(
            "mimetype.assign = ( \".gz\" => \"application/gzip\", \
             \".tar.gz\" => \"application/x-tgz\", \"README\" => \"text/plain\", \
             \"\" => \"application/x-rest\" )",
        )
        .start();
    let of = |path: &str| server.get(path).field("Content-Type").unwrap_or("").to_owned();
    assert_eq!(of("/x.gz"), "application/gzip");
    assert_eq!(of("/x.tar.gz"), "application/x-tgz");
    assert_eq!(of("/README"), "text/plain");
    assert_eq!(of("/x.html"), "application/x-rest");
}

#[test]
fn a_type_may_come_from_an_extended_attribute() {
    let setup = lighty!()
        .file("a.txt", "x")
        .file("b.txt", "x")
        .config("mimetype.use-xattr = \"enable\"\nmimetype.xattr-name = \"user.test_type\"");
    let set = rustix::fs::setxattr(
        setup.root("a.txt"),
        "user.test_type",
        b"application/x-test",
        rustix::fs::XattrFlags::empty(),
    );
    if let Err(error) = set {
        eprintln!("SKIPPED: this file system keeps no extended attributes: {error}");
        return;
    }
    let server = setup.start();
    assert_eq!(server.get("/a.txt").field("Content-Type"), Some("application/x-test"));
    assert!(server.get("/b.txt").field("Content-Type").unwrap_or("").starts_with("text/plain"));
}

#[test]
fn the_attribute_of_types_is_the_users_content_type() {
    let setup = lighty!().file("a.txt", "x").config("mimetype.use-xattr = \"enable\"");
    let flags = rustix::fs::XattrFlags::empty();
    let value = b"application/x-test";
    if rustix::fs::setxattr(setup.root("a.txt"), "user.Content-Type", value, flags).is_err() {
        eprintln!("SKIPPED: this file system keeps no extended attributes");
        return;
    }
    let server = setup.start();
    assert_eq!(server.get("/a.txt").field("Content-Type"), Some("application/x-test"));
}

#[test]
fn an_absolute_redirect_names_the_server_where_the_request_does_not() {
    let server = lighty!()
        .file("dir/a.txt", "x")
        .config("server.feature-flags = ( \"server.absolute-dir-redirect\" => \"enable\" )")
        .config("server.name = \"www.example.org\"")
        .start();
    let mut client = server.connect();
    client.send("GET /dir?q HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().field("Location"), Some("http://www.example.org/dir/?q"));
    let mut client = server.connect();
    client.send("GET /dir HTTP/1.0\r\nHost: b.example\r\n\r\n");
    assert_eq!(client.response().field("Location"), Some("http://b.example/dir/"));
}

#[test]
fn without_stat_threads_files_are_served_all_the_same() {
    for engine in ["auto", "threads"] {
        let server = lighty!()
            .file("dir/index.html", "hello")
            .config("server.max-stat-threads = 0\nserver.stat-cache-engine = \"disable\"")
            .config(&format!("server.io-engine = \"{engine}\""))
            .config("index-file.names := ( \"index.html\" )")
            .start();
        assert_eq!(server.get("/dir/").text(), "hello");
        assert_eq!(server.get("/dir").status, 301);
        assert_eq!(server.get("/none").status, 404);
    }
}

#[test]
fn the_error_handler_answers_every_kind_of_refusal() {
    let server = lighty!()
        .file("a.txt", "x")
        .file("error.html", "sorry")
        .config("server.error-handler = \"/error.html\"\nserver.max-request-size = 1")
        .start();
    let answer_to = |request: &str| {
        let mut client = server.connect();
        client.send(request);
        let answer = client.response();
        assert_eq!(answer.text(), "sorry", "{request}");
        answer
    };
    assert_eq!(answer_to("GET /none HTTP/1.1\r\nHost: a\r\n\r\n").status, 404);
    assert_eq!(answer_to("WINK /a.txt HTTP/1.1\r\nHost: a\r\n\r\n").status, 501);
    let too_large = "POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n";
    let refused = answer_to(too_large);
    assert_eq!(refused.status, 413);
    assert!(refused.says_close());
    let refused = answer_to("DELETE /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((refused.status, refused.field("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    let refused = answer_to("GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=9-\r\n\r\n");
    assert_eq!((refused.status, refused.field("Content-Range")), (416, Some("bytes */1")));
}

#[test]
fn validators_are_honoured_in_their_order() {
    let server = lighty!().file("a.txt", "hello\n").start();
    let first = server.get("/a.txt");
    let etag = first.field("ETag").expect("an entity tag").to_owned();
    let modified = first.field("Last-Modified").expect("a date").to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "strong: {etag}");
    let long_ago = "Sun, 06 Nov 1994 08:49:37 GMT";
    let status = |lines: String| server.get_with("/a.txt", &lines).status;
    assert_eq!(status(format!("If-None-Match: {etag}\r\n")), 304);
    assert_eq!(status(format!("If-None-Match: W/{etag}\r\n")), 304);
    assert_eq!(status(format!("If-None-Match: \"x\", {etag}\r\n")), 304);
    assert_eq!(status("If-None-Match: *\r\n".into()), 304);
    assert_eq!(status("If-None-Match: \"x\"\r\n".into()), 200);
    assert_eq!(status(format!("If-Modified-Since: {modified}\r\n")), 304);
    assert_eq!(status(format!("If-Modified-Since: {long_ago}\r\n")), 200);
    assert_eq!(status("If-Modified-Since: yesterday\r\n".into()), 200);
    // If-None-Match takes precedence over If-Modified-Since (RFC 9110 section 13.2.2).
    assert_eq!(status(format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {modified}\r\n")), 200);
    assert_eq!(status(format!("If-Match: {etag}\r\n")), 200);
    assert_eq!(status("If-Match: *\r\n".into()), 200);
    assert_eq!(status("If-Match: \"x\"\r\n".into()), 412);
    assert_eq!(status(format!("If-Match: W/{etag}\r\n")), 412, "If-Match compares strongly");
    assert_eq!(status(format!("If-Unmodified-Since: {modified}\r\n")), 200);
    assert_eq!(status(format!("If-Unmodified-Since: {long_ago}\r\n")), 412);
}

#[test]
fn not_modified_repeats_the_validators_and_has_no_body() {
    let server = lighty!().file("a.txt", "hello\n").start();
    let first = server.get("/a.txt");
    let etag = first.field("ETag").expect("an entity tag");
    let again = server.get_with("/a.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(again.status, 304);
    assert_eq!(again.field("ETag"), Some(etag));
    assert!(again.body.is_empty());
    assert!(again.field("Date").is_some());
}

#[test]
fn parts_of_the_entity_tag_can_be_left_out() {
    let none = lighty!()
        .file("a", "x")
        .config(
            "etag.use-inode = \"disable\"\netag.use-mtime = \"disable\"\netag.use-size = \"disable\"",
        )
        .start();
    assert_eq!(none.get("/a").field("ETag"), None);
    let size_only = lighty!()
        .file("a", "same size")
        .file("b", "size same")
        .file("c", "another size")
        .config("etag.use-inode = \"disable\"\netag.use-mtime = \"disable\"")
        .start();
    let tag = |path: &str| size_only.get(path).field("ETag").map(str::to_owned);
    assert_eq!(tag("/a"), tag("/b"));
    assert_ne!(tag("/a"), tag("/c"));
    let off = lighty!().file("a", "x").config("static-file.etags = \"disable\"").start();
    assert_eq!(off.get("/a").field("ETag"), None);
}

#[test]
fn ranges_with_a_matching_if_range_are_parts_and_others_the_whole() {
    let server = lighty!().file("a", pattern(0, 100_000)).start();
    let first = server.get("/a");
    let etag = first.field("ETag").expect("an entity tag");
    let get = |if_range: &str| {
        server.get_with("/a", &format!("Range: bytes=1000-1999\r\nIf-Range: {if_range}\r\n"))
    };
    let part = get(etag);
    assert_eq!(part.status, 206);
    assert_eq!(part.field("Content-Range"), Some("bytes 1000-1999/100000"));
    assert_pattern(&part.body, 1000, "part");
    assert_eq!(get(&format!("W/{etag}")).status, 200, "If-Range compares strongly");
    assert_eq!(get("\"other\"").status, 200);
}

#[test]
fn several_ranges_come_as_parts_of_one_body() {
    let server = lighty!().file("a.txt", pattern(0, 200_000)).start();
    let response = server.get_with("/a.txt", "Range: bytes=0-9, 1000-1099, 150000-199999\r\n");
    assert_eq!(response.status, 206);
    assert_eq!(response.field("Content-Range"), None);
    let parts = multipart(&response);
    let ranges: Vec<&str> = parts.iter().map(|(range, _)| range.as_str()).collect();
    assert_eq!(
        ranges,
        ["bytes 0-9/200000", "bytes 1000-1099/200000", "bytes 150000-199999/200000"]
    );
    assert_pattern(&parts[0].1, 0, "first part");
    assert_pattern(&parts[1].1, 1000, "second part");
    assert_pattern(&parts[2].1, 150_000, "third part");
}

/// Content-Range and data of each part of a `multipart/byteranges` body.
fn multipart(response: &Response) -> Vec<(String, Vec<u8>)> {
    let media_type = response.field("Content-Type").expect("a media type");
    let boundary = media_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| panic!("{media_type}"));
    let mut rest = response.body.as_slice();
    let mut parts = Vec::new();
    loop {
        let line_end = find(rest, b"\r\n").expect("a line");
        let line = &rest[..line_end];
        rest = &rest[line_end + 2..];
        if line.is_empty() {
            continue;
        }
        if line == format!("--{boundary}--").as_bytes() {
            assert!(rest.is_empty(), "something follows the end");
            return parts;
        }
        assert_eq!(line, format!("--{boundary}").as_bytes());
        let head_end = find(rest, b"\r\n\r\n").expect("the end of a part's head");
        let head = String::from_utf8_lossy(&rest[..head_end]).into_owned();
        rest = &rest[head_end + 4..];
        let range = head
            .lines()
            .find_map(|l| l.strip_prefix("Content-Range: "))
            .unwrap_or_else(|| panic!("{head}"));
        let (first, last) = range["bytes ".len()..]
            .split('/')
            .next()
            .and_then(|r| r.split_once('-'))
            .expect("a range");
        let length =
            last.parse::<usize>().expect("last") - first.parse::<usize>().expect("first") + 1;
        parts.push((range.to_owned(), rest[..length].to_vec()));
        rest = &rest[length..];
        assert!(rest.starts_with(b"\r\n--"), "a part is longer than its range");
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}

#[test]
fn abusive_ranges_never_send_more_than_the_file() {
    let size = 100_000;
    let server = lighty!().file("a", pattern(0, size)).start();
    let many: Vec<String> = (0..400).map(|i| format!("{}-{}", i * 200, i * 200 + 1)).collect();
    for ranges in [
        "0-,0-,0-,0-,0-,0-,0-,0-".to_owned(),
        "0-99999,1-99999,2-99999,3-99999,4-99999".to_owned(),
        (0..500).map(|_| "-1").collect::<Vec<_>>().join(","),
        many.join(","),
    ] {
        let response = server.get_with("/a", &format!("Range: bytes={ranges}\r\n"));
        assert!(matches!(response.status, 200 | 206 | 416), "{response:?}");
        assert!(response.body.len() <= size + 8192, "{} bytes sent", response.body.len());
    }
}

#[test]
fn ranges_can_be_switched_off() {
    let server =
        lighty!().file("a", "0123456789").config("server.range-requests = \"disable\"").start();
    let response = server.get_with("/a", "Range: bytes=0-0\r\n");
    assert_eq!((response.status, response.body.len()), (200, 10));
    assert_eq!(response.field("Accept-Ranges"), None);
}

#[test]
fn path_info_is_split_off_unless_disabled() {
    let server = lighty!().file("a.txt", "hello\n").file("dir/b", "x").start();
    assert_eq!(server.get("/a.txt/some/info").body, b"hello\n");
    assert_eq!(server.get("/dir/b/").body, b"x");
    assert_eq!(server.get("/dir/none/info").status, 404);
    let strict = lighty!()
        .file("a.txt", "hello\n")
        .config("static-file.disable-pathinfo = \"enable\"")
        .start();
    assert_eq!(strict.get("/a.txt/some/info").status, 404);
    assert_eq!(strict.get("/a.txt").status, 200);
}

#[test]
fn excluded_endings_are_never_sent() {
    let server = lighty!()
        .file("a.php", "<?php secret")
        .file("a.txt", "x")
        .config("static-file.exclude-extensions = ( \".php\", \"~\" )")
        .start();
    assert_eq!(server.get("/a.php").status, 403);
    assert_eq!(server.get("/a.php/info").status, 403);
    assert_eq!(server.get("/a.txt").status, 200);
}

#[test]
fn error_pages_come_from_their_prefix() {
    let server = lighty!().file("dir/x", "").config("server.errorfile-prefix = \"@DIR@/error-\"");
    write_file(&server.directory().join("error-404.html"), "my 404\n");
    let server = server.start();
    let response = server.get("/none");
    assert_eq!((response.status, response.text()), (404, "my 404\n"));
    assert!(response.field("Content-Type").unwrap_or("").starts_with("text/html"));
    let built_in = server.get("/dir/");
    assert_eq!(built_in.status, 403);
    assert!(built_in.text().contains("403"));
}

#[test]
fn error_handlers_answer_and_the_status_stays() {
    let for_404 = lighty!()
        .file("sorry.html", "sorry\n")
        .file("dir/x", "")
        .config("server.error-handler-404 = \"/sorry.html\"")
        .start();
    let response = for_404.get("/none");
    assert_eq!((response.status, response.text()), (404, "sorry\n"));
    let response = for_404.get("/dir/");
    assert_eq!((response.status, response.text()), (403, "sorry\n"));
    let for_all = lighty!()
        .file("sorry.html", "sorry\n")
        .config("server.error-handler = \"/sorry.html\"")
        .start();
    let mut client = for_all.connect();
    client.send("DELETE /sorry.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text()), (405, "sorry\n"));
    let missing = lighty!().config("server.error-handler = \"/gone.html\"").start();
    assert_eq!(missing.get("/none").status, 404);
}

#[test]
fn names_can_be_looked_for_in_lower_case() {
    let server = lighty!()
        .file("dir/a.txt", "hello\n")
        .config("server.force-lowercase-filenames = \"enable\"")
        .start();
    assert_eq!(server.get("/DIR/A.txt").body, b"hello\n");
    let plain = lighty!().file("a.txt", "hello\n").start();
    assert_eq!(plain.get("/A.TXT").status, 404);
}

#[test]
fn symbolic_links_are_followed_refused_or_kept_beneath() {
    for (setting, inside, outside, through) in
        [("enable", 200, 200, 200), ("disable", 403, 403, 403), ("beneath", 200, 403, 403)]
    {
        let setup = lighty!()
            .file("real.txt", "inside\n")
            .link("inside.txt", "real.txt")
            .link("outside.txt", "../secret.txt")
            .link("up", "..")
            .config(&format!("server.follow-symlink = \"{setting}\""));
        write_file(&setup.directory().join("secret.txt"), "outside\n");
        let server = setup.start();
        assert_eq!(server.get("/real.txt").status, 200, "{setting}");
        assert_eq!(server.get("/inside.txt").status, inside, "{setting}");
        assert_eq!(server.get("/outside.txt").status, outside, "{setting}");
        assert_eq!(server.get("/up/secret.txt").status, through, "{setting}");
    }
}

#[test]
fn a_loop_of_links_is_an_answer() {
    let server = lighty!().link("loop", "loop").start();
    let status = server.get("/loop").status;
    assert!(matches!(status, 403 | 404), "{status}");
}

#[test]
fn nothing_leaves_the_document_root() {
    let setup = lighty!().file("in/a.txt", "inside\n");
    write_file(&setup.directory().join("secret.txt"), "secret\n");
    let server = setup.start();
    for target in [
        "/../secret.txt",
        "/in/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2e./secret.txt",
        "/.%2E/secret.txt",
        "/in/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/in%2f..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e/secret.txt",
        "/..%252fsecret.txt",
        "/....//secret.txt",
        "/.../secret.txt",
        "/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%c0%af../secret.txt",
        "/..%00/secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/in/a.txt/../../../secret.txt",
        "/in/a.txt%2f..%2f..%2f..%2fsecret.txt",
        "http://h/../secret.txt",
    ] {
        let response = server.get(target);
        assert!(matches!(response.status, 400 | 403 | 404), "{target}: {response:?}");
        assert!(find(&response.body, b"secret\n").is_none(), "{target}");
    }
}

#[test]
fn every_special_file_is_refused_without_a_hang() {
    let setup = lighty!();
    rustix::fs::mkfifoat(rustix::fs::CWD, setup.root("pipe"), rustix::fs::Mode::RWXU)
        .expect("a named pipe");
    let _listening =
        std::os::unix::net::UnixListener::bind(setup.root("socket")).expect("a socket");
    let server = setup.link("null", "/dev/null").start();
    for path in ["/pipe", "/socket", "/null"] {
        let status = server.get(path).status;
        assert!(matches!(status, 403 | 404), "{path}: {status}");
    }
}

#[test]
fn a_file_without_permission_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED here: root may read every file (lifecycle.rs has it as another user)");
        return;
    }
    let setup = lighty!().file("a", "x");
    fs::set_permissions(setup.root("a"), fs::Permissions::from_mode(0o000)).expect("chmod");
    assert_eq!(setup.start().get("/a").status, 403);
}

#[test]
fn names_that_are_too_long_are_not_found() {
    let server = lighty!().start();
    assert_eq!(server.get(&format!("/{}", "n".repeat(256))).status, 404);
    assert_eq!(server.get(&format!("/{}", "d/".repeat(2100))).status, 404);
}

/// Polls until the answer's body is `wanted`.
fn served_within(server: &Server, target: &str, wanted: &[u8], deadline: Duration) -> bool {
    wait_until(deadline, || server.get(target).body == wanted)
}

fn replace(path: &Path, content: &[u8]) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).expect("a file");
    fs::rename(&beside, path).expect("rename");
}

#[test]
fn a_changed_file_is_served_changed_within_a_second() {
    for size in [10, 100_000] {
        let server = lighty!().file("a", pattern(0, size)).start();
        assert_pattern(&server.get("/a").body, 0, "before");
        fs::write(server.root("a"), pattern(99, size + 1)).expect("rewrite");
        assert!(served_within(&server, "/a", &pattern(99, size + 1), Duration::from_millis(2500)));
        replace(&server.root("a"), &pattern(7, size));
        assert!(served_within(&server, "/a", &pattern(7, size), Duration::from_millis(2500)));
        fs::remove_file(server.root("a")).expect("remove");
        assert!(wait_until(Duration::from_millis(2500), || server.get("/a").status == 404));
        fs::write(server.root("a"), pattern(5, size)).expect("write");
        assert!(served_within(&server, "/a", &pattern(5, size), Duration::from_millis(2500)));
    }
}

#[test]
fn with_inotify_a_change_is_served_by_the_next_request() {
    let server = lighty!()
        .file("a", "0")
        .file("dir/b", "0")
        .config("server.stat-cache-engine = \"inotify\"")
        .start();
    let mut client = server.connect();
    let mut get = |path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response()
    };
    assert_eq!(get("/a").text(), "0");
    for round in 1..=20 {
        let text = round.to_string();
        if round % 2 == 0 {
            fs::write(server.root("a"), &text).expect("rewrite");
            fs::write(server.root("dir/b"), &text).expect("rewrite");
        } else {
            replace(&server.root("a"), text.as_bytes());
            replace(&server.root("dir/b"), text.as_bytes());
        }
        assert_eq!(get("/a").text(), text, "round {round}");
        assert_eq!(get("/dir/b").text(), text, "round {round}");
    }
    fs::remove_file(server.root("a")).expect("remove");
    assert_eq!(get("/a").status, 404);
    fs::rename(server.root("dir"), server.root("moved")).expect("rename");
    assert_eq!(get("/dir/b").status, 404);
    assert_eq!(get("/moved/b").text(), "20");
}

#[test]
fn without_a_cache_a_change_is_served_by_the_next_request() {
    let server = lighty!().file("a", "0").config("server.stat-cache-engine = \"disable\"").start();
    for round in 1..=10 {
        let text = round.to_string();
        fs::write(server.root("a"), &text).expect("rewrite");
        assert_eq!(server.get("/a").text(), text);
    }
}

#[test]
fn a_flipped_document_root_is_served_within_a_second() {
    for engine in ["simple", "inotify", "disable"] {
        let setup = lighty!()
            .config("var.site = \"@DIR@/current\"\nserver.document-root := var.site")
            .config(&format!("server.stat-cache-engine = \"{engine}\""));
        let directory = setup.directory().to_owned();
        write_file(&directory.join("v1/a.txt"), "one");
        write_file(&directory.join("v2/a.txt"), "two");
        write_file(&directory.join("v2/only-here.txt"), "new");
        std::os::unix::fs::symlink("v1", directory.join("current")).expect("a link");
        let server = setup.start();
        assert_eq!(server.get("/a.txt").text(), "one");
        std::os::unix::fs::symlink("v2", directory.join("next")).expect("a link");
        fs::rename(directory.join("next"), directory.join("current")).expect("flip");
        let seen = served_within(&server, "/a.txt", b"two", Duration::from_millis(2500));
        assert!(seen, "{engine}: the old root is still served");
        assert_eq!(server.get("/only-here.txt").text(), "new", "{engine}");
    }
}

#[test]
fn hundreds_of_files_are_each_themselves() {
    let mut setup = lighty!().config("server.stat-cache-entries = 32");
    for index in 0..300u64 {
        setup = setup.file(&format!("d{}/f{index}", index % 7), pattern(index * 1000, 700));
    }
    let server = setup.start();
    let mut client = server.connect();
    let mut tags = BTreeSet::new();
    for index in (0..300u64).chain(0..300) {
        client.send(format!("GET /d{}/f{index} HTTP/1.1\r\nHost: a\r\n\r\n", index % 7));
        let response = client.response();
        assert_pattern(&response.body, index * 1000, "a file");
        tags.insert(response.field("ETag").expect("an entity tag").to_owned());
    }
    assert_eq!(tags.len(), 300, "each file has its own entity tag");
}
