//! Queries, without blocking, whether file data is in memory.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::counters::add;
use super::meta::FsClass;
use super::open_file::{OpenFile, RESIDENT_WHOLE_BYTES_MAX};
use super::{FileEngine, threads};

/// Result of a residency query: whether a range can be sent without waiting for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// All of it is in memory.
    Yes,
    /// Some of it is not, or it is unknown.
    No,
}

/// Which queries this kernel supports.
#[derive(Debug, Default)]
pub(super) struct Asking {
    cachestat_missing: Cell<bool>,
    /// Queries to skip `cachestat` for after it was denied.
    cachestat_skip: Cell<u32>,
    nowait_missing: Cell<bool>,
}

/// `cachestat` only works for owners and writers. After a denial it is skipped for this many
/// queries, since a site's files mostly have one owner.
const DENIED_SKIPS: u32 = 256;
/// `cachestat` counts pages whose read has only started, so a range it reports as present is probed
/// at this interval. A single read is usually longer than that.
const PROBE_STEP_BYTES: u64 = 32 * 1024;
/// Up to this size the bytes themselves are read, which is conclusive.
const COPY_BYTES_MAX: u64 = 16 * 1024;

impl FileEngine {
    /// Tells whether the range is in memory. Costs no system call for a file recently found
    /// resident twice, the last time less than a second ago. Anything past the end of the file
    /// counts as resident.
    pub fn resident(&self, file: &OpenFile, offset: u64, length: u64) -> Resident {
        if !file.is_readable() {
            return Resident::No;
        }
        if let Some(plan) = &*self.0.faults.borrow()
            && plan.concerns_reads_of(file)
        {
            return Resident::No;
        }
        if file.fs() == FsClass::Memory {
            return Resident::Yes;
        }
        let now_ms = self.now_ms();
        let end = offset.saturating_add(length).min(file.meta().size);
        let span = self.span(offset, end.saturating_sub(offset));
        if span.length == 0 || file.believed_resident(span, now_ms) {
            return Resident::Yes;
        }
        // Query as much as can be recorded: the whole file, or whole windows.
        let wide = self.widen(span, file.meta().size);
        debug_assert!(wide.offset <= span.offset, "{} {}", wide.offset, span.offset);
        debug_assert!(wide.offset + wide.length >= span.offset + span.length, "{}", wide.length);
        let asking = &self.0.asking;
        if asking.is_resident(file, wide.offset, wide.length) {
            file.remember_resident(wide, span.offset, now_ms);
            return Resident::Yes;
        }
        let narrower = (wide.offset, wide.length) != (span.offset, span.length);
        if narrower && asking.is_resident(file, span.offset, span.length) {
            return Resident::Yes;
        }
        Resident::No
    }

    /// Reads data that is in memory, immediately. `None` if it would block: use
    /// [`FileEngine::read`].
    pub fn try_read(
        &self,
        file: &OpenFile,
        offset: u64,
        into: &mut [u8],
    ) -> Option<io::Result<usize>> {
        if !file.is_readable() {
            return Some(Err(super::not_readable()));
        }
        if let Some(plan) = &*self.0.faults.borrow()
            && plan.concerns_reads_of(file)
        {
            return None;
        }
        let nowait = file.fs() != FsClass::Memory;
        let asking = &self.0.asking;
        let length = (into.len() as u64).min(file.meta().size.saturating_sub(offset));
        if nowait
            && (asking.nowait_missing.get()
                || asking.pages_present(file, offset, length) == Some(false))
        {
            return None;
        }
        match read_now(file, offset, into.as_mut_ptr(), into.len(), nowait) {
            Err(error) if is_wait(&error) => None,
            // A sandbox blocks the call; a blocking read shows whether the file is at fault.
            Err(error) if nowait && error.raw_os_error() == Some(libc::EPERM) => None,
            done => {
                add(&self.0.counters.sync_reads, 1);
                add(&self.0.counters.bytes, *done.as_ref().unwrap_or(&0) as u64);
                Some(done)
            }
        }
    }

    /// Forgets the file's residency, so that the kernel is queried again.
    pub fn forget_resident(&self, file: &OpenFile) {
        file.forget_resident();
    }

    fn widen(&self, span: super::open_file::Span, size: u64) -> super::open_file::Span {
        if size <= RESIDENT_WHOLE_BYTES_MAX {
            return self.span(0, size);
        }
        let first = span.offset / span.window_bytes * span.window_bytes;
        let end = (span.offset + span.length).div_ceil(span.window_bytes) * span.window_bytes;
        self.span(first, end.min(size) - first)
    }
}

impl Asking {
    fn is_resident(&self, file: &OpenFile, offset: u64, length: u64) -> bool {
        match self.pages_present(file, offset, length) {
            Some(false) => false,
            Some(true) if length > COPY_BYTES_MAX => self.probes_readable_now(file, offset, length),
            _ => self.all_readable_now(file, offset, length),
        }
    }

    /// Queries `cachestat`; `None` if it gives no result. Used first, because a read that finds
    /// nothing starts read-ahead even when told not to block.
    fn pages_present(&self, file: &OpenFile, offset: u64, length: u64) -> Option<bool> {
        // A zero length would mean "to the end".
        if self.cachestat_missing.get() || length == 0 {
            return None;
        }
        let skip = self.cachestat_skip.get();
        if skip > 0 {
            self.cachestat_skip.set(skip - 1);
            return None;
        }
        let page = rustix::param::page_size() as u64;
        match cachestat(file, offset, length) {
            Ok(present) => {
                let pages = (offset + length).div_ceil(page) - offset / page;
                Some(present >= pages)
            }
            Err(error) => {
                match error.raw_os_error() {
                    Some(libc::ENOSYS) => self.cachestat_missing.set(true),
                    _ => self.cachestat_skip.set(DENIED_SKIPS),
                }
                None
            }
        }
    }

    fn probes_readable_now(&self, file: &OpenFile, offset: u64, length: u64) -> bool {
        let last = offset + length - 1;
        let step = PROBE_STEP_BYTES;
        let mut at = offset;
        while at < last {
            if !self.all_readable_now(file, at, 1) {
                return false;
            }
            at = (at / step + 1) * step;
        }
        self.all_readable_now(file, last, 1)
    }

    /// True if a non-blocking read returns all bytes of the range.
    fn all_readable_now(&self, file: &OpenFile, offset: u64, length: u64) -> bool {
        if self.nowait_missing.get() {
            return false;
        }
        let mut done = 0;
        while done < length {
            let want = (length - done).min(threads::SCRATCH_BYTES as u64) as usize;
            match read_now(file, offset + done, threads::scratch(), want, true) {
                // The file has shrunk, which the sender will notice.
                Ok(0) => return true,
                Ok(n) => done += n as u64,
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENOSYS) {
                        self.nowait_missing.set(true);
                    }
                    return false;
                }
            }
        }
        true
    }
}

/// EOPNOTSUPP: this file system does not support non-blocking reads.
fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL)
    )
}

/// `preadv2` into the caller's memory or the scratch memory.
fn read_now(
    file: &OpenFile,
    offset: u64,
    at: *mut u8,
    length: usize,
    nowait: bool,
) -> io::Result<usize> {
    let into = libc::iovec { iov_base: at.cast(), iov_len: length };
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    loop {
        // SAFETY: `at` points to `length` bytes that are ours to write to: the exclusive slice
        // of `try_read`, or the scratch memory.
        let n = unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &into, 1, offset, flags) };
        if n >= 0 {
            return Ok(n as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The number of the call is the same on every architecture (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// Number of pages of the range in the page cache.
fn cachestat(file: &OpenFile, offset: u64, length: u64) -> io::Result<u64> {
    let range = CachestatRange { offset, length };
    let mut stat = Cachestat::default();
    // SAFETY: both structures have the layout of include/uapi/linux/mman.h and outlive the call.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0 as libc::c_uint,
        )
    };
    if result == 0 { Ok(stat.cached) } else { Err(io::Error::last_os_error()) }
}
