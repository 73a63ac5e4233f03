//! Real backends: PHP-FPM, uWSGI, Tomcat, nginx, Apache, WebSocket and gRPC servers; Pebble, a
//! certificate authority; and OpenLDAP's server. Each is started on its own ports or sockets with a
//! configuration made for the test, and stopped with the test.
//!
//! A missing program fails the test that needs it. If `LIGHTY_TESTS_MAY_SKIP` is set, the test
//! reports it and passes.

pub mod apache;
pub mod chromium;
pub mod clients;
pub mod grpc;
pub mod nginx;
pub mod pebble;
pub mod php;
pub mod prometheus;
pub mod slapd;
pub mod tomcat;
pub mod uwsgi;
pub mod websocket;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::backend::Port;
use crate::process::is_running;
use crate::server::write_file;

/// Time limit of a backend's first response; a Java program on a busy computer is slow.
const START_DEADLINE: Duration = Duration::from_secs(180);

/// Starts the program, writes its process id to a file, and kills its process group when the test
/// ends, however it ends: standard input is closed then. Some programs create their own group.
const KEEPER: &str = "note=$1; shift; \"$@\" </dev/null & child=$!; echo $child >\"$note\"; \
    read -r _; kill -KILL $child -$child; kill -KILL 0";

/// Address of a backend's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// A port of 127.0.0.1 that the kernel gives to no other socket, not even for a connection,
    /// while this process runs. The program that listens on it must set SO_REUSEADDR, as servers
    /// do.
    #[must_use]
    pub fn free_port() -> Self {
        let port = Port::reserve();
        let address = port.address();
        std::mem::forget(port);
        Self::Tcp(address)
    }

    /// Format for `proxy-core.backends`.
    #[must_use]
    pub fn backend(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Format for a host of `fastcgi.server` and similar directives.
    #[must_use]
    pub fn host_keys(&self) -> String {
        match self {
            Self::Tcp(at) => format!("\"host\" => \"{}\", \"port\" => {}", at.ip(), at.port()),
            Self::Unix(path) => format!("\"socket\" => \"{}\"", path.display()),
        }
    }

    /// The TCP address; panics for a unix socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Tcp(address) => *address,
            Self::Unix(path) => panic!("{} is no address", path.display()),
        }
    }

    fn accepts(&self) -> bool {
        match self {
            Self::Tcp(address) => TcpStream::connect(address).is_ok(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
        }
    }

    /// Sends bytes and returns the beginning of the response.
    fn ask(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut response = vec![0; 64];
        let wait = Some(Duration::from_secs(5));
        let count = match self {
            Self::Tcp(address) => {
                let mut stream = TcpStream::connect(address).ok()?;
                stream.set_read_timeout(wait).ok()?;
                stream.write_all(request).ok()?;
                stream.read(&mut response).ok()?
            }
            Self::Unix(path) => {
                let mut stream = UnixStream::connect(path).ok()?;
                stream.set_read_timeout(wait).ok()?;
                stream.write_all(request).ok()?;
                stream.read(&mut response).ok()?
            }
        };
        response.truncate(count);
        Some(response)
    }
}

/// Finds a program by several names in `PATH`, or by absolute paths. If it is missing the test
/// fails, or, with `LIGHTY_TESTS_MAY_SKIP`, is reported as skipped and this returns `None`.
#[must_use]
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let found = search(names);
    if found.is_none() {
        missing(names.first().unwrap_or(&"a program"));
    }
    found
}

/// Like [`find`], for programs that some distributions do not package: a missing one skips the
/// test, and the report of `make test` names it.
#[must_use]
pub fn find_optional(names: &[&str]) -> Option<PathBuf> {
    skipped_without(search(names), names.first().unwrap_or(&"a program"))
}

fn skipped_without(found: Option<PathBuf>, name: &str) -> Option<PathBuf> {
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

fn search(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let places: Vec<&str> = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]).collect();
    // An absolute path replaces the directory that it is joined to.
    names
        .iter()
        .flat_map(|name| places.iter().map(move |place| Path::new(place).join(name)))
        .find(|file| file.is_file())
}

/// Finds a program that `scripts/needs.sh` builds if Go is installed.
fn built(name: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let own = workspace.join(target).join("go").join(name);
    let home = std::env::var("HOME").unwrap_or_default();
    let found = search(&[text(&own), name, &format!("{home}/go/bin/{name}")]);
    skipped_without(found, name)
}

/// Finds a Python with a library. Prefers the system's, for which packages are installed.
fn python_with(library: &str) -> Option<PathBuf> {
    let found = search_python(library);
    if found.is_none() {
        missing(&format!("Python's {library}"));
    }
    found
}

fn search_python(library: &str) -> Option<PathBuf> {
    let system = Path::new("/usr/bin/python3").to_owned();
    [Some(system), search(&["python3"])].into_iter().flatten().find(|python| {
        let import = Command::new(python).args(["-c", &format!("import {library}")]).output();
        import.is_ok_and(|output| output.status.success())
    })
}

fn missing(what: &str) {
    let may_skip = std::env::var_os("LIGHTY_TESTS_MAY_SKIP").is_some();
    assert!(may_skip, "{what} is not installed: run scripts/needs.sh");
    eprintln!("SKIPPED: {what} is not installed");
}

/// A running program with its own directory.
pub struct Program {
    keeper: Child,
    directory: TempDir,
    line: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Program {
    /// Creates a directory for a program's files.
    #[must_use]
    pub fn directory() -> TempDir {
        TempDir::with_prefix("lighty-real-").expect("a directory for a backend")
    }

    /// Starts a command line in its own process group.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(directory: TempDir, line: &[&str], environment: &[(&str, &str)]) -> Self {
        let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment: Vec<(String, String)> = environment.iter().map(pair).collect();
        let keeper = spawn(directory.path(), &line, &environment);
        Self { keeper, directory, line, environment }
    }

    /// Kills it and starts it again.
    pub fn restart(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(self.path().join("pid"));
        self.keeper = spawn(self.path(), &self.line, &self.environment);
    }

    /// Waits until a connection is accepted at `listen`.
    pub fn await_listening(&mut self, listen: &Listen) {
        self.await_that("accepts no connection", || listen.accepts());
    }

    /// Waits until `request` gets a response that starts with `beginning`.
    pub fn await_response(&mut self, listen: &Listen, request: &[u8], beginning: &[u8]) {
        self.await_that("does not answer", || {
            listen.ask(request).is_some_and(|response| response.starts_with(beginning))
        });
    }

    fn await_that(&mut self, failure: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            if self.has_ended() || start.elapsed() > START_DEADLINE {
                panic!("{} {failure}; it wrote:\n{}", self.line[0], self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.path().join("pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        let pid = self.pid().expect("a process id");
        rustix::process::kill_process(pid, signal).expect("the program is there");
    }

    /// True if the program has ended by itself.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // Before the file is written, the program has yet to start.
        let Some(pid) = self.pid() else { return false };
        !is_running(pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// The program's own directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Output of the program and its children.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.path().join("output.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills it and its children at once.
    pub fn kill(&mut self) {
        let pid = self.pid();
        // The shell kills the whole group, itself included, when its standard input is closed.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        // Its ports are free once its last thread is gone, which may be after the shell.
        let threads = |pid: Pid| {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            tasks.map_or(0, |tasks| tasks.count().saturating_sub(stat.contains(") Z").into()))
        };
        let is_gone = || pid.is_none_or(|pid| threads(pid) == 0);
        crate::wait_until(START_DEADLINE, is_gone);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {} wrote:\n{}", self.line[0], self.log());
        }
    }
}

fn spawn(directory: &Path, line: &[String], environment: &[(String, String)]) -> Child {
    let path = directory.join("output.log");
    let output = File::options().create(true).append(true).open(path).expect("a file");
    Command::new("/bin/sh")
        .args(["-c", KEEPER, "sh"])
        .arg(directory.join("pid"))
        .args(line)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(output.try_clone().expect("a second descriptor"))
        .stderr(output)
        .spawn()
        .expect("a shell")
}

/// Writes a file into a directory.
fn put(directory: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    write_file(&directory.path().join(name), content);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Runs a command to its end; panics with its error output if it fails.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {printed}");
}

/// The output lines of a command; panics with its errors if it fails.
fn lines_of(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (printed, error) = (String::from_utf8_lossy(&output.stdout), &output.stderr);
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(error));
    printed.lines().map(str::to_owned).collect()
}
