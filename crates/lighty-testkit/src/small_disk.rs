//! A small file system, to test a full disk.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A tmpfs mounted on a directory. Dropping it unmounts it.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it with these options (`size=1m`). Returns `None`, and prints a note, if mounting is
    /// not permitted.
    pub fn mount(directory: &Path, options: &CStr) -> Option<Self> {
        match mount(c"tmpfs", directory, c"tmpfs", MountFlags::NOSUID, Some(options)) {
            Ok(()) => Some(Self(directory.to_owned())),
            Err(error) => {
                eprintln!("SKIPPED: no small file system can be mounted here: {error}");
                None
            }
        }
    }
}

impl SmallDisk {
    /// Unmounts it as an operator does, which fails while a file or a directory is open on it.
    ///
    /// # Errors
    /// EBUSY in that case.
    pub fn unmount(&self) -> std::io::Result<()> {
        Ok(unmount(&self.0, UnmountFlags::empty())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
