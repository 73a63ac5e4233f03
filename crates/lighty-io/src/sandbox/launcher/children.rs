//! Children of the launcher: programs of the configuration.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use super::messages::{ChildOrder, LaunchReply, PART_BYTES};
use super::programs::PermittedProgram;
use crate::process::forked::take_signals_back;
use crate::process::program::{ChildInput, ChildOutput, Exit};
use crate::process::{descriptors, execution};

/// Descriptors of an order.
pub(super) struct ChildDescriptors {
    /// The launcher's end of the socket for this program.
    pub(super) control: OwnedFd,
    /// Closed by `exec`; gets the error of a failed one.
    pub(super) status: OwnedFd,
    /// Standard input, output and error output.
    pub(super) streams: [OwnedFd; 3],
}

impl ChildDescriptors {
    /// `None` if the number is wrong.
    pub(super) fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [control, status, stdin, stdout, stderr] = descriptors.try_into().ok()?;
        Some(Self { control, status, streams: [stdin, stdout, stderr] })
    }
}

/// A program that was started, and has not been reaped.
pub(super) struct LaunchedChild {
    pid: Pid,
    pub(super) control: OwnedFd,
    /// The server has closed its end of the socket.
    is_orphaned: bool,
    /// Readable when the process has ended; `None` on kernels before 5.3.
    pub(super) pidfd: Option<OwnedFd>,
    exit: Option<Exit>,
    /// It leads a process group, and gets signals.
    is_bound: bool,
}

impl LaunchedChild {
    /// Starts a program. Does not wait for `exec`, which may take long.
    ///
    /// # Errors
    /// No process can be created. The socket is returned, for the reply.
    pub(super) fn start(
        program: PermittedProgram,
        descriptors: ChildDescriptors,
    ) -> Result<Self, (io::Error, OwnedFd)> {
        let parent = rustix::process::getpid();
        let ChildDescriptors { control, status, streams } = descriptors;
        let is_bound = matches!(program, PermittedProgram::Bound(_));
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                take_signals_back();
                let error = execute(program, streams, parent);
                let code = error.raw_os_error().unwrap_or(libc::EINVAL);
                let _ = rustix::io::write(&status, &code.to_ne_bytes());
                // SAFETY: ends the process without destructors, which belong to the launcher.
                unsafe { libc::_exit(127) }
            }
            -1 => Err((io::Error::last_os_error(), control)),
            child => {
                let Some(pid) = Pid::from_raw(child) else {
                    return Err((io::Error::from_raw_os_error(libc::ECHILD), control));
                };
                let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
                send_reply(&control, &LaunchReply::Started(child));
                Ok(Self { pid, control, is_orphaned: false, pidfd, exit: None, is_bound })
            }
        }
    }

    /// True if the end of the process must be looked for.
    pub(super) fn needs_looks(&self) -> bool {
        self.pidfd.is_none() && self.exit.is_none()
    }

    /// True if the end of the process is known.
    pub(super) fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// True if the server has closed its end of the socket.
    pub(super) fn is_orphaned(&self) -> bool {
        self.is_orphaned
    }

    /// Notes the end of the process, if it has ended. Returns true if nothing is left to do.
    pub(super) fn look(&mut self) -> bool {
        if self.exit.is_none() {
            // It stays a zombie, so that its number is not used again.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            self.exit = wait(self.pid, options);
            if let Some(exit) = self.exit {
                send_reply(&self.control, &LaunchReply::Ended(exit));
            }
        }
        self.is_orphaned && self.reap()
    }

    /// Reads orders of the server. Returns true if nothing is left to do.
    pub(super) fn obey(&mut self) -> bool {
        let mut message = vec![0; 16];
        loop {
            let (socket, flags) = (self.control.as_fd(), RecvFlags::DONTWAIT);
            // Descriptors are dropped.
            match descriptors::receive(socket, &mut message, &mut Vec::new(), flags) {
                Ok(0) => return self.lose_server(),
                Ok(length) => match ChildOrder::decode(&message[..length]) {
                    Some(ChildOrder::Signal(number)) => self.signal(number),
                    Some(ChildOrder::Reap) if self.reap() => return true,
                    _ => {}
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return self.lose_server(),
            }
        }
    }

    /// The server has closed its end: it has abandoned the program, or has ended.
    pub(super) fn lose_server(&mut self) -> bool {
        self.is_orphaned = true;
        if self.exit.is_none() && self.is_bound {
            let _ = rustix::process::kill_process(self.pid, Signal::TERM);
        }
        self.reap()
    }

    fn signal(&self, number: i32) {
        // It is not reaped yet, so the number of its group belongs to it.
        if let Some(signal) = Signal::from_named_raw(number).filter(|_| self.is_bound) {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }

    /// Frees the number of a process that has ended. Returns false if it has not.
    fn reap(&self) -> bool {
        if self.exit.is_none() {
            return false;
        }
        let _ = wait(self.pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        true
    }
}

/// Sends a reply; a server that does not read gets none.
pub(super) fn send_reply(control: &OwnedFd, reply: &LaunchReply) {
    let _ = descriptors::send(control, &reply.encode(), &[], SendFlags::DONTWAIT);
}

/// The end of a process, if it has ended.
fn wait(pid: Pid, options: WaitIdOptions) -> Option<Exit> {
    match rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options)) {
        Ok(status) => status.map(|status| match status.terminating_signal() {
            Some(number) => Exit::Signal(number),
            None => Exit::Code(status.exit_status().unwrap_or(-1)),
        }),
        Err(Errno::CHILD) => Some(Exit::Unseen),
        Err(_) => None,
    }
}

/// Becomes the program. Returns only if that fails.
fn execute(program: PermittedProgram, streams: [OwnedFd; 3], parent: Pid) -> io::Error {
    let [stdin, stdout, stderr] = streams;
    match program {
        PermittedProgram::Bound(mut program) => {
            program.stdin = ChildInput::Fd(stdin);
            program.stdout = ChildOutput::Fd(stdout);
            program.stderr = ChildOutput::Fd(stderr);
            match execution::command(program, parent) {
                Ok(mut command) => command.exec(),
                Err(error) => error,
            }
        }
        PermittedProgram::LogCommand(text) => {
            execution::close_the_rest();
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &text]).stdin(stdin).stdout(stdout).stderr(stderr).exec()
        }
    }
}

/// The rest of an order that was longer than a message.
pub(super) struct PendingOrder {
    pub(super) descriptors: ChildDescriptors,
    bytes: Vec<u8>,
    total: usize,
}

impl PendingOrder {
    pub(super) fn new(descriptors: ChildDescriptors, first: &[u8], total: usize) -> Self {
        Self { descriptors, bytes: first.to_vec(), total }
    }

    /// Reads further parts. `Ok(true)` once the order is complete.
    ///
    /// # Errors
    /// The server sent something else, too much, or has gone.
    pub(super) fn read(&mut self) -> Result<bool, ()> {
        let mut message = vec![0; PART_BYTES + 1];
        while self.bytes.len() < self.total {
            let (socket, flags) = (self.descriptors.control.as_fd(), RecvFlags::DONTWAIT);
            match descriptors::receive(socket, &mut message, &mut Vec::new(), flags) {
                Ok(length) => match ChildOrder::decode(&message[..length]) {
                    Some(ChildOrder::More(part)) if !part.is_empty() => {
                        self.bytes.extend_from_slice(part);
                    }
                    _ => return Err(()),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(()),
            }
        }
        if self.bytes.len() == self.total { Ok(true) } else { Err(()) }
    }

    /// The order and its descriptors.
    pub(super) fn complete(self) -> (Vec<u8>, ChildDescriptors) {
        (self.bytes, self.descriptors)
    }
}
