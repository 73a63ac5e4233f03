//! gRPC services and clients: Python's `grpcio` and Go's `grpc-go`, with equivalent programs for
//! both.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use super::{Listen, Program, built, lines_of, put, python_with, text};

const SERVER: &str = include_str!("grpc/server.py");
const CLIENT: &str = include_str!("grpc/client.py");

/// Implementation of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `grpcio`, which is based on the C library.
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
    /// Starts a service. Uses TLS if there is a file with a certificate and its key.
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

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}

/// Output of a client, one line for each call. Uses TLS if there is a file of authorities.
///
/// # Panics
/// If a call fails that should succeed.
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

/// Output lines of a client that sends `calls` unary calls while it constantly cancels streams.
///
/// # Panics
/// If the client fails.
#[must_use]
pub fn call_among_cancellations(
    library: Library,
    address: &str,
    calls: usize,
) -> Option<Vec<String>> {
    let arguments = ["cancels", address, &calls.to_string()];
    match library {
        Library::Python => run_python(&arguments, None),
        Library::Go => Some(lines_of(Command::new(go_peer()?).args(arguments))),
    }
}

/// Output of a client whose call gets no response.
///
/// # Panics
/// If the client fails.
#[must_use]
pub fn call_in_vain(address: &str) -> Option<Vec<String>> {
    run_python(&["down", address], None)
}

fn run_python(arguments: &[&str], authorities: Option<&Path>) -> Option<Vec<String>> {
    let python = python_with("grpc")?;
    let directory = Program::directory();
    put(&directory, "client.py", CLIENT);
    let mut command = Command::new(python);
    let command = command.arg(directory.path().join("client.py")).args(arguments).args(authorities);
    Some(lines_of(command))
}

/// The Go program that `scripts/needs.sh` builds from `grpc/go`.
fn go_peer() -> Option<PathBuf> {
    built("grpc-peer")
}

/// Activity of a Go client until it is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Many calls, sequential and concurrent, and streams that are always open.
    Load,
    /// One idle call, with a PING every ten seconds.
    Rest,
}

/// A Go client that runs during the test, and is stopped with it.
pub struct GrpcClient {
    child: Child,
    /// Closing it ends the client.
    input: Option<ChildStdin>,
    printed: Lines<BufReader<ChildStdout>>,
    /// Log of frames, if enabled.
    frames: Lines<BufReader<ChildStderr>>,
}

impl GrpcClient {
    /// Starts a client. Uses TLS if there is a file of authorities.
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
        let printed = BufReader::new(child.stdout.take().expect("its output")).lines();
        let frames = BufReader::new(child.stderr.take().expect("its error output")).lines();
        Some(Self { input: child.stdin.take(), child, printed, frames })
    }

    /// Waits until 100 more calls have completed.
    ///
    /// # Panics
    /// If the client has ended.
    pub fn await_calls(&mut self) {
        let input = self.input.as_mut().expect("it runs");
        input.write_all(b"\n").expect("it reads");
        self.await_line("more");
    }

    /// Waits for a line with this beginning.
    ///
    /// # Panics
    /// If the client ends without such a line.
    pub fn await_line(&mut self, beginning: &str) {
        let found = self.printed.by_ref().map_while(Result::ok).any(|l| l.starts_with(beginning));
        assert!(found, "it has ended without: {beginning}");
    }

    /// Waits until the client logs a frame with all of these parts.
    ///
    /// # Panics
    /// If the client ends without one.
    pub fn await_frame(&mut self, parts: &[&str]) {
        let is_it = |line: String| parts.iter().all(|part| line.contains(part));
        let found = self.frames.by_ref().map_while(Result::ok).any(is_it);
        assert!(found, "it has ended without a frame: {parts:?}");
    }

    /// Tells the client to end, and returns its remaining output.
    ///
    /// # Panics
    /// If the client fails.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        self.input = None;
        let printed: Vec<String> = self.printed.by_ref().map_while(Result::ok).collect();
        let errors: Vec<String> = self.frames.by_ref().map_while(Result::ok).collect();
        let status = self.child.wait().expect("its status");
        assert!(status.success(), "{printed:?} {}", errors.join("\n"));
        printed
    }
}

impl Drop for GrpcClient {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
