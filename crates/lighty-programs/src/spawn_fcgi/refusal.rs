//! Errors that prevent a start, in the words of spawn-fcgi.

use std::path::PathBuf;
use std::{fmt, io};

use lighty_io::listen::ProgramSocketError;
use lighty_io::os_text;

/// Reason why no program was started, or why the pid file is incomplete.
#[derive(Debug)]
pub(super) enum Refusal {
    Directory(PathBuf, io::Error),
    Chroot(PathBuf, io::Error),
    User(String),
    Group(String),
    /// Programs are not started as root.
    RootUser,
    RootGroup,
    Identity(io::Error),
    Listen(ProgramSocketError),
    Duplicate(io::Error),
    /// The pid file is a device, a directory or similar.
    PidFileKind(PathBuf),
    OpenPidFile(PathBuf, io::Error),
    WritePidFile(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path, error) => {
                write!(f, "chdir('{}') failed: {}", path.display(), os_text(error))
            }
            Self::Chroot(path, error) => {
                write!(f, "chroot('{}') failed: {}", path.display(), os_text(error))
            }
            Self::User(name) => write!(f, "can't find user name {name}"),
            Self::Group(name) => write!(f, "can't find group name {name}"),
            Self::RootUser => f.write_str("I will not set uid to 0"),
            Self::RootGroup => f.write_str("I will not set gid to 0"),
            Self::Identity(error) | Self::Duplicate(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::PidFileKind(path) => {
                write!(f, "PID-file exists and isn't regular file: '{}'", path.display())
            }
            Self::OpenPidFile(path, error) => {
                write!(f, "opening PID-file '{}' failed: {}", path.display(), os_text(error))
            }
            Self::WritePidFile(error) => write!(f, "writing pid file failed: {}", os_text(error)),
        }
    }
}
