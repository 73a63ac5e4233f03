//! A test's own directory, which is removed completely.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

/// A temporary directory. Dropping it unmounts all file systems beneath it, and then removes it.
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory with a name that begins with `prefix`.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self(TempDir::with_prefix(prefix).expect("a directory for the test"))
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // In reverse order, because mounts can be nested.
        for place in mounts_beneath(self.path()).iter().rev() {
            let _ = unmount(place, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}

/// Mount points beneath a directory, in the order of mounting.
fn mounts_beneath(directory: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    places.filter(|place| place.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_disk::SmallDisk;

    #[test]
    fn removes_what_is_mounted_beneath_it() {
        let scratch = Scratch::new("lighty-scratch-");
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("disk")).expect("a directory");
        let Some(disk) = SmallDisk::mount(&path.join("disk"), c"size=1m") else { return };
        std::fs::write(path.join("disk/file"), "x").expect("a file");
        drop(scratch);
        assert!(!path.exists());
        drop(disk);
    }
}
