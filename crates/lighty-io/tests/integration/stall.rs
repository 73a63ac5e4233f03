//! A file system stalls with many requests stuck on it; all other work continues.
//!
//! Everything runs on one loop, which also ends the stall: a loop that waited for the stalled file
//! system would not get there before the stall times out.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use lighty_io::file::{
    EngineChoice, EngineLimits, FileEngine, Follow, FsClass, OwnedBuf, Resident, Root,
};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};
use lighty_testkit::stallfs::StallFs;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

const STUCK: usize = 100;
/// Files beside the mount, and their length.
const INNOCENT: usize = 20;
const INNOCENT_BYTES: usize = 200_000;

struct StallTestBed {
    engine: FileEngine,
    root: Rc<Root>,
    fuse: StallFs,
    place: tempfile::TempDir,
}

fn on_each_engine(test: impl AsyncFn(&StallTestBed)) {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
            let mount = place.path().join("remote");
            fs::create_dir(&mount).expect("a mount point");
            let fuse = match StallFs::mount(&mount) {
                Ok(fuse) => fuse,
                Err(why) => return eprintln!("skipped: {why}"),
            };
            let engine = FileEngine::start(choice, EngineLimits::default()).expect("an engine");
            let root = engine.open_root(place.path()).await.expect("a root");
            let bed = StallTestBed { engine, root, fuse, place };
            bed.write_innocent();
            test(&bed).await;
            assert!(!bed.fuse.gave_up(), "the loop was stopped");
        });
    }
}

impl StallTestBed {
    fn write(&self, name: &str, length: usize) {
        fs::write(self.place.path().join(name), vec![b'x'; length]).expect("written");
    }

    /// On the disk before anything stalls: a disk may be slow by itself.
    fn write_innocent(&self) {
        for round in 0..INNOCENT {
            let name = format!("innocent{round}");
            self.write(&name, INNOCENT_BYTES);
            self.open(&name).sync_all().expect("sync");
        }
    }

    fn open(&self, name: &str) -> fs::File {
        fs::File::open(self.place.path().join(name)).expect("open")
    }

    fn evict(&self, name: &str) {
        let file = self.open(name);
        rustix::fs::fadvise(file.as_fd(), 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    }

    /// Waits until `n` requests are stuck in the file system.
    async fn until_stuck(&self, n: usize) {
        while self.fuse.waiting() < n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Work of unaffected clients: hot and cold files beside the mount.
    async fn serve_the_innocent(&self) {
        for round in 0..INNOCENT {
            let name = format!("innocent{round}");
            self.evict(&name);
            let (engine, length) = (&self.engine, INNOCENT_BYTES as u64);
            let opened = engine.open(&self.root, name.as_bytes(), Follow::Beneath, false).await;
            let file = opened.expect("open");
            // Repeated, because a kernel that keeps memory free may evict it again.
            let mut tries = 0..100;
            while engine.resident(&file, 0, length) == Resident::No {
                assert!(tries.next().is_some(), "{name}");
                assert_eq!(engine.warm(&file, 0, length).await.expect("warm"), length);
            }
            let (_, n) = engine.read(&file, 0, OwnedBuf::zeroed(1000)).await;
            assert_eq!(n.expect("read"), 1000);
            let mut entries =
                engine.read_dir(&self.root, b"", Follow::None).await.expect("a directory");
            // Listing the directory stats the mount point; the kernel has its attributes in memory.
            assert!(entries.next_batch().await.expect("a batch").is_some());
            engine.run(|| ()).await.expect("a thread");
        }
    }
}

async fn all_end<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.expect("the task ends"));
    }
    results
}

#[test]
fn stuck_opens_delay_no_other_request() {
    on_each_engine(async |bed| {
        bed.fuse.stall();
        let tasks = (0..STUCK).map(|n| {
            let (engine, root) = (bed.engine.clone(), bed.root.clone());
            spawn_local(async move {
                let rel = format!("remote/wait{n}");
                engine.open(&root, rel.as_bytes(), Follow::All, false).await.map(|file| file.fs())
            })
        });
        let tasks: Vec<_> = tasks.collect();
        bed.until_stuck(1).await;
        bed.serve_the_innocent().await;
        bed.fuse.resume();
        for opened in all_end(tasks).await {
            assert_eq!(opened.expect("opened in the end"), FsClass::Remote);
        }
    });
}

#[test]
fn stuck_readers_delay_no_other_client() {
    on_each_engine(async |bed| {
        let mut files = Vec::new();
        for n in 0..STUCK {
            let rel = format!("remote/stall{n}");
            let opened = bed.engine.open(&bed.root, rel.as_bytes(), Follow::All, false).await;
            files.push(opened.expect("opens do not stall"));
        }
        assert!(files[0].sendfile_may_block());
        assert_eq!(bed.engine.resident(&files[0], 0, 4096), Resident::No);
        bed.fuse.stall();
        let tasks = files.into_iter().map(|file| {
            let engine = bed.engine.clone();
            spawn_local(async move { engine.read(&file, 0, OwnedBuf::zeroed(65_536)).await.1 })
        });
        let tasks: Vec<_> = tasks.collect();
        let room = bed.engine.limits().read_threads_max;
        bed.until_stuck(room.min(STUCK) / 2).await;
        bed.serve_the_innocent().await;
        bed.fuse.resume();
        for read in all_end(tasks).await {
            assert_eq!(read.expect("read in the end"), 65_536);
        }
    });
}

#[test]
fn an_engine_with_stuck_readers_is_dropped_at_once() {
    on_each_engine(async |bed| {
        let engine = FileEngine::start(EngineChoice::Auto, EngineLimits::default()).expect("one");
        let opened = engine.open(&bed.root, b"remote/stall", Follow::All, false).await;
        let file = opened.expect("open");
        bed.fuse.stall();
        let read = engine.read(&file, 0, OwnedBuf::zeroed(65_536));
        tokio::select! {
            biased;
            () = bed.until_stuck(1) => {}
            _ = read => panic!("it is stuck"),
        }
        drop((file, engine));
        bed.serve_the_innocent().await;
        bed.fuse.resume();
    });
}

#[test]
fn the_stat_cache_waits_without_stopping_the_loop() {
    on_each_engine(async |bed| {
        let cache =
            StatCache::new(bed.engine.clone(), CacheEngine::Inotify, CacheLimits::default());
        bed.write("local", 100);
        bed.fuse.stall();
        let lookup = cache.lookup(&bed.root, b"remote/wait", Follow::All, false);
        let stuck = spawn_local(lookup.entry());
        bed.until_stuck(1).await;
        for _ in 0..100 {
            let entry = cache.lookup(&bed.root, b"local", Follow::All, false).entry().await;
            assert_eq!(entry.expect("an entry").meta().size, 100);
        }
        bed.fuse.resume();
        let entry = stuck.await.expect("the task ends").expect("an entry");
        assert_eq!(entry.file().fs(), FsClass::Remote);
    });
}

#[test]
fn the_mount_is_below_the_place() {
    on_each_engine(async |bed| {
        let outside = bed.engine.open_root(&bed.place.path().join("remote")).await.expect("root");
        assert_eq!(outside.fs(), FsClass::Remote);
        assert!(bed.engine.try_open_cached(&outside, b"plain", Follow::All, false).is_none());
        let file = bed.engine.open(&outside, b"plain", Follow::Beneath, false).await.expect("open");
        let (buf, n) = bed.engine.read(&file, 0, OwnedBuf::zeroed(5000)).await;
        assert_eq!(n.expect("read"), 5000);
        assert_eq!(buf.to_vec(), fs_read(&bed.place.path().join("remote/plain"), 5000));
        let eio = bed.engine.open(&outside, b"eio", Follow::Beneath, false).await.expect("open");
        let size = eio.meta().size;
        let warmed = bed.engine.warm(&eio, 0, size).await;
        assert_eq!(warmed.expect_err("broken").raw_os_error(), Some(libc::EIO));
    });
}

fn fs_read(path: &Path, length: usize) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("read");
    bytes.truncate(length);
    bytes
}
