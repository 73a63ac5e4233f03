//! State of reads that bypass the page cache.

use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The second, uncached descriptor of the file being sent.
#[derive(Default)]
pub(super) enum DirectFile {
    /// Not opened yet.
    #[default]
    Unknown,
    /// The file system lacks O_DIRECT, or there is nothing to gain.
    Refused,
    /// Open.
    Open(Rc<OwnedFd>),
}

/// File data in memory pages.
#[derive(Debug)]
pub(super) struct PageSegment {
    pub(super) memory: OwnedFd,
    /// Offset of the data in the memory file.
    pub(super) skip: u64,
    /// Length in bytes; 0 at the end of the file.
    pub(super) bytes: u64,
}
