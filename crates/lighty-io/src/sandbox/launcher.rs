//! A process outside the sandbox that starts the programs of the configuration, and this program
//! again for an upgrade of the binary. A restricted process can execute nothing, and its programs
//! would be as restricted.
//!
//! It is forked before the restrictions, with the list of programs. Orders name a program by its
//! place in the list, so that foreign code in the server can start nothing else. The launcher ends
//! with the server, and its children get TERM then, as children of the server would.
//!
//! Reading order: this file (the server's end), `messages`, `programs` (the programs, and the
//! open parts of an order), `scripts` and `variables` (checks of CGI programs), `launched` (a
//! started program), `process` (the launcher itself), `children` (its children), `upgrade`,
//! `addresses` (sockets that it binds and connects), `next` (the launcher of the next
//! configuration).

mod addresses;
mod children;
mod launched;
mod messages;
mod next;
mod process;
mod programs;
mod scripts;
#[cfg(test)]
mod tests;
mod upgrade;
mod variables;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::process::descriptors::{self, PER_MESSAGE};
use crate::process::own_program::OwnProgram;
use crate::process::program::{ChildInput, ChildOutput, Program};
use crate::process::{execution, forked};
use crate::sandbox::Coverage;
pub use addresses::PermittedPorts;
use addresses::{AddressOrder, AddressUse};
pub(crate) use launched::LaunchedProcess;
use launched::launcher_ended;
pub use messages::LaunchRefusal;
use messages::{ChildOrder, ORDER_BYTES_MAX, PART_BYTES, ProgramOrder};
pub use next::{NextLauncher, has_plan, read_again};
use process::LauncherProcess;
pub use programs::{ConfiguredProgram, LaunchPlan, PlanReader};
pub use scripts::ScriptPlaces;
pub use variables::ConfiguredVariables;

/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(PART_BYTES + 16 <= MESSAGE_BYTES_MAX);

/// Kinds of messages: descriptors for the next upgrade, the upgrade, a signal to its process, a
/// program of the configuration, a socket to bind, connect or restrict, and a launcher for the next
/// configuration.
const DESCRIPTORS: u8 = b'd';
const START: u8 = b's';
const KILL: u8 = b'k';
const PROGRAM: u8 = b'p';
const ADDRESS: u8 = b'a';
const NEXT: u8 = b'n';

/// The server's end.
#[derive(Debug)]
struct ServerEnd {
    socket: OwnedFd,
    /// Held during an order for an upgrade: replies on the socket belong to it.
    upgrading: Mutex<()>,
    plan: LaunchPlan,
}

/// Our ends of the launchers, the newest first. None without a sandbox.
static LAUNCHERS: Mutex<Vec<Arc<ServerEnd>>> = Mutex::new(Vec::new());

/// True if programs can be started by the launcher only.
static STARTS_PROGRAMS: AtomicBool = AtomicBool::new(false);

fn launchers() -> Vec<Arc<ServerEnd>> {
    LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A start of the program by the launcher.
#[derive(Debug, Default)]
pub struct LaunchOrder<'a> {
    /// Variables besides those of the server: `LIGHTY_UPGRADE_…` and `LISTEN_…`.
    pub variables: Vec<(String, String)>,
    /// Descriptors besides the standard streams, or in their place, each with its number in the new
    /// process.
    pub descriptors: Vec<(BorrowedFd<'a>, RawFd)>,
}

/// Starts the launcher. Call it before the sandbox is entered and before the first thread. `reader`
/// plans the next configuration of a reload; without it a reload gets no further rights.
///
/// # Errors
/// The program's path is unknown, or no process can be created.
pub fn begin(plan: LaunchPlan, reader: Option<PlanReader>, coverage: Coverage) -> io::Result<()> {
    let program = OwnProgram::of_this_process()?;
    let (ours, theirs) = pair()?;
    // SAFETY: the child runs only the launcher's code, and this thread is the only one that runs.
    match unsafe { libc::fork() } {
        0 => {
            forked::leave_server(&theirs, c"lighty-launcher");
            LauncherProcess::run(theirs, program, plan, reader)
        }
        1.. => {
            let first = ServerEnd { socket: ours, upgrading: Mutex::new(()), plan };
            LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(first));
            STARTS_PROGRAMS.store(coverage == Coverage::Process, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// True if this process cannot start programs itself.
pub fn starts_programs() -> bool {
    STARTS_PROGRAMS.load(Ordering::Relaxed)
}

/// Binds a socket that the sandbox's rules do not let this process bind. Waits for the launcher.
///
/// # Errors
/// `EACCES`, if no configuration names the port; the error of the bind.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    obey_address(AddressOrder { purpose: AddressUse::Bind, address }, socket)
}

/// Begins to connect a socket that the sandbox's rules do not let this process connect. Waits for
/// the launcher. The socket becomes writable once it is connected, or has failed.
///
/// # Errors
/// As for [`bind`].
pub(crate) fn connect_blocking(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    obey_address(AddressOrder { purpose: AddressUse::Connect, address }, socket)
}

/// Has a listening socket refuse handshakes, where the kernel does not permit this process to.
///
/// # Errors
/// There is no launcher, or the system's error.
pub(crate) fn refuse_handshakes(socket: BorrowedFd<'_>) -> io::Result<()> {
    let address = SocketAddr::from(([0; 4], 0));
    obey_address(AddressOrder { purpose: AddressUse::Refuse, address }, socket)
}

fn obey_address(order: AddressOrder, socket: BorrowedFd<'_>) -> io::Result<()> {
    reply(send_address(order, socket)?.as_fd()).map(drop)
}

/// The same as [`connect_blocking`] without blocking.
///
/// # Errors
/// As for [`bind`].
pub(crate) async fn connect(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let order = AddressOrder { purpose: AddressUse::Connect, address };
    let control = send_address(order, socket)?;
    // SAFETY: the descriptor is open, and owned by the registration until the end.
    let control = unsafe { AsyncFd::register_with_interest(control, Interest::READABLE) };
    let control = control?;
    drop(control.readable().await?);
    reply(control.get_ref().as_fd()).map(drop)
}

/// Sends an order to the newest launcher that permits it. Returns the socket for the reply.
fn send_address(order: AddressOrder, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let launchers = launchers();
    let permits = launchers.iter().find(|launcher| launcher.plan.ports.permits(order));
    let launcher = permits.ok_or_else(addresses::refused)?;
    let (ours, theirs) = pair()?;
    let message = [&[ADDRESS][..], &order.encode()].concat();
    send(launcher.socket.as_fd(), &message, &[theirs.as_fd(), socket])?;
    Ok(ours)
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
    let mut known = launchers().into_iter().filter(|_| program.identity.is_none());
    let found = known.find_map(|launcher| Some((launcher.plan.order_of(&program)?, launcher)));
    let (order, launcher) = found.ok_or_else(unknown)?;
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
    let process = launcher.start(&order, &[stdin_theirs, stdout_theirs, stderr_theirs])?;
    Ok(LaunchedProgram { process, stdin, stdout, stderr })
}

/// Starts the command of a log. Returns it and our end of its standard input.
///
/// # Errors
/// As for [`start`].
pub(crate) fn start_log(command: &str, has_stderr: bool) -> io::Result<(LaunchedProcess, File)> {
    let mut known = launchers().into_iter();
    let found = known.find_map(|launcher| Some((launcher.plan.order_of_log(command)?, launcher)));
    let (order, launcher) = found.ok_or_else(unknown)?;
    let (input, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    let stderr = match has_stderr {
        true => io::stderr().as_fd().try_clone_to_owned()?,
        false => nowhere()?,
    };
    let process = launcher.start(&order, &[input, nowhere()?, stderr])?;
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
    fn start(
        self: Arc<Self>,
        order: &ProgramOrder,
        streams: &[OwnedFd; 3],
    ) -> io::Result<LaunchedProcess> {
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
        LaunchedProcess::started(self, control, File::from(status))
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
    let server = launchers().into_iter().next().ok_or(io::ErrorKind::NotFound)?;
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
