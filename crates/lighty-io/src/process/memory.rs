//! Returns free memory to the kernel, and reads the process's memory limit.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "mimalloc")]
use libmimalloc_sys as _;

#[cfg(feature = "mimalloc")]
unsafe extern "C" {
    /// mimalloc.h: collects this thread's heap and the arenas; with `force`, frees all unused
    /// memory at once.
    fn mi_collect(force: bool);
}

/// Returns the memory freed by this thread, and unused memory of the shared arenas, to the kernel.
/// For a thread that has finished a computation: it takes milliseconds, and the next allocations
/// have to map memory again. Only works with mimalloc (the feature of that name).
pub fn give_back() {
    #[cfg(feature = "mimalloc")]
    // SAFETY: may be called on any thread at any time; memory in use is not touched.
    unsafe {
        mi_collect(true);
    }
}

/// Number of calls of [`note_freed`].
static FREED: AtomicU32 = AtomicU32::new(0);

/// Seconds until other threads have freed their share as well: longer than the pool's threads stay
/// idle.
const SETTLING_S: u8 = 7;

/// Reports that something large was freed. Each event loop returns its free memory within a second,
/// and again when the helping threads have exited.
pub fn note_freed() {
    FREED.fetch_add(1, Ordering::Relaxed);
}

/// Called by each event loop once a second; does nothing unless something large was freed lately.
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

/// Unmaps the program's code and constants, because much of the code only runs during the start,
/// and the dynamic loader alone reads the table of relocations. The pages stay in the page cache,
/// and what is used again is mapped again. Does nothing without `/proc`.
pub fn unmap_startup_pages() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    for (start, length) in clean_pages_of(&maps, &program) {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is a private mapping of the program's file that is never written to, so
        // each of its pages has the file's content and is restored from it on access. If the kernel
        // refuses, it stays mapped.
        let _ = unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Start and length of a program's mappings that nothing has written to: its code, and the
/// constants at the start of the file. Other mappings that are read-only now hold addresses that
/// the loader has relocated, and would lose them.
fn clean_pages_of(maps: &str, program: &Path) -> Vec<(usize, usize)> {
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let is_code = rest.starts_with("r-xp ");
        let is_clean = is_code || rest.starts_with("r--p 00000000 ");
        let of_program = rest.ends_with(program.to_str()?);
        let (start, end) = range.split_once('-').filter(|_| is_clean && of_program)?;
        let start = usize::from_str_radix(start, 16).ok()?;
        Some((start, usize::from_str_radix(end, 16).ok()?.checked_sub(start)?))
    };
    maps.lines().filter_map(mapping).collect()
}

/// Memory limit of the process in bytes, if its control group or a parent of it has one (version 1
/// or 2). Read once.
pub fn limit() -> Option<u64> {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        limit_of(&groups, Path::new("/sys/fs/cgroup"))
    })
}

/// Limits `wanted` bytes to the memory limit divided by `parts`.
pub fn within(wanted: u64, parts: u64) -> u64 {
    limit().map_or(wanted, |limit| wanted.min(limit / parts.max(1)))
}

/// A larger value means no limit: version 1 reports a number near 2^63 if there is none.
const NO_LIMIT: u64 = 1 << 60;

/// The lowest limit of the groups in `/proc/self/cgroup` and their parents.
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
    fn code_and_first_constants_are_clean() {
        let maps = "1000-3000 r--p 00000000 fe:00 1  /usr/sbin/lighty\n\
                    3000-8000 r-xp 00002000 fe:00 1  /usr/sbin/lighty\n\
                    8000-9000 r--p 00007000 fe:00 1  /usr/sbin/lighty\n\
                    9000-a000 rw-p 00008000 fe:00 1  /usr/sbin/lighty\n\
                    a000-b000 r--p 00000000 fe:00 2  /usr/lib/libc.so.6\n\
                    a000-b000 r-xp 00000000 fe:00 2  /usr/lib/libc.so.6\n\
                    c000-d000 rwxp 00000000 00:00 0\n";
        let of_program = clean_pages_of(maps, Path::new("/usr/sbin/lighty"));
        assert_eq!(of_program, [(0x1000, 0x2000), (0x3000, 0x5000)]);
        assert_eq!(clean_pages_of("", Path::new("/usr/sbin/lighty")), []);
    }

    #[test]
    fn a_program_runs_on_whose_pages_were_unmapped() {
        unmap_startup_pages();
        assert_eq!(format!("{:?}", (1..=100).sum::<u32>()), "5050");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        let program = std::env::current_exe().expect("a path");
        assert!(!clean_pages_of(&maps, &program).is_empty(), "there was something to unmap");
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
