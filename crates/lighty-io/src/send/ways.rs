//! How file data gets from the disk to a socket.

/// How a backend sends file data without waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warm {
    /// sendfile, whatever it costs the loop.
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

/// How a backend gets what is left to the disk.
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

/// What fills a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Engine,
    Threads,
    PosixAio,
}
