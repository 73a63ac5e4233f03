//! lighttpd 1.4, if it is installed: the same configuration and the same requests, side by side.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::Client;
use crate::response::Response;
use crate::server::{Server, Setup};
use crate::wait_until;

/// Paths of the program in distributions.
const PLACES: [&str; 3] = ["/usr/sbin/lighttpd", "/usr/local/sbin/lighttpd", "/usr/bin/lighttpd"];

/// A running lighttpd, on a unix socket in its own directory.
pub struct LighttpdPeer {
    server: Server,
    socket: PathBuf,
}

impl LighttpdPeer {
    /// A server for [`LighttpdPeer::start`]. Returns `None`, and prints a note, if lighttpd is not
    /// installed.
    #[must_use]
    pub fn setup(modules: &str) -> Option<Setup> {
        let Some(binary) = PLACES.iter().map(Path::new).find(|path| path.exists()) else {
            eprintln!("SKIPPED: lighttpd is not installed");
            return None;
        };
        Some(Setup::new(binary.to_owned()).without_listener().config(&format!(
            "server.modules = ( {modules} )\nserver.bind = \"@DIR@/socket\"\n\
             server.max-worker = 0"
        )))
    }

    /// Starts it and waits until it listens.
    #[must_use]
    pub fn start(setup: Setup) -> Self {
        let config = setup.write_config();
        let socket = setup.directory().join("socket");
        let mut server = setup.spawn(&["-D", "-f", config.to_str().expect("a path in UTF-8")]);
        // The socket exists before it is listened on.
        let is_open = || UnixStream::connect(&socket).is_ok();
        let listens = wait_until(Duration::from_secs(30), || is_open() || server.has_exited());
        assert!(listens && is_open(), "lighttpd does not listen:\n{}", server.log());
        Self { server, socket }
    }

    /// Opens a connection.
    #[must_use]
    pub fn connect(&self) -> Client {
        Client::unix(&self.socket)
    }

    /// Sends a whole request and reads the response.
    #[must_use]
    pub fn ask(&self, request: &str) -> Response {
        ask(self.connect(), request)
    }

    /// lighttpd's output so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// Kills it: its exit status after TERM may report an error, which is not tested.
impl Drop for LighttpdPeer {
    fn drop(&mut self) {
        self.server.kill();
    }
}

/// Sends a whole request on a new connection and reads the response.
#[must_use]
pub fn ask(mut client: Client, request: &str) -> Response {
    client.send(request);
    match request.starts_with("HEAD ") {
        true => client.response_to_head(),
        false => client.response(),
    }
}
