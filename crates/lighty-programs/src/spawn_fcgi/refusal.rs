//! Errors that prevent a start, as spawn-fcgi words them.

use std::io;
use std::path::PathBuf;

use lighty_io::listen::ProgramSocketError;
use lighty_io::os_text;

/// Reason why no program was started, or why the pid file is incomplete.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("chdir('{}') failed: {}", .0.display(), os_text(.1))]
    Directory(PathBuf, io::Error),
    #[error("chroot('{}') failed: {}", .0.display(), os_text(.1))]
    Chroot(PathBuf, io::Error),
    #[error("can't find user name {0}")]
    User(String),
    #[error("can't find group name {0}")]
    Group(String),
    /// Programs are not started as root.
    #[error("I will not set uid to 0")]
    RootUser,
    #[error("I will not set gid to 0")]
    RootGroup,
    #[error("{0}")]
    Identity(io::Error),
    #[error("{0}")]
    Listen(ProgramSocketError),
    #[error("{0}")]
    Duplicate(io::Error),
    /// The pid file is a device, a directory or similar.
    #[error("PID-file exists and isn't regular file: '{}'", .0.display())]
    PidFileKind(PathBuf),
    #[error("opening PID-file '{}' failed: {}", .0.display(), os_text(.1))]
    OpenPidFile(PathBuf, io::Error),
    #[error("writing pid file failed: {}", os_text(.0))]
    WritePidFile(io::Error),
}
