//! Rotation of logs by the server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::wait_until;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a rotated log, oldest first.
fn files(path: &Path) -> Vec<String> {
    let name = |number: u32| format!("{}.{number}", path.display());
    let count = (1..).find(|number| !Path::new(&name(*number)).exists()).expect("an end") - 1;
    let old = (1..=count).rev().map(name);
    old.chain([path.display().to_string()])
        .map(|name| fs::read_to_string(name).unwrap_or_default())
        .collect()
}

/// Requests so many URLs, and waits until the access log has them all. Returns its files.
fn requested(server: &Server, count: usize) -> Vec<String> {
    let path = server.directory().join("access.log");
    let mut client = server.connect();
    for number in 0..count {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, 404);
    }
    let lines = || files(&path).concat().lines().count();
    assert!(wait_until(PATIENCE, || lines() == count), "{} of {count} lines", lines());
    files(&path)
}

#[test]
fn access_log_is_rotated_by_size_without_losing_a_line() {
    let server = lighty!()
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%U\"")
        .config("server.log-rotate = ( \"size\" => 256, \"keep\" => 100 )")
        .start();
    // A connection serves a thousand requests.
    let files = requested(&server, 900);
    assert!(files.len() >= 9 && files.iter().all(|file| file.len() <= 256), "{}", files.len());
    let text = files.concat();
    assert!(text.lines().eq((0..900).map(|number| format!("/{number}"))));
}

#[test]
fn only_so_many_old_files_are_kept() {
    let mut server = lighty!()
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%U\"")
        .config("server.log-rotate = ( \"size\" => 100, \"keep\" => 2 )")
        .start();
    let mut client = server.connect();
    for number in 0..500 {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, 404);
    }
    drop(client);
    server.stop();
    let files = files(&server.directory().join("access.log"));
    assert_eq!(files.len(), 3);
    assert!(files.concat().ends_with("/498\n/499\n"), "{files:?}");
}

#[test]
fn log_is_rotated_at_its_age_and_a_reload_changes_the_rules() {
    let server = lighty!()
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%U\"")
        .config("server.log-rotate = ( \"age\" => \"1s\" )\nserver.errorlog = \"@DIR@/error.log\"")
        .start();
    let (log, old) =
        (server.directory().join("access.log"), server.directory().join("access.log.1"));
    // A line each 100 ms: one of them finds the file to be a second old.
    let is_rotated = wait_until(PATIENCE, || {
        assert_eq!(server.get("/a").status, 404);
        std::thread::sleep(Duration::from_millis(100));
        old.exists()
    });
    assert!(is_rotated && log.exists());
    let config = server.directory().join("lighty.conf");
    let text = fs::read_to_string(&config).expect("read");
    write_file(&config, text.replace("\"1s\"", "\"1w\""));
    server.signal(Signal::USR1);
    let errors = || fs::read_to_string(server.directory().join("error.log")).unwrap_or_default();
    assert!(wait_until(PATIENCE, || errors().contains("reloaded: generation 1")), "{}", errors());
    fs::remove_file(&old).expect("removed");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(server.get("/last").status, 404);
    let read = || fs::read_to_string(&log).unwrap_or_default();
    assert!(wait_until(PATIENCE, || read().ends_with("/last\n")), "{}", read());
    assert!(!old.exists(), "the file is younger than a week");
}

#[test]
fn full_disk_keeps_the_present_file() {
    let setup = lighty!();
    let disk = setup.directory().join("disk");
    fs::create_dir(&disk).expect("a directory");
    // Each file takes one of few inodes.
    let Some(_mounted) = SmallDisk::mount(&disk, c"size=1m,nr_inodes=3") else { return };
    let server = setup
        .config("accesslog.filename = \"@DIR@/disk/access.log\"\naccesslog.format = \"%U\"")
        .config("server.log-rotate = ( \"size\" => 100, \"keep\" => 10 )")
        .start();
    let mut client = server.connect();
    for number in 0..100 {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().status, 404);
    }
    server.await_log("cannot rotate it: No space left on device");
    let text = || files(&disk.join("access.log")).concat();
    let wanted: String = (0..100).map(|number| format!("/{number}\n")).collect();
    assert!(wait_until(PATIENCE, || text() == wanted), "{}", text());
}

#[test]
fn rules_are_checked() {
    for (rules, expected) in [
        ("\"keep\" => 7", "neither \"size\" nor \"age\""),
        ("\"size\" => \"0\"", "is no amount"),
        ("\"size\" => \"1T\"", "write a number and a unit: K, M, G"),
        ("\"age\" => \"1y\"", "write a number and a unit: s, m, h, d, w"),
        ("\"size\" => 1, \"keep\" => 1001", "must be from 0 to 1000"),
        ("\"sise\" => 1", "did you mean \"size\"?"),
    ] {
        let line = format!("server.log-rotate = ( {rules} )");
        let (status, _, error) = lighty!().config(&line).run(&["-t", "-f", "@CONF@"]);
        assert!(status == 1 && error.contains(expected), "{line}: {error}");
    }
    let line = "server.log-rotate = ( \"size\" => \"1G\", \"age\" => \"1w\", \"keep\" => 1000 )";
    let (status, _, error) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
    assert_eq!(status, 0, "{error}");
}
