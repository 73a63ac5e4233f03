//! Memory that is free and still resident, and how much the process may have.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "mimalloc")]
use libmimalloc_sys as _;

#[cfg(feature = "mimalloc")]
unsafe extern "C" {
    /// mimalloc.h: of this thread's heap and of the arenas; forced, all that is free goes at once.
    fn mi_collect(force: bool);
}

/// Gives back to the kernel what this thread has freed, and what lies free in common. For a thread
/// that has computed and rests now: it takes milliseconds, and the next allocation has to
/// fetch it anew. Does something where the allocator is mimalloc (the feature of that name).
pub fn give_back() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: may be called on any thread at any time; memory in use is not touched.
    unsafe {
        mi_collect(true);
    }
}

/// How often something large was freed.
static FREED: AtomicU32 = AtomicU32::new(0);

/// Seconds after which what other threads held of it is free, too: longer than those of the pool
/// stay idle.
const SETTLING_S: u8 = 7;

/// Something large was freed: event loops give back what they have of it within a second, and once
/// more when the threads that helped have left.
pub fn note_freed() {
    FREED.fetch_add(1, Ordering::Relaxed);
}

/// Called by each event loop once a second: does nothing unless there is much to be given back.
pub fn settle() {
    thread_local!(static SEEN: Cell<(u32, u8)> = const { Cell::new((0, 0)) });
    let freed = FREED.load(Ordering::Relaxed);
    let (seen, left) = SEEN.get();
    if freed != seen {
        SEEN.set((freed, SETTLING_S));
        give_back();
    } else if left > 0 {
        SEEN.set((freed, left - 1));
        if left == 1 {
            give_back();
        }
    }
}

/// Unmaps the program's code, of which the start has run much that never runs again. It stays in
/// the page cache; what runs on is mapped again at its next step. Does nothing without `/proc`.
pub fn unmap_startup_code() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    for (start, length) in code_of(&maps, &program) {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is a private mapping of the program's file that is never written to, so
        // each of its pages holds what the file holds and comes back with that when it is needed.
        // A kernel that refuses leaves it mapped.
        let _ = unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Start and length of the mappings of a program that are run and not written to.
fn code_of(maps: &str, program: &Path) -> Vec<(usize, usize)> {
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let is_code = rest.starts_with("r-xp ") && rest.ends_with(program.to_str()?);
        let (start, end) = range.split_once('-').filter(|_| is_code)?;
        let start = usize::from_str_radix(start, 16).ok()?;
        Some((start, usize::from_str_radix(end, 16).ok()?.checked_sub(start)?))
    };
    maps.lines().filter_map(mapping).collect()
}

/// Bytes that the process may have, if its control group or one around it has a limit (of version 1
/// or 2). Asked of the kernel once.
pub fn limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        limit_of(&groups, Path::new("/sys/fs/cgroup"))
    })
}

/// So many bytes as are wanted, but no more than one of so many parts of what the process may have.
pub fn within(wanted: u64, parts: u64) -> u64 {
    limit().map_or(wanted, |limit| wanted.min(limit / parts.max(1)))
}

/// More is no limit: version 1 writes a number near 2^63 where there is none.
const NO_LIMIT: u64 = 1 << 60;

/// The least limit of the groups that `/proc/self/cgroup` names.
fn limit_of(groups: &str, mount: &Path) -> Option<u64> {
    groups.lines().filter_map(|line| limit_of_group(line, mount)).min()
}

fn limit_of_group(line: &str, mount: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (tree, files): (_, &[&str]) = match controllers {
        "" => (mount.to_owned(), &["memory.max", "memory.high"]),
        names if names.split(',').any(|name| name == "memory") => {
            (mount.join("memory"), &["memory.limit_in_bytes"])
        }
        _ => return None,
    };
    // Within a container the group may be the tree's root, whatever its path outside is.
    let path = Path::new(path.trim_start_matches('/'));
    let read = |file| std::fs::read_to_string(file).ok()?.trim().parse().ok();
    let limits = path.ancestors().flat_map(|group| {
        let group = tree.join(group);
        files.iter().filter_map(move |file| read(group.join(file)))
    });
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_run_and_not_written_to() {
        let maps = "1000-3000 r--p 00000000 fe:00 1  /usr/sbin/lighty\n\
                    3000-8000 r-xp 00002000 fe:00 1  /usr/sbin/lighty\n\
                    8000-9000 rw-p 00007000 fe:00 1  /usr/sbin/lighty\n\
                    a000-b000 r-xp 00000000 fe:00 2  /usr/lib/libc.so.6\n\
                    c000-d000 rwxp 00000000 00:00 0\n";
        assert_eq!(code_of(maps, Path::new("/usr/sbin/lighty")), [(0x3000, 0x5000)]);
        assert_eq!(code_of("", Path::new("/usr/sbin/lighty")), []);
    }

    #[test]
    fn a_program_runs_on_whose_code_was_unmapped() {
        unmap_startup_code();
        assert_eq!((1..=100).sum::<u32>(), 5050);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        let program = std::env::current_exe().expect("a path");
        assert!(!code_of(&maps, &program).is_empty(), "there was something to unmap");
    }

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = mount.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        mount
    }

    #[test]
    fn limits_of_both_versions_are_read() {
        let two = tree(&[("a/memory.max", "max\n"), ("a/b/memory.max", "67108864\n")]);
        let of = |groups: &str, mount: &tempfile::TempDir| limit_of(groups, mount.path());
        assert_eq!(of("0::/a/b\n", &two), Some(64 << 20));
        assert_eq!(of("0::/a/b/c\n", &two), Some(64 << 20), "the group around it");
        assert_eq!(of("0::/a\n", &two), None);
        let high = tree(&[("memory.max", "1000\n"), ("memory.high", "900\n")]);
        assert_eq!(of("0::/\n", &high), Some(900));
        let one = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "5000\n"),
        ]);
        assert_eq!(of("9:cpu:/a\n4:hugetlb,memory:/a\n0::/\n", &one), Some(5000));
        assert_eq!(of("4:memory:/other\n", &one), None);
        assert_eq!(
            of("4:memory:/outside/of/it\n", &tree(&[("memory/memory.limit_in_bytes", "7000"),])),
            Some(7000)
        );
        assert_eq!(of("nonsense\n", &one), None);
    }
}
