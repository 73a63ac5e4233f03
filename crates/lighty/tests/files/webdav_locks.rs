//! WebDAV: locks and properties, by every path to a file.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::dav::{color, lock, names, put, request, set_color, status, token_of};
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::wait_until;

#[test]
fn of_many_who_want_a_lock_at_once_one_gets_it() {
    let server = lighty!().webdav_with_database("server.max-worker = 2").file("a.txt", "A").start();
    for _ in 0..10 {
        let answers: Vec<Response> = std::thread::scope(|scope| {
            let tries: Vec<_> =
                (0..8).map(|_| scope.spawn(|| lock(&server, "/a.txt", ""))).collect();
            tries.into_iter().map(|one| one.join().expect("a response")).collect()
        });
        let mut granted = answers.iter().filter(|answer| answer.status == 200);
        let token = token_of(granted.next().expect("one of them"));
        assert!(granted.next().is_none());
        assert_eq!(answers.iter().filter(|answer| answer.status == 423).count(), 7);
        assert_eq!(put(&server, "/a.txt", "B"), 423);
        let lines = format!("Lock-Token: {token}\r\n");
        assert_eq!(status(&server, "UNLOCK", "/a.txt", &lines), 204);
        assert_eq!(status(&server, "UNLOCK", "/a.txt", &lines), 409);
    }
}

#[test]
fn locks_and_properties_outlive_the_server() {
    let mut server = lighty!().webdav_with_database("").file("a.txt", "A").start();
    assert_eq!(set_color(&server, "/a.txt", "red").status, 207);
    let locked = lock(&server, "/a.txt", "Timeout: Infinite\r\n");
    // A day, less the seconds that have passed.
    let text = locked.text();
    let seconds = text.split_once("Second-").and_then(|(_, rest)| rest.split_once('<'));
    let seconds: Option<u32> = seconds.and_then(|(digits, _)| digits.parse().ok());
    assert!(seconds.is_some_and(|seconds| (86_000..=86_400).contains(&seconds)), "{text}");
    server.kill();
    // The same document root and database, another process.
    let before = server.directory().display().to_string();
    let again = lighty!().webdav(&format!(
        "server.document-root := \"{before}/root\"\nwebdav.sqlite-db-name = \"{before}/dav.db\""
    ));
    let again = again.start();
    assert_eq!(color(&again, "/a.txt").as_deref(), Some("red"));
    assert_eq!(put(&again, "/a.txt", "B"), 423);
    let lines = format!("If: ({})\r\n", token_of(&locked));
    assert_eq!(request(&again, "PUT", "/a.txt", &lines, "B").status, 204);
}

#[test]
fn a_lock_beneath_keeps_a_tree_and_members_are_listed() {
    let server =
        lighty!().webdav_with_database("").file("t/a.txt", "A").file("t/b.txt", "B").start();
    let token = token_of(&lock(&server, "/t/a.txt", ""));
    let refused = request(&server, "DELETE", "/t/", "", "");
    assert_eq!(refused.status, 207);
    assert!(refused.text().contains("<D:href>/t/a.txt</D:href>"), "{}", refused.text());
    assert!(refused.text().contains("423 Locked"));
    assert_eq!(status(&server, "MOVE", "/t", "Destination: /u\r\n"), 207);
    assert_eq!(names(&server.root("t")), ["a.txt", "b.txt"]);
    let whole = lock(&server, "/t/", "");
    assert_eq!(whole.status, 207);
    assert!(whole.text().contains("424 Failed Dependency"), "{}", whole.text());
    let lines = format!("If: </t/a.txt> ({token})\r\n");
    assert_eq!(status(&server, "DELETE", "/t/", &lines), 204);
    assert_eq!(names(&server.root("")).len(), 0);
}

#[test]
fn a_locked_collection_takes_members_only_from_its_owner() {
    let server = lighty!().webdav_with_database("").file("t/a.txt", "A").start();
    let token = token_of(&lock(&server, "/t/", "Depth: 0\r\n"));
    assert_eq!(put(&server, "/t/new", "N"), 423);
    assert_eq!(put(&server, "/t/a.txt", "content is not membership"), 204);
    assert_eq!(status(&server, "MKCOL", "/t/d", ""), 423);
    assert_eq!(status(&server, "DELETE", "/t/a.txt", ""), 423);
    assert_eq!(status(&server, "COPY", "/t/a.txt", "Destination: /t/b\r\n"), 423);
    let lines = format!("If: </t/> ({token})\r\n");
    assert_eq!(request(&server, "PUT", "/t/new", &lines, "N").status, 201);
}

/// A tree in which `/lcol` leads to `/col`, `/t/l` to `/col/sub`, and so does `/store/`.
fn with_many_ways(lines: &str) -> Server {
    let setup = lighty!().webdav_with_database(&format!(
        "alias.url = ( \"/store/\" => \"@DIR@/root/col/sub/\" )\n{lines}"
    ));
    let setup = setup.file("col/f", "F").file("col/sub/g", "G").file("t/own", "T").file("a", "A");
    setup.link("lcol", "col").link("t/l", "../col/sub").start()
}

#[test]
fn a_lock_holds_by_whichever_way_a_file_is_reached() {
    let server = with_many_ways("server.follow-symlink = \"enable\"");
    let refused = |token: &Response, urls: [&str; 3]| {
        let lines = format!("If: ({})\r\n", token_of(token));
        for url in urls {
            assert_eq!(put(&server, url, "x"), 423, "{url}");
            let to = format!("Destination: {url}\r\n");
            assert_eq!(status(&server, "COPY", "/a", &to), 423, "{url}");
            assert_eq!(status(&server, "DELETE", url, ""), 423, "{url}");
            assert_eq!(lock(&server, url, "").status, 423, "{url}");
            let found = request(&server, "PROPFIND", url, "Depth: 0\r\n", "");
            let token = token_of(token).replace(['<', '>'], "");
            assert!(found.text().contains(&token), "{url}: {}", found.text());
            assert_eq!(request(&server, "PUT", url, &lines, "x").status, 204, "{url}");
            assert_eq!(request(&server, "LOCK", url, &lines, "").status, 200, "{url}");
        }
        let lines = format!("Lock-Token: {}\r\n", token_of(token));
        assert_eq!(status(&server, "UNLOCK", urls[0], &lines), 204);
    };
    let ways = ["/lcol/sub/g", "/t/l/g", "/store/g"];
    refused(&lock(&server, "/col/sub/g", ""), ways);
    refused(&lock(&server, "/t/l/g", ""), ["/lcol/sub/g", "/col/sub/g", "/store/g"]);
    // A lock of a collection, requested by another path than that of its member.
    refused(&lock(&server, "/lcol/sub/", ""), ways);
    // A lock of a missing resource creates an empty file.
    let token = lock(&server, "/store/new", "");
    assert_eq!(token.status, 201);
    refused(&token, ["/lcol/sub/new", "/t/l/new", "/col/sub/new"]);
    // No path to a parent collection allows removing or replacing it.
    let token = token_of(&lock(&server, "/t/l/g", ""));
    assert_eq!(status(&server, "DELETE", "/lcol/sub", ""), 207);
    assert_eq!(status(&server, "MOVE", "/col", "Destination: /moved\r\n"), 207);
    assert_eq!(status(&server, "COPY", "/t", "Destination: /lcol/sub\r\n"), 423);
    assert_eq!(server.get("/col/sub/g").text(), "x");
    assert_eq!(status(&server, "UNLOCK", "/store/g", &format!("Lock-Token: {token}\r\n")), 204);
    assert_eq!(status(&server, "DELETE", "/lcol/sub/g", ""), 204);
}

#[test]
fn a_locked_tree_has_what_its_links_lead_to() {
    let server = with_many_ways("");
    let token = token_of(&lock(&server, "/t/", ""));
    assert_eq!(put(&server, "/t/l/g", "x"), 423, "a member of the tree, by its URL");
    assert_eq!(lock(&server, "/t/l/g", "").status, 423);
    assert_eq!(put(&server, "/col/sub/g", "x"), 204, "the same file is none by this one");
    let lines = format!("If: </t/> ({token})\r\n");
    assert_eq!(request(&server, "PUT", "/t/l/g", &lines, "y").status, 204);
    let lines = format!("Lock-Token: {token}\r\n");
    assert_eq!(status(&server, "UNLOCK", "/t/l/g", &lines), 204);
}

#[test]
fn properties_belong_to_a_file_and_not_to_the_way_to_it() {
    let opts = "webdav.opts = ( \"unsafe-propfind-follow-symlink\" => \"enable\" )";
    let server = with_many_ways(opts);
    assert_eq!(set_color(&server, "/lcol/sub/g", "red").status, 207);
    for url in ["/col/sub/g", "/t/l/g", "/store/g"] {
        assert_eq!(color(&server, url).as_deref(), Some("red"), "{url}");
    }
    assert_eq!(set_color(&server, "/t/l", "blue").status, 403, "links are no resources");
    assert_eq!(set_color(&server, "/col/sub", "green").status, 207);
    assert_eq!(color(&server, "/t/l").as_deref(), Some("green"));
    let body = "<propfind xmlns='DAV:'><prop><color xmlns='urn:x'/></prop></propfind>";
    let listed = request(&server, "PROPFIND", "/t/", "Depth: 1\r\n", body);
    assert!(listed.text().contains("green"), "{}", listed.text());
}

#[test]
fn names_are_locked_as_they_are_written_on_the_disk() {
    let server = lighty!()
        .webdav_with_database("server.force-lowercase-filenames = \"enable\"")
        .file("a.txt", "A")
        .start();
    assert_eq!(lock(&server, "/A.TXT", "").status, 200);
    assert_eq!(put(&server, "/a.txt", "x"), 423);
    assert_eq!(put(&server, "/a.Txt", "x"), 423);
}

#[test]
fn hard_links_are_files_of_their_own() {
    let server = lighty!().webdav_with_database("").file("a", "A").start();
    std::fs::hard_link(server.root("a"), server.root("b")).expect("a link");
    let token = token_of(&lock(&server, "/a", ""));
    assert_eq!((put(&server, "/a", "x"), put(&server, "/b", "B")), (423, 204));
    assert_eq!(std::fs::read(server.root("a")).expect("a file"), b"A");
    let shown = format!("If: ({token})\r\n");
    assert_eq!(request(&server, "PUT", "/a", &shown, "AA").status, 204);
    assert_eq!(std::fs::read(server.root("b")).expect("a file"), b"B");
}

/// A C library that adds the seconds in a file to the wall clock.
const STEPPED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, id, time);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
        char text[32] = {0};
        int file = open(getenv("CLOCK_STEP"), O_RDONLY);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
"#;

#[test]
fn locks_last_their_time_whatever_the_wall_clock_does() {
    let setup = lighty!().webdav_with_database("").file("a.txt", "A").file("b.txt", "B");
    let place = |name: &str| setup.directory().join(name).display().to_string();
    let (source, library, step) = (place("clock.c"), place("clock.so"), place("step"));
    write_file(Path::new(&source), STEPPED_CLOCK);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", &library, &source])
        .status()
        .expect("cc");
    assert!(built.success());
    write_file(Path::new(&step), "0");
    let server = setup.env("LD_PRELOAD", &library).env("CLOCK_STEP", &step).start();
    let left = || -> u64 {
        let lines = "Depth: 0\r\n";
        let response = request(&server, "PROPFIND", "/a.txt", lines, "");
        let found = response.text();
        let (_, rest) = found.split_once("Second-").unwrap_or_else(|| panic!("no lock: {found}"));
        rest.split('<').next().and_then(|number| number.parse().ok()).expect("seconds")
    };
    assert_eq!(lock(&server, "/a.txt", "Timeout: Second-300\r\n").status, 200);
    for (index, offset) in ["-86400", "86400", "0"].into_iter().enumerate() {
        let date = || server.get("/b.txt").field("Date").map(str::to_owned);
        let before = date();
        write_file(Path::new(&step), offset);
        let day_of = |date: Option<String>| date.map(|date| date[..16].to_owned());
        let is_there = || day_of(date()) != day_of(before.clone());
        assert!(wait_until(Duration::from_secs(30), is_there), "{offset}");
        let seconds = left();
        assert!((200..=300).contains(&seconds), "{offset}: {seconds}");
        assert_eq!(put(&server, "/a.txt", "B"), 423, "{offset}");
        // A lock taken after the step, too.
        let name = format!("/new{index}.txt");
        assert_eq!(put(&server, &name, "new"), 201);
        assert_eq!(lock(&server, &name, "Timeout: Second-2\r\n").status, 200);
        assert_eq!(put(&server, &name, "B"), 423, "{offset}");
        let ends = || put(&server, &name, "B") == 204;
        assert!(wait_until(Duration::from_secs(30), ends), "{offset}");
    }
}
