//! Starts programs on threads of their own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::LazyLock;

use rustix::process::Pid;

use super::Program;
use super::starters::Starters;
use crate::process::execution;
use crate::sandbox::launcher::{self, LaunchedProcess, LaunchedProgram};
use crate::threads::panics;

/// A started program. Until it is claimed, dropping it kills the program.
pub(super) struct Started {
    process: Option<StartedProcess>,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// The process of a started program.
pub(super) enum StartedProcess {
    /// A child of this process.
    Own(Pid),
    /// A child of the sandbox's launcher.
    Launched(LaunchedProcess),
}

impl Started {
    /// Its process; the caller must wait for its end.
    pub(super) fn claim(&mut self) -> io::Result<StartedProcess> {
        self.process.take().ok_or_else(|| io::Error::other("a process without a number"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        match self.process.take() {
            Some(StartedProcess::Own(pid)) => super::abandon(pid),
            Some(StartedProcess::Launched(process)) => process.abandon(),
            None => {}
        }
    }
}

static STARTERS: LazyLock<Starters<Program, io::Result<Started>>> =
    LazyLock::new(|| Starters::new(start_caught));

pub(super) async fn start(program: Program) -> io::Result<Started> {
    STARTERS.run(program).await?
}

/// Starts a program. A panic must not end the thread, which other programs need.
fn start_caught(program: Program) -> io::Result<Started> {
    panics::caught_in(|| start_now(program)).unwrap_or_else(|panicked| {
        Err(io::Error::other(format!("starting it panicked at {}", panicked.0)))
    })
}

fn start_now(program: Program) -> io::Result<Started> {
    panics::point("starter");
    if launcher::starts_programs() {
        let LaunchedProgram { process, stdin, stdout, stderr } = launcher::start(program)?;
        let process = Some(StartedProcess::Launched(process));
        return Ok(Started { process, stdin, stdout, stderr });
    }
    let mut child = execution::command(program, rustix::process::getpid())?.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Started {
        process: pid.map(StartedProcess::Own),
        stdin: child.stdin.take().map(OwnedFd::from),
        stdout: child.stdout.take().map(OwnedFd::from),
        stderr: child.stderr.take().map(OwnedFd::from),
    })
}
