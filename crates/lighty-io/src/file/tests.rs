//! The same tests for each engine.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::task::Poll;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::LocalSet;

use super::*;

const PAGE: usize = 4096;

/// Runs a test once per engine, each on a fresh directory.
fn on_each_engine<F, Fut>(test: F)
where
    F: Fn(FileTestBed) -> Fut,
    Fut: Future<Output = ()>,
{
    let plain = EngineLimits { plain_open: true, ..EngineLimits::default() };
    let usual = EngineLimits::default();
    let cases = [
        (EngineChoice::Auto, usual),
        (EngineChoice::Auto, plain),
        (EngineChoice::Threads, usual),
        (EngineChoice::Threads, plain),
    ];
    for (choice, limits) in cases {
        on_engine(choice, limits, &test);
    }
}

fn on_engine<F, Fut>(choice: EngineChoice, limits: EngineLimits, test: F)
where
    F: Fn(FileTestBed) -> Fut,
    Fut: Future<Output = ()>,
{
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let dir = disk_dir();
        let clock = Clock::manual(1_700_000_000);
        let engine =
            FileEngine::start_with_clock(choice, limits, clock.clone()).expect("an engine");
        let root = engine.open_root(dir.path()).await.expect("a root");
        let whole = test(FileTestBed { engine, root, dir, clock });
        tokio::time::timeout(Duration::from_secs(60), whole).await.expect("in time");
    });
}

/// A temporary directory on a disk: the build directory is on one more often than `/tmp`.
fn disk_dir() -> TempDir {
    let target = std::env::var_os("CARGO_TARGET_TMPDIR").map(PathBuf::from);
    let exe = std::env::current_exe().expect("a path");
    let place = target.unwrap_or_else(|| exe.parent().expect("a directory").to_owned());
    tempfile::Builder::new().prefix("lighty-io-").tempdir_in(place).expect("a directory")
}

struct FileTestBed {
    engine: FileEngine,
    root: Rc<Root>,
    dir: TempDir,
    clock: Clock,
}

impl FileTestBed {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, bytes).expect("written");
    }

    async fn open(&self, rel: &str, follow: Follow) -> io::Result<Rc<OpenFile>> {
        self.engine.open(&self.root, rel.as_bytes(), follow, false).await
    }

    async fn errno(&self, rel: &str, follow: Follow) -> Option<i32> {
        let opened = self.open(rel, follow).await;
        let stated = self.engine.stat(&self.root, rel.as_bytes(), follow).await;
        let errno = opened.err().and_then(|error| error.raw_os_error());
        assert_eq!(errno, stated.err().and_then(|error| error.raw_os_error()), "{rel}");
        errno
    }

    /// Evicts the pages of a file from the cache, as far as the system obeys.
    fn evict(&self, name: &str) {
        let file = fs::File::open(self.path(name)).expect("open");
        file.sync_all().expect("sync");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    }

    /// Repeats a query about a file that was read until it has a result. A kernel that keeps memory
    /// free may evict pages at any moment; then they are read again.
    fn retry_until_some<T>(&self, name: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let read_and_ask = |_| {
            fs::read(self.path(name)).expect("read");
            ask()
        };
        (0..TRIES).find_map(read_and_ask).expect("it is in memory")
    }

    /// True if the rest of a file that was read, from `offset`, is found to be in memory.
    fn is_found(&self, name: &str, file: &OpenFile, offset: u64) -> bool {
        let length = file.meta().size - offset;
        let found = || self.engine.resident(file, offset, length) == Resident::Yes;
        found() || self.retry_until_some(name, || found().then_some(true))
    }
}

/// Attempts before a test fails: a kernel that keeps memory free may evict the data between a read
/// and the query.
const TRIES: usize = 100;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at % 251) as u8).collect()
}

#[test]
fn the_report_names_the_engine_and_the_reason() {
    on_engine(EngineChoice::Threads, EngineLimits::default(), |bed| async move {
        assert_eq!(bed.engine.report().name, "threads");
        assert_eq!(bed.engine.report().why, "asked for");
    });
    on_engine(EngineChoice::Auto, EngineLimits::default(), |bed| async move {
        assert!(!bed.engine.report().why.is_empty());
    });
}

#[test]
fn files_of_all_sizes_are_read_byte_for_byte() {
    on_each_engine(|bed| async move {
        for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, 100_000, 3_000_001] {
            bed.write("a/file", &pattern(length));
            let file = bed.open("a/file", Follow::All).await.expect("open");
            assert_eq!((file.meta().kind, file.meta().size), (FileKind::File, length as u64));
            let mut got = Vec::new();
            loop {
                let buf = OwnedBuf::zeroed(65_536);
                let (buf, n) = bed.engine.read(&file, got.len() as u64, buf).await;
                let n = n.expect("read");
                if n == 0 {
                    break;
                }
                got.extend_from_slice(&buf[..n]);
            }
            assert!(got == pattern(length), "{length} bytes");
        }
        let counters = bed.engine.counters();
        assert!(counters.async_reads.get() > 50);
        assert_eq!(counters.in_flight.get(), 0);
    });
}

#[test]
fn a_read_at_any_offset_and_past_the_end() {
    on_each_engine(|bed| async move {
        bed.write("f", &pattern(10_000));
        let file = bed.open("f", Follow::Beneath).await.expect("open");
        let (buf, n) = bed.engine.read(&file, 4_097, OwnedBuf::zeroed(100)).await;
        assert_eq!(n.expect("read"), 100);
        assert_eq!(&buf[..], &pattern(10_000)[4_097..4_197]);
        let (_, n) = bed.engine.read(&file, 10_000, OwnedBuf::zeroed(100)).await;
        assert_eq!(n.expect("read"), 0);
        let (_, n) = bed.engine.read(&file, u64::MAX - 5, OwnedBuf::zeroed(100)).await;
        assert!(n.is_err());
        let (_, n) = bed.engine.read(&file, 9_990, OwnedBuf::zeroed(100)).await;
        assert_eq!(n.expect("read"), 10);
    });
}

#[test]
fn a_name_is_removed_where_a_path_may_lead() {
    on_each_engine(|bed| async move {
        bed.write("d/file", b"inside");
        let outside = TempDir::new().expect("a directory");
        fs::write(outside.path().join("file"), b"outside").expect("written");
        symlink(outside.path(), bed.path("out")).expect("link");
        symlink("d/file", bed.path("link")).expect("link");
        let remove = async |rel: &str| {
            let removed = bed.engine.remove(&bed.root, rel.as_bytes(), Follow::Beneath).await;
            removed.err().and_then(|error| error.raw_os_error())
        };
        assert_eq!(remove("out/file").await, Some(libc::EXDEV));
        assert!(outside.path().join("file").exists());
        assert_eq!(remove("link").await, None, "the link, not what it leads to");
        assert!(bed.path("d/file").exists() && !bed.path("link").exists());
        assert_eq!(remove("d/file").await, None);
        assert_eq!(remove("d/file").await, Some(libc::ENOENT));
        assert_eq!(remove("d").await, Some(libc::EISDIR));
    });
}

#[test]
fn links_are_followed_as_configured() {
    on_each_engine(|bed| async move {
        bed.write("real/file", b"inside");
        symlink("real", bed.path("dirlink")).expect("link");
        symlink("real/file", bed.path("filelink")).expect("link");
        symlink("../real/file", bed.path("real/up")).expect("link");
        symlink("/etc/hostname", bed.path("absolute")).expect("link");
        symlink("../../../../../../../../../../../../../../../../etc", bed.path("escape"))
            .expect("link");
        symlink("loop", bed.path("loop")).expect("link");
        for inside in ["dirlink/file", "filelink", "real/up", "dirlink/up", "dirlink//./file"] {
            assert_eq!(bed.errno(inside, Follow::All).await, None, "{inside}");
            assert_eq!(bed.errno(inside, Follow::Beneath).await, None, "{inside}");
            assert_eq!(bed.errno(inside, Follow::None).await, Some(libc::ELOOP), "{inside}");
        }
        for outside in ["absolute", "escape/hostname"] {
            assert_eq!(bed.errno(outside, Follow::All).await, None, "{outside}");
            assert_eq!(bed.errno(outside, Follow::Beneath).await, Some(libc::EXDEV), "{outside}");
            assert_eq!(bed.errno(outside, Follow::None).await, Some(libc::ELOOP), "{outside}");
        }
        for follow in [Follow::All, Follow::Beneath, Follow::None] {
            assert_eq!(bed.errno("loop", follow).await, Some(libc::ELOOP));
            assert_eq!(bed.errno("real/file", follow).await, None);
        }
        for follow in [Follow::Beneath, Follow::None] {
            assert_eq!(bed.errno("../x", follow).await, Some(libc::EXDEV));
        }
    });
}

#[test]
fn errors_are_the_systems_own() {
    on_each_engine(|bed| async move {
        bed.write("file", b"x");
        fs::create_dir(bed.path("dir")).expect("dir");
        let long = "n".repeat(256);
        for follow in [Follow::All, Follow::Beneath, Follow::None] {
            assert_eq!(bed.errno("missing", follow).await, Some(libc::ENOENT));
            assert_eq!(bed.errno("file/below", follow).await, Some(libc::ENOTDIR));
            assert_eq!(bed.errno("file/", follow).await, Some(libc::ENOTDIR));
            assert_eq!(bed.errno(&long, follow).await, Some(libc::ENAMETOOLONG));
            assert_eq!(bed.errno("fi\0le", follow).await, Some(libc::ENOENT));
            for dir in ["", ".", "dir", "dir/"] {
                let open = bed.open(dir, follow).await.expect(dir);
                assert_eq!(open.meta().kind, FileKind::Directory, "{dir}");
                assert!(!open.is_readable());
            }
        }
        let open = bed.open("dir", Follow::All).await.expect("dir");
        let (_, n) = bed.engine.read(&open, 0, OwnedBuf::zeroed(10)).await;
        assert_eq!(n.expect_err("a directory").raw_os_error(), Some(libc::EBADF));
    });
}

#[test]
fn fifos_and_sockets_are_reported_but_not_opened() {
    on_each_engine(|bed| async move {
        let fifo = bed.path("fifo");
        let name = std::ffi::CString::new(fifo.to_str().expect("utf-8")).expect("name");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &*name,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_bits_retain(0o644),
            0,
        )
        .expect("fifo");
        let _socket = std::os::unix::net::UnixListener::bind(bed.path("sock")).expect("socket");
        for name in ["fifo", "sock"] {
            let open = bed.open(name, Follow::All).await.expect(name);
            assert_eq!(open.meta().kind, FileKind::Other);
            assert!(bed.engine.warm(&open, 0, 10).await.is_err());
            assert_eq!(bed.engine.resident(&open, 0, 10), Resident::No);
        }
        // The FIFO is not open for reading: a non-blocking writer is refused.
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let writer = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty());
        assert_eq!(writer.expect_err("no reader"), rustix::io::Errno::NXIO);
    });
}

#[test]
fn warm_caches_answer_at_once() {
    on_engine(EngineChoice::Auto, EngineLimits::default(), |bed| async move {
        if !bed.engine.0.cached_lookups || !bed.root.fs().answers_from_cache() {
            return;
        }
        bed.write("d/f", b"content");
        bed.open("d/f", Follow::All).await.expect("open");
        for follow in [Follow::All, Follow::Beneath, Follow::None] {
            let open = bed.engine.try_open_cached(&bed.root, b"d/f", follow, false);
            assert_eq!(open.expect("cached").expect("open").meta().size, 7);
            let meta = bed.engine.try_stat_cached(&bed.root, b"d/f", follow);
            assert_eq!(meta.expect("cached").expect("stat").size, 7);
        }
        // Other users' files: O_NOATIME is only attempted.
        let open = bed.engine.try_open_cached(&bed.root, b"d/f", Follow::All, true);
        assert!(open.expect("cached").is_ok());
        // A mount on the way is not entered.
        let slash = bed.engine.open_root(Path::new("/")).await.expect("root");
        let proc = bed.engine.try_open_cached(&slash, b"proc/version", Follow::All, false);
        assert!(proc.is_none());
        let open = bed.engine.open(&slash, b"proc/version", Follow::All, false).await;
        assert_eq!(open.expect("open").fs(), FsClass::Remote);
    });
}

#[test]
fn a_root_that_moves_is_followed_within_a_second() {
    on_each_engine(|bed| async move {
        bed.write("one/f", b"1");
        bed.write("two/f", b"22");
        symlink("one", bed.path("current")).expect("link");
        let root = bed.engine.open_root(&bed.path("current")).await.expect("root");
        let size = async || {
            let open = bed.engine.open(&root, b"f", Follow::All, false).await;
            open.map(|file| file.meta().size).map_err(|error| error.raw_os_error())
        };
        assert_eq!(size().await, Ok(1));
        symlink("two", bed.path("next")).expect("link");
        fs::rename(bed.path("next"), bed.path("current")).expect("flip");
        bed.clock.advance(Duration::from_millis(ROOT_TRUST_MS - 1));
        assert_eq!(size().await, Ok(1), "still within its second");
        bed.clock.advance(Duration::from_millis(1));
        assert_eq!(size().await, Ok(2));
        assert_eq!(root.generation(), 1);
        fs::remove_file(bed.path("current")).expect("remove");
        bed.clock.advance(Duration::from_secs(1));
        assert_eq!(size().await, Err(Some(libc::ENOENT)));
        symlink("one", bed.path("current")).expect("link");
        assert_eq!(size().await, Ok(1), "back as soon as it is back");
        assert!(bed.engine.open_root(&bed.path("one/f")).await.is_err());
    });
}

#[test]
fn cold_data_are_found_cold_and_are_warm_after_warming() {
    on_each_engine(|bed| async move {
        for length in [PAGE + 1, 100_000, 6_000_000] {
            bed.write("cold", &pattern(length));
            bed.evict("cold");
            let file = bed.open("cold", Follow::All).await.expect("open");
            let size = length as u64;
            if file.fs() == FsClass::Memory {
                assert_eq!(bed.engine.resident(&file, 0, size), Resident::Yes);
                continue;
            }
            assert_eq!(bed.engine.resident(&file, 0, size), Resident::No, "{length}");
            let mut one = [0; 1];
            assert!(bed.engine.try_read(&file, 0, &mut one).is_none());
            assert_eq!(bed.engine.warm(&file, 0, size + 999).await.expect("warm"), size);
            assert!(bed.is_found("cold", &file, 0));
            // The kernel was queried; this is not a remembered result.
            bed.clock.advance(Duration::from_millis(RESIDENT_TRUST_MS));
            assert!(bed.is_found("cold", &file, 0));
            let read = || bed.engine.try_read(&file, size - 1, &mut one);
            let n = bed.retry_until_some("cold", read).expect("read");
            assert_eq!((n, one[0]), (1, pattern(length)[length - 1]));
            // Loaded data may be evicted soon: it is queried each time.
            bed.evict("cold");
            assert_eq!(bed.engine.resident(&file, 0, size), Resident::No);
            // Data found once may be about to be evicted; continuing the same transfer proves
            // nothing.
            bed.clock.advance(Duration::from_millis(super::open_file::COLD_MS));
            fs::read(bed.path("cold")).expect("read");
            assert!(bed.is_found("cold", &file, 0));
            assert!(bed.is_found("cold", &file, 1));
            bed.evict("cold");
            assert_eq!(bed.engine.resident(&file, 0, size), Resident::No);
            // A file that stays is trusted for a second, and no longer.
            fs::read(bed.path("cold")).expect("read");
            assert!(bed.is_found("cold", &file, 0));
            assert!(bed.is_found("cold", &file, 0));
            bed.evict("cold");
            assert_eq!(bed.engine.resident(&file, 0, size), Resident::Yes);
            bed.clock.advance(Duration::from_millis(RESIDENT_TRUST_MS));
            assert_eq!(bed.engine.resident(&file, 0, size), Resident::No);
        }
    });
}

#[test]
fn windows_of_a_large_file_are_distinguished() {
    on_engine(EngineChoice::Auto, EngineLimits::default(), |bed| async move {
        let chunk = bed.engine.limits().read_chunk_bytes as u64;
        let size = 10 * chunk + 5;
        let file = fs::File::create(bed.path("large")).expect("create");
        file.set_len(size).expect("sparse");
        bed.evict("large");
        let file = bed.open("large", Follow::All).await.expect("open");
        if file.fs() == FsClass::Memory {
            return;
        }
        for (offset, length) in [(9 * chunk + 7, 100), (10 * chunk, 5)] {
            // Repeated, because a kernel that keeps memory free may evict it again.
            let mut tries = 0..TRIES;
            while bed.engine.resident(&file, offset, length) == Resident::No {
                assert!(tries.next().is_some(), "at {offset}");
                bed.engine.warm(&file, 9 * chunk, chunk + 5).await.expect("warm");
            }
        }
        assert_eq!(bed.engine.resident(&file, 0, 1), Resident::No);
        assert_eq!(bed.engine.resident(&file, 8 * chunk, 2 * chunk), Resident::No);
        assert_eq!(bed.engine.resident(&file, size, 1000), Resident::Yes, "past the end");
    });
}

#[test]
fn a_dropped_read_leaves_its_buffer_and_file_with_the_engine() {
    on_each_engine(|bed| async move {
        bed.write("f", &pattern(2_000_000));
        for round in 0..60 {
            if round % 10 == 0 {
                bed.evict("f");
            }
            let file = bed.open("f", Follow::All).await.expect("open");
            let read = bed.engine.read(&file, 0, OwnedBuf::zeroed(2_000_000));
            // Polled once, so that it is in progress, then dropped.
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => {}
                _ = read => {}
            }
        }
        while bed.engine.counters().in_flight.get() > 0 {
            tokio::task::yield_now().await;
        }
        let file = bed.open("f", Follow::All).await.expect("open");
        let (buf, n) = bed.engine.read(&file, 0, OwnedBuf::zeroed(2_000_000)).await;
        assert_eq!(n.expect("read"), 2_000_000);
        assert!(buf[..] == pattern(2_000_000));
    });
}

/// Result of polling an operation once.
fn at_once<T>(operation: impl Future<Output = T>) -> Poll<T> {
    std::pin::pin!(operation).poll(&mut std::task::Context::from_waker(Waker::noop()))
}

#[test]
fn without_stat_threads_the_event_loop_looks_up_itself() {
    for plain_open in [false, true] {
        for choice in [EngineChoice::Auto, EngineChoice::Threads] {
            let none = EngineLimits { stat_threads_max: 0, plain_open, ..EngineLimits::default() };
            on_engine(choice, none, |bed| async move {
                bed.write("d/f", b"hello");
                assert!(matches!(at_once(bed.open("d/f", Follow::All)), Poll::Ready(Ok(_))));
                let found = at_once(bed.engine.stat(&bed.root, b"d/f", Follow::None));
                assert!(matches!(found, Poll::Ready(Ok(meta)) if meta.size == 5));
                assert_eq!(bed.errno("d/none", Follow::All).await, Some(libc::ENOENT));
                symlink("/etc/passwd", bed.path("out")).expect("a link");
                assert!(bed.open("out", Follow::Beneath).await.is_err());
                let file = bed.open("d/f", Follow::All).await.expect("open");
                let (_, n) = bed.engine.read(&file, 0, OwnedBuf::zeroed(9)).await;
                assert_eq!(n.expect("read"), 5);
            });
            let one = EngineLimits { stat_threads_max: 1, ..none };
            on_engine(choice, one, |bed| async move {
                bed.write("f", b"hello");
                assert!(at_once(bed.open("f", Follow::All)).is_pending());
            });
        }
    }
}

#[test]
fn more_operations_than_places_wait_their_turn() {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let limits =
            EngineLimits { stat_threads_max: 1, read_threads_max: 2, ..EngineLimits::default() };
        on_engine(choice, limits, |bed| async move {
            bed.write("f", &pattern(50_000));
            let file = bed.open("f", Follow::All).await.expect("open");
            let mut tasks = Vec::new();
            for at in 0..300u64 {
                let (engine, file, root) = (bed.engine.clone(), file.clone(), bed.root.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let (buf, n) = engine.read(&file, at, OwnedBuf::zeroed(1000)).await;
                    assert_eq!(n.expect("read"), 1000);
                    assert_eq!(buf[..], pattern(50_000)[at as usize..at as usize + 1000]);
                    engine.open(&root, b"f", Follow::All, false).await.expect("open");
                }));
            }
            for task in tasks {
                task.await.expect("task");
            }
            assert_eq!(bed.engine.counters().in_flight.get(), 0);
            assert_eq!(bed.engine.counters().queued.get(), 0);
        });
    }
}

#[test]
fn directories_are_read_in_batches() {
    on_each_engine(|bed| async move {
        let names: Vec<String> = (0..READ_DIR_BATCH + 1).map(|n| format!("d/{n:05}")).collect();
        for name in &names {
            bed.write(name, b"12345");
        }
        let mut dir = bed.engine.read_dir(&bed.root, b"d", Follow::All).await.expect("dir");
        let first = dir.next_batch().await.expect("batch").expect("some");
        let second = dir.next_batch().await.expect("batch").expect("some");
        assert_eq!((first.len(), second.len()), (READ_DIR_BATCH, 1));
        assert!(dir.next_batch().await.expect("end").is_none());
        assert!(dir.next_batch().await.expect("end").is_none());
        let mut got: Vec<_> = first.into_iter().chain(second).collect();
        got.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(
            got.iter().zip(&names).all(|(entry, name)| {
                entry.name == name.as_bytes()[2..] && entry.meta.size == 5
            })
        );
        let file = bed.engine.read_dir(&bed.root, b"d/00000", Follow::All).await;
        assert_eq!(file.err().and_then(|error| error.raw_os_error()), Some(libc::ENOTDIR));
    });
}

#[test]
fn links_in_directories_are_resolved_as_configured() {
    on_each_engine(|bed| async move {
        bed.write("f", b"12345678");
        fs::create_dir(bed.path("d")).expect("dir");
        symlink("../f", bed.path("d/inside")).expect("link");
        symlink("/etc", bed.path("d/outside")).expect("link");
        symlink("nowhere", bed.path("d/broken")).expect("link");
        let kinds = async |follow| {
            let mut dir = bed.engine.read_dir(&bed.root, b"d/", follow).await.expect("dir");
            let mut batch = dir.next_batch().await.expect("batch").expect("some");
            batch.sort_by(|a, b| a.name.cmp(&b.name));
            batch.iter().map(|entry| entry.meta.kind).collect::<Vec<_>>()
        };
        use FileKind::{Directory, File, Symlink};
        assert_eq!(kinds(Follow::All).await, [Symlink, File, Directory]);
        assert_eq!(kinds(Follow::Beneath).await, [Symlink, File, Symlink]);
        assert_eq!(kinds(Follow::None).await, [Symlink, Symlink, Symlink]);
    });
}

#[test]
fn permissions_are_the_systems_to_judge() {
    on_each_engine(|bed| async move {
        bed.write("secret", b"x");
        fs::set_permissions(bed.path("secret"), fs::Permissions::from_mode(0o0)).expect("chmod");
        let expected = if rustix::process::geteuid().is_root() { None } else { Some(libc::EACCES) };
        let got = bed.open("secret", Follow::All).await.err().and_then(|e| e.raw_os_error());
        assert_eq!(got, expected);
    });
}

#[test]
fn extended_attributes_are_read_or_absent() {
    on_each_engine(|bed| async move {
        bed.write("f", b"x");
        let file = bed.open("f", Follow::All).await.expect("open");
        assert_eq!(bed.engine.get_xattr(&file, "user.Content-Type").await.expect("asked"), None);
        let set = |value: &[u8]| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(bed.path("f"), "user.Content-Type", value, flags)
        };
        if set(b"text/x-test").is_err() {
            return; // This file system keeps none.
        }
        let got = bed.engine.get_xattr(&file, "user.Content-Type").await.expect("asked");
        assert_eq!(got.as_deref(), Some(&b"text/x-test"[..]));
        set(&vec![b'x'; XATTR_BYTES_MAX]).expect("set");
        let got = bed.engine.get_xattr(&file, "user.Content-Type").await.expect("asked");
        assert_eq!(got.map(|value| value.len()), Some(XATTR_BYTES_MAX));
        set(&vec![b'x'; XATTR_BYTES_MAX + 1]).expect("set");
        assert!(bed.engine.get_xattr(&file, "user.Content-Type").await.is_err());
    });
}

#[test]
fn faults_bite_by_rule() {
    on_each_engine(|bed| async move {
        bed.write("good", b"0123456789");
        bed.write("bad", b"0123456789");
        let bad = bed.open("bad", Follow::All).await.expect("open");
        let rule = |op, fault| FaultRule::every(op, fault);
        let plan = FaultPlan::new([
            FaultRule {
                path_suffix: b"bad".to_vec(),
                ..rule(FaultOp::Open, Fault::Errno(libc::EIO))
            },
            FaultRule { skip: 1, times: 1, ..rule(FaultOp::Read, Fault::Short(3)) },
            FaultRule { skip: 1, times: 1, ..rule(FaultOp::Read, Fault::Errno(libc::EIO)) },
        ]);
        bed.engine.set_faults(Some(plan.clone()));
        assert_eq!(
            bed.open("bad", Follow::All).await.err().and_then(|e| e.raw_os_error()),
            Some(libc::EIO)
        );
        assert!(bed.open("good", Follow::All).await.is_ok());
        assert_eq!(bed.engine.resident(&bad, 0, 10), Resident::No);
        let read = async || bed.engine.read(&bad, 0, OwnedBuf::zeroed(10)).await.1;
        assert_eq!(read().await.expect("first"), 10);
        assert_eq!(read().await.expect("second"), 3);
        assert_eq!(read().await.expect_err("third").raw_os_error(), Some(libc::EIO));
        assert_eq!(read().await.expect("fourth"), 10);
        assert_eq!(plan.bitten(), 3);
        bed.engine.set_faults(None);
        assert!(bed.open("bad", Follow::All).await.is_ok());
    });
}

#[test]
fn an_engine_stops_while_a_read_hangs() {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        on_engine(choice, EngineLimits::default(), |bed| async move {
            bed.write("f", &pattern(100_000));
            let file = bed.open("f", Follow::All).await.expect("open");
            let never = FaultRule::every(FaultOp::Read, Fault::Never);
            bed.engine.set_faults(Some(FaultPlan::new([never])));
            let (engine, hung) = (bed.engine.clone(), file.clone());
            let task = tokio::task::spawn_local(async move {
                engine.read(&hung, 0, OwnedBuf::zeroed(100)).await.1
            });
            tokio::task::yield_now().await;
            // Other operations continue while it hangs.
            assert!(bed.open("f", Follow::All).await.is_ok());
            task.abort();
            assert!(task.await.expect_err("aborted").is_cancelled());
        });
    }
}

#[test]
fn an_engine_dropped_with_reads_under_way_leaks_rather_than_frees() {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        on_engine(choice, EngineLimits::default(), |bed| async move {
            bed.write("f", &pattern(1_000_000));
            bed.evict("f");
            let file = bed.open("f", Follow::All).await.expect("open");
            let engine = FileEngine::start(choice, EngineLimits::default()).expect("engine");
            for _ in 0..50 {
                let read = engine.read(&file, 0, OwnedBuf::zeroed(1_000_000));
                tokio::select! {
                    biased;
                    () = tokio::task::yield_now() => {}
                    _ = read => {}
                }
            }
            drop(engine);
            tokio::task::yield_now().await;
            assert!(bed.open("f", Follow::All).await.is_ok());
        });
    }
}

#[test]
fn a_link_that_takes_the_place_of_what_was_looked_at_is_not_followed() {
    let (dir, outside) = (disk_dir(), disk_dir());
    fs::write(outside.path().join("secret"), "secret").expect("written");
    let held = fs::File::open(dir.path()).expect("a directory");
    let file = dir.path().join("f");
    for plain in [false, true] {
        for follow in [Follow::Beneath, Follow::None] {
            fs::write(&file, "public").expect("written");
            let how = How { follow, noatime: false, no_xdev: true, cached: true, plain };
            let slowly = How { cached: false, ..how };
            let looked = resolve::find_fd(held.as_fd(), b"f", slowly).expect("found");
            fs::remove_file(&file).expect("removed");
            symlink(outside.path().join("secret"), &file).expect("link");
            let opened = resolve::open_looked_at(held.as_fd(), b"f", looked, how);
            assert!(opened.is_err(), "{follow:?}, plain: {plain}");
            fs::remove_file(&file).expect("removed");
        }
    }
}
