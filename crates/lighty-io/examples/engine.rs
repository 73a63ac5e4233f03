//! Measures the cost of each file engine's operations on data in memory.
//!
//! `cargo run --release -p lighty-io --example engine [DIR] [SECONDS]` creates a few files of 100
//! KB in DIR (default: the system's temporary directory). For the io_uring engine and for the
//! threads it prints operations per second and microseconds of processor time per operation, with
//! 64 operations in flight, and, for comparison, the figures of the non-blocking fast paths.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lighty_io::file::{EngineChoice, EngineLimits, FileEngine, Follow, OpenFile, OwnedBuf, Root};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use tokio::task::LocalSet;

const FILES: usize = 32;
const FILE_BYTES: usize = 100_000;
const AT_ONCE: usize = 64;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let place = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let dir = place.join(format!("lighty-engine-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let result = run_all(&dir, Duration::from_secs_f64(seconds));
    std::fs::remove_dir_all(&dir)?;
    result
}

fn run_all(dir: &std::path::Path, time: Duration) -> io::Result<()> {
    for n in 0..FILES {
        std::fs::write(dir.join(n.to_string()), vec![b'x'; FILE_BYTES])?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{:<10} {:<34} {:>12} {:>14}", "engine", "operation", "per second", "CPU us each");
    for choice in [EngineChoice::Uring, EngineChoice::Threads] {
        LocalSet::new().block_on(&runtime, async {
            match Bench::start(choice, dir, time).await {
                Ok(bench) => bench.run().await,
                Err(error) => {
                    println!("{choice:?}: {error}");
                    Ok(())
                }
            }
        })?;
    }
    Ok(())
}

#[derive(Clone)]
struct Bench {
    engine: FileEngine,
    root: Rc<Root>,
    file: Rc<OpenFile>,
    time: Duration,
}

impl Bench {
    async fn start(
        choice: EngineChoice,
        dir: &std::path::Path,
        time: Duration,
    ) -> io::Result<Bench> {
        let engine = FileEngine::start(choice, EngineLimits::default())?;
        let root = engine.open_root(dir).await?;
        let file = engine.open(&root, b"0", Follow::All, false).await?;
        Ok(Bench { engine, root, file, time })
    }

    async fn run(&self) -> io::Result<()> {
        self.crowd("open", |bench, n| async move {
            bench.engine.open(&bench.root, name(n).as_bytes(), Follow::Beneath, false).await?;
            Ok(())
        })
        .await?;
        self.crowd("stat", |bench, n| async move {
            bench.engine.stat(&bench.root, name(n).as_bytes(), Follow::Beneath).await.map(drop)
        })
        .await?;
        self.crowd("read of 16 KB", |bench, _| async move { bench.read(16 * 1024).await }).await?;
        self.crowd("read of 100 KB", |bench, _| async move { bench.read(FILE_BYTES).await })
            .await?;
        self.crowd("warm of 100 KB", |bench, _| async move {
            bench.engine.warm(&bench.file, 0, FILE_BYTES as u64).await.map(drop)
        })
        .await?;
        self.fast_paths();
        Ok(())
    }

    async fn read(&self, length: usize) -> io::Result<()> {
        self.engine.read(&self.file, 0, OwnedBuf::zeroed(length)).await.1.map(drop)
    }

    /// Runs an operation repeatedly from many concurrent tasks.
    async fn crowd<F, Fut>(&self, what: &str, operation: F) -> io::Result<()>
    where
        F: Fn(Bench, usize) -> Fut + Copy + 'static,
        Fut: Future<Output = io::Result<()>> + 'static,
    {
        let done = Rc::new(Cell::new(0u64));
        let (start, cpu) = (Instant::now(), cpu_us());
        let mut tasks = Vec::new();
        for task in 0..AT_ONCE {
            let (bench, done) = (self.clone(), done.clone());
            tasks.push(tokio::task::spawn_local(async move {
                while start.elapsed() < bench.time {
                    operation(bench.clone(), task + done.get() as usize).await?;
                    done.set(done.get() + 1);
                }
                io::Result::Ok(())
            }));
        }
        for task in tasks {
            task.await.map_err(io::Error::other)??;
        }
        self.print(what, done.get(), start, cpu);
        Ok(())
    }

    fn fast_paths(&self) {
        let open = |n: usize| {
            let path = name(n);
            self.engine
                .try_open_cached(&self.root, path.as_bytes(), Follow::Beneath, false)
                .is_some()
        };
        self.alone("open from the kernel's caches", open);
        let stat = |n: usize| {
            let path = name(n);
            self.engine.try_stat_cached(&self.root, path.as_bytes(), Follow::Beneath).is_some()
        };
        self.alone("stat from the kernel's caches", stat);
        self.alone("resident? asked (100 KB)", |_| {
            self.engine.forget_resident(&self.file);
            std::hint::black_box(self.engine.resident(&self.file, 0, FILE_BYTES as u64));
            true
        });
        self.alone("resident? remembered", |_| {
            std::hint::black_box(self.engine.resident(&self.file, 0, FILE_BYTES as u64));
            true
        });
        for engine in [CacheEngine::Simple, CacheEngine::Inotify] {
            let cache = StatCache::new(self.engine.clone(), engine, CacheLimits::default());
            let what = format!("stat cache hit ({engine:?})");
            self.alone(&what, |_| {
                std::hint::black_box(cache.lookup(&self.root, b"0", Follow::Beneath, false));
                true
            });
        }
    }

    fn alone(&self, what: &str, operation: impl Fn(usize) -> bool) {
        let (start, cpu) = (Instant::now(), cpu_us());
        let mut done = 0u64;
        while start.elapsed() < self.time / 4 {
            for n in 0..100 {
                if !operation(n) {
                    println!("{:<10} {what:<34} not possible here", self.engine.report().name);
                    return;
                }
            }
            done += 100;
        }
        self.print(what, done, start, cpu);
    }

    fn print(&self, what: &str, done: u64, start: Instant, cpu: u64) {
        let each = (cpu_us() - cpu) as f64 / done as f64;
        let rate = done as f64 / start.elapsed().as_secs_f64();
        println!("{:<10} {what:<34} {rate:>12.0} {each:>14.2}", self.engine.report().name);
    }
}

fn name(n: usize) -> String {
    (n % FILES).to_string()
}

/// Processor time of this process, kernel and pool threads included.
fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
