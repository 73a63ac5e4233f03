//! A process outside the sandbox that executes this program again, for an upgrade of the binary: a
//! restricted process can execute nothing, and what it executed would be as restricted.
//!
//! It is forked before the restrictions. Program and arguments are those of the process itself.
//! Orders name descriptors and a few variables, never paths, so that foreign code in the server can
//! start nothing but the server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::process::capabilities::AmbientCapabilities;
use crate::process::own_program::OwnProgram;
use crate::process::service_manager::LEFT_OUT;

/// Beginnings of the names of variables that an order may set.
const VARIABLES: &[&str] = &["LIGHTY_UPGRADE_", "LISTEN_"];

/// Descriptors in one message; the kernel's limit is 253 (SCM_MAX_FD).
const DESCRIPTORS_PER_MESSAGE: usize = 250;

/// Descriptors of one order.
const DESCRIPTORS_MAX: usize = 16_384;

/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Kinds of messages: descriptors for the next start, a start, a signal to a started process.
const DESCRIPTORS: u8 = b'd';
const START: u8 = b's';
const KILL: u8 = b'k';

/// Signals to the server's process group, which the launcher survives. It ends with the server.
const IGNORED: [libc::c_int; 5] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];

/// Numbers from here on hold descriptors until they get their own.
const ABOVE: RawFd = 20_000;

/// The server's end; `None` without a launcher.
static SERVER_END: Mutex<Option<OwnedFd>> = Mutex::new(None);

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
pub fn begin() -> io::Result<()> {
    let program = OwnProgram::of_this_process()?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair?;
    let launcher = Launcher { program, started: Vec::new() };
    // SAFETY: the child runs only the code below, and this thread is the only one that runs.
    match unsafe { libc::fork() } {
        0 => launcher.serve(theirs),
        1.. => {
            *SERVER_END.lock().unwrap_or_else(PoisonError::into_inner) = Some(ours);
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// True if there is a launcher.
pub fn is_there() -> bool {
    SERVER_END.lock().unwrap_or_else(PoisonError::into_inner).is_some()
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
        for part in descriptors.chunks(DESCRIPTORS_PER_MESSAGE) {
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

/// Ends a process that the launcher has started.
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
    // Held during the call: answers belong to one order.
    let end = SERVER_END.lock().unwrap_or_else(PoisonError::into_inner);
    let end = end.as_ref().ok_or(io::ErrorKind::NotFound)?;
    call(end.as_fd())
}

fn send(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    let bytes = rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE));
    let mut space = vec![MaybeUninit::uninit(); bytes];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The launcher's answer: a number, or an error of the system as a negative one.
fn reply(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut answer = [0; 4];
    let (length, _) = receive(socket, &mut answer, &mut Vec::new())?;
    if length < answer.len() {
        return Err(io::Error::other("the launcher has ended"));
    }
    match i32::from_ne_bytes(answer) {
        number @ 0.. => Ok(number),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn receive(
    socket: BorrowedFd<'_>,
    message: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<(usize, usize)> {
    let bytes = rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE));
    let mut space = vec![MaybeUninit::uninit(); bytes];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(message)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let before = fds.len();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok((received.bytes, fds.len() - before))
}

/// The launcher, in its process.
struct Launcher {
    program: OwnProgram,
    started: Vec<i32>,
}

impl Launcher {
    /// Serves until the server has ended. Returns never.
    fn serve(mut self, socket: OwnedFd) -> ! {
        leave_server(&socket);
        let mut fds = Vec::new();
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let answer = match receive(socket.as_fd(), &mut message, &mut fds) {
                Ok((0, _)) | Err(_) => break,
                Ok((length, _)) => self.obey(&message[..length], &mut fds),
            };
            let number = answer.unwrap_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO));
            if send(socket.as_fd(), &number.to_ne_bytes(), &[]).is_err() {
                break;
            }
        }
        // SAFETY: ends the process without destructors, which belong to the server.
        unsafe { libc::_exit(0) }
    }

    fn obey(&mut self, message: &[u8], fds: &mut Vec<OwnedFd>) -> io::Result<i32> {
        match message.split_first() {
            Some((&DESCRIPTORS, _)) if fds.len() <= DESCRIPTORS_MAX => Ok(0),
            Some((&START, order)) => {
                let started = self.start(order, std::mem::take(fds))?;
                self.started.push(started);
                Ok(started)
            }
            Some((&KILL, process)) => {
                let process = i32::from_ne_bytes(process.try_into().map_err(io::Error::other)?);
                let is_own = self.started.contains(&process);
                let pid = Pid::from_raw(process).filter(|_| is_own).ok_or(invalid())?;
                rustix::process::kill_process(pid, Signal::KILL)?;
                Ok(0)
            }
            _ => Err(invalid()),
        }
    }

    /// Starts the program as a grandchild, which the launcher need not wait for.
    fn start(&self, order: &[u8], fds: Vec<OwnedFd>) -> io::Result<i32> {
        let order = ParsedOrder::parse(order).ok_or(invalid())?;
        if order.numbers.len() != fds.len() {
            return Err(invalid());
        }
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                let started = self.spawn(order, &fds);
                let failed = |error: io::Error| -error.raw_os_error().unwrap_or(libc::EIO);
                let number = started.unwrap_or_else(failed);
                let _ = rustix::io::write(&writer, &number.to_ne_bytes());
                // SAFETY: ends the process without destructors, which belong to the launcher.
                unsafe { libc::_exit(0) }
            }
            -1 => Err(io::Error::last_os_error()),
            child => {
                drop(writer);
                let mut answer = [0; 4];
                let length = rustix::io::retry_on_intr(|| rustix::io::read(&reader, &mut answer));
                let _ = rustix::io::retry_on_intr(|| {
                    rustix::process::waitpid(Pid::from_raw(child), WaitOptions::empty())
                });
                match (length?, i32::from_ne_bytes(answer)) {
                    (4, number @ 0..) => Ok(number),
                    (4, error) => Err(io::Error::from_raw_os_error(-error)),
                    _ => Err(io::Error::from_raw_os_error(libc::ECHILD)),
                }
            }
        }
    }

    fn spawn(&self, order: ParsedOrder, fds: &[OwnedFd]) -> io::Result<i32> {
        // Out of the way of the final numbers.
        let moved: io::Result<Vec<OwnedFd>> = fds.iter().map(above).collect();
        let pairs: Vec<(OwnedFd, RawFd)> = moved?.into_iter().zip(order.numbers).collect();
        let mut command = Command::new(&self.program.path);
        command.arg0(&self.program.name).args(&self.program.args);
        for name in LEFT_OUT {
            command.env_remove(name);
        }
        command.envs(order.variables);
        // The ambient set belongs to this thread, and passes through `exec`.
        let _ambient = AmbientCapabilities::raise();
        // SAFETY: between fork and exec only system calls are made, and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                for signal in IGNORED {
                    libc::signal(signal, libc::SIG_DFL);
                }
                for (fd, number) in &pairs {
                    // SAFETY: the number replaces nothing that the new program needs.
                    if libc::dup2(fd.as_raw_fd(), *number) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        i32::try_from(command.spawn()?.id()).map_err(io::Error::other)
    }
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// A copy of a descriptor with a high number, or with any if the limit is low.
fn above(fd: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: takes and returns numbers.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, ABOVE) };
    if copy < 0 {
        return fd.try_clone();
    }
    // SAFETY: the call has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A start as ordered.
struct ParsedOrder {
    /// Numbers of the descriptors in the new process.
    numbers: Vec<RawFd>,
    variables: Vec<(OsString, OsString)>,
}

impl ParsedOrder {
    /// Reads an order; `None` if it is malformed.
    fn parse(order: &[u8]) -> Option<Self> {
        let (count, mut rest) = order.split_first_chunk::<4>()?;
        let mut numbers = Vec::new();
        for _ in 0..u32::from_ne_bytes(*count) {
            let (number, after) = rest.split_first_chunk::<4>()?;
            let number = RawFd::from_ne_bytes(*number);
            numbers.push(Some(number).filter(|number| (0..ABOVE).contains(number))?);
            rest = after;
        }
        let texts = rest.split(|byte| *byte == 0).filter(|text| !text.is_empty());
        let variables = texts.map(variable).collect::<Option<_>>()?;
        Some(ParsedOrder { numbers, variables })
    }
}

/// Name and value of a variable that an order may set.
fn variable(text: &[u8]) -> Option<(OsString, OsString)> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&text[..at], &text[at + 1..]);
    let is_allowed = VARIABLES.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    is_allowed.then(|| (owned(name), owned(value)))
}

/// Closes the server's descriptors and takes back its signal handlers. The launcher keeps its
/// socket alone: a caller that waits for the end of the server's output must not wait for it.
fn leave_server(socket: &OwnedFd) {
    // SAFETY: the name ends with a zero byte and outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"lighty-launcher".as_ptr()) };
    for signal in 1..=libc::SIGSYS {
        let action = if IGNORED.contains(&signal) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: neither action runs code of ours.
        unsafe { libc::signal(signal, action) };
    }
    if let Ok(nowhere) = File::options().read(true).write(true).open("/dev/null") {
        for number in 0..=2 {
            // SAFETY: the standard streams have no other owner that closes them.
            unsafe { libc::dup2(nowhere.as_raw_fd(), number) };
        }
    }
    let own = socket.as_raw_fd();
    let ranges = [(3, own.saturating_sub(1)), (own + 1, RawFd::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: the server's owners of these descriptors do not exist in this process.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if closed != 0 {
            close_each(first, last.min(ABOVE * 4));
        }
    }
}

/// Closes descriptors on kernels before 5.9.
fn close_each(first: RawFd, last: RawFd) {
    for number in first..=last {
        // SAFETY: as for the range.
        unsafe { libc::close(number) };
    }
}
