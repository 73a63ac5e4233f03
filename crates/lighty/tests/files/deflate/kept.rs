//! Precompressed files and the cache of compressed files.

use std::io::Write;
use std::time::Duration;

use lighty_testkit::wait_until;

use super::{accepting, head, plain, setup, text};

#[test]
fn compressed_files_are_kept() {
    for (dir, more) in [
        ("deflate.cache-dir", ""),
        ("compress.cache-dir", "compress.filetype = ( \"text/html\" )\n"),
    ] {
        let setup = setup();
        let cache = setup.directory().join("cache");
        std::fs::create_dir(&cache).expect("a directory");
        let server = setup
            .config(&format!("{more}{dir} = \"@DIR@/cache\"\nserver.errorlog-level = \"info\""))
            .start();
        for target in ["/small.html", "/large.html"] {
            let body = server.get(target).body;
            let kept = || files(&cache).len();
            let before = kept();
            for coding in ["gzip", "br"] {
                let first = accepting(&server, target, coding);
                assert!(plain(&first) == body, "{target}");
            }
            assert!(wait_until(Duration::from_secs(30), || kept() == before + 2));
            // The cache may remember for a second that the file was missing.
            assert!(
                wait_until(Duration::from_secs(30), || {
                    accepting(&server, target, "gzip").field("Content-Length").is_some()
                }),
                "{target} is answered from the cache"
            );
            let second = accepting(&server, target, "gzip");
            assert_eq!(second.field("Content-Encoding"), Some("gzip"));
            assert!(plain(&second) == body, "{target}");
            let head = head(&server, target, "Accept-Encoding: gzip\r\n");
            assert_eq!(head.field("Content-Length"), second.field("Content-Length"));
            assert_eq!(head.field("ETag"), second.field("ETag"));
        }
        let names = files(&cache);
        assert_eq!(names.len(), 4);
        assert!(names.iter().any(|name| name.contains("/small.html-gzip-")), "{names:?}");
        // A changed file is compressed again.
        std::fs::write(server.root("small.html"), text(900)).expect("written");
        assert!(wait_until(Duration::from_secs(30), || {
            plain(&accepting(&server, "/small.html", "gzip")) == text(900).into_bytes()
        }));
    }
}

/// Names of all files beneath a directory.
fn files(directory: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            match entry.file_type().expect("a type").is_dir() {
                true => left.push(entry.path()),
                false => names.push(entry.path().to_string_lossy().into_owned()),
            }
        }
    }
    names
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let setup = setup();
    // Even root cannot create a file inside a regular file.
    std::fs::write(setup.directory().join("cache"), "a file").expect("written");
    let server = setup
        .config("deflate.cache-dir = \"@DIR@/cache\"\nserver.errorlog-level = \"info\"")
        .start();
    for _ in 0..3 {
        let response = accepting(&server, "/large.html", "gzip");
        assert_eq!(response.field("Content-Encoding"), Some("gzip"));
        assert!(plain(&response) == text(700_000).into_bytes());
    }
    server.await_log("deflate.cache-dir cannot be written");
}

#[test]
fn missing_cache_directory_is_made() {
    let setup = setup().config("deflate.cache-dir = \"@DIR@/cache/deflate\"");
    let (code, _, output) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(code == 0 && !output.contains("cache"), "{output}");
    let cache = setup.directory().join("cache/deflate");
    let server = setup.start();
    assert_eq!(accepting(&server, "/large.html", "gzip").field("Content-Encoding"), Some("gzip"));
    assert!(wait_until(Duration::from_secs(30), || cache.is_dir() && files(&cache).len() == 1));
}

#[test]
fn the_cache_follows_no_links() {
    let setup = setup();
    let (cache, secret) = (setup.directory().join("cache"), setup.directory().join("secret"));
    std::fs::create_dir(&cache).expect("a directory");
    std::fs::write(&secret, "secret").expect("a file");
    let server = setup.config("deflate.cache-dir = \"@DIR@/cache\"").start();
    let body = server.get("/large.html").body;
    let ask = || assert!(plain(&accepting(&server, "/large.html", "gzip")) == body);
    ask();
    assert!(wait_until(Duration::from_secs(30), || files(&cache).len() == 1));
    let kept = files(&cache).remove(0);
    std::fs::remove_file(&kept).expect("it is there");
    std::os::unix::fs::symlink(&secret, &kept).expect("a link");
    let is_file = || std::fs::symlink_metadata(&kept).is_ok_and(|meta| meta.is_file());
    let replaced = wait_until(Duration::from_secs(30), || {
        ask();
        is_file()
    });
    assert!(replaced, "made anew");
    assert_eq!(std::fs::read(&secret).expect("it is there"), b"secret");
}

#[test]
fn files_compressed_beforehand() {
    let gzipped = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text.as_bytes()).expect("encoded");
        encoder.finish().expect("encoded")
    };
    let marked = text(30_000).replace("number", "NUMBER");
    let prepare = || {
        setup()
            .file("middle.html.gz", gzipped(&marked))
            .file("old.html.gz", gzipped("old"))
            .file("old.html", text(30_000))
            .file("empty.html.gz", "")
            .file("empty.html", text(30_000))
    };
    let server = prepare().config("deflate.precompressed = \"enable\"").start();
    let age = Duration::from_secs(1000);
    let long_ago = std::time::SystemTime::now() - age;
    let old = std::fs::File::options().write(true).open(server.root("old.html.gz")).expect("open");
    old.set_modified(long_ago).expect("set");
    let answer = accepting(&server, "/middle.html", "gzip, br;q=0.5");
    assert_eq!(answer.field("Content-Encoding"), Some("gzip"));
    assert_eq!(answer.field("Content-Type"), Some("text/html"));
    assert_eq!(answer.field("Content-Length"), Some(&*answer.body.len().to_string()));
    assert!(answer.field("ETag").is_some_and(|tag| tag.ends_with("-gzip\"")));
    assert!(plain(&answer) == marked.as_bytes(), "the one beside it");
    let head = head(&server, "/middle.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(head.field("Content-Length"), answer.field("Content-Length"));
    let other = accepting(&server, "/middle.html", "br");
    assert!(plain(&other) == text(30_000).as_bytes(), "made here");
    // The second time, the files beside it are known.
    for _ in 0..2 {
        let again = accepting(&server, "/middle.html", "gzip");
        assert!(plain(&again) == marked.as_bytes(), "the one beside it");
        let fresh = accepting(&server, "/old.html", "gzip");
        assert!(plain(&fresh) == text(30_000).as_bytes(), "what is older is not sent");
        let empty = accepting(&server, "/empty.html", "gzip");
        assert!(plain(&empty) == text(30_000).as_bytes(), "an empty file encodes nothing");
    }
    let server = prepare().start();
    let answer = accepting(&server, "/middle.html", "gzip");
    assert!(plain(&answer) == text(30_000).as_bytes(), "not unless enabled");
}
