//! A file system that is soon full.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A tmpfs on a directory, until it is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it with these options (`size=1m`). `None`, with a word, where nobody may mount.
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
    /// Unmounts it as an operator does: not while anybody has a file or a directory open there.
    ///
    /// # Errors
    /// EBUSY then.
    pub fn unmount(&self) -> std::io::Result<()> {
        Ok(unmount(&self.0, UnmountFlags::empty())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
