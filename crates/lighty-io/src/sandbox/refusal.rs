//! Errors that the sandbox causes: an open that Landlock refuses looks like one that the file's
//! permissions refuse.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access as AccessMode, AtFlags, CWD, accessat};

use crate::log_writer;

/// True once a sandbox was entered.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Paths that the log has named.
static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Paths that the log names; further ones are left out.
const NAMED_MAX: usize = 64;

pub(super) fn begin() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// True if an open failed by the sandbox: the file's permissions allow it. May block.
fn is_by_sandbox(path: &Path, mode: AccessMode, error: &io::Error) -> bool {
    IS_ON.load(Ordering::Relaxed)
        && error.raw_os_error() == Some(libc::EACCES)
        && accessat(CWD, path, mode, AtFlags::EACCESS).is_ok()
}

const ADVICE: &str = "the sandbox has no rule for it: add its directory to server.sandbox-paths, \
                      then restart the server or run \"lighty ctl upgrade\"";

/// Reports an open beneath a directory that the sandbox refused, once for each path. May block, but
/// the kernel has just looked the path up.
#[cold]
pub(crate) fn note_refusal(root: &Path, rel: &[u8], error: &io::Error) {
    if error.raw_os_error() != Some(libc::EACCES) {
        return;
    }
    let path = root.join(OsStr::from_bytes(rel));
    if !is_by_sandbox(&path, AccessMode::READ_OK, error) {
        return;
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if named.len() >= NAMED_MAX || named.contains(&path) {
        return;
    }
    log_writer::report(&format!("{}: {ADVICE}", path.display()));
    named.push(path);
}

/// Adds the cause and the advice to the error of an open for reading, if the sandbox caused it. May
/// block.
pub fn explained(path: &Path, error: io::Error) -> io::Error {
    cause(path, &error).unwrap_or(error)
}

/// The error of an open for reading with the cause and the advice, if the sandbox caused it. May
/// block.
pub fn cause(path: &Path, error: &io::Error) -> Option<io::Error> {
    is_by_sandbox(path, AccessMode::READ_OK, error).then(|| with_advice(error))
}

/// The same for an open that writes to a file, or makes it. May block.
pub fn explained_write(path: &Path, error: io::Error) -> io::Error {
    let parent = path.parent().unwrap_or(path);
    let place = if path.exists() { path } else { parent };
    match is_by_sandbox(place, AccessMode::WRITE_OK, &error) {
        true => with_advice(&error),
        false => error,
    }
}

fn with_advice(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {ADVICE}", crate::os_text(error)))
}
