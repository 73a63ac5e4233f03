//! Programs to start, and how they end.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::process::privileges::Identity;
use crate::process::{service_manager, succession};

/// A program to start.
#[derive(Debug)]
pub struct Program {
    /// The file to execute; a bare name is searched in the child's `PATH`.
    pub path: PathBuf,
    /// Its arguments, without its own name.
    pub args: Vec<OsString>,
    /// Its complete environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; the server's if none is given.
    pub working_dir: Option<PathBuf>,
    /// Its identity; the server's if none is given.
    pub identity: Option<Identity>,
    /// Its standard input.
    pub stdin: ChildInput,
    /// Its standard output.
    pub stdout: ChildOutput,
    /// Its standard error output.
    pub stderr: ChildOutput,
}

impl Program {
    /// A program without arguments, environment, input or output.
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program {
            path: path.into(),
            args: Vec::new(),
            environment: Vec::new(),
            working_dir: None,
            identity: None,
            stdin: ChildInput::Null,
            stdout: ChildOutput::Null,
            stderr: ChildOutput::Null,
        }
    }

    /// Adds the given variables of the server's environment, if they exist.
    pub fn copy_environment<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let found =
            names.into_iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        self.environment.extend(found);
    }

    /// Adds all variables of the server's environment but those that speak of its process.
    pub fn copy_whole_environment(&mut self) {
        let is_ours = |name: &OsString| {
            name == succession::VARIABLE || service_manager::VARIABLES.iter().any(|own| name == own)
        };
        self.environment.extend(std::env::vars_os().filter(|(name, _)| !is_ours(name)));
    }
}

/// A child's input.
#[derive(Debug)]
pub enum ChildInput {
    /// Empty: end of file immediately.
    Null,
    /// A pipe; `Child::stdin` is our end.
    Pipe,
    /// This descriptor. For FastCGI it is a listening socket, FCGI_LISTENSOCK_FILENO (FastCGI 1.0,
    /// section 2.2); see [`crate::listen::BoundSocket::duplicate`].
    Fd(OwnedFd),
}

/// A child's output.
#[derive(Debug)]
pub enum ChildOutput {
    /// Nowhere.
    Null,
    /// A pipe; `Child::stdout` or `Child::stderr` is our end.
    Pipe,
    /// This descriptor.
    Fd(OwnedFd),
}

/// Exit status of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// Unknown: another waiter received the status.
    Unseen,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(number) => write!(f, "signal {number}"),
            Exit::Unseen => f.write_str("exit status unknown"),
        }
    }
}
