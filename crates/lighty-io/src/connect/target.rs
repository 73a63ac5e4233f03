//! Addresses to connect to.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Address to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An IPv4 or IPv6 address and port.
    Tcp(SocketAddr),
    /// A unix socket by the path of its file.
    Unix(PathBuf),
    /// A unix socket in Linux's abstract name space; the name without its leading zero byte.
    Abstract(Vec<u8>),
}

impl Target {
    /// Parses a unix socket: a path, or `@name` for the abstract name space.
    pub fn unix(written: &Path) -> Target {
        match written.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => Target::Abstract(name.to_vec()),
            None => Target::Unix(written.to_owned()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => address.fmt(f),
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Abstract(name) => write!(f, "unix:@{}", name.escape_ascii()),
        }
    }
}
