use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::threads::pool::PoolLimits;

const MB: usize = 1 << 20;

fn content(length: usize) -> Bytes {
    let mut state = 7_u32;
    let mut step = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| step()).collect::<Vec<u8>>().into()
}

fn spool(dirs: &[&Path], held_bytes_max: u64) -> Spool {
    let dirs = dirs.iter().map(|&dir| dir.to_owned()).collect();
    Spool::new(Rc::new(SpoolOptions { dirs, held_bytes_max }), ThreadPool::global().clone())
}

fn bytes_of(range: &FileRange<File>) -> Vec<u8> {
    let mut bytes = vec![0; range.length as usize];
    let read = rustix::io::pread(&*range.file, &mut bytes[..], range.offset).expect("read");
    assert_eq!(read, bytes.len());
    bytes
}

fn take_all(spool: &mut Spool, at_once: u64) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(range) = spool.take(at_once) {
        all.extend(bytes_of(&range));
    }
    all
}

fn names_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("dir").count()
}

fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < deadline, "it does not come to pass");
        std::thread::yield_now();
    }
}

/// A file system of 2 MB; unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        if !crate::process::privileges::is_root() {
            eprintln!("skipped: mounting a tmpfs needs root");
            return None;
        }
        let dir = tempfile::tempdir().expect("tempdir");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(dir.path())
            .output()
            .expect("mount");
        if mount.status.success() {
            return Some(SmallDisk(dir));
        }
        eprintln!("skipped: no tmpfs: {}", String::from_utf8_lossy(&mount.stderr));
        None
    }

    fn free_bytes(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.0.path()).expect("statvfs");
        stat.f_bavail * stat.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the pool may still have a descriptor to close.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn spool_returns_its_bytes_and_leaves_no_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut spool = spool(&[dir.path()], u64::MAX);
    assert!(spool.take(10).is_none());
    let body = content(3 * MB + 17);
    for piece in [&body[..5], &body[5..2 * MB], &body[2 * MB..]] {
        let mut piece = Bytes::copy_from_slice(piece);
        spool.append(&mut piece).await.expect("stored");
        assert!(piece.is_empty());
    }
    assert_eq!(names_in(dir.path()), 0);
    assert_eq!(
        (spool.written_bytes(), spool.available_bytes()),
        (body.len() as u64, body.len() as u64)
    );
    assert!(take_all(&mut spool, 100_000) == body);
    assert_eq!(spool.available_bytes(), 0);
    assert!(spool.rewind());
    assert!(take_all(&mut spool, u64::MAX) == body);
    assert_eq!(spool.segments.len(), 1);
}

#[tokio::test]
async fn reading_and_writing_may_take_turns() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut spool = spool(&[dir.path()], u64::MAX);
    let body = content(100_000);
    let mut heard = Vec::new();
    for piece in body.chunks(7_001) {
        spool.append(&mut Bytes::copy_from_slice(piece)).await.expect("stored");
        let range = spool.take(5_000).expect("there");
        heard.extend(bytes_of(&range));
    }
    heard.extend(take_all(&mut spool, 3_000));
    assert!(heard == body);
}

#[tokio::test]
async fn the_limit_holds_at_n_and_n_plus_one() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mut spool = spool(&[dir.path()], 1_000);
    spool.append(&mut content(1_000)).await.expect("n");
    let mut one = content(1);
    let error = spool.append(&mut one).await.expect_err("n + 1");
    assert!(matches!(error, SpoolError::Full { held_bytes_max: 1_000 }), "{error}");
    assert_eq!((one.len(), spool.written_bytes()), (1, 1_000));
    // Releasing sent bytes frees space.
    spool.take(10).expect("taken");
    spool.release(10);
    let mut more = content(11);
    spool.append(&mut more).await.expect_err("still one too many");
    assert_eq!((more.len(), spool.written_bytes()), (1, 1_010));
    assert!(!spool.rewind());
}

#[tokio::test]
async fn a_full_directory_is_left_for_the_next_one() {
    let Some(small) = SmallDisk::mount() else { return };
    let dir = tempfile::tempdir().expect("tempdir");
    let missing = dir.path().join("missing");
    let mut spool = spool(&[&missing, small.0.path(), dir.path()], u64::MAX);
    let body = content(5 * MB);
    spool.append(&mut body.clone()).await.expect("stored");
    assert!(take_all(&mut spool, u64::MAX) == body);
    assert_eq!(spool.segments.len(), 2);
    let failures = spool.take_failures();
    let reported: Vec<_> = failures.iter().map(|t| (t.dir.as_path(), t.error.kind())).collect();
    let want = [(&*missing, io::ErrorKind::NotFound), (small.0.path(), io::ErrorKind::StorageFull)];
    assert_eq!(reported, want);
    assert!(spool.take_failures().is_empty());
}

#[tokio::test]
async fn a_body_longer_than_the_disk_passes_through() {
    let Some(small) = SmallDisk::mount() else { return };
    let mut spool = spool(&[small.0.path()], u64::MAX);
    let body = content(9 * MB);
    let mut rest = body.clone();
    let mut heard = Vec::new();
    let mut was_full = false;
    while heard.len() < body.len() {
        match spool.append(&mut rest).await {
            Ok(()) => {}
            Err(SpoolError::Dirs(failures)) => {
                was_full = true;
                assert_eq!(failures[0].error.kind(), io::ErrorKind::StorageFull);
            }
            Err(error) => panic!("{error}"),
        }
        heard.extend(take_all(&mut spool, u64::MAX));
        spool.release(heard.len() as u64);
    }
    assert!(was_full && heard == body);
    assert_eq!(spool.segments.len(), 1);
    drop(spool);
    until(|| small.free_bytes() >= 2 * MB as u64 - 65_536);
}

#[tokio::test]
async fn without_any_directory_that_works_everything_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let mut failing = spool(&[&one, &two], u64::MAX);
    for _ in 0..2 {
        let error = failing.append(&mut content(1)).await.expect_err("nowhere").to_string();
        assert!(error.contains(one.to_str().expect("text")), "{error}");
        assert!(error.contains(two.to_str().expect("text")), "{error}");
    }
    // One directory works again.
    std::fs::create_dir(&two).expect("create");
    failing.append(&mut content(1)).await.expect("stored");
    let error = spool(&[], u64::MAX).append(&mut content(1)).await.expect_err("none");
    assert_eq!(error.to_string(), "there is no directory to spool to");
}

#[tokio::test]
async fn an_abandoned_write_costs_no_byte_written_later() {
    let dir = tempfile::tempdir().expect("tempdir");
    let pool = ThreadPool::new(PoolLimits { read_threads_max: 1, ..PoolLimits::default() });
    let options = SpoolOptions { dirs: vec![dir.path().to_owned()], held_bytes_max: u64::MAX };
    let mut spool = Spool::new(Rc::new(options), pool.clone());
    spool.append(&mut content(10)).await.expect("stored");
    // The only writing thread is busy.
    let (release, busy) = std::sync::mpsc::channel::<()>();
    let hang = move || {
        let _ = busy.recv();
    };
    pool.spawn(Lane::Write, hang).expect("spawned");
    let mut lost = Bytes::from(vec![b'x'; MB]);
    let mut begun = Box::pin(spool.append(&mut lost));
    std::future::poll_fn(|cx| {
        assert!(begun.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    drop(begun);
    drop(release);
    spool.append(&mut content(20)).await.expect("stored");
    let want = [content(10), content(20)].concat();
    assert_eq!(take_all(&mut spool, u64::MAX), want);
}

#[test]
fn file_created_under_a_name_is_unlinked_at_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let file = anonymous::create_and_unlink(dir.path()).expect("created");
    assert_eq!(names_in(dir.path()), 0);
    assert_eq!(anonymous::write_all(file.as_fd(), b"works", 0).0, 5);
    anonymous::create_and_unlink(&dir.path().join("missing")).expect_err("no directory");
}
