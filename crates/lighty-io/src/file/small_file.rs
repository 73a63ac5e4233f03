//! Small files read whole where blocking is allowed: user tables, keys, certificates.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::sandbox;

/// An open file.
pub struct SmallFile {
    file: File,
    stamp: Stamp,
}

/// Identifies a version of a file: it changes when the file is written or replaced. A file that
/// changed within the last seconds may change again under the same stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file, without opening it.
    ///
    /// # Errors
    /// It does not exist, or is not a regular file ([`io::ErrorKind::InvalidInput`]).
    pub fn of(path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        Ok(Self::of_meta(&meta))
    }

    fn of_meta(meta: &Metadata) -> Self {
        Self {
            inode: (meta.dev(), meta.ino()),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Wall-clock second of the last change.
    pub fn changed_s(&self) -> i64 {
        self.changed.0
    }
}

impl SmallFile {
    /// Opens a regular file; a FIFO without a writer does not block the caller.
    ///
    /// # Errors
    /// Errors of the system; `InvalidInput` if it is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(|error| sandbox::explained(path, error))?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
        }
        let stamp = Stamp::of_meta(&meta);
        Ok(Self { file, stamp })
    }

    /// The stamp of the open file.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] beyond `bytes_max`.
    pub fn read(self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > bytes_max {
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a FIFO");
        let error = SmallFile::open(&path).err().expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("f");
        std::fs::write(&path, "four").expect("written");
        let open = || SmallFile::open(&path).expect("the file");
        assert_eq!(open().read(4).expect("its bytes"), b"four");
        assert_eq!(open().read(3).expect_err("a limit").kind(), io::ErrorKind::FileTooLarge);
        let before = open().stamp();
        assert_eq!(open().stamp(), before);
        std::fs::write(&path, "longer").expect("written");
        assert_ne!(open().stamp(), before);
    }
}
