//! Stores on a disk: restarts, crashes, upgrades, damage, and disks that are full.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::content::pattern;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(30);

/// A server with a store in a directory, in front of a backend.
fn setup(backend: &Backend, path: &Path, more: &str) -> Setup {
    let store = format!(
        "cache.stores = ( \"files\" => ( \"path\" => \"{}\", \"size\" => \"64M\", \"memory\" => \
         \"4M\", \"min-free\" => \"0%\"{more} ) )\ncache.store = \"files\"\n\
         cache.status-header = \"enable\"\nstatus.status-url = \"/server-status\"\n\
         cache.purge = ( \"/purge\" => ( \"from\" => ( \"127.0.0.1\" ) ) )",
        path.display()
    );
    lighty!().in_front_of(&backend.name()).config(&store)
}

/// A backend that answers `/N/...` with N bytes, which differ by path, and counts its answers.
fn sized() -> (Backend, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let backend = Backend::replying(move |seen| {
        counted.fetch_add(1, Ordering::Relaxed);
        let fields = "Cache-Control: max-age=600\r\nETag: \"1\"\r\nSurrogate-Key: all\r\n";
        answer("200 OK", fields, &String::from_utf8(body(seen.target())).expect("letters"))
    });
    (backend, count)
}

/// The body for a path.
fn body(target: &str) -> Vec<u8> {
    let size = target.split('/').nth(1).and_then(|size| size.parse().ok()).unwrap_or(0);
    let seed: u64 = target.bytes().map(u64::from).sum();
    pattern(seed, size).iter().map(|byte| b'a' + byte % 26).collect()
}

fn is_hit(page: &Response) -> bool {
    page.field("Cache-Status").is_some_and(|status| status.starts_with("lighty; hit"))
}

/// Gets a page, which has to be right. Returns true if it came from the store.
fn get(server: &Server, target: &str) -> bool {
    let page = server.get(target);
    assert_eq!(page.status, 200, "{target}");
    assert!(page.body == body(target), "{target}: another body");
    is_hit(&page)
}

const TARGETS: [&str; 5] = ["/10/a", "/60000/b", "/100000/c", "/1000000/d", "/3000000/e"];

fn figure(server: &Server, name: &str) -> u64 {
    let page = server.get("/server-status?json");
    let figures: serde_json::Value = serde_json::from_slice(&page.body).expect("JSON");
    find(&figures, name).unwrap_or_else(|| panic!("no {name} in {}", page.text()))
}

fn find(value: &serde_json::Value, name: &str) -> Option<u64> {
    let object = value.as_object()?;
    match object.get(name) {
        Some(found) => found.as_u64().or_else(|| found.as_str()?.parse().ok()),
        None => object.values().find_map(|value| find(value, name)),
    }
}

#[test]
fn responses_outlive_a_restart_of_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("store");
    let (backend, count) = sized();
    let mut server = setup(&backend, &path, "").start();
    for target in TARGETS {
        assert!(!get(&server, target));
        assert!(get(&server, target), "{target}");
    }
    let page = server.get_with("/3000000/e", "Range: bytes=1000000-1000099\r\n");
    assert_eq!(page.status, 206);
    assert!(page.body == body("/3000000/e")[1_000_000..1_000_100]);
    let _ = server.get("/10/once");
    server.stop();
    let server = setup(&backend, &path, "").start();
    for target in TARGETS {
        let page = server.get_with(target, "Range: bytes=3-9\r\n");
        assert_eq!((page.status, is_hit(&page)), (206, true), "{target}");
        assert!(page.body == body(target)[3..10], "{target}");
        assert!(get(&server, target) && get(&server, target), "{target}");
        assert_eq!(server.get_with(target, "If-None-Match: \"1\"\r\n").status, 304, "{target}");
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let length = body(target).len().to_string();
        assert_eq!(client.response_to_head().field("Content-Length"), Some(&*length));
    }
    assert_eq!(count.load(Ordering::Relaxed), 6);
    assert!(!get(&server, "/10/once"), "asked for once");
}

#[test]
fn bodies_on_the_disk_are_compressed_and_cut_like_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, _) = sized();
    let more = "deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )\n\
                server.modules = ( \"mod_deflate\" )\n\
                setenv.set-response-header = ( \"Content-Type\" => \"text/plain\" )";
    let server = setup(&backend, dir.path(), "").config(more).start();
    for target in ["/100000/a", "/3000000/b"] {
        assert!(!get(&server, target));
        assert!(wait_until(SOON, || get(&server, target)), "{target}");
        let page = server.get_with(target, "Accept-Encoding: gzip\r\n");
        assert!(is_hit(&page), "{page:?}");
        assert_eq!(page.field("Content-Encoding"), Some("gzip"), "{target}");
        assert_eq!(page.field("ETag"), Some("\"1-gzip\""));
        assert_eq!(page.field("Vary"), Some("Accept-Encoding"));
        let mut decoded = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&*page.body);
        decoder.read_to_end(&mut decoded).expect("gzip");
        assert!(decoded == body(target), "{target}");
        let part = "Accept-Encoding: gzip\r\nRange: bytes=70000-70009\r\n";
        let page = server.get_with(target, part);
        assert_eq!((page.status, page.field("Content-Encoding")), (206, None));
        assert!(page.body == body(target)[70_000..70_010]);
        let known = "Accept-Encoding: gzip\r\nIf-None-Match: \"1-gzip\"\r\n";
        assert_eq!(server.get_with(target, known).status, 304);
    }
}

#[test]
fn kill_loses_only_what_is_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, count) = sized();
    for round in 0..5 {
        let mut server = setup(&backend, dir.path(), "").start();
        let before = count.load(Ordering::Relaxed);
        for target in TARGETS {
            let is_known = get(&server, target);
            assert!(is_known || round == 0 || body(target).len() <= 64 << 10, "{round} {target}");
        }
        // Large ones are on the disk soon, the others when they leave memory.
        let is_written = || figure(&server, "cache.files.disk-objects") >= 3;
        assert!(
            wait_until(SOON, is_written),
            "{round}: {}",
            server.get("/server-status?json").text()
        );
        server.kill();
        assert!(count.load(Ordering::Relaxed) <= before + 5);
    }
}

#[test]
fn purges_outlive_a_kill() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, _) = sized();
    let mut server = setup(&backend, dir.path(), "").start();
    for target in ["/100000/a", "/100000/b"] {
        let _ = get(&server, target);
    }
    assert!(wait_until(SOON, || figure(&server, "cache.files.disk-objects") == 2));
    purge(&server, "url=/100000/a&host=localhost");
    server.kill();
    let mut server = setup(&backend, dir.path(), "").start();
    assert!(wait_until(SOON, || figure(&server, "cache.files.disk-objects") == 2));
    assert!(get(&server, "/100000/b"));
    assert!(!get(&server, "/100000/a"));
    purge(&server, "tag=all");
    assert!(!get(&server, "/100000/b"));
    server.kill();
    let server = setup(&backend, dir.path(), "").start();
    let _ = get(&server, "/100000/b");
}

#[test]
fn damaged_bodies_are_fetched_anew() {
    for verify in ["first", "always"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (backend, _) = sized();
        let more = format!(", \"verify\" => \"{verify}\"");
        let mut server = setup(&backend, dir.path(), &more).start();
        for target in TARGETS {
            assert!(!get(&server, target) && get(&server, target));
        }
        server.stop();
        damage(dir.path());
        let server = setup(&backend, dir.path(), &more).start();
        for target in TARGETS {
            // A body of its own file is compared while it is sent: it may break off once.
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            match client.try_response(false) {
                Ok(page) => assert!(page.body == body(target), "{verify} {target}"),
                Err(_) => assert_eq!(target, "/3000000/e", "{verify}"),
            }
            let _ = get(&server, target);
            assert!(get(&server, target), "{verify} {target}");
        }
    }
}

#[test]
fn bodies_that_cannot_be_read_are_fetched_anew() {
    let (backend, _) = sized();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let server = setup(&backend, &path, "").start();
    let targets = ["/100000/a", "/1000000/b", "/3000000/c"];
    for target in targets {
        get(&server, target);
    }
    let all_hit = || targets.iter().all(|target| get(&server, target));
    assert!(wait_until(SOON, all_hit));
    cut(&path);
    for target in targets {
        assert!(!get(&server, target), "{target}: not from the store");
    }
    assert!(figure(&server, "cache.files.disk-damaged") > 0);
}

fn purge(server: &Server, query: &str) {
    let _ = server.post(&format!("/purge?{query}"), "Content-Length: 0", b"");
}

/// Takes the bodies out of the files.
fn cut(path: &Path) {
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            cut(&path);
        } else {
            let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
            file.set_len(0).expect("cut");
        }
    }
}

/// Changes a byte in each body of the files.
fn damage(path: &Path) {
    for entry in fs::read_dir(path).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            damage(&path);
            continue;
        }
        let mut bytes = fs::read(&path).expect("read");
        for at in (1000..bytes.len()).step_by(5_000) {
            bytes[at] ^= 1;
        }
        fs::write(&path, bytes).expect("written");
    }
}

#[test]
fn full_disk_stops_storing_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=20m", "none"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return;
    }
    let (backend, _) = sized();
    let server = setup(&backend, dir.path(), "").start();
    for number in 0..40 {
        let target = format!("/{}/{number}", 900_000 + number * 50_000);
        let _ = get(&server, &target);
        let _ = get(&server, &target);
    }
    assert!(figure(&server, "cache.files.disk-write-errors") > 0);
    drop(server);
    let unmounted = std::process::Command::new("umount").arg("-l").arg(dir.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[test]
fn reload_opens_and_closes_stores() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, _) = sized();
    let server = setup(&backend, dir.path(), "").start();
    assert!(!get(&server, "/100000/a") && get(&server, "/100000/a"));
    assert!(wait_until(SOON, || figure(&server, "cache.files.disk-objects") == 1));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert!(get(&server, "/100000/a"), "a reload keeps the contents");
    let config = server.directory().join("lighty.conf");
    let text = fs::read_to_string(&config).expect("read");
    let path = format!("\"path\" => \"{}\", \"size\" => \"64M\",", dir.path().display());
    assert!(text.contains(&path));
    let without = text.replace(&path, "").replace(", \"min-free\" => \"0%\"", "");
    fs::write(&config, without).expect("written");
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 2");
    assert!(!get(&server, "/100000/a"), "in memory now");
    let other = setup(&backend, dir.path(), "").start();
    assert!(wait_until(SOON, || get(&other, "/100000/a")), "another process has the directory");
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let (backend, _) = sized();
    let mut one = setup(&backend, dir.path(), "").start();
    assert!(!get(&one, "/100000/a"));
    let other = setup(&backend, dir.path(), "").start();
    assert!(!get(&other, "/100000/a"), "it waits for the directory");
    assert!(get(&other, "/100000/a"), "and has its memory");
    assert!(wait_until(SOON, || figure(&one, "cache.files.disk-objects") == 1));
    one.stop();
    assert!(wait_until(SOON, || figure(&other, "cache.files.disk-objects") >= 1));
}

#[test]
fn unusable_stores_are_explained() {
    let (backend, _) = sized();
    let refused = |stores: &str| {
        let config = format!("cache.stores = ( {stores} )\ncache.store = \"a\"");
        let setup = lighty!().in_front_of(&backend.name()).config(&config);
        let (_, _, checked) = setup.run(&["-t", "-f", "@CONF@"]);
        let (code, _, started) = setup.run(&["-D", "-f", "@CONF@"]);
        assert_ne!(code, 0);
        checked + &started
    };
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), "").expect("written");
    let file = dir.path().join("file").display().to_string();
    fs::write(dir.path().join("store"), "of something else").expect("written");
    let foreign = dir.path().display().to_string();
    for (stores, text) in [
        ("\"a\" => ( \"path\" => \"relative\" )".to_owned(), "must be the absolute path"),
        ("\"a\" => ( \"path\" => \"/c\", \"size\" => \"1M\" )".to_owned(), "16"),
        ("\"a\" => ( \"path\" => \"/c\", \"min-free\" => \"95%\" )".to_owned(), "\"90%\""),
        ("\"a\" => ( \"path\" => \"/c\", \"verify\" => \"never\" )".to_owned(), "\"always\""),
        (
            "\"a\" => ( \"path\" => \"/c\" ), \"b\" => ( \"path\" => \"/c/\" )".to_owned(),
            "has two stores in \"/c\"",
        ),
        (format!("\"a\" => ( \"path\" => \"{file}\" )"), &*file),
        (format!("\"a\" => ( \"path\" => \"{foreign}\" )"), "is not of a cache of this version"),
    ] {
        let error = refused(&stores);
        assert!(error.contains(text), "{stores}: {error}");
    }
}
