//! Listening sockets created for another program, as by spawn-fcgi: the program gets the socket as
//! its standard input (FastCGI 1.0, section 2.2).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{BindOptions, BindSpec, BoundSocket, SocketOrigin, inherit, local_inet};

/// Default access bits of a unix socket, before the umask.
const MODE_DEFAULT: u32 = 0o660;

/// A socket to create.
#[derive(Clone, Debug)]
pub struct ProgramSocket {
    /// Address to listen on.
    pub address: BindSpec,
    /// Connections that the kernel queues.
    pub backlog: i32,
    /// Access bits of a unix socket; `None`: read and write for user and group, as far as the umask
    /// allows.
    pub mode: Option<u32>,
    /// Owner of a unix socket; `None` leaves it.
    pub uid: Option<u32>,
    /// Group of a unix socket; `None` leaves it.
    pub gid: Option<u32>,
}

/// The step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramSocketError {
    /// Something accepts connections on the unix socket.
    #[error("socket is already in use, can't spawn")]
    InUse,
    /// The path of the unix socket is a file of another kind, which is left alone.
    #[error("removing old socket failed: the path is a file and not a socket")]
    NotASocket,
    /// The socket of an earlier program cannot be removed.
    #[error("removing old socket failed: {}", crate::os_text(.0))]
    RemoveOld(io::Error),
    /// The socket cannot be created.
    #[error("couldn't create socket: {}", crate::os_text(.0))]
    Create(io::Error),
    /// The address cannot be bound.
    #[error("bind failed: {}", crate::os_text(.0))]
    Bind(io::Error),
    /// The unix socket's owner cannot be set.
    #[error("couldn't chown socket: {}", crate::os_text(.0))]
    Chown(io::Error),
    /// The unix socket's access bits cannot be set.
    #[error("couldn't chmod socket: {}", crate::os_text(.0))]
    Chmod(io::Error),
    /// Listening failed.
    #[error("listen failed: {}", crate::os_text(.0))]
    Listen(io::Error),
}

impl ProgramSocket {
    /// Binds and listens. The socket blocks, as programs expect.
    ///
    /// # Errors
    /// See [`ProgramSocketError`].
    pub fn listen(&self) -> Result<BoundSocket, ProgramSocketError> {
        match &self.address {
            BindSpec::Inet(address) => {
                let options =
                    BindOptions { backlog: self.backlog, v6_only: false, ..Default::default() };
                let socket =
                    super::bound_inet(*address, &options).map_err(ProgramSocketError::Bind)?;
                socket.listen(self.backlog).map_err(ProgramSocketError::Listen)?;
                let address = local_inet(&socket).map_err(ProgramSocketError::Listen)?;
                Ok(bound(socket, BindSpec::Inet(address), options))
            }
            BindSpec::Unix(path) => self.listen_unix(path),
        }
    }

    fn listen_unix(&self, path: &Path) -> Result<BoundSocket, ProgramSocketError> {
        remove_old(path)?;
        let socket =
            Socket::new(Domain::UNIX, Type::STREAM, None).map_err(ProgramSocketError::Create)?;
        let address = SockAddr::unix(path).map_err(ProgramSocketError::Bind)?;
        socket.bind(&address).map_err(ProgramSocketError::Bind)?;
        // Both before `listen`, so that clients can only connect under the final permissions.
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            rustix::fs::chown(path, uid, gid)
                .map_err(|error| ProgramSocketError::Chown(error.into()))?;
        }
        let mode = self.mode.unwrap_or(MODE_DEFAULT & !umask());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .map_err(ProgramSocketError::Chmod)?;
        socket.listen(self.backlog).map_err(ProgramSocketError::Listen)?;
        let options = BindOptions { backlog: self.backlog, ..Default::default() };
        Ok(bound(socket, BindSpec::Unix(path.to_path_buf()), options))
    }
}

fn bound(socket: Socket, address: BindSpec, options: BindOptions) -> BoundSocket {
    BoundSocket { socket, address, origin: SocketOrigin::Bound(options) }
}

fn remove_old(path: &Path) -> Result<(), ProgramSocketError> {
    if UnixStream::connect(path).is_ok() {
        return Err(ProgramSocketError::InUse);
    }
    match std::fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(meta) if !meta.file_type().is_socket() => Err(ProgramSocketError::NotASocket),
        Ok(_) => std::fs::remove_file(path).map_err(ProgramSocketError::RemoveOld),
    }
}

/// The process's umask, which can only be read by setting it: call it before starting threads.
fn umask() -> u32 {
    let now = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(now);
    now.bits()
}

/// The listening socket that a spawner passed to this process as its standard input; `None` if that
/// is not a listening socket.
///
/// # Errors
/// EMFILE, or a socket of another family.
pub fn socket_on_stdin() -> io::Result<Option<BoundSocket>> {
    use std::os::fd::AsFd;
    let stdin = std::io::stdin();
    let is_listening = socket2::SockRef::from(&stdin).is_listener().unwrap_or(false);
    if !is_listening {
        return Ok(None);
    }
    let fd: OwnedFd = stdin.as_fd().try_clone_to_owned()?;
    let socket = Socket::from(fd);
    let address = inherit::check(&socket)?;
    Ok(Some(BoundSocket { socket, address, origin: SocketOrigin::Inherited }))
}

#[cfg(test)]
#[path = "program_socket_tests.rs"]
mod tests;
