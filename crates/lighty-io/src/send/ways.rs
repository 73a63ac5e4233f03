//! Paths of file data from the disk to a socket.

/// Method of a backend for sending file data without waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warm {
    /// sendfile, even if it blocks the loop.
    Sendfile,
    /// Read in the loop, then written.
    Copy,
    /// sendfile of a chunk that is in the page cache.
    ResidentChunk,
    /// sendfile of a short rest that is in the page cache.
    ResidentRest,
    /// Not at all.
    Never,
}

/// Method of a backend for data that must come from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cold {
    /// Into the page cache or, if that does not help, into a buffer.
    PageCache,
    Buffer,
    /// A thread calls sendfile.
    ThreadSendfile,
    /// Into pages of a memory file.
    Pages,
}

/// Reader that fills a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Engine,
    Threads,
    PosixAio,
}
