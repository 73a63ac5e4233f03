//! The kinds of jobs that block.

/// The kind of blocking a job does; each kind has its own threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Opens and stats on local file systems.
    Stat,
    /// Reads from local file systems.
    Read,
    /// Opens and stats on file systems served by another process or machine.
    StatRemote,
    /// Reads from such file systems.
    ReadRemote,
    /// Writes of spooled bodies.
    Write,
    /// CPU-bound work: compression. Its threads, one per core, yield to the event loops.
    Compute,
    /// Password hashing, which takes a hundred times as long as a compressor block. Separate, so
    /// that neither waits for the other. Its threads also yield.
    Hash,
    /// Anything else that may block.
    Other,
}

pub(super) const LANES: usize = 8;

impl Lane {
    /// True if its jobs are CPU-bound.
    pub(super) fn computes(self) -> bool {
        matches!(self, Lane::Compute | Lane::Hash)
    }
}
