//! Reactions of the cache to changes of files.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;

use super::*;
use crate::clock::Clock;
use crate::file::{EngineChoice, EngineLimits, Fault, FaultOp, FaultPlan, FaultRule, FileKind};

struct StatCacheTestBed {
    cache: StatCache,
    root: Rc<Root>,
    dir: TempDir,
    clock: Clock,
}

fn on_bed<F, Fut>(engine: CacheEngine, limits: CacheLimits, test: F)
where
    F: Fn(StatCacheTestBed) -> Fut,
    Fut: Future<Output = ()>,
{
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let exe = std::env::current_exe().expect("a path");
            let place = exe.parent().expect("a directory");
            let dir = tempfile::Builder::new().prefix("lighty-io-").tempdir_in(place);
            let dir = dir.expect("a directory");
            let clock = Clock::manual(1_700_000_000);
            let started =
                FileEngine::start_with_clock(choice, EngineLimits::default(), clock.clone());
            let files = started.expect("an engine");
            let root = files.open_root(dir.path()).await.expect("a root");
            let cache = StatCache::new(files, engine, limits);
            let whole = test(StatCacheTestBed { cache, root, dir, clock });
            tokio::time::timeout(Duration::from_secs(60), whole).await.expect("in time");
        });
    }
}

fn simple<F, Fut>(test: F)
where
    F: Fn(StatCacheTestBed) -> Fut,
    Fut: Future<Output = ()>,
{
    on_bed(CacheEngine::Simple, CacheLimits::default(), test);
}

fn inotify<F, Fut>(test: F)
where
    F: Fn(StatCacheTestBed) -> Fut,
    Fut: Future<Output = ()>,
{
    on_bed(CacheEngine::Inotify, CacheLimits::default(), test);
}

impl StatCacheTestBed {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("written");
    }

    fn lookup(&self, name: &str) -> Lookup {
        self.cache.lookup(&self.root, name.as_bytes(), Follow::All, false)
    }

    async fn get(&self, name: &str) -> io::Result<Rc<CacheEntry>> {
        self.lookup(name).entry().await
    }

    async fn text(&self, name: &str) -> String {
        text_of(&self.get(name).await.expect("an entry"))
    }

    async fn errno(&self, name: &str) -> Option<i32> {
        self.get(name).await.err().and_then(|error| error.raw_os_error())
    }

    fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Waits for a turn of the loop that begins after all previous changes, as a request's turn
    /// does.
    async fn turn(&self) {
        let (mut client, mut server) = UnixStream::pair().expect("a pair");
        client.write_all(b"x").await.expect("sent");
        server.read_exact(&mut [0]).await.expect("received");
    }

    fn hits(&self) -> u64 {
        self.cache.counters().hits.get()
    }
}

fn text_of(entry: &CacheEntry) -> String {
    String::from_utf8(entry.small().expect("small").to_vec()).expect("text")
}

/// Sets a modification time old enough that the next change is certain to alter it.
fn age(path: &std::path::Path) {
    let file = fs::File::options().write(true).open(path).expect("open");
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    file.set_modified(old).expect("aged");
}

/// Waits until files written before are old enough to be trusted by their times.
async fn grow_old() {
    tokio::time::sleep(Duration::from_millis(30)).await;
}

#[test]
fn known_entries_alone_are_returned_without_disk_access() {
    simple(|bed| async move {
        bed.write("a", "1");
        grow_old().await;
        let known = || bed.cache.known(&bed.root, b"a", Follow::All, false);
        assert!(known().is_none(), "nobody has asked for it yet");
        let entry = bed.get("a").await.expect("an entry");
        assert!(Rc::ptr_eq(&known().expect("known"), &entry));
        assert_eq!(bed.hits(), 1);
        assert!(bed.cache.known(&bed.root, b"b", Follow::All, false).is_none());
        bed.pass(TRUST_MS);
        assert!(known().is_none(), "it is to be looked at again");
        assert_eq!(bed.get("a").await.expect("an entry").meta().size, 1);
        assert!(known().is_some());
    });
}

#[test]
fn a_hit_is_ready_and_is_the_same_entry() {
    simple(|bed| async move {
        bed.write("a/f.txt", "hello");
        grow_old().await;
        let first = bed.get("a/f.txt").await.expect("an entry");
        first.attachment().set(Rc::new(42u32)).expect("empty");
        let Lookup::Ready(Ok(second)) = bed.lookup("a/f.txt") else { panic!("not ready") };
        assert!(Rc::ptr_eq(&first, &second));
        assert_eq!(text_of(&second), "hello");
        let kept = second.attachment().get().and_then(|any| any.downcast_ref::<u32>());
        assert_eq!(kept, Some(&42));
        assert_eq!((bed.hits(), bed.cache.counters().loads.get()), (1, 1));
    });
}

#[test]
fn simple_looks_again_after_a_second_and_not_before() {
    simple(|bed| async move {
        bed.write("f", "one");
        grow_old().await;
        let first = bed.get("f").await.expect("an entry");
        bed.pass(TRUST_MS);
        let again = bed.get("f").await.expect("an entry");
        assert!(Rc::ptr_eq(&first, &again), "unchanged is kept");
        assert_eq!(bed.cache.counters().revalidated.get(), 1);
        bed.write("f", "two");
        bed.pass(TRUST_MS - 1);
        assert_eq!(bed.text("f").await, "one");
        bed.pass(1);
        assert_eq!(bed.text("f").await, "two");
        bed.write("new", "three");
        fs::rename(bed.path("new"), bed.path("f")).expect("rename");
        bed.pass(TRUST_MS);
        assert_eq!(bed.text("f").await, "three");
        fs::remove_file(bed.path("f")).expect("remove");
        bed.pass(TRUST_MS);
        assert_eq!(bed.errno("f").await, Some(libc::ENOENT));
    });
}

#[test]
fn a_change_within_the_tick_of_the_first_look_is_seen() {
    simple(|bed| async move {
        for round in 0..50 {
            let name = format!("f{round}");
            bed.write(&name, "one");
            assert_eq!(bed.text(&name).await, "one");
            bed.write(&name, "two");
            bed.pass(TRUST_MS);
            assert_eq!(bed.text(&name).await, "two");
        }
    });
}

#[test]
fn errors_are_not_kept() {
    simple(|bed| async move {
        assert_eq!(bed.errno("f").await, Some(libc::ENOENT));
        bed.write("f", "here");
        assert_eq!(bed.text("f").await, "here");
        assert_eq!(bed.errno("f/below").await, Some(libc::ENOTDIR));
        assert_eq!(bed.cache.len(), 1);
    });
}

#[test]
fn a_herd_shares_one_open_and_one_look() {
    simple(|bed| async move {
        bed.write("f", "shared");
        grow_old().await;
        let slow = |op| FaultRule::every(op, Fault::Delay(Duration::from_millis(5)));
        bed.cache
            .files()
            .set_faults(Some(FaultPlan::new([slow(FaultOp::Open), slow(FaultOp::Stat)])));
        let opens = bed.cache.files().counters().opens.get();
        let herd = async || {
            let mut waits: Vec<_> = (0..100).map(|_| bed.lookup("f")).collect();
            assert!(waits.iter().all(|lookup| matches!(lookup, Lookup::Wait(_))));
            // The first waiter is dropped; the others still get their results.
            waits.remove(0);
            for lookup in waits {
                assert_eq!(text_of(&lookup.entry().await.expect("an entry")), "shared");
            }
        };
        herd().await;
        assert_eq!(bed.cache.files().counters().opens.get() - opens, 1);
        assert_eq!(bed.cache.counters().joined.get(), 99);
        bed.pass(TRUST_MS);
        herd().await;
        assert_eq!(bed.cache.files().counters().opens.get() - opens, 1);
        assert_eq!(bed.cache.files().counters().stats.get(), 1);
    });
}

#[test]
fn a_failed_wait_fails_for_all_and_is_forgotten() {
    simple(|bed| async move {
        bed.write("f", "text");
        let broken = FaultRule::every(FaultOp::Read, Fault::Errno(libc::EIO));
        bed.cache.files().set_faults(Some(FaultPlan::new([broken])));
        let (one, two) = (bed.lookup("f"), bed.lookup("f"));
        for lookup in [one, two] {
            let error = lookup.entry().await.expect_err("the disk is broken");
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
        }
        bed.cache.files().set_faults(None);
        assert_eq!(bed.text("f").await, "text");
    });
}

#[test]
fn entries_have_a_limit() {
    let limits = CacheLimits { entries_max: 3, ..CacheLimits::default() };
    on_bed(CacheEngine::Simple, limits, |bed| async move {
        for name in ["a", "b", "c", "d"] {
            bed.write(name, name);
        }
        grow_old().await;
        for name in ["a", "b", "c"] {
            bed.text(name).await;
        }
        assert_eq!((bed.cache.len(), bed.cache.counters().evicted.get()), (3, 0));
        bed.text("a").await;
        bed.text("c").await;
        assert_eq!(bed.text("d").await, "d");
        assert_eq!((bed.cache.len(), bed.cache.counters().evicted.get()), (3, 1));
        // The entry that was not requested again was evicted.
        let (hits, loads) = (bed.hits(), bed.cache.counters().loads.get());
        for name in ["a", "c", "d"] {
            bed.text(name).await;
        }
        assert_eq!(bed.hits() - hits, 3);
        assert_eq!(bed.text("b").await, "b");
        assert_eq!(bed.cache.counters().loads.get() - loads, 1);
        bed.cache.limit_entries(2);
        assert_eq!((bed.cache.len(), bed.cache.counters().evicted.get()), (2, 3));
        bed.cache.shed(1);
        assert_eq!(bed.cache.len(), 1);
        bed.cache.clear();
        assert!(bed.cache.is_empty());
        assert_eq!(bed.cache.small_bytes(), 0);
    });
}

#[test]
fn entries_make_way_when_descriptors_run_out() {
    simple(|bed| async move {
        for n in 0..16 {
            bed.write(&n.to_string(), "x");
            bed.text(&n.to_string()).await;
        }
        bed.write("new", "y");
        let out = |times| {
            let rule = FaultRule::every(FaultOp::Open, Fault::Errno(libc::EMFILE));
            FaultPlan::new([FaultRule { times, ..rule }])
        };
        bed.cache.files().set_faults(Some(out(1)));
        assert_eq!(bed.text("new").await, "y");
        assert_eq!(bed.cache.len(), 16 - 2 + 1, "an eighth was let go");
        // If descriptors still run out after that, the error is returned.
        bed.cache.clear();
        bed.cache.files().set_faults(Some(out(2)));
        assert_eq!(bed.errno("new").await, Some(libc::EMFILE));
        assert_eq!(bed.text("new").await, "y");
    });
}

#[test]
fn small_files_have_limits() {
    let limits = CacheLimits {
        small_file_bytes_max: 10,
        small_total_bytes_max: 25,
        ..CacheLimits::default()
    };
    on_bed(CacheEngine::Simple, limits, |bed| async move {
        bed.write("ten", "0123456789");
        bed.write("eleven", "0123456789a");
        bed.write("ten2", "0123456789");
        bed.write("five", "01234");
        bed.write("one", "0");
        fs::create_dir(bed.path("dir")).expect("dir");
        let small = async |name| bed.get(name).await.expect("an entry").small().is_some();
        assert!(small("ten").await);
        assert!(!small("eleven").await);
        assert!(!small("dir").await);
        assert!(small("ten2").await);
        assert!(small("five").await, "25 of 25");
        assert!(!small("one").await, "26 of 25");
        assert_eq!(bed.cache.small_bytes(), 25);
        let held = bed.get("ten").await.expect("an entry");
        bed.cache.clear();
        assert_eq!(bed.cache.small_bytes(), 10, "as long as it is held");
        drop(held);
        assert_eq!(bed.cache.small_bytes(), 0);
    });
}

#[test]
fn disable_keeps_nothing() {
    on_bed(CacheEngine::Disable, CacheLimits::default(), |bed| async move {
        bed.write("f", "one");
        assert_eq!(bed.get("f").await.expect("an entry").meta().size, 3);
        bed.write("f", "four");
        let entry = bed.get("f").await.expect("an entry");
        assert_eq!((entry.meta().size, entry.small().is_none()), (4, true));
        assert!(bed.cache.is_empty());
        fs::remove_file(bed.path("f")).expect("remove");
        assert_eq!(bed.errno("f").await, Some(libc::ENOENT));
    });
}

#[test]
fn the_idle_are_swept() {
    simple(|bed| async move {
        bed.write("idle", "x");
        bed.write("busy", "x");
        bed.text("idle").await;
        bed.text("busy").await;
        bed.pass(IDLE_MS);
        bed.text("busy").await;
        bed.cache.sweep();
        assert_eq!(bed.cache.len(), 2, "not idle for longer than it may be");
        bed.pass(1);
        bed.cache.sweep();
        assert_eq!(bed.cache.len(), 1);
    });
}

#[test]
fn keys_are_distinguished() {
    simple(|bed| async move {
        bed.write("real", "x");
        symlink("real", bed.path("link")).expect("link");
        assert_eq!(bed.text("link").await, "x");
        let none = bed.cache.lookup(&bed.root, b"link", Follow::None, false).entry().await;
        assert_eq!(none.err().and_then(|error| error.raw_os_error()), Some(libc::ELOOP));
        let other = bed.cache.files().open_root(bed.dir.path()).await.expect("a root");
        let entry = bed.cache.lookup(&other, b"real", Follow::All, true).entry().await;
        assert!(entry.is_ok());
        assert_eq!(bed.cache.len(), 2);
    });
}

#[test]
fn inotify_sees_a_rewritten_file_at_the_next_request_each_time() {
    inotify(|bed| async move {
        assert_eq!(bed.cache.engine(), (CacheEngine::Inotify, None));
        for round in 0..1000 {
            let text = format!("{round:04}");
            bed.write("a/b/f", &text);
            bed.turn().await;
            assert_eq!(bed.text("a/b/f").await, text);
        }
        // Without changes it is checked once a second, and never loaded again.
        grow_old().await;
        bed.pass(TRUST_MS);
        bed.text("a/b/f").await;
        let (hits, loads) = (bed.hits(), bed.cache.counters().loads.get());
        let looks = bed.cache.counters().revalidated.get();
        for _ in 0..100 {
            bed.pass(TRUST_MS);
            for _ in 0..3 {
                bed.turn().await;
                bed.text("a/b/f").await;
            }
        }
        assert_eq!(bed.hits() - hits, 200);
        assert_eq!(bed.cache.counters().revalidated.get() - looks, 100);
        assert_eq!(bed.cache.counters().loads.get(), loads);
        assert_eq!(bed.cache.watches(), 3);
    });
}

#[test]
fn inotify_sees_what_happens_to_names() {
    inotify(|bed| async move {
        let settle = async |name: &str| {
            bed.turn().await;
            bed.text(name).await;
            bed.turn().await;
            let hits = bed.hits();
            bed.text(name).await;
            assert_eq!(bed.hits(), hits + 1, "it is kept");
        };
        bed.write("d/e/f", "one");
        bed.write("d/e/other", "stays");
        settle("d/e/f").await;
        bed.write("d/e/.new", "two");
        fs::rename(bed.path("d/e/.new"), bed.path("d/e/f")).expect("rename over");
        bed.turn().await;
        assert_eq!(bed.text("d/e/f").await, "two");

        settle("d/e/f").await;
        fs::set_permissions(bed.path("d/e/f"), fs::Permissions::from_mode(0o600)).expect("chmod");
        bed.turn().await;
        assert_eq!(bed.get("d/e/f").await.expect("an entry").meta().mode & 0o777, 0o600);

        settle("d/e/f").await;
        fs::remove_file(bed.path("d/e/f")).expect("remove");
        bed.turn().await;
        assert_eq!(bed.errno("d/e/f").await, Some(libc::ENOENT));

        bed.write("d/e/f", "three");
        settle("d/e/f").await;
        bed.write("d2/e/f", "four");
        fs::rename(bed.path("d"), bed.path("old")).expect("rename");
        bed.turn().await;
        assert_eq!(bed.errno("d/e/f").await, Some(libc::ENOENT));
        fs::rename(bed.path("d2"), bed.path("d")).expect("rename");
        bed.turn().await;
        assert_eq!(bed.text("d/e/f").await, "four");
        settle("d/e/f").await;
        fs::remove_dir_all(bed.path("d")).expect("remove");
        bed.turn().await;
        assert_eq!(bed.errno("d/e/f").await, Some(libc::ENOENT));
        bed.write("d/e/f", "five");
        settle("d/e/f").await;
        assert_eq!(bed.text("d/e/f").await, "five");
    });
}

#[test]
fn inotify_sees_changes_of_a_directory_itself() {
    inotify(|bed| async move {
        bed.write("d/one", "x");
        for name in ["d", "d/", ""] {
            bed.turn().await;
            assert_eq!(bed.get(name).await.expect(name).meta().kind, FileKind::Directory);
        }
        let before = bed.get("d/").await.expect("an entry").meta().mtime_ns;
        grow_old().await;
        bed.write("d/two", "x");
        bed.turn().await;
        assert_ne!(bed.get("d/").await.expect("an entry").meta().mtime_ns, before);
    });
}

#[test]
fn changes_that_inotify_misses_are_seen_within_a_second() {
    inotify(|bed| async move {
        bed.write("releases/1/f", "one");
        bed.write("releases/2/f", "two");
        symlink("releases/1", bed.path("current")).expect("link");
        symlink("releases/1/f", bed.path("direct")).expect("link");
        bed.write("late", "alone");
        fs::create_dir(bed.path("unwatched")).expect("directory");
        bed.write("elsewhere", "linked");
        fs::hard_link(bed.path("elsewhere"), bed.path("hard")).expect("link");
        grow_old().await;
        assert_eq!(bed.text("current/f").await, "one");
        assert_eq!(bed.text("direct").await, "one");
        assert_eq!(bed.text("hard").await, "linked");
        assert_eq!(bed.text("late").await, "alone");
        fs::hard_link(bed.path("late"), bed.path("unwatched/name")).expect("link");
        fs::write(bed.path("unwatched/name"), "not alone").expect("written");
        symlink("releases/2", bed.path("next")).expect("link");
        fs::rename(bed.path("next"), bed.path("current")).expect("flip");
        bed.write("releases/1/f", "changed");
        fs::write(bed.path("elsewhere"), "other").expect("written");
        bed.turn().await;
        bed.pass(TRUST_MS);
        assert_eq!(bed.text("current/f").await, "two");
        assert_eq!(bed.text("direct").await, "changed");
        assert_eq!(bed.text("hard").await, "other");
        assert_eq!(bed.text("late").await, "not alone");
    });
}

#[test]
fn inotify_follows_a_root_that_moves() {
    inotify(|bed| async move {
        bed.write("1/a/f", "one");
        bed.write("2/a/f", "two");
        symlink("1", bed.path("current")).expect("link");
        let files = bed.cache.files();
        let root = files.open_root(&bed.path("current")).await.expect("a root");
        let text = async || {
            bed.turn().await;
            let lookup = bed.cache.lookup(&root, b"a/f", Follow::All, false);
            text_of(&lookup.entry().await.expect("an entry"))
        };
        assert_eq!(text().await, "one");
        for (target, expected) in [("2", "two"), ("1", "one"), ("2", "two")] {
            symlink(target, bed.path("next")).expect("link");
            fs::rename(bed.path("next"), bed.path("current")).expect("flip");
            bed.pass(TRUST_MS);
            assert_eq!(text().await, expected);
            bed.pass(TRUST_MS);
            assert_eq!(text().await, expected);
            let hits = bed.hits();
            assert_eq!(text().await, expected);
            assert_eq!(bed.hits(), hits + 1, "it is kept");
        }
        bed.write("2/a/f", "deux");
        assert_eq!(text().await, "deux");
    });
}

#[test]
fn watches_end_with_their_entries_and_have_a_limit() {
    let limits = CacheLimits { watches_max: 3, ..CacheLimits::default() };
    on_bed(CacheEngine::Inotify, limits, |bed| async move {
        for name in ["a/b/f", "a/g", "c/h"] {
            bed.write(name, "x");
        }
        bed.text("a/b/f").await;
        assert_eq!(bed.cache.watches(), 3, "the root, a, and b");
        bed.text("a/g").await;
        assert_eq!(bed.cache.watches(), 3);
        assert_eq!(bed.cache.take_warnings(), None);
        assert_eq!(bed.text("c/h").await, "x");
        assert_eq!(bed.cache.watches(), 3, "not a fourth: it is looked at each second");
        let news = bed.cache.take_warnings().expect("words for the log");
        assert!(news.starts_with("3 directories are watched"), "{news}");
        assert_eq!(bed.cache.take_warnings(), None, "told once");
        bed.write("c/h", "y");
        bed.pass(TRUST_MS);
        assert_eq!(bed.text("c/h").await, "y");
        bed.turn().await;
        bed.cache.clear();
        assert_eq!(bed.cache.watches(), 0);
        assert_eq!(bed.text("c/h").await, "y");
        assert_eq!(bed.cache.watches(), 2);
    });
}

#[test]
fn lost_events_drop_everything() {
    inotify(|bed| async move {
        bed.write("f", "one");
        bed.write("g", "one");
        bed.text("f").await;
        bed.text("g").await;
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        let limit: usize = limit.trim().parse().expect("a number");
        if limit > 100_000 {
            return;
        }
        // Two names in turn, so that equal events do not merge.
        let (f, g) = (bed.path("f"), bed.path("g"));
        for _ in 0..limit / 2 + 1 {
            age(&f);
            age(&g);
        }
        bed.write("f", "two");
        bed.turn().await;
        assert_eq!(bed.text("f").await, "two");
        assert_eq!(bed.cache.counters().invalidated.get(), 2);
        assert_eq!(bed.text("g").await, "one");
    });
}
