//! Reads of cold files that take turns at the disk.

use std::fs;

use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;

const LARGE_BYTES: usize = 6_000_001;
const SMALL_BYTES: usize = 20_000;
const DOWNLOADS: usize = 4;
const SMALL_FILES: usize = 60;

fn name_of(large: usize) -> String {
    format!("large-{large}")
}

/// Drops a file from the page cache, so that reads go to the disk.
fn chill(server: &Server, name: &str) {
    let file = fs::File::open(server.root(name)).expect("the file");
    file.sync_all().expect("sync");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
}

fn counter(server: &Server, name: &str) -> u64 {
    let text = server.get("/counters").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("{name} of {text}")).parse().expect("a number")
}

fn start(engine: &str, bulk_reads: &str) -> Server {
    let mut setup = lighty!().config(&format!(
        "server.max-worker = 2\nserver.io-engine = \"{engine}\"\n\
         server.max-bulk-reads = {bulk_reads}\nstatus.statistics-url = \"/counters\""
    ));
    for large in 0..DOWNLOADS {
        setup = setup.file(&name_of(large), pattern(large as u64, LARGE_BYTES));
    }
    for small in 0..SMALL_FILES {
        setup = setup.file(&format!("small-{small}"), pattern(small as u64, SMALL_BYTES));
    }
    let server = setup.start();
    (0..DOWNLOADS).for_each(|large| chill(&server, &name_of(large)));
    (0..SMALL_FILES).for_each(|small| chill(&server, &format!("small-{small}")));
    server
}

#[test]
fn files_arrive_whole_while_reads_take_turns() {
    for engine in ["io-uring", "threads"] {
        let server = start(engine, "1");
        std::thread::scope(|scope| {
            let server = &server;
            for client in 0..2 * DOWNLOADS {
                scope.spawn(move || {
                    let large = client % DOWNLOADS;
                    let path = format!("/{}", name_of(large));
                    let (from, got) = match client < DOWNLOADS {
                        true => (0, server.get(&path)),
                        false => (999_999, server.get_with(&path, "Range: bytes=999999-\r\n")),
                    };
                    assert_eq!(got.body.len(), LARGE_BYTES - from, "{path}");
                    assert_pattern(&got.body, (large + from) as u64, &path);
                });
            }
            for small in 0..SMALL_FILES {
                let path = format!("/small-{small}");
                let got = server.get(&path);
                assert_eq!(got.body.len(), SMALL_BYTES, "{path}");
                assert_pattern(&got.body, small as u64, &path);
            }
        });
        assert_eq!(counter(&server, "files.bulk-waiting"), 0);
        // The kernel may keep the data of a file system in memory.
        if counter(&server, "send.async-reads") > 2 * (DOWNLOADS + SMALL_FILES) as u64 {
            assert!(counter(&server, "files.bulk-reads") > 0, "{engine}");
            assert!(counter(&server, "files.urgent") > 0, "{engine}");
        }
    }
}

#[test]
fn without_bulk_reads_no_read_takes_a_turn() {
    let server = start("threads", "0");
    let got = server.get("/large-0");
    assert_pattern(&got.body, 0, "the file");
    assert_eq!((counter(&server, "files.bulk-reads"), counter(&server, "files.urgent")), (0, 0));
}

#[test]
fn log_names_disks_with_an_order_at_the_start() {
    for (bulk_reads, text) in
        [("3", Some("3 files at a time on each device")), ("\"auto\"", Some("")), ("0", None)]
    {
        let lines =
            format!("server.max-bulk-reads = {bulk_reads}\nserver.errorlog-level = \"info\"");
        let server = lighty!().config(&lines).start();
        server.await_log("is serving");
        match text {
            Some(text) => server.await_log(&format!("server.max-bulk-reads: {text}")),
            None => {
                // The line would be there before the first response.
                assert_eq!(server.get("/missing").status, 404);
                assert!(!server.log().contains("server.max-bulk-reads:"));
            }
        }
    }
}
