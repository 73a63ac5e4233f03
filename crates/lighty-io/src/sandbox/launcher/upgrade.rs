//! The start of the server's own program by the launcher, for an upgrade. Program and arguments are
//! those of the process itself; an order names descriptors and a few variables.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::process::capabilities::AmbientCapabilities;
use crate::process::forked::take_signals_back;
use crate::process::own_program::OwnProgram;
use crate::process::service_manager::LEFT_OUT;

/// Beginnings of the names of variables that an order may set.
const VARIABLES: &[&str] = &["LIGHTY_UPGRADE_", "LISTEN_"];

/// Descriptors of one order.
const DESCRIPTORS_MAX: usize = 16_384;

/// Numbers from here on hold descriptors until they get their own.
const ABOVE: RawFd = 20_000;

/// Upgrades of the server.
pub(super) struct Upgrades {
    pub(super) program: OwnProgram,
    /// Descriptors for the next one.
    descriptors: Vec<OwnedFd>,
    started: Vec<i32>,
}

impl Upgrades {
    pub(super) fn of(program: OwnProgram) -> Self {
        Self { program, descriptors: Vec::new(), started: Vec::new() }
    }

    /// Keeps descriptors for the next start.
    pub(super) fn keep(&mut self, descriptors: Vec<OwnedFd>) -> io::Result<i32> {
        if self.descriptors.len() + descriptors.len() > DESCRIPTORS_MAX {
            return Err(invalid());
        }
        self.descriptors.extend(descriptors);
        Ok(0)
    }

    pub(super) fn start(&mut self, order: &[u8]) -> io::Result<i32> {
        let descriptors = std::mem::take(&mut self.descriptors);
        let started = self.start_with(order, &descriptors)?;
        self.started.push(started);
        Ok(started)
    }

    pub(super) fn kill(&self, process: &[u8]) -> io::Result<i32> {
        let process = i32::from_ne_bytes(process.try_into().map_err(io::Error::other)?);
        let is_own = self.started.contains(&process);
        let pid = Pid::from_raw(process).filter(|_| is_own).ok_or(invalid())?;
        rustix::process::kill_process(pid, Signal::KILL)?;
        Ok(0)
    }

    /// Starts the program as a grandchild, which the launcher need not wait for.
    fn start_with(&self, order: &[u8], fds: &[OwnedFd]) -> io::Result<i32> {
        let order = UpgradeOrder::parse(order).ok_or(invalid())?;
        if order.numbers.len() != fds.len() {
            return Err(invalid());
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                let started = self.spawn(order, fds);
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

    fn spawn(&self, order: UpgradeOrder, fds: &[OwnedFd]) -> io::Result<i32> {
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
                take_signals_back();
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

pub(super) fn invalid() -> io::Error {
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
struct UpgradeOrder {
    /// Numbers of the descriptors in the new process.
    numbers: Vec<RawFd>,
    variables: Vec<(OsString, OsString)>,
}

impl UpgradeOrder {
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
        Some(UpgradeOrder { numbers, variables })
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
