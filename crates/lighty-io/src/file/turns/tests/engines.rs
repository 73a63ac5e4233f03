//! Engines with a slow disk: faults delay their reads.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, sleep};

use super::super::DiskReads;
use super::super::order::TURN_LEASE_US;
use crate::connect::Target;
use crate::file::{
    EngineChoice, EngineLimits, Fault, FaultOp, FaultPlan, FaultRule, FileEngine, Follow, OpenFile,
    OwnedBuf, Root,
};
use crate::process::program::Program;
use crate::process::simulated::SimulatedChild;
use crate::simulated::{self, Connecting, World};
use crate::threads::pool::Lane;

/// Time of a read of a large file on the slow disk.
const READ_MS: u64 = 20;
const SMALL_BYTES: usize = 1_000;
const LARGE_BYTES: usize = 1 << 20;

/// Jobs of the pool run at once; nothing else is used.
struct QuickPool;

impl World for QuickPool {
    fn connect(&self, _: &Target) -> Connecting {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn start(&self, _: &Program) -> io::Result<SimulatedChild> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn random(&self) -> u64 {
        0
    }

    fn job(&self, _: Lane) -> io::Result<Option<Duration>> {
        Ok(None)
    }
}

struct TurnTestBed {
    engine: FileEngine,
    root: Rc<Root>,
    _directory: tempfile::TempDir,
    /// Ends of reads: the name, and the milliseconds since the start.
    ends: RefCell<Vec<(&'static str, u64)>>,
    started: Instant,
}

impl TurnTestBed {
    async fn new(choice: EngineChoice, disk_reads: DiskReads) -> Rc<TurnTestBed> {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        for (name, bytes) in [("small", SMALL_BYTES), ("a", LARGE_BYTES), ("b", LARGE_BYTES)] {
            std::fs::write(directory.path().join(name), pattern(0, bytes)).expect("a file");
        }
        let limits = EngineLimits { disk_reads, ..EngineLimits::default() };
        let engine = FileEngine::start(choice, limits).expect("an engine");
        let root = engine.open_root(directory.path()).await.expect("a root");
        let (ends, started) = (RefCell::default(), Instant::now());
        Rc::new(TurnTestBed { engine, root, _directory: directory, ends, started })
    }

    async fn open(&self, name: &str) -> Rc<OpenFile> {
        let opened = self.engine.open(&self.root, name.as_bytes(), Follow::None, false).await;
        opened.expect("open")
    }

    /// Delays reads of these files.
    fn slow(&self, files: &[(&OpenFile, Fault)]) {
        let rules = files.iter().map(|(file, fault)| FaultRule {
            ino: Some(file.meta().ino),
            ..FaultRule::every(FaultOp::Read, *fault)
        });
        self.engine.set_faults(Some(FaultPlan::new(rules)));
    }

    /// Reads 4 KB in a task and notes its end.
    fn read(self: &Rc<Self>, name: &'static str, file: &Rc<OpenFile>, offset: u64) {
        let (bed, file) = (Rc::clone(self), Rc::clone(file));
        spawn_local(async move {
            bed.engine.read(&file, offset, OwnedBuf::zeroed(4_096)).await.1.expect("read");
            let ms = bed.started.elapsed().as_millis() as u64;
            bed.ends.borrow_mut().push((name, ms));
        });
    }

    async fn until_ended(&self, reads: usize) {
        while self.ends.borrow().len() < reads {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn assert_idle(&self) {
        let counters = self.engine.counters();
        assert_eq!((counters.in_flight.get(), counters.bulk_waiting.get()), (0, 0));
    }
}

fn pattern(offset: usize, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes).map(|at| (at / 4_096 + at % 251) as u8).collect()
}

const SLOW: Fault = Fault::Delay(Duration::from_millis(READ_MS));

/// Runs a test with simulated time.
fn in_simulation(disk_reads: DiskReads, test: impl AsyncFn(Rc<TurnTestBed>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("runtime");
    LocalSet::new().block_on(&runtime, async {
        let _inside = simulated::enter(Rc::new(QuickPool));
        let bed = TurnTestBed::new(EngineChoice::Threads, disk_reads).await;
        test(Rc::clone(&bed)).await;
        bed.assert_idle();
    });
}

#[test]
fn bulk_reads_come_in_turn_and_two_at_a_time() {
    in_simulation(DiskReads::Limit(2), async |bed| {
        let (a, b) = (bed.open("a").await, bed.open("b").await);
        bed.slow(&[(&a, SLOW), (&b, SLOW)]);
        for name in ["a1", "a2", "a3", "a4"] {
            bed.read(name, &a, 65_536);
        }
        bed.read("b1", &b, 65_536);
        yield_now().await;
        bed.until_ended(5).await;
        let mut ends = bed.ends.take();
        ends.iter_mut().for_each(|(_, ms)| *ms /= READ_MS);
        assert_eq!(ends, [("a1", 1), ("a2", 1), ("b1", 2), ("a3", 2), ("a4", 3)]);
        let counters = bed.engine.counters();
        assert_eq!((counters.bulk.get(), counters.bulk_overdue.get()), (5, 0));
    });
}

#[test]
fn bulk_read_waits_for_a_slow_small_file_but_not_for_long() {
    for (urgent_ms, bulk_ends_ms, overdue) in [(30, 50, 0), (400, 70, 1)] {
        in_simulation(DiskReads::Limit(2), async |bed| {
            let (a, small) = (bed.open("a").await, bed.open("small").await);
            let slower = Fault::Delay(Duration::from_millis(urgent_ms));
            bed.slow(&[(&a, SLOW), (&small, slower)]);
            // Every read of a small file is urgent.
            bed.read("small", &small, 500);
            yield_now().await;
            bed.read("a", &a, 65_536);
            bed.until_ended(2).await;
            let ends = bed.ends.take();
            let (_, ms) = ends.iter().find(|(name, _)| *name == "a").expect("it ended");
            assert!(ms.abs_diff(bulk_ends_ms) <= 2, "{ms} instead of {bulk_ends_ms}");
            assert_eq!(bed.engine.counters().bulk_overdue.get(), overdue);
        });
    }
}

#[test]
fn first_read_of_a_large_file_is_urgent() {
    in_simulation(DiskReads::Limit(1), async |bed| {
        let (a, b) = (bed.open("a").await, bed.open("b").await);
        bed.slow(&[(&a, SLOW), (&b, SLOW)]);
        bed.read("a1", &a, 65_536);
        bed.read("a2", &a, 131_072);
        yield_now().await;
        bed.read("b", &b, 0);
        bed.until_ended(3).await;
        let names: Vec<_> = bed.ends.take().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a1", "b", "a2"]);
    });
}

#[test]
fn look_up_that_hangs_does_not_hold_bulk_reads_up_for_long() {
    in_simulation(DiskReads::Limit(1), async |bed| {
        let a = bed.open("a").await;
        let hung = FaultRule::every(FaultOp::Open, Fault::Never);
        let slow = FaultRule::every(FaultOp::Read, SLOW);
        bed.engine.set_faults(Some(FaultPlan::new([hung, slow])));
        let looking = Rc::clone(&bed);
        let hanging = spawn_local(async move { looking.open("small").await });
        yield_now().await;
        bed.read("early", &a, 65_536);
        bed.until_ended(1).await;
        assert_eq!(bed.engine.counters().bulk_overdue.get(), 1);
        sleep(Duration::from_millis(200)).await;
        let ms = bed.started.elapsed().as_millis() as u64;
        bed.read("late", &a, 65_536);
        bed.until_ended(2).await;
        assert!(bed.ends.take()[1].1 <= ms + READ_MS + 2);
        assert_eq!(bed.engine.counters().bulk_overdue.get(), 1);
        hanging.abort();
    });
}

#[test]
fn abandoned_reads_leave_the_queue_or_keep_their_turn_until_they_end() {
    in_simulation(DiskReads::Limit(1), async |bed| {
        let (a, b) = (bed.open("a").await, bed.open("b").await);
        bed.slow(&[(&a, Fault::Never), (&b, SLOW)]);
        let started = |file: &Rc<OpenFile>, at| {
            let (engine, file) = (bed.engine.clone(), Rc::clone(file));
            spawn_local(async move { engine.read(&file, at, OwnedBuf::zeroed(10)).await.1 })
        };
        let (running, waiting) = (started(&a, 1), started(&a, 2));
        yield_now().await;
        bed.read("b", &b, 65_536);
        sleep(Duration::from_millis(200)).await;
        assert_eq!(bed.engine.counters().bulk_waiting.get(), 3, "one hangs before it begins");
        waiting.abort();
        sleep(Duration::from_millis(200)).await;
        assert!(bed.ends.borrow().is_empty(), "the first one has its turn");
        let counters = bed.engine.counters();
        assert_eq!(counters.bulk_abandoned.get(), 1);
        assert!(counters.bulk_wait_us.get() > 0, "its wait counts");
        running.abort();
        bed.until_ended(1).await;
    });
}

#[test]
fn read_that_never_ends_keeps_its_turn_for_the_time_of_a_lease() {
    in_simulation(DiskReads::Limit(1), async |bed| {
        let (a, b) = (bed.open("a").await, bed.open("b").await);
        bed.slow(&[(&a, Fault::Never), (&b, SLOW)]);
        let (engine, file) = (bed.engine.clone(), Rc::clone(&a));
        let stuck = spawn_local(async move { engine.read(&file, 1, OwnedBuf::zeroed(10)).await.1 });
        yield_now().await;
        bed.read("b", &b, 65_536);
        bed.until_ended(1).await;
        let lease_ms = TURN_LEASE_US / 1_000;
        let (_, ms) = bed.ends.take()[0];
        assert!((lease_ms..lease_ms + 2 * READ_MS).contains(&ms), "{ms}");
        assert_eq!(bed.engine.counters().turns_expired.get(), 1);
        stuck.abort();
        let _ = stuck.await;
    });
}

#[test]
fn without_a_limit_nothing_waits() {
    for disk_reads in [DiskReads::Auto, DiskReads::Limit(0)] {
        in_simulation(disk_reads, async |bed| {
            let a = bed.open("a").await;
            bed.slow(&[(&a, SLOW)]);
            for at in 1..=10 {
                bed.read("a", &a, at * 65_536);
            }
            bed.until_ended(10).await;
            assert!(bed.ends.take().iter().all(|(_, ms)| *ms < 2 * READ_MS));
            let counters = bed.engine.counters();
            assert_eq!((counters.bulk.get(), counters.urgent.get()), (0, 0));
        });
    }
}

/// Two engines, as two workers have, on the machine's own time.
#[test]
fn engines_of_one_process_share_a_disk_and_read_correctly() {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let beds = [
                TurnTestBed::new(choice, DiskReads::Limit(2)).await,
                TurnTestBed::new(choice, DiskReads::Limit(2)).await,
            ];
            let count = Rc::new(Cell::new(0));
            let mut tasks = Vec::new();
            for bed in &beds {
                let delay = Fault::Delay(Duration::from_millis(1));
                bed.engine
                    .set_faults(Some(FaultPlan::new([FaultRule::every(FaultOp::Read, delay)])));
                for name in ["a", "b", "small", "a"] {
                    let (bed, count) = (Rc::clone(bed), Rc::clone(&count));
                    tasks.push(spawn_local(async move {
                        let file = bed.open(name).await;
                        for piece in (0..file.meta().size as usize).step_by(50_000) {
                            let buf = OwnedBuf::zeroed(50_000);
                            let (buf, n) = bed.engine.read(&file, piece as u64, buf).await;
                            let n = n.expect("read");
                            assert!(buf[..n] == pattern(piece, n), "{name} at {piece}");
                            count.set(count.get() + n);
                        }
                    }));
                }
            }
            for task in tasks {
                task.await.expect("the read pieces");
            }
            assert_eq!(count.get(), 2 * (3 * LARGE_BYTES + SMALL_BYTES));
            beds.iter().for_each(|bed| bed.assert_idle());
            let waits: u64 = beds.iter().map(|bed| bed.engine.counters().bulk_wait_us.get()).sum();
            assert!(waits > 0, "no read waited");
        });
    }
}

/// An engine that ends, as a worker does after a reload, must not leave its turns behind.
#[test]
fn dropped_engine_gives_its_turns_back() {
    for choice in [EngineChoice::Auto, EngineChoice::Threads] {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        LocalSet::new().block_on(&runtime, async {
            let bed = TurnTestBed::new(choice, DiskReads::Limit(1)).await;
            let file = bed.open("a").await;
            let limits =
                EngineLimits { disk_reads: DiskReads::Limit(1), ..EngineLimits::default() };
            let other = FileEngine::start(choice, limits).expect("an engine");
            for offset in [0, 100_000, 200_000] {
                let read = other.read(&file, offset, OwnedBuf::zeroed(4_096));
                tokio::select! {
                    biased;
                    () = yield_now() => {}
                    _ = read => {}
                }
            }
            drop(other);
            for offset in [300_000, 400_000] {
                let read = bed.engine.read(&file, offset, OwnedBuf::zeroed(4_096));
                let read = tokio::time::timeout(Duration::from_secs(30), read).await;
                read.expect("its turn came").1.expect("read");
            }
            bed.assert_idle();
        });
    }
}
