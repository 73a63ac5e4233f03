//! A service and a client of gRPC: Python's `grpcio`.

use std::path::Path;
use std::process::Command;

use super::{Listen, Program, put, python_with, text};

const SERVER: &str = include_str!("grpc/server.py");
const CLIENT: &str = include_str!("grpc/client.py");

/// A running service.
pub struct GrpcService {
    _program: Program,
    listen: Listen,
}

impl GrpcService {
    /// Starts one, over TLS if there is a file with a certificate and its key.
    #[must_use]
    pub fn start(pair: Option<&Path>) -> Option<Self> {
        let python = python_with("grpc")?;
        let directory = Program::directory();
        put(&directory, "server.py", SERVER);
        let listen = Listen::free_port();
        let address = listen.address().to_string();
        let file = directory.path().join("server.py");
        let mut line = vec![text(&python), "-u", text(&file), &address];
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
pub fn call(address: &str, authorities: Option<&Path>) -> Option<Vec<String>> {
    run_client(&[address], authorities)
}

/// What a client says of a call that cannot be answered.
///
/// # Panics
/// If the client does not end well.
#[must_use]
pub fn call_in_vain(address: &str) -> Option<Vec<String>> {
    run_client(&["down", address], None)
}

fn run_client(words: &[&str], authorities: Option<&Path>) -> Option<Vec<String>> {
    let python = python_with("grpc")?;
    let directory = Program::directory();
    put(&directory, "client.py", CLIENT);
    let mut command = Command::new(python);
    command.arg(directory.path().join("client.py")).args(words).args(authorities);
    let output = command.output().expect("a client");
    let (said, error) = (String::from_utf8_lossy(&output.stdout), &output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(error));
    Some(said.lines().map(str::to_owned).collect())
}
