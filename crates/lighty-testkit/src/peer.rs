//! lighttpd 1.4, where it is installed: the same configuration, the same requests, side by side.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::client::Client;
use crate::response::Response;
use crate::server::{Server, Setup};
use crate::wait_until;

/// Where distributions put it.
const PLACES: [&str; 3] = ["/usr/sbin/lighttpd", "/usr/local/sbin/lighttpd", "/usr/bin/lighttpd"];

/// A running lighttpd, on a unix socket in its own directory.
pub struct Peer {
    server: Server,
    socket: PathBuf,
}

impl Peer {
    /// A server to be started with [`Peer::start`]; `None`, and a word about it, where none is
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
        // The socket is there before it is listened on.
        let is_open = || UnixStream::connect(&socket).is_ok();
        let listens = wait_until(Duration::from_secs(30), || is_open() || server.has_exited());
        assert!(listens && is_open(), "lighttpd does not listen:\n{}", server.log());
        Self { server, socket }
    }

    /// A connection of its own.
    #[must_use]
    pub fn connect(&self) -> Client {
        Client::unix(&self.socket)
    }

    /// Sends a whole request and reads the response.
    #[must_use]
    pub fn ask(&self, request: &str) -> Response {
        ask(self.connect(), request)
    }

    /// What it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// How it ends is not what is tested: told to by TERM, it may report an error.
impl Drop for Peer {
    fn drop(&mut self) {
        self.server.kill();
    }
}

/// Sends a whole request on a connection of its own and reads the response.
#[must_use]
pub fn ask(mut client: Client, request: &str) -> Response {
    client.send(request);
    match request.starts_with("HEAD ") {
        true => client.response_to_head(),
        false => client.response(),
    }
}
