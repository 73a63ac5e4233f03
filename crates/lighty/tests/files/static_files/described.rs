//! Description of a file: its type, its validators, and conditional responses.

use lighty_testkit::lighty;

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
