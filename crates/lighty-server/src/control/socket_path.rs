//! The place of the control socket.

use std::path::PathBuf;

use lighty_core::settings::ServerSettings;
use lighty_io::process::control::path_beside;

/// Returns the path of a server's control socket; `None` if it has none.
pub fn socket_of(server: &ServerSettings) -> Option<PathBuf> {
    match server.control_socket.as_deref() {
        Some("") => None,
        Some(path) => Some(path.into()),
        None => server.pid_file.as_deref().map(|path| path_beside(path.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn socket_is_beside_the_pid_file_unless_it_has_a_path() {
        let socket = |path: Option<&str>, pid_file: Option<&str>| {
            let server = ServerSettings {
                control_socket: path.map(Arc::from),
                pid_file: pid_file.map(Arc::from),
                ..ServerSettings::default()
            };
            socket_of(&server).map(|path| path.display().to_string())
        };
        assert_eq!(socket(None, None), None);
        assert_eq!(socket(None, Some("/run/pid")).as_deref(), Some("/run/pid.ctl"));
        assert_eq!(socket(Some("/run/a"), Some("/run/pid")).as_deref(), Some("/run/a"));
        assert_eq!(socket(Some(""), Some("/run/pid")), None);
    }
}
