//! Mapping of paths to files.

use std::collections::BTreeSet;

use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::lighty;

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
fn path_info_is_found_in_a_path_of_any_length() {
    let server = lighty!()
        .file("top", "at the top")
        .file("a/b/c/d/deep", "deep down")
        .config("server.max-request-field-size = 16384")
        .start();
    let parts = |count: usize| "/x".repeat(count);
    for count in [1, 2, 3, 4, 7, 100, 1999] {
        let answer = server.get(&format!("/top{}", parts(count)));
        assert_eq!((answer.status, answer.text()), (200, "at the top"), "{count}");
        let answer = server.get(&format!("/a/b/c/d/deep{}/", parts(count)));
        assert_eq!((answer.status, answer.text()), (200, "deep down"), "{count}");
        assert_eq!(server.get(&format!("/a/b/c/d{}", parts(count))).status, 404, "{count}");
    }
    // Longer than the limit of a path.
    assert_eq!(server.get(&format!("/top{}", parts(3000))).status, 404);
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
    assert_eq!(strict.get("/a.txt/some/info").status, 403);
    assert_eq!(strict.get("/a.txt").status, 200);
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
fn names_that_are_too_long_are_not_found() {
    let server = lighty!().start();
    assert_eq!(server.get(&format!("/{}", "n".repeat(256))).status, 404);
    assert_eq!(server.get(&format!("/{}", "d/".repeat(2100))).status, 404);
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
