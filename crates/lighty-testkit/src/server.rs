//! Starts the server under test with its own configuration, waits until it responds, stops it, and
//! reads its log.
//!
//! Each server has its own directory (removed afterwards) with `root/`, its document root, and a
//! port that the kernel chose: tests run in parallel.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::client::Client;
use crate::response::Response;
use crate::scratch::Scratch;
use crate::wait_until;

/// Time limit of a server's first response.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Time limit of a server's stop, even on a busy machine. Tests of the stop's speed have their own
/// limits.
pub const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// A server to be started: its files and configuration.
pub struct Setup {
    binary: PathBuf,
    directory: Scratch,
    lines: Vec<String>,
    bind: &'static str,
    before: Vec<String>,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
    stdin: Option<Stdio>,
    own_listener: bool,
    own_root: bool,
}

/// Begins a [`Setup`] for the binary that cargo built, or the one that `LIGHTY_BIN` names.
#[macro_export]
macro_rules! lighty {
    () => {
        $crate::server::Setup::new($crate::server::binary(env!("CARGO_BIN_EXE_lighty")))
    };
}

/// The binary to test: `LIGHTY_BIN` if it is set, else the given one.
#[must_use]
pub fn binary(built: &str) -> PathBuf {
    std::env::var_os("LIGHTY_BIN").map_or_else(|| built.into(), PathBuf::from)
}

impl Setup {
    /// Creates a server without files, with one worker and no other configuration.
    #[must_use]
    pub fn new(binary: PathBuf) -> Self {
        let directory = Scratch::new("lighty-test-");
        std::fs::create_dir(directory.path().join("root")).expect("a document root");
        Self {
            binary,
            directory,
            lines: Vec::new(),
            bind: "127.0.0.1",
            before: Vec::new(),
            environment: Vec::new(),
            arguments: Vec::new(),
            stdin: None,
            own_listener: true,
            own_root: true,
        }
    }

    /// The test's own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path beneath the document root.
    #[must_use]
    pub fn root(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path)
    }

    /// Adds a file beneath the document root, and creates its directories.
    #[must_use]
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        write_file(&self.root(path), content);
        self
    }

    /// Adds a symbolic link beneath the document root.
    #[must_use]
    pub fn link(self, path: &str, target: impl AsRef<Path>) -> Self {
        std::os::unix::fs::symlink(target, self.root(path)).expect("a symbolic link");
        self
    }

    /// Adds lines of configuration; `@DIR@` stands for the test's directory.
    #[must_use]
    pub fn config(mut self, lines: &str) -> Self {
        self.lines.push(lines.to_owned());
        self
    }

    /// Forwards all requests to this HTTP backend.
    #[must_use]
    pub fn in_front_of(self, backend: &str) -> Self {
        self.config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{backend}\" )"
        ))
    }

    /// Listens on this address instead of 127.0.0.1.
    #[must_use]
    pub fn bind(mut self, address: &'static str) -> Self {
        self.bind = address;
        self
    }

    /// Runs the server through this command (`prlimit`, `sh -c` ...), which gets the server's
    /// command line as additional arguments.
    #[must_use]
    pub fn through<const N: usize>(mut self, command: [&str; N]) -> Self {
        self.before = command.map(str::to_owned).to_vec();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an argument to the command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets the server's standard input; the default is the null device.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = Some(stdin.into());
        self
    }

    /// Leaves `server.bind` and `server.port` out of the configuration, for tests that set them.
    #[must_use]
    pub fn without_listener(mut self) -> Self {
        self.own_listener = false;
        self
    }

    /// Leaves `server.document-root` out of the configuration.
    #[must_use]
    pub fn without_document_root(mut self) -> Self {
        self.own_root = false;
        self
    }

    /// Writes the configuration file and returns its path.
    #[must_use]
    pub fn write_config(&self) -> PathBuf {
        let mut text = match self.own_root {
            true => String::from("server.document-root = \"@DIR@/root\"\n"),
            false => String::new(),
        };
        if self.own_listener {
            text += &format!("server.bind = \"{}\"\nserver.port = 0\n", self.bind);
        }
        let body = self.lines.join("\n");
        if !body.contains("server.max-worker") {
            text += "server.max-worker = 1\n";
        }
        text += &body;
        text.push('\n');
        let directory = self.directory.path().to_str().expect("a path in UTF-8");
        let path = self.directory.path().join("lighty.conf");
        write_file(&path, text.replace("@DIR@", directory));
        path
    }

    /// Starts the server and waits until it listens.
    #[must_use]
    pub fn start(self) -> Server {
        let config = self.write_config();
        let mut server = self.spawn(&["-D", "-f", config.to_str().expect("a path in UTF-8")]);
        server.await_listening();
        server
    }

    /// Starts the binary with these arguments without waiting for it to listen.
    #[must_use]
    pub fn spawn(mut self, arguments: &[&str]) -> Server {
        let mut line = std::mem::take(&mut self.before);
        line.push(self.binary.to_str().expect("a path in UTF-8").to_owned());
        line.extend(arguments.iter().map(|a| (*a).to_owned()));
        line.append(&mut self.arguments);
        let output = self.directory.path().join("output.log");
        let file = File::create(&output).expect("a file for the output");
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .current_dir(self.directory.path())
            .env_remove("LISTEN_FDS")
            .envs(std::mem::take(&mut self.environment))
            .stdin(self.stdin.take().unwrap_or_else(Stdio::null))
            .stdout(file.try_clone().expect("a second descriptor"))
            .stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Server { child, directory: self.directory, output, address: None, exited: None }
    }

    /// Runs the binary to its end with these arguments (`@CONF@` stands for the configuration
    /// file). Returns exit code, standard output and standard error.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let config = self.write_config();
        let config = config.to_str().expect("a path in UTF-8");
        let output = Command::new(&self.binary)
            .args(arguments.iter().map(|a| a.replace("@CONF@", config)))
            .current_dir(self.directory.path())
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(!err.contains("panicked"), "{err}");
        (output.status.code().unwrap_or(-1), out, err)
    }
}

/// A running server. Dropping it stops it, and fails the test if it did not stop in order or if it
/// logged a panic.
pub struct Server {
    child: Child,
    directory: Scratch,
    output: PathBuf,
    address: Option<SocketAddr>,
    exited: Option<ExitStatus>,
}

impl Server {
    /// Waits until the process listens on TCP, and records the address.
    fn await_listening(&mut self) {
        let start = Instant::now();
        loop {
            if let Some(address) = self.listening().first() {
                self.address = Some(*address);
                return;
            }
            if self.has_exited() || start.elapsed() > START_DEADLINE {
                panic!("the server does not listen; it wrote:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// TCP addresses that the process listens on.
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        let inodes = socket_inodes(self.pid());
        let mut found = BTreeSet::new();
        for table in ["tcp", "tcp6"] {
            let path = format!("/proc/{}/net/{table}", self.pid());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            found.extend(text.lines().skip(1).filter_map(|line| listener(line, &inodes)));
        }
        found.into_iter().collect()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The address of the first listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address.expect("the server listens on TCP")
    }

    /// The test's own directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path beneath the document root.
    #[must_use]
    pub fn root(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path)
    }

    /// Opens a connection.
    #[must_use]
    pub fn connect(&self) -> Client {
        Client::tcp(self.address())
    }

    /// Sends a GET on a new connection and reads the response.
    #[must_use]
    pub fn get(&self, target: &str) -> Response {
        self.get_with(target, "")
    }

    /// Like [`Server::get`], with additional header lines, each with its CRLF.
    #[must_use]
    pub fn get_with(&self, target: &str, lines: &str) -> Response {
        let mut client = self.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n"
        ));
        let response = client.response();
        assert!(response.says_close(), "Connection: close is answered: {response:?}");
        client.expect_end();
        response
    }

    /// Sends a POST with the framing of the header line `framing`. The response must be a 200;
    /// returns its body.
    #[must_use]
    pub fn post(&self, target: &str, framing: &str, body: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        client.send(body);
        let response = client.response();
        assert_eq!(response.status, 200, "{response:?}\n{}", self.log());
        response.body
    }

    /// The server's output so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log contains `message`.
    pub fn await_log(&self, message: &str) {
        let found = wait_until(Duration::from_secs(30), || self.log().contains(message));
        assert!(found, "the log does not say {message:?}:\n{}", self.log());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the process is there");
    }

    /// True if the process has ended.
    pub fn has_exited(&mut self) -> bool {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("a child to wait for");
        }
        self.exited.is_some()
    }

    /// Waits for the process to end. Returns its status and the time waited.
    pub fn await_exit(&mut self, deadline: Duration) -> (ExitStatus, Duration) {
        let start = Instant::now();
        while !self.has_exited() {
            assert!(start.elapsed() < deadline, "does not stop; it wrote:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        (self.exited.expect("it has exited"), start.elapsed())
    }

    /// Stops the server with TERM; fails the test unless that is prompt and in order.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let (status, _) = self.await_exit(STOP_DEADLINE);
        assert!(status.success(), "{status}; it wrote:\n{}", self.log());
        self.assert_no_panic();
    }

    /// Kills the server with KILL.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.await_exit(STOP_DEADLINE);
    }

    fn assert_no_panic(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "the server panicked:\n{log}");
    }

    /// Number of open descriptors of the process.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// Processor time used by the process.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(path).expect("the process is there");
        // After the name in parentheses, utime and stime are the 12th and 13th field.
        let fields: Vec<&str> =
            text[text.rfind(')').expect("a name") + 2..].split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|f| f.parse::<u64>().expect("ticks")).sum();
        let per_second = rustix::param::clock_ticks_per_second();
        Duration::from_millis(ticks * 1000 / per_second)
    }

    /// Peak resident memory of the process, in KiB.
    #[must_use]
    pub fn peak_resident_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    /// Current private memory of the process, in KiB, without pages of mapped files: the resident
    /// part of the program text grows with each code path that runs for the first time.
    #[must_use]
    pub fn own_kib(&self) -> u64 {
        self.memory_kib("RssAnon:")
    }

    /// Current private memory of the process, in KiB, without relocated pages of the program, which
    /// grow with its code.
    #[must_use]
    pub fn heap_kib(&self) -> u64 {
        let maps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid()));
        let (mut is_of_a_file, mut sum) = (false, 0);
        for line in maps.expect("the process is there").lines() {
            if let Some(kib) = line.strip_prefix("Anonymous:").filter(|_| !is_of_a_file) {
                sum += kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
            } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
                is_of_a_file = line.contains(" /");
            }
        }
        sum
    }

    /// Current resident memory of the process, in KiB.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    fn memory_kib(&self, line: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the process is there");
        let value = text.lines().find_map(|l| l.strip_prefix(line)).expect("such a line");
        value.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Minor page faults of the process so far.
    #[must_use]
    pub fn minor_faults(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(path).expect("the process is there");
        let mut fields = text[text.rfind(')').expect("a name") + 2..].split_whitespace();
        // After the name in parentheses, minflt is the 8th field.
        fields.nth(7).and_then(|field| field.parse().ok()).expect("faults")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.has_exited() {
            if !std::thread::panicking() {
                self.assert_no_panic();
            }
            return;
        }
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            eprintln!("--- the server wrote:\n{}", self.log());
        } else {
            self.stop();
        }
    }
}

/// Writes a file and creates its directories.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).expect("a directory");
    }
    std::fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn socket_inodes(pid: u32) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

/// The address in a line of `/proc/net/tcp*`, if it is a listener with one of these inodes.
fn listener(line: &str, inodes: &BTreeSet<String>) -> Option<SocketAddr> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    if fields.get(3) != Some(&LISTEN) || !inodes.contains(*fields.get(9)?) {
        return None;
    }
    let (address, port) = fields[1].split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // 32-bit words, each in the byte order of this machine.
    let groups: Option<Vec<[u8; 4]>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect();
    let bytes: Vec<u8> = groups?.concat();
    let ip: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        _ => <[u8; 16]>::try_from(bytes).ok()?.into(),
    };
    Some(SocketAddr::new(ip, port))
}
