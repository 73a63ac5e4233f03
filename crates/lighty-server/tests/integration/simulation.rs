//! The whole server in memory, driven by a seed: see docs/simulation.md.

mod ajp13;
mod auth_service;
mod backend;
mod client;
mod fastcgi;
mod h2_backend;
mod h2_client;
mod h2_end;
mod mutations;
mod plan;
mod program;
mod proxy_header;
mod raw;
mod reader;
mod rng;
mod run;
mod sabotage;
mod scenarios;
mod scgi;
mod scripts;
mod sim;
mod site;
mod tunnel;
mod verdict;
mod wire;
mod world;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Default number of seeds.
const SEEDS: u64 = 2_000;

/// Files of a process, on a file system in memory, so that no disk decides about caching.
struct Site {
    dir: tempfile::TempDir,
    // The test counts descriptors, and some state belongs to the process: one test at a time.
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test of this process runs.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    fn new() -> Site {
        let turn = take_turn();
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a directory");
        site::write(dir.path());
        // The first runtime of a process opens descriptors that stay.
        drop(tokio::runtime::Builder::new_current_thread().enable_all().build());
        Site { dir, _turn: turn }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Random runs, in one process for each core. `LIGHTY_SIM_SEED` is the first seed,
/// `LIGHTY_SIM_SEEDS` their number: 1 if only a seed is given.
#[test]
fn seeds() {
    let first = number("LIGHTY_SIM_SEED");
    let count = number("LIGHTY_SIM_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(1);
    let begun = Instant::now();
    let parts = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    if count < parts * 2 {
        return run_seeds(first, count);
    }
    // The pipes to the processes are descriptors too.
    let _turn = take_turn();
    let step = count.div_ceil(parts);
    let starts: Vec<u64> = (first..first + count).step_by(step as usize).collect();
    let start = |from: &u64| {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["simulation::part_of_the_seeds", "--exact", "--ignored", "--nocapture"])
            .env("LIGHTY_SIM_SEED", from.to_string())
            .env("LIGHTY_SIM_SEEDS", step.min(first + count - from).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let parts: Vec<_> = starts.iter().map(start).collect();
    let ends: Vec<_> = parts.into_iter().map(|part| part.wait_with_output().expect("it")).collect();
    ends.iter().for_each(|end| println!("{}", String::from_utf8_lossy(&end.stdout)));
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds in {seconds:.1} s: {:.0} in a second", count as f64 / seconds);
    assert!(ends.iter().all(|end| end.status.success()), "a seed failed, see above");
}

#[test]
#[ignore = "what `seeds` runs in processes of its own"]
fn part_of_the_seeds() {
    let first = number("LIGHTY_SIM_SEED").expect("the first seed");
    run_seeds(first, number("LIGHTY_SIM_SEEDS").expect("their number"));
}

/// Runs seeds one after the other. Prints how to replay each failure.
fn run_seeds(first: u64, count: u64) {
    let site = Site::new();
    let mut failed = Vec::new();
    let mut requests = 0;
    for seed in first..first + count {
        let report = run::run(seed, site.path());
        requests += report.requests;
        if report.wrong.is_empty() {
            continue;
        }
        println!("seed {seed}: {:#?}", report.wrong);
        println!(
            "replay: LIGHTY_SIM_SEED={seed} LIGHTY_SIM_TRACE=1 cargo test -p lighty-server \
             --test integration -- simulation::seeds --exact --nocapture"
        );
        if failed.is_empty() {
            println!("{}", report.log);
        }
        failed.push(seed);
    }
    println!("{requests} requests; failed seeds: {failed:?}");
    assert!(failed.is_empty());
}

#[test]
fn a_seed_replays_exactly() {
    let site = Site::new();
    for seed in 1..40 {
        let (one, other) = (run::run(seed, site.path()), run::run(seed, site.path()));
        assert_eq!(one.wrong, other.wrong, "seed {seed}");
        assert_eq!(one.trace_hash, other.trace_hash, "seed {seed}");
    }
}

#[test]
fn a_seed_replays_exactly_beside_a_thread_that_changes_files() {
    let site = Site::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&is_over);
    // Renames make the kernel look up paths again that it had in its caches.
    let [one, other] = ["one", "other"].map(|name| site.path().join(name));
    std::fs::create_dir(&one).expect("a directory");
    let busy = std::thread::spawn(move || {
        while !theirs.load(Ordering::Relaxed) {
            lighty_io::stat_cache::announce_change();
            std::fs::rename(&one, &other).expect("a rename");
            std::fs::rename(&other, &one).expect("a rename");
        }
    });
    for seed in [1, 18] {
        let hashes = |_| run::run(seed, site.path()).trace_hash;
        let hashes: Vec<u64> = (0..4).map(hashes).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{seed}: {hashes:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    busy.join().expect("a thread");
}
