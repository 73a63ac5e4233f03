//! Services and clients of gRPC: Python's `grpcio` and Go's `grpc-go`, which say the same in words
//! of their own.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use super::{Listen, Program, built, lines_of, put, python_with, text};

const SERVER: &str = include_str!("grpc/server.py");
const CLIENT: &str = include_str!("grpc/client.py");

/// Who speaks gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `grpcio`, which stands on the library of C.
    Python,
    /// `grpc-go`.
    Go,
}

/// A running service.
pub struct GrpcService {
    _program: Program,
    listen: Listen,
}

impl GrpcService {
    /// Starts one, over TLS if there is a file with a certificate and its key.
    #[must_use]
    pub fn start(library: Library, pair: Option<&Path>) -> Option<Self> {
        let directory = Program::directory();
        let listen = Listen::free_port();
        let address = listen.address().to_string();
        let file = directory.path().join("server.py");
        let binary = match library {
            Library::Python => python_with("grpc")?,
            Library::Go => go_peer()?,
        };
        let mut line = vec![text(&binary)];
        match library {
            Library::Python => {
                put(&directory, "server.py", SERVER);
                line.extend(["-u", text(&file), &address]);
            }
            Library::Go => line.extend(["serve", &address]),
        }
        line.extend(pair.map(text));
        let mut program = Program::start(directory, &line, &[]);
        program.await_listening(&listen);
        Some(Self { _program: program, listen })
    }

    /// Where it listens.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}

/// What a client says of its calls, a line for each; over TLS if there is a file of authorities.
///
/// # Panics
/// If a call fails that should not.
#[must_use]
pub fn call(library: Library, address: &str, authorities: Option<&Path>) -> Option<Vec<String>> {
    match library {
        Library::Python => run_python(&[address], authorities),
        Library::Go => {
            let mut command = Command::new(go_peer()?);
            Some(lines_of(command.args(["call", address]).args(authorities)))
        }
    }
}

/// The lines of a client that sends `calls` unary calls while it cancels streams all the time.
///
/// # Panics
/// If the client does not end well.
#[must_use]
pub fn call_among_cancellations(
    library: Library,
    address: &str,
    calls: usize,
) -> Option<Vec<String>> {
    let words = ["cancels", address, &calls.to_string()];
    match library {
        Library::Python => run_python(&words, None),
        Library::Go => Some(lines_of(Command::new(go_peer()?).args(words))),
    }
}

/// What a client says of a call that cannot be answered.
///
/// # Panics
/// If the client does not end well.
#[must_use]
pub fn call_in_vain(address: &str) -> Option<Vec<String>> {
    run_python(&["down", address], None)
}

fn run_python(words: &[&str], authorities: Option<&Path>) -> Option<Vec<String>> {
    let python = python_with("grpc")?;
    let directory = Program::directory();
    put(&directory, "client.py", CLIENT);
    let mut command = Command::new(python);
    let command = command.arg(directory.path().join("client.py")).args(words).args(authorities);
    Some(lines_of(command))
}

/// The program in Go, which `scripts/needs.sh` builds of `grpc/go`.
fn go_peer() -> Option<PathBuf> {
    built("grpc-peer")
}

/// What a client of Go's does until it is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Many calls, one after the other and side by side, and streams that are always open.
    Load,
    /// One call in which nothing happens, with a PING every ten seconds.
    Rest,
}

/// A client of Go's that runs beside the test. It ends with it.
pub struct GrpcClient {
    child: Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
    /// Frames, if they are written down.
    frames: Lines<BufReader<ChildStderr>>,
}

impl GrpcClient {
    /// Starts one, over TLS if there is a file of authorities.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(what: Lasting, address: &str, authorities: Option<&Path>) -> Option<Self> {
        let (word, debug) = match what {
            Lasting::Load => ("load", ""),
            Lasting::Rest => ("rest", "http2debug=2"),
        };
        let mut child = Command::new(go_peer()?)
            .args([word, address])
            .args(authorities)
            .env("GODEBUG", debug)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a client");
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        let frames = BufReader::new(child.stderr.take().expect("its error output")).lines();
        Some(Self { input: child.stdin.take(), child, said, frames })
    }

    /// Waits until 100 calls more have come back.
    ///
    /// # Panics
    /// If it has ended.
    pub fn await_calls(&mut self) {
        let input = self.input.as_mut().expect("it runs");
        input.write_all(b"\n").expect("it reads");
        self.await_line("more");
    }

    /// Waits for a line that begins so.
    ///
    /// # Panics
    /// If it ends without having said it.
    pub fn await_line(&mut self, beginning: &str) {
        let found = self.said.by_ref().map_while(Result::ok).any(|l| l.starts_with(beginning));
        assert!(found, "it has ended without: {beginning}");
    }

    /// Waits until it has written down a frame of which all of these parts are said.
    ///
    /// # Panics
    /// If it ends without one.
    pub fn await_frame(&mut self, parts: &[&str]) {
        let is_it = |line: String| parts.iter().all(|part| line.contains(part));
        let found = self.frames.by_ref().map_while(Result::ok).any(is_it);
        assert!(found, "it has ended without a frame: {parts:?}");
    }

    /// Tells it to end; what it has still said.
    ///
    /// # Panics
    /// If it does not end well.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        self.input = None;
        let said: Vec<String> = self.said.by_ref().map_while(Result::ok).collect();
        let errors: Vec<String> = self.frames.by_ref().map_while(Result::ok).collect();
        let status = self.child.wait().expect("its status");
        assert!(status.success(), "{said:?} {}", errors.join("\n"));
        said
    }
}

impl Drop for GrpcClient {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
