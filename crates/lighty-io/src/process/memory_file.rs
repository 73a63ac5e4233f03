//! A file in memory, for secrets that are read by a path and must not be on a disk.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file without a name, until it is dropped. Child processes do not inherit it.
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// Creates a file with this content.
    ///
    /// # Errors
    /// The system does not support such files, or is out of memory.
    pub fn new(content: &[u8]) -> io::Result<Self> {
        let mut file = File::from(memfd_create("lighty", MemfdFlags::CLOEXEC)?);
        file.write_all(content)?;
        Ok(Self(file))
    }

    /// The path under which this process can open it.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_by_path_and_gone_afterwards() {
        let file = MemoryFile::new(b"secret").expect("a file");
        let path = file.path();
        for _ in 0..2 {
            assert_eq!(std::fs::read(&path).expect("read"), b"secret");
        }
        drop(file);
        assert!(std::fs::read(&path).map_or(true, |content| content != b"secret"));
    }
}
