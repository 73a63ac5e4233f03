//! Child processes: backends started by the server (`bin-path`) and programs that handle a single
//! request.
//!
//! A child has its own process group, inherits only the three descriptors it is given, and is
//! signalled to end when the server dies for any reason. It is always reaped, so there are no
//! zombies. Dropping its [`Child`] kills it.
//!
//! In a sandbox of the whole process they are children of its launcher (`sandbox/launcher.rs`).
//!
//! Reading order: this file (starting and ending), `exec` (the start), `lines` (a
//! child's output by line), `capture` (all of its output), `channel` (a conversation), `detached`
//! (programs that outlive the server).

mod capture;
mod channel;
pub mod detached;
mod exec;
mod lines;
mod output_pipe;
mod starters;
pub mod successor;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;

pub use super::program::{ChildInput, ChildOutput, Exit, Program};
pub use super::simulated::{SimulatedChild, SimulatedPipes, SimulatedProcess};
pub use capture::capture;
pub use channel::Channel;
use exec::StartedProcess;
pub use lines::{LINE_BYTES_MAX, forward_lines};
pub use output_pipe::OutputPipe;
pub use rustix::process::Signal as ChildSignal;

use crate::sandbox::launcher::LaunchedProcess;
use crate::transport::Stream;

/// A running child. Dropping it kills its process group.
#[derive(Debug)]
pub struct Child {
    process: Process,
    exit: Cell<Option<Exit>>,
    /// Our end of its standard input.
    pub stdin: Option<pipe::Sender>,
    /// Our end of its standard output.
    pub stdout: Option<OutputPipe>,
    /// Our end of its standard error output.
    pub stderr: Option<OutputPipe>,
    /// Our end of its standard input on a simulated thread.
    simulated_stdin: Option<Box<Stream>>,
}

/// A process, as its [`Child`] waits for it and signals it.
#[derive(Debug)]
enum Process {
    /// A process of the system.
    Real(Pid, ExitWatch),
    /// A child of the sandbox's launcher.
    Launched(AsyncFd<LaunchedProcess>),
    /// A process of a simulation.
    Simulated(SimulatedProcess),
}

impl Process {
    fn id(&self) -> i32 {
        match self {
            Process::Real(pid, _) => pid.as_raw_nonzero().get(),
            Process::Launched(process) => process.get_ref().id(),
            Process::Simulated(_) => 0,
        }
    }

    /// Waits until checking the process is worthwhile.
    async fn stirred(&self) -> io::Result<()> {
        match self {
            Process::Real(_, watch) => watch.stirred().await?,
            Process::Launched(process) => {
                // Once its message was read, the socket stays silent.
                if process.get_ref().has_stirred().is_err() {
                    process.async_io(Interest::READABLE, LaunchedProcess::has_stirred).await?;
                }
            }
            Process::Simulated(process) => drop(process.ended().await),
        }
        Ok(())
    }

    /// Exit status of the process, if it has ended; it stays a zombie.
    fn look(&self) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match self {
            Process::Real(pid, _) => reap(*pid, options),
            Process::Launched(process) => process.get_ref().look(),
            Process::Simulated(process) => Ok(process.exit()),
        }
    }

    /// Exit status of a process that has ended. Frees its process id.
    fn reap(&self) -> io::Result<Option<Exit>> {
        match self {
            Process::Real(pid, _) => reap(*pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG),
            Process::Launched(process) => {
                process.get_ref().reap();
                process.get_ref().look()
            }
            Process::Simulated(process) => Ok(process.exit()),
        }
    }

    /// Sends a signal to the process and its group, which must not be reaped.
    fn signal(&self, signal: Signal) -> bool {
        match self {
            Process::Real(pid, _) => rustix::process::kill_process_group(*pid, signal).is_ok(),
            Process::Launched(process) => process.get_ref().signal(signal),
            Process::Simulated(process) => process.signal(signal),
        }
    }
}

/// Method of detecting a child's exit.
#[derive(Debug)]
enum ExitWatch {
    /// Its descriptor becomes readable.
    Pidfd(AsyncFd<OwnedFd>),
    /// Polling, as on kernels before 5.3.
    Asking,
}

impl ExitWatch {
    fn of(pid: Pid) -> io::Result<ExitWatch> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => {
                // SAFETY: the descriptor is open, and owned by the registration until the end.
                let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
                Ok(ExitWatch::Pidfd(watched?))
            }
            // The program is already running, so a lack of descriptors must not look like a failed
            // start.
            Err(Errno::NOSYS | Errno::PERM | Errno::MFILE | Errno::NFILE) => Ok(ExitWatch::Asking),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until checking the child is worthwhile.
    async fn stirred(&self) -> io::Result<()> {
        match self {
            ExitWatch::Pidfd(pidfd) => drop(pidfd.readable().await?),
            ExitWatch::Asking => tokio::time::sleep(Duration::from_millis(ASK_MS)).await,
        }
        Ok(())
    }
}

/// A program that did not start; the inner error of [`Child::spawn`]'s error.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {}: {error}", .path.display())]
pub struct NotStarted {
    /// The program's path as it was given.
    pub path: PathBuf,
    /// The system's error.
    pub error: io::Error,
}

/// Polling interval for a child without a pidfd, in milliseconds.
const ASK_MS: u64 = 50;

impl Child {
    /// Starts a program. This takes about a millisecond, during which the loop is not blocked.
    ///
    /// # Errors
    /// [`NotStarted`] with the kind of its own error, such as `NotFound`; or the system's, if there
    /// are too many files or processes.
    pub async fn spawn(program: Program) -> io::Result<Child> {
        if let Some(world) = crate::simulated::world() {
            return Ok(Child::of(world.start(&program)?));
        }
        let path = program.path.clone();
        let started = exec::start(program).await;
        started.and_then(Child::new).map_err(|error| {
            if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN)) {
                // The program itself is not at fault.
                return error;
            }
            io::Error::new(error.kind(), NotStarted { path, error })
        })
    }

    fn new(mut started: exec::Started) -> io::Result<Child> {
        // From here on, dropping `child` kills the process if a later step fails.
        let process = match started.claim()? {
            StartedProcess::Own(pid) => Process::Real(pid, ExitWatch::Asking),
            StartedProcess::Launched(process) => Process::Launched(watched(process)?),
        };
        let mut child = Child {
            process,
            exit: Cell::new(None),
            stdin: None,
            stdout: None,
            stderr: None,
            simulated_stdin: None,
        };
        if let Process::Real(pid, watch) = &mut child.process {
            *watch = ExitWatch::of(*pid)?;
        }
        child.stdin = started.stdin.take().map(pipe::Sender::from_owned_fd).transpose()?;
        let output = |fd| pipe::Receiver::from_owned_fd(fd).map(OutputPipe::Pipe);
        child.stdout = started.stdout.take().map(output).transpose()?;
        child.stderr = started.stderr.take().map(output).transpose()?;
        Ok(child)
    }

    fn of(simulated: SimulatedChild) -> Child {
        Child {
            process: Process::Simulated(simulated.process),
            exit: Cell::new(None),
            stdin: None,
            stdout: Some(OutputPipe::Simulated(Box::new(simulated.pipes.stdout))),
            stderr: simulated.pipes.stderr.map(Box::new).map(OutputPipe::Simulated),
            simulated_stdin: simulated.pipes.stdin.map(Box::new),
        }
    }

    /// Its process id, which is also its process group's; 0 in a simulation.
    pub fn id(&self) -> i32 {
        self.process.id()
    }

    /// Its exit status, if known.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.get()
    }

    /// Waits until it has ended, then kills the rest of its process group: a backend must not leave
    /// workers behind that serve without their master.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn wait(&self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.exit.get() {
                return Ok(exit);
            }
            self.process.stirred().await?;
            self.look()?;
        }
    }

    /// Waits until it has ended and returns its exit status. The rest of its process group lives on
    /// until [`Child::wait`] is called.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn ended(&self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.exit.get() {
                return Ok(exit);
            }
            if let Some(exit) = self.process.look()? {
                return Ok(exit);
            }
            self.process.stirred().await?;
        }
    }

    /// True as long as other processes of its group are running. Reads `/proc`.
    pub fn has_company(&self) -> bool {
        if let Process::Simulated(_) = self.process {
            return false;
        }
        let Ok(processes) = std::fs::read_dir("/proc") else { return false };
        let numbers = processes.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok());
        numbers.filter(|pid: &i32| *pid != self.id()).any(|pid| runs_in_group(pid, self.id()))
    }

    /// Sends a signal to it and its process group; false if it has ended.
    pub fn signal(&self, signal: Signal) -> bool {
        // Until it is reaped, its process id is not reused.
        self.exit.get().is_none() && self.process.signal(signal)
    }

    /// Asks it to end by `signal`, and kills it after `grace_ms`.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn stop(&self, signal: Signal, grace_ms: u64) -> io::Result<Exit> {
        self.signal(signal);
        let grace = Duration::from_millis(grace_ms);
        if let Ok(ended) = tokio::time::timeout(grace, self.wait()).await {
            return ended;
        }
        self.signal(Signal::KILL);
        self.wait().await
    }

    /// Records its exit status, if it has ended.
    fn look(&self) -> io::Result<()> {
        if self.exit.get().is_some() || self.process.look()?.is_none() {
            return Ok(());
        }
        // It is still a zombie, so the group's number is not reused yet.
        self.process.signal(Signal::KILL);
        if let Some(exit) = self.process.reap()? {
            self.exit.set(Some(exit));
        }
        Ok(())
    }
}

/// True if this process belongs to the group and has not ended.
fn runs_in_group(pid: i32, group: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name in parentheses: state, parent, group.
    let mut columns = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let (state, group_of) = (columns.next(), columns.nth(1));
    state.is_some_and(|state| state != "Z") && group_of == Some(group.to_string().as_str())
}

/// Exit status of a child. Frees its process id, unless the options forbid it.
fn reap(pid: Pid, options: WaitIdOptions) -> io::Result<Option<Exit>> {
    match rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options)) {
        Ok(status) => Ok(status.map(|status| match status.terminating_signal() {
            Some(number) => Exit::Signal(number),
            None => Exit::Code(status.exit_status().unwrap_or(-1)),
        })),
        Err(Errno::CHILD) => Ok(Some(Exit::Unseen)),
        Err(error) => Err(error.into()),
    }
}

/// Registers a child of the launcher. If that fails, kills it.
fn watched(process: LaunchedProcess) -> io::Result<AsyncFd<LaunchedProcess>> {
    // SAFETY: the socket is open, and owned by the registration until the end.
    let watched = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    watched.map_err(|error| {
        let (process, error) = error.into_parts();
        process.abandon();
        error
    })
}

/// Kills a child that is no longer waited for, and reaps it.
fn abandon(pid: Pid) {
    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    // It usually ends at once; one that hangs in the kernel must not block a loop.
    let started = crate::threads::start("reaper", Some(64 << 10), move || {
        let _ = reap(pid, WaitIdOptions::EXITED);
    });
    if started.is_err() {
        let _ = reap(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let has_been_waited_for = self.look().is_err() || self.exit.get().is_some();
        match &self.process {
            _ if has_been_waited_for => {}
            Process::Real(pid, _) => abandon(*pid),
            Process::Launched(process) => process.get_ref().abandon(),
            Process::Simulated(process) => drop(process.signal(Signal::KILL)),
        }
    }
}
