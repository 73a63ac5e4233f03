//! Shared helpers: processes that end with their test, a C application of libfcgi's, and lighttpd
//! and lighty in front of a FastCGI socket.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::process::is_running;
use lighty_testkit::real::{Listen, find};
use lighty_testkit::server::{Server, Setup, binary};
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The binary under a name of its own, in a directory.
pub(crate) fn link(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    std::os::unix::fs::symlink(binary(env!("CARGO_BIN_EXE_lighty")), &path).expect("a link");
    path
}

/// Processes that a spawner left behind; they end with the test.
#[derive(Default)]
pub(crate) struct Left(pub(crate) Vec<i32>);

impl Left {
    /// Takes over the processes listed in spawn-fcgi's output.
    pub(crate) fn from_output(output: &str) -> Self {
        let numbers = output.lines().filter_map(|line| line.rsplit_once("PID: ")?.1.parse().ok());
        Self(numbers.collect())
    }

    /// Returns true once no process of the group runs any more, reaped or not.
    pub(crate) fn have_ended(&self) -> bool {
        self.0.iter().all(|pid| !is_running(pid.unsigned_abs()))
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for pid in self.0.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // Each leads a group; one that ended by itself has none any more.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }
}

/// libfcgi application: responds with its process id, the request's body and `PHP_FCGI_CHILDREN`;
/// `?slow` takes a fifth of a second. Exits cleanly on USR1, as libfcgi does.
const LIBFCGI: &str = r#"
#include <fcgi_stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    while (FCGI_Accept() >= 0) {
        const char *query = getenv("QUERY_STRING");
        int c;
        if (query && strcmp(query, "slow") == 0) {
            creat("busy", 0600);
            usleep(200000);
        }
        printf("Content-Type: text/plain\r\n\r\npid=%d\nbody=", (int)getpid());
        while ((c = getchar()) != EOF) putchar(c);
        printf("\n");
    }
    return 0;
}
"#;

/// Compiles the application; prints a note and returns `None` without libfcgi or a compiler.
pub(crate) fn libfcgi(directory: &Path) -> Option<PathBuf> {
    let compiler = find(&["cc", "gcc"])?;
    find(&["/usr/include/fcgi_stdio.h"])?;
    let (source, program) = (directory.join("app.c"), directory.join("app"));
    std::fs::write(&source, LIBFCGI).expect("written");
    let output = Command::new(compiler)
        .args([&source, Path::new("-o"), &program, Path::new("-lfcgi")])
        .output()
        .expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// A running server.
pub(crate) struct Front {
    server: Server,
    is_lighttpd: bool,
}

impl Deref for Front {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // TERM has it end with 1.
        if self.is_lighttpd {
            self.server.kill();
        }
    }
}

/// A server in front of a FastCGI socket that has everything beneath `/`; `keys` are further ones
/// of the backend.
pub(crate) fn lighty_before(listen: &Listen, keys: &str) -> Front {
    lighty_with(listen, keys, "")
}

/// The same with lines of configuration.
pub(crate) fn lighty_with(listen: &Listen, keys: &str, lines: &str) -> Front {
    let setup = lighty!().config(lines).config(&route(listen, keys));
    Front { server: setup.start(), is_lighttpd: false }
}

/// The same with lighttpd, where it is installed.
pub(crate) fn lighttpd_before(listen: &Listen, keys: &str) -> Option<Front> {
    let setup = Setup::new(find(&["lighttpd"])?);
    let port = Listen::free_port().address().port();
    let setup = setup
        .without_listener()
        .config(&format!("server.bind = \"127.0.0.1\"\nserver.port = {port}"))
        .config("server.max-worker = 0\nserver.modules += ( \"mod_fastcgi\" )")
        .config(&route(listen, keys));
    Some(Front { server: setup.start(), is_lighttpd: true })
}

fn route(listen: &Listen, keys: &str) -> String {
    let host = listen.host_keys();
    format!("fastcgi.server = ( \"/\" => (( {host}, \"check-local\" => \"disable\", {keys} )) )")
}

/// Waits until a socket accepts connections.
pub(crate) fn await_listening(path: &Path) {
    let accepts = || std::os::unix::net::UnixStream::connect(path).is_ok();
    assert!(wait_until(PATIENCE, accepts), "{} accepts nothing", path.display());
}
