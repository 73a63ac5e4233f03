//! fcgi-stat-accel: opens the requested file, so that the kernel caches it, and returns its name to
//! the server, which sends it (`X-LIGHTTPD-send-file`).
//!
//! The server's own loop then never waits for the disk, whatever server it is; the threads of this
//! program wait instead. Statuses are those of lighttpd 1.5's companion: 403 for a missing file or
//! a directory, 404 for a file that cannot be opened.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lighty_io::file::small_file::SmallFile;
use lighty_io::threads::pool::{Lane, PoolLimits, ThreadPool};

use crate::app::{Application, ApplicationRequest, Response};

/// Default number of threads. PHP_FCGI_CHILDREN overrides it, which spawn-fcgi's `-C` sets.
pub const THREADS_DEFAULT: usize = 20;

/// The environment variable for the number of threads.
pub const THREADS_VARIABLE: &str = "PHP_FCGI_CHILDREN";

/// Maximum number of threads.
pub const THREADS_MAX: usize = 4_096;

/// The field with the file's name.
const FIELD: &str = "X-LIGHTTPD-send-file: ";

/// The application.
pub struct StatAccel {
    pool: ThreadPool,
}

impl StatAccel {
    /// Creates the application with this many threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let stat_threads_max = threads.clamp(1, THREADS_MAX);
        let limits = PoolLimits { stat_threads_max, ..PoolLimits::default() };
        Self { pool: ThreadPool::new(limits) }
    }

    /// The number of threads in the environment variable. 0 and invalid numbers give the default.
    #[must_use]
    pub fn threads_of(variable: Option<&str>) -> usize {
        let requested = variable.and_then(|text| text.trim().parse().ok());
        requested.filter(|count| *count > 0).unwrap_or(THREADS_DEFAULT).min(THREADS_MAX)
    }
}

impl Application for StatAccel {
    const TAKES_BODIES: bool = false;

    async fn respond<'a>(&'a self, request: &'a ApplicationRequest<'a>) -> Response {
        let Some(path) = request.param("SCRIPT_FILENAME") else {
            let errors = b"fcgi-stat-accel: no SCRIPT_FILENAME".to_vec();
            return Response { errors, ..Response::status("500 Internal Server Error") };
        };
        let job = {
            let path = path.to_vec();
            move || touch(&path)
        };
        match self.pool.run(Lane::Stat, job).await {
            Ok(PathResult::File) => Response {
                output: [FIELD.as_bytes(), &escaped(path), b"\r\n\r\n"].concat(),
                ..Response::default()
            },
            Ok(PathResult::NoFile) => Response::status("403 Forbidden"),
            Ok(PathResult::Unreadable) => Response::status("404 Not Found"),
            Err(error) => {
                let errors = format!("fcgi-stat-accel: {error}").into_bytes();
                Response { errors, ..Response::status("503 Service Unavailable") }
            }
        }
    }
}

/// Escapes the path for the field, in which servers decode percent signs.
fn escaped(path: &[u8]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = path.split(|byte| *byte == b'%').collect();
    pieces.join(&b"%25"[..])
}

/// Result of looking up a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathResult {
    /// A file that can be opened.
    File,
    /// Missing, or not a regular file.
    NoFile,
    /// A file that cannot be opened.
    Unreadable,
}

/// Looks the path up and opens the file, which brings inodes and directories into memory.
fn touch(path: &[u8]) -> PathResult {
    // A name with a line break could end the field.
    if path.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return PathResult::NoFile;
    }
    let path = Path::new(OsStr::from_bytes(path));
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) | Err(_) => return PathResult::NoFile,
    }
    match SmallFile::open(path) {
        Ok(_) => PathResult::File,
        Err(_) => PathResult::Unreadable,
    }
}

#[cfg(test)]
#[path = "stat_accel_tests.rs"]
mod tests;
