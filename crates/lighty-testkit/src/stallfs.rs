//! A file system that stalls and fails on command: a few files, served through `/dev/fuse` by this
//! process. Needs root; [`StallFs::mount`] fails if it is not available.
//!
//! The root directory contains every name that begins with one of these words, each [`FILE_BYTES`]
//! long and filled with the test pattern:
//!
//! - `plain`: always answers at once,
//! - `stall`: while the file system is stalled, reads wait,
//! - `wait`: while it is stalled, even the look-up waits,
//! - `eio`: reads fail with EIO from the middle on.
//!
//! The messages are those of `linux/fuse.h`, protocol 7.31.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::content::pattern;

/// Length of every file.
pub const FILE_BYTES: u64 = 512 * 1024;

/// Offset from which reads of an `eio` file fail.
pub const EIO_FROM: u64 = FILE_BYTES / 2;

/// Maximum length of a stall, so that a failing test cannot hang programs that use the files.
const STALL_MAX: Duration = Duration::from_secs(30);

/// A mounted file system. Dropping it ends every stall and unmounts it.
pub struct StallFs {
    path: PathBuf,
    shared: Arc<SharedStalls>,
}

#[derive(Default)]
struct SharedStalls {
    state: Mutex<StallState>,
    changed: Condvar,
}

#[derive(Default)]
struct StallState {
    stalled: bool,
    waiting: usize,
    gave_up: bool,
    /// Names of the files looked up so far. A file's node number is its index plus 2.
    names: Vec<Vec<u8>>,
}

impl StallFs {
    /// Mounts the file system on a directory.
    ///
    /// # Errors
    /// The reason why it is not available (no root, no `/dev/fuse`), for a visible skip of the
    /// test.
    pub fn mount(path: &Path) -> Result<Self, String> {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(|error| format!("/dev/fuse: {error}"))?;
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).ok();
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        rustix::mount::mount(c"stallfs", path, c"fuse", flags, options)
            .map_err(|error| format!("mounting: {error}"))?;
        let shared = Arc::new(SharedStalls::default());
        let server = Arc::clone(&shared);
        std::thread::spawn(move || serve(&OwnedFd::from(device).into(), &server));
        Ok(Self { path: path.to_owned(), shared })
    }

    /// Starts a stall.
    pub fn stall(&self) {
        self.shared.state.lock().expect("no panic").stalled = true;
    }

    /// Ends the stall.
    pub fn resume(&self) {
        self.shared.state.lock().expect("no panic").stalled = false;
        self.shared.changed.notify_all();
    }

    /// True if a request waited so long that it was answered during a stall.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.shared.state.lock().expect("no panic").gave_up
    }

    /// Number of requests waiting for the stall to end.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().expect("no panic").waiting
    }
}

impl Drop for StallFs {
    fn drop(&mut self) {
        self.resume();
        // Forced, which aborts the connection: otherwise a file that this process still has open at
        // its end would wait, while being closed, for a response from threads that are gone.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.path, flags);
    }
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;
const ENODATA: i32 = 61;
const ROOT_NODE: u64 = 1;
const HEADER_BYTES: usize = 40;

/// Serves requests until the file system is unmounted.
fn serve(device: &File, shared: &Arc<SharedStalls>) {
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = match (&*device).read(&mut buffer) {
            Ok(count) if count >= HEADER_BYTES => count,
            Err(error) if error.raw_os_error() == Some(ENOENT) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => return,
        };
        let Some(request) = FuseRequest::parse(&buffer[..count]) else { continue };
        let Ok(device) = device.try_clone() else { return };
        if request.may_stall(shared) {
            let shared = Arc::clone(shared);
            std::thread::spawn(move || {
                shared.wait_out_stall();
                request.respond(&device, &shared);
            });
        } else {
            request.respond(&device, shared);
        }
    }
}

impl SharedStalls {
    fn wait_out_stall(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.waiting += 1;
        let (mut state, waited) = self
            .changed
            .wait_timeout_while(state, STALL_MAX, |state| state.stalled)
            .expect("no panic");
        state.waiting -= 1;
        state.gave_up |= waited.timed_out();
    }

    fn name_of(&self, node: u64) -> Vec<u8> {
        let state = self.state.lock().expect("no panic");
        let index = usize::try_from(node).unwrap_or(0).wrapping_sub(2);
        state.names.get(index).cloned().unwrap_or_default()
    }

    fn node_of(&self, name: &[u8]) -> Option<u64> {
        let known = [&b"plain"[..], b"stall", b"wait", b"eio"];
        if !known.iter().any(|word| name.starts_with(word)) {
            return None;
        }
        let mut state = self.state.lock().expect("no panic");
        let index = state.names.iter().position(|n| n == name).unwrap_or_else(|| {
            state.names.push(name.to_vec());
            state.names.len() - 1
        });
        Some(index as u64 + 2)
    }
}

/// A request of the kernel.
enum Ask {
    Init { minor: u32 },
    Lookup { name: Vec<u8> },
    Attributes,
    Open,
    Read { offset: u64, length: u64 },
    FileSystem,
    Nothing,
    Forget,
    NoAttribute,
    Unknown,
}

struct FuseRequest {
    unique: u64,
    node: u64,
    ask: Ask,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl FuseRequest {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let body = bytes.get(HEADER_BYTES..)?;
        let ask = match u32_at(bytes, 4)? {
            1 => Ask::Lookup { name: body.strip_suffix(b"\0")?.to_vec() },
            2 | 36 | 42 => Ask::Forget,
            3 => Ask::Attributes,
            14 | 27 => Ask::Open,
            17 => Ask::FileSystem,
            15 => Ask::Read { offset: u64_at(body, 8)?, length: u32_at(body, 16)?.into() },
            18 | 25 | 29 | 34 => Ask::Nothing,
            22 | 23 => Ask::NoAttribute,
            26 => Ask::Init { minor: u32_at(body, 4)? },
            _ => Ask::Unknown,
        };
        Some(Self { unique: u64_at(bytes, 8)?, node: u64_at(bytes, 16)?, ask })
    }

    fn may_stall(&self, shared: &SharedStalls) -> bool {
        let stalls = match &self.ask {
            Ask::Lookup { name } => name.starts_with(b"wait"),
            Ask::Read { .. } => {
                let name = shared.name_of(self.node);
                name.starts_with(b"stall") || name.starts_with(b"wait")
            }
            _ => false,
        };
        stalls && shared.state.lock().expect("no panic").stalled
    }

    fn respond(&self, mut device: &File, shared: &SharedStalls) {
        let result = match &self.ask {
            Ask::Forget => return,
            Ask::Init { minor } => Ok(init(*minor)),
            Ask::Lookup { name } => shared.node_of(name).map(entry).ok_or(ENOENT),
            Ask::Attributes => Ok([&[0; 16][..], &attributes(self.node)].concat()),
            Ask::Open => Ok(vec![0; 16]),
            Ask::Read { offset, length } => read(&shared.name_of(self.node), *offset, *length),
            Ask::FileSystem => Ok(file_system()),
            Ask::Nothing => Ok(Vec::new()),
            Ask::NoAttribute => Err(ENODATA),
            Ask::Unknown => Err(ENOSYS),
        };
        let (error, body) = match result {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        message.extend_from_slice(&error.to_ne_bytes());
        message.extend_from_slice(&self.unique.to_ne_bytes());
        message.extend_from_slice(&body);
        // An error means that the request was abandoned meanwhile: the kernel does not need the
        // response.
        let _ = device.write(&message);
    }
}

/// `fuse_init_out`: many concurrent reads, small read-ahead.
fn init(kernel_minor: u32) -> Vec<u8> {
    const ASYNC_READ: u32 = 1;
    /// Without it the kernel serialises look-ups, and one that waits blocks all.
    const PARALLEL_DIROPS: u32 = 1 << 18;
    let mut out = Vec::with_capacity(64);
    for word in [7, kernel_minor.min(31), 128 * 1024, ASYNC_READ | PARALLEL_DIROPS] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    let background: u16 = 1024;
    out.extend_from_slice(&background.to_ne_bytes());
    out.extend_from_slice(&background.to_ne_bytes());
    out.extend_from_slice(&4096u32.to_ne_bytes());
    out.extend_from_slice(&1u32.to_ne_bytes());
    out.resize(64, 0);
    out
}

/// `fuse_entry_out`, not cached: every look-up is sent to this process.
fn entry(node: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&node.to_ne_bytes());
    out.resize(40, 0);
    out.extend_from_slice(&attributes(node));
    out
}

/// `fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    const DIRECTORY: u32 = 0o040_555;
    const FILE: u32 = 0o100_444;
    const MODIFIED_S: u64 = 1_000_000_000;
    let is_root = node == ROOT_NODE;
    let size = if is_root { 0 } else { FILE_BYTES };
    let mut out = Vec::with_capacity(88);
    for word in [node, size, size.div_ceil(512), MODIFIED_S, MODIFIED_S, MODIFIED_S] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    let mode = if is_root { DIRECTORY } else { FILE };
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out
}

/// `fuse_statfs_out`: a size with no free space.
fn file_system() -> Vec<u8> {
    let mut out = vec![0; 80];
    out[..8].copy_from_slice(&1024u64.to_ne_bytes());
    for (at, word) in [(40, 4096u32), (44, 255), (48, 4096)] {
        out[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    out
}

fn read(name: &[u8], offset: u64, length: u64) -> Result<Vec<u8>, i32> {
    let end = (offset + length).min(FILE_BYTES);
    if name.starts_with(b"eio") && end > EIO_FROM {
        return Err(EIO);
    }
    let length = usize::try_from(end.saturating_sub(offset)).map_err(|_| EIO)?;
    Ok(pattern(offset, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::assert_pattern;
    use crate::wait_until;

    #[test]
    fn files_read_stall_and_fail_as_they_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let stalling = match StallFs::mount(directory.path()) {
            Ok(mounted) => mounted,
            Err(reason) => {
                eprintln!("SKIPPED: no stalling file system: {reason}");
                return;
            }
        };
        let path = |name: &str| directory.path().join(name);
        let whole = std::fs::read(path("plain-1")).unwrap();
        assert_eq!(whole.len() as u64, FILE_BYTES);
        assert_pattern(&whole, 0, "plain");
        assert_eq!(std::fs::read(path("eio-1")).unwrap_err().raw_os_error(), Some(EIO));
        assert!(std::fs::metadata(path("other")).is_err());
        stalling.stall();
        let stalled = path("stall-1");
        let reader = std::thread::spawn(move || std::fs::read(stalled).unwrap().len());
        assert!(wait_until(Duration::from_secs(60), || stalling.waiting() > 0));
        assert!(!reader.is_finished());
        stalling.resume();
        assert_eq!(reader.join().unwrap() as u64, FILE_BYTES);
    }
}
