//! Bodies buffered on disk: bytes are appended, and come out as file ranges that are sent without
//! being read.
//!
//! A spool is one unnamed file, so nothing is left behind however the server ends, and a body of
//! any length costs two descriptors. Holes are punched behind the reader, so that a body that is
//! larger than the disk may pass through it. Only if a directory fails in the middle of a body does
//! the spool continue with another file in the next directory. Every call that may wait for the
//! disk runs in the thread pool.

pub(crate) mod anonymous;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use lighty_buf::FileRange;

use crate::file::OpenFile;
use crate::send::File;
use crate::threads::pool::{Lane, ThreadPool};

/// Maximum bytes written by one job of the pool.
pub const WRITE_BYTES_MAX: usize = 1 << 20;
/// Holes are punched in multiples of this, in bytes.
pub const HOLE_BYTES: u64 = 1 << 20;
/// Maximum number of files per spool; each one after the first means that a directory failed.
pub const SEGMENTS_MAX: usize = 16;

/// Directories and size limit of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The directories, in the order in which they are tried (`server.upload-dirs`).
    pub dirs: Vec<PathBuf>,
    /// Maximum bytes held on disk at a time.
    pub held_bytes_max: u64,
}

/// Reason why bytes could not be stored. Data stored before stays valid.
#[derive(Debug)]
pub enum SpoolError {
    /// The size limit is reached.
    Full {
        /// The limit.
        held_bytes_max: u64,
    },
    /// Every directory failed. The list has their errors, in the order of the attempts.
    Dirs(Vec<SpoolDirFailure>),
    /// The spool has used [`SEGMENTS_MAX`] files, because directories failed repeatedly.
    Segments,
}

/// A failure of a directory.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .dir.display())]
pub struct SpoolDirFailure {
    /// The directory.
    pub dir: PathBuf,
    /// The system's error: no space, quota, I/O error, no such directory.
    pub error: io::Error,
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpoolError::Full { held_bytes_max } => {
                write!(f, "{held_bytes_max} bytes are spooled, and no more may be")
            }
            SpoolError::Dirs(failures) if failures.is_empty() => {
                f.write_str("there is no directory to spool to")
            }
            SpoolError::Dirs(failures) => {
                f.write_str("cannot spool")?;
                failures.iter().try_for_each(|failure| write!(f, "; {failure}"))
            }
            SpoolError::Segments => write!(f, "directories failed {SEGMENTS_MAX} times"),
        }
    }
}

impl std::error::Error for SpoolError {}

/// A body on disk. Positions count from the body's first byte.
pub struct Spool {
    options: Rc<SpoolOptions>,
    pool: ThreadPool,
    segments: Vec<SpoolSegment>,
    written: u64,
    taken: u64,
    released: u64,
    /// A write was started and its result not awaited: its effect on the file is unknown.
    torn: bool,
    failures: Vec<SpoolDirFailure>,
}

/// One file of a spool.
struct SpoolSegment {
    dir: usize,
    /// `None` only while being dropped.
    writer: Option<Arc<OwnedFd>>,
    file: File,
    /// Position in the body of its first byte.
    start: u64,
    length: u64,
    /// End of the punched range, counted from its first byte.
    punched: u64,
    pool: ThreadPool,
}

impl Spool {
    /// Creates a spool without files or bytes.
    pub fn new(options: Rc<SpoolOptions>, pool: ThreadPool) -> Spool {
        Spool {
            options,
            pool,
            segments: Vec::new(),
            written: 0,
            taken: 0,
            released: 0,
            torn: false,
            failures: Vec::new(),
        }
    }

    /// Appends bytes. Stored bytes are removed from `bytes`, also if storing the rest failed: the
    /// caller can retry with the rest when there is space again. Dropping the future loses bytes in
    /// progress.
    ///
    /// # Errors
    /// The reason for not storing everything.
    pub async fn append(&mut self, bytes: &mut Bytes) -> Result<(), SpoolError> {
        let mut failures = Vec::new();
        while !bytes.is_empty() {
            let room = self.room()?;
            let length = bytes.len().min(WRITE_BYTES_MAX).min(room);
            let at = self.writable_segment(&mut failures).await?;
            let (written, error) = self.write(at, bytes.slice(..length)).await;
            bytes.advance(written);
            if let Some(error) = error {
                self.note(self.segments[at].dir, error, &mut failures);
            }
        }
        Ok(())
    }

    /// Bytes that were stored and not yet taken.
    pub fn available_bytes(&self) -> u64 {
        self.written - self.taken
    }

    /// Bytes that were stored so far.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// The next bytes of the body, at most `bytes_max`, as a range of a file. `None`: all stored
    /// bytes have been taken.
    pub fn take(&mut self, bytes_max: u64) -> Option<FileRange<File>> {
        let position = self.taken;
        let segment = self.segments.iter().find(|segment| segment.covers(position))?;
        let offset = position - segment.start;
        let length = bytes_max.min(segment.length - offset);
        if length == 0 {
            return None;
        }
        self.taken += length;
        debug_assert!(self.taken <= self.written, "{} of {}", self.taken, self.written);
        Some(FileRange { file: Rc::clone(&segment.file), offset, length })
    }

    /// Starts to read from the first byte again, for another backend; false if a part of the body
    /// has been released.
    pub fn rewind(&mut self) -> bool {
        if self.released > 0 {
            return false;
        }
        self.taken = 0;
        true
    }

    /// Frees the space of the body's first `bytes`, which have been sent. Bytes not yet taken stay.
    pub fn release(&mut self, bytes: u64) {
        self.released = self.released.max(bytes.min(self.taken));
        let released = self.released;
        debug_assert!(released <= self.taken, "{released} of {}", self.taken);
        let last = self.segments.len().saturating_sub(1);
        let mut at = 0;
        self.segments.retain(|segment| {
            at += 1;
            at > last || segment.start + segment.length > released
        });
        if let Some(segment) = self.segments.first_mut() {
            segment.punch(released);
        }
    }

    /// Failures of directories since the last call, for the log; the spool may have continued in
    /// another one.
    pub fn take_failures(&mut self) -> Vec<SpoolDirFailure> {
        std::mem::take(&mut self.failures)
    }

    fn room(&self) -> Result<usize, SpoolError> {
        let held_bytes_max = self.options.held_bytes_max;
        match held_bytes_max.saturating_sub(self.written - self.released) {
            0 => Err(SpoolError::Full { held_bytes_max }),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
        }
    }

    /// The index of the segment to append to: the last one, or a new one in the first directory
    /// that has not failed in this attempt.
    async fn writable_segment(
        &mut self,
        failures: &mut Vec<SpoolDirFailure>,
    ) -> Result<usize, SpoolError> {
        let options = Rc::clone(&self.options);
        if let Some(last) = self.segments.last()
            && !self.torn
            && !has_failed(failures, &options.dirs[last.dir])
        {
            return Ok(self.segments.len() - 1);
        }
        if self.segments.len() >= SEGMENTS_MAX {
            return Err(SpoolError::Segments);
        }
        for (dir, path) in options.dirs.iter().enumerate() {
            if has_failed(failures, path) {
                continue;
            }
            let path = path.clone();
            let opened = self.pool.run_anyhow(Lane::Write, move || anonymous::create(&path)).await;
            match opened.and_then(|opened| opened) {
                Ok(descriptors) => {
                    self.drop_empty_segment();
                    let segment = SpoolSegment::new(dir, descriptors, self);
                    self.segments.push(segment);
                    self.torn = false;
                    return Ok(self.segments.len() - 1);
                }
                Err(error) => self.note(dir, error, failures),
            }
        }
        Err(SpoolError::Dirs(std::mem::take(failures)))
    }

    fn drop_empty_segment(&mut self) {
        self.segments.pop_if(|segment| segment.length == 0);
    }

    /// Writes at the end of a segment. Returns the number of bytes written, and the error, if any.
    async fn write(&mut self, at: usize, bytes: Bytes) -> (usize, Option<io::Error>) {
        let segment = &self.segments[at];
        let Some(writer) = segment.writer.clone() else { return (0, None) };
        let (offset, offered) = (segment.length, bytes.len());
        self.torn = true;
        let job = move || anonymous::write_all(writer.as_fd(), &bytes, offset);
        let (written, error) = match self.pool.run_anyhow(Lane::Write, job).await {
            Ok(done) => done,
            Err(error) => (0, Some(error)),
        };
        self.torn = false;
        self.segments[at].length += written as u64;
        self.written += written as u64;
        debug_assert!(written <= offered, "{written} of {offered}");
        let end = self.segments[at].start + self.segments[at].length;
        debug_assert_eq!(end, self.written, "the segments follow each other");
        (written, error)
    }

    /// Records that a directory failed, so that it is not tried again in this attempt.
    fn note(&mut self, dir: usize, error: io::Error, failures: &mut Vec<SpoolDirFailure>) {
        let path = &self.options.dirs[dir];
        let copy = error.raw_os_error().map_or_else(
            || io::Error::new(error.kind(), error.to_string()),
            io::Error::from_raw_os_error,
        );
        failures.push(SpoolDirFailure { dir: path.clone(), error });
        // One entry per directory is enough until the list is taken.
        if self.failures.iter().all(|failure| failure.dir != *path) {
            self.failures.push(SpoolDirFailure { dir: path.clone(), error: copy });
        }
    }
}

fn has_failed(failures: &[SpoolDirFailure], dir: &Path) -> bool {
    failures.iter().any(|failure| failure.dir == dir)
}

impl SpoolSegment {
    fn new(dir: usize, descriptors: anonymous::Descriptors, spool: &Spool) -> SpoolSegment {
        SpoolSegment {
            dir,
            writer: Some(Arc::new(descriptors.writer)),
            file: Rc::new(OpenFile::growing(descriptors.reader, descriptors.fs, descriptors.meta)),
            start: spool.written,
            length: 0,
            punched: 0,
            pool: spool.pool.clone(),
        }
    }

    fn covers(&self, position: u64) -> bool {
        position >= self.start && position - self.start < self.length
    }

    /// Frees the space up to a position of the body, if there is enough of it to be worth a call.
    fn punch(&mut self, until: u64) {
        let until = until.saturating_sub(self.start).min(self.length) / HOLE_BYTES * HOLE_BYTES;
        let Some(writer) = self.writer.clone() else { return };
        if until <= self.punched {
            return;
        }
        let (from, length) = (self.punched, until - self.punched);
        self.punched = until;
        // If the file system has no holes, or the queue is full, the space stays in use until the
        // end.
        let _ =
            self.pool.spawn(Lane::Write, move || anonymous::punch(writer.as_fd(), from, length));
    }
}

impl Drop for SpoolSegment {
    /// Closes the file in the pool: closing a large file frees its blocks, which takes time.
    fn drop(&mut self) {
        let writer = self.writer.take();
        let _ = self.pool.spawn(Lane::Write, move || drop(writer));
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool")
            .field("written", &self.written)
            .field("taken", &self.taken)
            .field("released", &self.released)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}
