//! Files that change while they are served.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::{lighty, wait_until};

/// Polls until the response's body is `wanted`.
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

/// Runs a command with no inotify instances available to any user.
const WITHOUT_INOTIFY: &str = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";

#[test]
fn without_inotify_a_warning_says_what_is_done_instead() {
    let without = ["unshare", "-Ur", "sh", "-c", WITHOUT_INOTIFY];
    let probe = Command::new(without[0]).args(&without[1..]).arg("true").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!("not tested: this machine allows no user namespaces");
        return;
    }
    let setup = lighty!().file("a", "x").config("server.stat-cache-engine = \"inotify\"");
    let server = setup.through(without).start();
    server.await_log("inotify is not to be had");
    server.await_log("workers look at files again once a second instead");
    assert_eq!(server.log().matches("not to be had").count(), 1, "{}", server.log());
    assert_eq!(server.get("/a").text(), "x");
}
