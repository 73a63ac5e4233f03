//! Addresses of directory servers, for the sandbox and for checks.

use std::path::PathBuf;

/// Address of a directory server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryAddress {
    /// Over TCP.
    Host {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// Over a unix socket.
    Socket(PathBuf),
}

#[cfg(feature = "identity")]
impl From<lighty_identity::directory::DirectoryServer> for DirectoryAddress {
    fn from(server: lighty_identity::directory::DirectoryServer) -> Self {
        use lighty_identity::directory::DirectoryServer;
        match server {
            DirectoryServer::Tcp { host, port, .. } => Self::Host { host, port },
            DirectoryServer::Unix(path) => Self::Socket(path),
        }
    }
}
