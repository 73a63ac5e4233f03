//! HTTP clients of other platforms: Go's `net/http`, Node's `http2` and `fetch`, Java's
//! `java.net.http`, boto3; the SPDY/3.1 upgrade of kubectl; and PyJWT, a signer of tokens. A test
//! is skipped if its client is not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    Listen, Program, built, find_optional, lines_of, put, search_python, skipped_without, text,
};

const JAVA: &str = include_str!("clients/Requests.java");
const NODE: &str = include_str!("clients/requests.mjs");
const S3_CLIENT: &str = include_str!("clients/s3_client.py");
const S3_SERVER: &str = include_str!("clients/s3_server.py");
const TOKENS: &str = include_str!("clients/tokens.py");

/// A client that sends the common series of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// `net/http`, over HTTP/2.
    Go,
    /// `http2`.
    Node,
    /// `fetch`, over HTTP/1.1.
    Fetch,
    /// `java.net.http`, over HTTP/2.
    Java,
}

/// Output lines of a client that downloads, uploads, cancels downloads and aborts uploads. It
/// trusts the authorities in the file.
///
/// # Panics
/// If a request fails that should succeed.
#[must_use]
pub fn requests(platform: Platform, url: &str, authorities: &Path) -> Option<Vec<String>> {
    match platform {
        Platform::Go => {
            let mut command = Command::new(go_peer()?);
            Some(lines_of(command.args(["requests", url]).arg(authorities)))
        }
        Platform::Node | Platform::Fetch => {
            let kind = if platform == Platform::Node { "http2" } else { "fetch" };
            run_script(&find_optional(&["node"])?, "requests.mjs", NODE, &[kind, url], authorities)
        }
        Platform::Java => java(&["requests", url], authorities),
    }
}

/// Output lines of Java's WebSocket client, which sends messages to an echo server.
///
/// # Panics
/// If a message fails.
#[must_use]
pub fn java_websocket(url: &str, authorities: &Path) -> Option<Vec<String>> {
    java(&["websocket", url], authorities)
}

fn java(arguments: &[&str], authorities: &Path) -> Option<Vec<String>> {
    // The JDK contains both, so a missing compiler means a missing JDK.
    find_optional(&["javac"])?;
    run_script(&find_optional(&["java"])?, "Requests.java", JAVA, arguments, authorities)
}

fn run_script(
    interpreter: &Path,
    name: &str,
    script: &str,
    arguments: &[&str],
    authorities: &Path,
) -> Option<Vec<String>> {
    let directory = Program::directory();
    put(&directory, name, script);
    let mut command = Command::new(interpreter);
    let command = command.arg(directory.path().join(name)).args(arguments).arg(authorities);
    Some(lines_of(command))
}

/// The Go program that `scripts/needs.sh` builds from `clients/go`.
fn go_peer() -> Option<PathBuf> {
    built("http-peer")
}

/// A server in its own process.
pub struct ServerProcess {
    _program: Program,
    listen: Listen,
}

impl ServerProcess {
    /// Starts the server's end of kubectl's `exec` over SPDY/3.1.
    #[must_use]
    pub fn spdy() -> Option<Self> {
        let program = go_peer()?;
        let listen = Listen::free_port();
        let address = listen.address().to_string();
        let line = [text(&program), "spdy-serve", &address];
        Some(Self::await_listening(Program::start(Program::directory(), &line, &[]), listen))
    }

    /// Starts a stand-in for S3 that verifies signatures over the path as received.
    #[must_use]
    pub fn object_store() -> Option<Self> {
        let python = boto3_python()?;
        let directory = Program::directory();
        put(&directory, "s3_server.py", S3_SERVER);
        let file = directory.path().join("s3_server.py");
        let listen = Listen::free_port();
        let address = listen.address().to_string();
        let program = Program::start(directory, &[text(&python), "-u", text(&file), &address], &[]);
        Some(Self::await_listening(program, listen))
    }

    fn await_listening(mut program: Program, listen: Listen) -> Self {
        program.await_listening(&listen);
        Self { _program: program, listen }
    }

    /// Address of the listener.
    #[must_use]
    pub fn listen(&self) -> &Listen {
        &self.listen
    }
}

/// Output lines of kubectl's end of `exec`.
///
/// # Panics
/// If the upgrade fails.
#[must_use]
pub fn spdy_exec(url: &str) -> Option<Vec<String>> {
    Some(lines_of(Command::new(go_peer()?).args(["spdy-exec", url])))
}

/// Output lines of boto3, which stores objects under odd keys.
///
/// # Panics
/// If a request fails.
#[must_use]
pub fn store_objects(url: &str) -> Option<Vec<String>> {
    let python = boto3_python()?;
    let directory = Program::directory();
    put(&directory, "s3_client.py", S3_CLIENT);
    let mut command = Command::new(python);
    Some(lines_of(command.arg(directory.path().join("s3_client.py")).arg(url)))
}

/// Keys and tokens of PyJWT as JSON: `keys`, a `secret`, and `tokens` with `kind`, `accepted`,
/// `token` and `by` (`keys` or `secret`).
///
/// # Panics
/// If PyJWT fails.
#[must_use]
pub fn python_tokens() -> Option<String> {
    let python = skipped_without(search_python("jwt, cryptography"), "PyJWT")?;
    let directory = Program::directory();
    put(&directory, "tokens.py", TOKENS);
    Some(lines_of(Command::new(python).arg(directory.path().join("tokens.py"))).concat())
}

fn boto3_python() -> Option<PathBuf> {
    skipped_without(search_python("boto3"), "boto3")
}
