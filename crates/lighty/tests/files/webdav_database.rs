//! WebDAV: the database that is missing, held, removed, full, or in the wrong place.

use std::time::Duration;

use lighty_testkit::dav::{color, lock, names, put, request, set_color, status, token_of};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_database_that_cannot_be_had_is_said() {
    let server = lighty!()
        .webdav("webdav.sqlite-db-name = \"@DIR@/none/dav.db\"")
        // The sandbox's rule for the directory ends with it.
        .config("server.sandbox-paths = ( \"@DIR@:rw\" )")
        .file("a.txt", "A")
        .file("../none/other", "")
        .start();
    let directory = server.directory().join("none");
    std::fs::remove_dir_all(&directory).expect("removed");
    assert_eq!(lock(&server, "/a.txt", "").status, 500);
    server.await_log("webdav.sqlite-db-name");
    std::fs::create_dir(&directory).expect("a directory");
    assert_eq!(lock(&server, "/a.txt", "").status, 200, "found again without a restart");
}

#[test]
fn the_database_is_never_served_and_its_place_is_warned_of() {
    let config = "webdav.sqlite-db-name = \"@DIR@/root/sub/dav.db\"\n\
                  alias.url = ( \"/other/\" => \"@DIR@/root/sub/\" )\n\
                  $HTTP[\"url\"] == \"/sub/\" { index-file.names = ( \"dav.db\" ) }";
    let setup =
        lighty!().webdav(config).file("sub/dav.db", "").file("a", "A").link("link", "sub/dav.db");
    let file = setup.write_config();
    let (code, _, output) = setup.run(&["-t", "-f", file.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("warning") && output.contains("lies in server.document-root"),
        "{output}"
    );
    let server = setup.start();
    let refused = |target: &str| {
        assert_eq!(server.get(target).status, 403, "{target}");
        assert_eq!(put(&server, target, "x"), 403, "{target}");
        let to = format!("Destination: {target}\r\n");
        assert_eq!(status(&server, "COPY", "/a", &to), 403, "{target}");
        assert_eq!(status(&server, "COPY", target, "Destination: /mine\r\n"), 403, "{target}");
        assert_eq!(status(&server, "MOVE", target, "Destination: /mine\r\n"), 403, "{target}");
        assert_eq!(status(&server, "DELETE", target, ""), 403, "{target}");
    };
    // Before its first use, and by every path.
    refused("/sub/dav.db");
    assert_eq!(set_color(&server, "/a", "red").status, 207);
    for target in ["/sub/dav.db", "/sub/dav.db-wal", "/sub/dav.db-shm", "/other/dav.db"] {
        refused(target);
    }
    // Files that the database would take for its own cannot be created.
    for target in ["/sub/dav.db-journal", "/other/dav.db-journal"] {
        assert_eq!(put(&server, target, "x"), 403, "{target}");
        assert_eq!(lock(&server, target, "").status, 403, "{target}");
        assert_eq!(status(&server, "MKCOL", target, ""), 403, "{target}");
        let to = format!("Destination: {target}\r\n");
        assert_eq!(status(&server, "COPY", "/a", &to), 403, "{target}");
        assert_eq!(status(&server, "MOVE", "/a", &to), 403, "{target}");
    }
    assert_eq!(put(&server, "/sub/dav.db-mine", "x"), 201);
    for target in ["/link", "/link", "/sub/", "/sub/"] {
        assert_eq!(server.get(target).status, 403, "{target}");
    }
    assert_eq!(status(&server, "DELETE", "/sub", ""), 207);
    assert_eq!(status(&server, "COPY", "/sub", "Destination: /mine\r\n"), 207);
    server.await_log("the server keeps this file for itself");
    assert_eq!(color(&server, "/a").as_deref(), Some("red"));
    let apart = lighty!().webdav_with_database("");
    let file = apart.write_config();
    let (_, _, output) = apart.run(&["-t", "-f", file.to_str().expect("UTF-8")]);
    assert!(!output.contains("warning"), "{output}");
}

#[test]
fn a_database_that_another_process_holds_delays_no_queue() {
    let server = lighty!()
        .webdav_with_database("server.max-worker = 2")
        .file("a", "A")
        .file("b", "B")
        .start();
    assert_eq!(lock(&server, "/b", "").status, 200);
    let other = rusqlite::Connection::open(server.directory().join("dav.db")).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("held");
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let one = || {
            for _ in 0..2 {
                let response = lock(&server, "/a", "");
                assert_eq!((response.status, response.field("Retry-After")), (503, Some("1")));
            }
        };
        (0..16).for_each(|_| drop(scope.spawn(one)));
    });
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    server.await_log("another process holds the database webdav.sqlite-db-name");
    // Methods that only check locks still work.
    assert_eq!(put(&server, "/a", "new"), 204);
    assert_eq!(put(&server, "/fresh", "new"), 201);
    assert_eq!(put(&server, "/b", "new"), 423);
    // Methods that must update the database afterwards do not start.
    assert_eq!(status(&server, "DELETE", "/fresh", ""), 503);
    assert_eq!(status(&server, "COPY", "/a", "Destination: /c\r\n"), 503);
    assert_eq!(names(&server.root("")), ["a", "b", "fresh"]);
    other.execute_batch("COMMIT").expect("given up");
    assert!(wait_until(SOON, || lock(&server, "/a", "").status == 200));
}

#[test]
fn a_database_that_is_removed_is_noticed() {
    let server = lighty!().webdav_with_database("server.max-worker = 2").file("a", "A").start();
    let file = server.directory().join("dav.db");
    assert_eq!(lock(&server, "/a", "").status, 200);
    for ending in ["", "-wal", "-shm"] {
        let name = server.directory().join(format!("dav.db{ending}"));
        std::fs::remove_file(name).expect("it was there");
    }
    // A HUP in between does not change this.
    server.signal(rustix::process::Signal::HUP);
    assert_eq!(put(&server, "/a", "x"), 204, "the lock is gone with its database");
    server.await_log("was removed while the server ran");
    assert_eq!(set_color(&server, "/a", "red").status, 207);
    assert!(file.exists());
    // Another database in its place, such as a restored copy.
    let kept = server.directory().join("kept.db");
    let copy = rusqlite::Connection::open(&file).expect("opened");
    copy.execute("VACUUM INTO ?1", [kept.to_str()]).expect("copied");
    assert_eq!(set_color(&server, "/a", "blue").status, 207);
    drop(copy);
    std::fs::rename(&kept, &file).expect("replaced");
    assert_eq!(color(&server, "/a").as_deref(), Some("red"));
    server.await_log("was replaced while the server ran");
}

#[test]
fn acknowledged_changes_outlive_a_full_disk_and_a_kill() {
    let setup =
        lighty!().webdav("webdav.sqlite-db-name = \"@DIR@/small/dav.db\"\nserver.max-worker = 2");
    let setup = setup.file("a", "A").file("../small/x", "");
    let small = setup.directory().join("small");
    let Some(_disk) = SmallDisk::mount(&small, c"size=512k") else { return };
    let before = setup.directory().display().to_string();
    let mut server = setup.start();
    let token = token_of(&lock(&server, "/a", ""));
    let lines = format!("If: ({token})\r\n");
    let set = |number: usize| {
        let body = format!(
            "<propertyupdate xmlns='DAV:' xmlns:x='urn:x'><set><prop><x:p{number}>{}</x:p{number}>\
             </prop></set></propertyupdate>",
            "v".repeat(8_000)
        );
        request(&server, "PROPPATCH", "/a", &lines, &body).status
    };
    let kept = (0..200).take_while(|number| set(*number) == 207).count();
    assert!(kept > 5 && kept < 200, "{kept} fit");
    assert_eq!(set(kept + 1), 507);
    assert_eq!(lock(&server, "/a", &lines).status, 423, "the lock is there still");
    server.kill();
    let again = lighty!().webdav(&format!(
        "server.document-root := \"{before}/root\"\n\
         webdav.sqlite-db-name = \"{before}/small/dav.db\""
    ));
    let again = again.start();
    let names = request(
        &again,
        "PROPFIND",
        "/a",
        "Depth: 0\r\n",
        "<propfind xmlns='DAV:'><propname/></propfind>",
    );
    for number in 0..kept {
        assert!(names.text().contains(&format!(":p{number} ")), "{number} of {kept}");
    }
    assert_eq!(put(&again, "/a", "x"), 423);
}

#[test]
fn no_page_program_or_listing_shows_the_database() {
    const SEND: &str = "printf '%s: %s/dav.db%s\\n\\n' \
                        \"${PATH_INFO#/}\" \"$DOCUMENT_ROOT\" \"$QUERY_STRING\"";
    let server = lighty!().webdav("webdav.sqlite-db-name = \"@DIR@/root/dav.db\"\n\
         ssi.extension = ( \".shtml\" )\n\
         cgi.assign = ( \".sh\" => \"/bin/sh\" )\n\
         cgi.x-sendfile = \"enable\"\n\
         dir-listing.activate = \"enable\"\n\
         dir-listing.show-readme = \"dav.db\"")
    .file("send.sh", SEND)
    .file("p.shtml", "<!--#include file=\"dav.db\"-->")
    .file("q.shtml", "<!--#config errmsg=\"E\"--><!--#fsize file=\"dav.db\"--><!--#include virtual=\"dav.db\"-->")
    .file("other", "O")
    .start();
    assert_eq!(set_color(&server, "/other", "red").status, 207);
    let is_content = |body: &[u8]| body.windows(6).any(|part| part == b"SQLite");
    assert!(is_content(&std::fs::read(server.root("dav.db")).expect("it is there")));
    for page in ["/p.shtml", "/q.shtml", "/"] {
        let shown = server.get(page);
        assert_eq!(shown.status, 200, "{page}");
        assert!(!is_content(&shown.body), "{page}");
    }
    assert_eq!(server.get("/q.shtml").text(), "EE");
    for named in ["X-Sendfile", "X-LIGHTTPD-send-file", "X-LIGHTTPD-send-tempfile", "X-Sendfile2"] {
        let range = if named == "X-Sendfile2" { "?%200-99" } else { "" };
        let sent = server.get(&format!("/send.sh/{named}{range}"));
        assert!(sent.status >= 400 && !is_content(&sent.body), "{named}: {}", sent.status);
    }
    server.await_log("the server keeps this file for itself");
    let listing = server.get("/");
    assert!(listing.text().contains("other") && !listing.text().contains("dav.db"));
    let found = request(&server, "PROPFIND", "/", "Depth: 1\r\n", "");
    assert!(found.text().contains("other") && !found.text().contains("dav.db"));
    assert_eq!(color(&server, "/other").as_deref(), Some("red"));
}

#[test]
fn the_files_beside_what_a_link_to_the_database_leads_to_are_kept() {
    let setup = lighty!().webdav_with_database("").file("sub/none", "").file("a", "A");
    let setup = setup.link("../dav.db", "second").link("../second", "root/sub/real.db");
    let file = setup.write_config();
    let (_, _, output) = setup.run(&["-t", "-f", file.to_str().expect("UTF-8")]);
    assert!(output.contains("lies in server.document-root"), "{output}");
    let server = setup.start();
    // Before the database exists.
    assert_eq!(put(&server, "/sub/real.db", "x"), 403);
    assert_eq!(set_color(&server, "/a", "red").status, 207);
    for target in ["/sub/real.db", "/sub/real.db-wal", "/sub/real.db-shm"] {
        assert!(server.root(&target[1..]).exists(), "{target}");
        assert_eq!(server.get(target).status, 403, "{target}");
        assert_eq!(status(&server, "DELETE", target, ""), 403, "{target}");
    }
    assert_eq!(put(&server, "/sub/real.db-journal", "x"), 403);
    assert_eq!(status(&server, "DELETE", "/sub", ""), 207);
    assert_eq!(color(&server, "/a").as_deref(), Some("red"));
}
