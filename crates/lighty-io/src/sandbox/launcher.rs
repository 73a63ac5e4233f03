//! A process outside the sandbox that starts programs: those of the configuration, and this one
//! again for an upgrade of the binary. A restricted process can execute nothing, and what it
//! executed would be as restricted.
//!
//! It is forked before the restrictions, with the list of programs. Orders name a program by its
//! place in the list, so that foreign code in the server can start nothing else. The launcher ends
//! with the server, and its children get TERM then, as those of the server would.
//!
//! Reading order: this file (the server's end), `messages`, `programs` (the programs, and what an
//! order may leave open), `scripts` and `variables` (checks of CGI programs), `launched` (a started
//! program), `process` (the launcher itself), `children` (its children), `upgrade`.

mod children;
mod launched;
mod messages;
mod process;
mod programs;
mod scripts;
#[cfg(test)]
mod tests;
mod upgrade;
mod variables;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::descriptors::{self, PER_MESSAGE};
use crate::process::execution;
use crate::process::own_program::OwnProgram;
use crate::process::program::{ChildInput, ChildOutput, Program};
pub(crate) use launched::LaunchedProcess;
use launched::launcher_ended;
pub use messages::LaunchRefusal;
use messages::{ChildOrder, ORDER_BYTES_MAX, PART_BYTES, ProgramOrder};
use process::LauncherProcess;
pub use programs::{ConfiguredProgram, LaunchPlan};
pub use scripts::ScriptPlaces;
pub use variables::ConfiguredVariables;

/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(PART_BYTES + 16 <= MESSAGE_BYTES_MAX);

/// Kinds of messages: descriptors for the next upgrade, the upgrade, a signal to its process, and a
/// program of the configuration.
const DESCRIPTORS: u8 = b'd';
const START: u8 = b's';
const KILL: u8 = b'k';
const PROGRAM: u8 = b'p';

/// The server's end.
#[derive(Debug)]
struct ServerEnd {
    socket: OwnedFd,
    /// Held during an order for an upgrade: replies on the socket belong to it.
    upgrading: Mutex<()>,
    plan: LaunchPlan,
}

static SERVER_END: OnceLock<ServerEnd> = OnceLock::new();

/// A start of the program by the launcher.
#[derive(Debug, Default)]
pub struct LaunchOrder<'a> {
    /// Variables besides those of the server: `LIGHTY_UPGRADE_…` and `LISTEN_…`.
    pub variables: Vec<(String, String)>,
    /// Descriptors besides the standard streams, or in their place, each with its number in the new
    /// process.
    pub descriptors: Vec<(BorrowedFd<'a>, RawFd)>,
}

/// Starts the launcher. Call it before the sandbox is entered and before the first thread.
///
/// # Errors
/// The program's path is unknown, or no process can be created.
pub fn begin(plan: LaunchPlan) -> io::Result<()> {
    let program = OwnProgram::of_this_process()?;
    let (ours, theirs) = pair()?;
    // SAFETY: the child runs only the launcher's code, and this thread is the only one that runs.
    match unsafe { libc::fork() } {
        0 => LauncherProcess::run(theirs, program, plan),
        1.. => {
            let _ = SERVER_END.set(ServerEnd { socket: ours, upgrading: Mutex::new(()), plan });
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// True if there is a launcher.
pub fn is_there() -> bool {
    SERVER_END.get().is_some()
}

/// A program that the launcher has started, and our ends of its pipes.
#[derive(Debug)]
pub(crate) struct LaunchedProgram {
    pub(crate) process: LaunchedProcess,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// Starts a program of the configuration. Blocks until it runs, as long as its file system needs.
///
/// # Errors
/// A [`LaunchRefusal`], if the configuration has no such program; errors of the system.
pub(crate) fn start(program: Program) -> io::Result<LaunchedProgram> {
    let server = SERVER_END.get().ok_or_else(launcher_ended)?;
    let order = server.plan.order_of(&program).filter(|_| program.identity.is_none());
    let order = order.ok_or_else(unknown)?;
    let (stdin, stdin_theirs) = match program.stdin {
        ChildInput::Null => (None, execution::empty_input()?),
        ChildInput::Pipe => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(ours), theirs)
        }
        ChildInput::Fd(fd) => (None, fd),
    };
    let (stdout, stdout_theirs) = output(program.stdout)?;
    let (stderr, stderr_theirs) = output(program.stderr)?;
    let process = server.start(&order, &[stdin_theirs, stdout_theirs, stderr_theirs])?;
    Ok(LaunchedProgram { process, stdin, stdout, stderr })
}

/// Starts the command of a log. Returns it and our end of its standard input.
///
/// # Errors
/// As for [`start`].
pub(crate) fn start_log(command: &str, has_stderr: bool) -> io::Result<(LaunchedProcess, File)> {
    let server = SERVER_END.get().ok_or_else(launcher_ended)?;
    let order = server.plan.order_of_log(command).ok_or_else(unknown)?;
    let (input, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    let stderr = match has_stderr {
        true => io::stderr().as_fd().try_clone_to_owned()?,
        false => nowhere()?,
    };
    let process = server.start(&order, &[input, nowhere()?, stderr])?;
    Ok((process, ours.into()))
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, LaunchRefusal::UnknownProgram)
}

/// Our end of an output, and the program's.
fn output(output: ChildOutput) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    Ok(match output {
        ChildOutput::Null => (None, nowhere()?),
        ChildOutput::Pipe => {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(ours), theirs)
        }
        ChildOutput::Fd(fd) => (None, fd),
    })
}

fn nowhere() -> io::Result<OwnedFd> {
    File::options().write(true).open("/dev/null").map(OwnedFd::from)
}

impl ServerEnd {
    fn start(&self, order: &ProgramOrder, streams: &[OwnedFd; 3]) -> io::Result<LaunchedProcess> {
        let order = order.encode();
        if order.len() > ORDER_BYTES_MAX {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let (control, control_theirs) = pair()?;
        let (status, status_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut parts = order.chunks(PART_BYTES);
        let head = [&[PROGRAM][..], &(order.len() as u32).to_ne_bytes()].concat();
        let first = [&head[..], parts.next().unwrap_or_default()].concat();
        let [stdin, stdout, stderr] = streams;
        let descriptors = [&control_theirs, &status_theirs, stdin, stdout, stderr];
        send(self.socket.as_fd(), &first, &descriptors.map(AsFd::as_fd))?;
        // The end of the status must be seen here.
        drop((control_theirs, status_theirs));
        for part in parts {
            // A refused order has no end to send the rest to; its reason is read below.
            if send(control.as_fd(), &ChildOrder::More(part).encode(), &[]).is_err() {
                break;
            }
        }
        LaunchedProcess::started(control, File::from(status))
    }
}

/// Starts the program anew, outside the sandbox. Returns its process id; it is no child of this
/// process. Waits some milliseconds.
///
/// # Errors
/// There is no launcher (`NotFound`), it has ended, or the error of the start.
pub fn launch(order: &LaunchOrder<'_>) -> io::Result<i32> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let standard = [(stdin.as_fd(), 0), (stdout.as_fd(), 1), (stderr.as_fd(), 2)];
    let descriptors: Vec<_> = standard.iter().chain(&order.descriptors).copied().collect();
    with_launcher(|socket| {
        for part in descriptors.chunks(PER_MESSAGE) {
            let fds: Vec<_> = part.iter().map(|(fd, _)| *fd).collect();
            send(socket, &[DESCRIPTORS], &fds)?;
            reply(socket)?;
        }
        let mut message = vec![START];
        message.extend((descriptors.len() as u32).to_ne_bytes());
        descriptors.iter().for_each(|(_, number)| message.extend(number.to_ne_bytes()));
        for (name, value) in &order.variables {
            message.extend(format!("{name}={value}\0").into_bytes());
        }
        send(socket, &message, &[])?;
        reply(socket)
    })
}

/// Ends a process that [`launch`] has started.
///
/// # Errors
/// As for [`launch`]; the launcher has not started it.
pub fn kill(process: i32) -> io::Result<()> {
    with_launcher(|socket| {
        let message = [&[KILL][..], &process.to_ne_bytes()].concat();
        send(socket, &message, &[])?;
        reply(socket).map(drop)
    })
}

fn with_launcher<T>(call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
    let server = SERVER_END.get().ok_or(io::ErrorKind::NotFound)?;
    let _held = server.upgrading.lock().unwrap_or_else(PoisonError::into_inner);
    call(server.socket.as_fd())
}

fn send(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    match descriptors::send(socket, message, fds, SendFlags::empty()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(launcher_ended()),
        sent => sent.map(drop),
    }
}

/// The launcher's answer about an upgrade: a number, or an error of the system as a negative one.
fn reply(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut answer = [0; 4];
    let length = descriptors::receive(socket, &mut answer, &mut Vec::new(), RecvFlags::empty())?;
    if length < answer.len() {
        return Err(launcher_ended());
    }
    match i32::from_ne_bytes(answer) {
        number @ 0.. => Ok(number),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
