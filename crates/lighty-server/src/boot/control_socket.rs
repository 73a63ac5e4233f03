//! Opens the control socket at the start.

use std::io;
use std::sync::Arc;

use lighty_core::settings::ServerSettings;
use lighty_io::process::control::ControlSocket;
use lighty_io::process::control::access::ControlAccess;
use lighty_io::process::privileges::{self, Identity};
use tokio::runtime::Runtime;

use super::failed;
use crate::boot::error::BootError;
use crate::boot::takeover::Takeover;
use crate::control;

/// The control socket, or the reason for its absence.
#[derive(Default)]
pub(super) struct OpenedControl {
    pub(super) socket: Option<ControlSocket>,
    /// A warning for the error log.
    pub(super) warning: Option<String>,
}

/// Opens the control socket, if the configuration has one, or continues on that of the process
/// before this one. Looks users and groups up, so it must precede a chroot.
///
/// # Errors
/// There is no such group, or the socket that the configuration names cannot be made. The default
/// one is only missing then.
pub(super) fn open(
    runtime: &Runtime,
    server: &ServerSettings,
    takeover: Option<&mut Takeover>,
) -> Result<OpenedControl, BootError> {
    let Some(path) = control::socket_of(server) else { return Ok(OpenedControl::default()) };
    let access = access(server)?;
    let _inside = runtime.enter();
    let handed = takeover.and_then(|takeover| takeover.control(&path, &access));
    match handed.unwrap_or_else(|| ControlSocket::bind(&path, access, control::is_complete)) {
        Ok(socket) => Ok(OpenedControl { socket: Some(socket), warning: None }),
        Err(error) if server.control_socket.is_some() => {
            Err(failed("server.control-socket")(error))
        }
        Err(error) => {
            let warning = Some(format!("{error}: a reload is by signal only"));
            Ok(OpenedControl { socket: None, warning })
        }
    }
}

fn access(server: &ServerSettings) -> Result<ControlAccess, BootError> {
    let groups = |directive: &str, names: &[Arc<str>]| -> Result<Vec<u32>, BootError> {
        names.iter().map(|name| gid(name).map_err(failed(directive))).collect()
    };
    Ok(ControlAccess {
        owner: owner(server).map_err(failed("server.username"))?,
        readers: groups("server.control-readers", &server.control_readers)?,
        admins: groups("server.control-admins", &server.control_admins)?,
    })
}

fn gid(name: &str) -> io::Result<u32> {
    let group = Identity::lookup(None, Some(name))?;
    Ok(group.gid.unwrap_or(0))
}

/// The user that the process becomes, if it becomes another one.
fn owner(server: &ServerSettings) -> io::Result<Option<u32>> {
    if !privileges::is_root() {
        return Ok(None);
    }
    let identity = Identity::lookup(server.username.as_deref(), None)?;
    Ok(identity.user.map(|user| user.uid))
}
