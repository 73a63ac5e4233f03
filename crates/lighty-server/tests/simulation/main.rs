//! The whole server in memory, driven by a seed: see docs/simulation.md.

mod backend;
mod client;
mod fastcgi;
mod reader;
mod rng;
mod run;
mod scenarios;
mod sim;
mod site;
mod verdict;
mod world;

use std::path::PathBuf;

/// The files of one process, on a file system in memory: no disk decides what is cached.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        site::write(dir.path());
        // The first runtime of a process opens descriptors that stay.
        drop(tokio::runtime::Builder::new_current_thread().enable_all().build());
        Site(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds one after the other; says how the first failing one is replayed.
#[test]
fn seeds() {
    let site = Site::new();
    let from = number("LIGHTY_SIM_SEED").unwrap_or(1);
    let count = number("LIGHTY_SIM_SEEDS").unwrap_or(50);
    let begun = std::time::Instant::now();
    let (mut requests, mut failed) = (0, Vec::new());
    for seed in from..from + count {
        let report = run::run(seed, &site.path());
        requests += report.requests;
        if !report.wrong.is_empty() {
            println!("seed {seed}: {:#?}", report.wrong);
            if failed.is_empty() {
                println!("{}", report.log);
            }
            failed.push(seed);
        }
    }
    println!("{count} seeds, {requests} requests in {:?}; failed: {failed:?}", begun.elapsed());
    assert!(failed.is_empty());
}

#[test]
fn a_seed_replays_exactly() {
    let site = Site::new();
    for seed in 1..20 {
        let (one, other) = (run::run(seed, &site.path()), run::run(seed, &site.path()));
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}");
    }
}
