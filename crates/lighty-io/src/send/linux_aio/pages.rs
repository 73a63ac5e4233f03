//! Memory that is also a file: filled through a mapping, sent through a descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::process::syscall_fallback::Syscall;

/// A mapped memory file.
#[derive(Debug)]
pub(super) struct Pages {
    memory: Option<OwnedFd>,
    at: NonNull<libc::c_void>,
    length: usize,
}

impl Pages {
    /// Creates a mapping of `length` bytes, a multiple of the page size.
    pub(super) fn new(length: usize) -> io::Result<Self> {
        let memory = rustix::fs::memfd_create("lighty-send", MemfdFlags::CLOEXEC)
            .map_err(io::Error::from)
            .inspect_err(|error| Syscall::MemfdCreate.note(error))?;
        rustix::fs::ftruncate(&memory, length as u64)?;
        // SAFETY: a new shared mapping of a file that has exactly this length and is not accessible
        // to others, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                0,
            )?
        };
        let at = NonNull::new(at).ok_or_else(|| io::Error::other("mmap: address 0"))?;
        Ok(Pages { memory: Some(memory), at, length })
    }

    /// The memory's address in the form the kernel expects.
    pub(super) fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Drops the mapping and keeps the file.
    pub(super) fn into_file(mut self) -> io::Result<OwnedFd> {
        self.memory.take().ok_or_else(|| io::Error::other("memory file is gone"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was created by `new` with this length; nothing borrows from it, and
        // the value's owner guarantees that the kernel is done writing to it.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}
