//! Programs that outlive the process that started them, in a session of their own (spawn-fcgi).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, WaitIdOptions};

use super::{Exit, reap};

/// A program, and the socket that it gets as standard input. It inherits environment and working
/// directory.
#[derive(Debug)]
pub struct Detached {
    /// The file to execute, as for `execv`: a bare name is looked up in the working directory.
    pub path: OsString,
    /// Its arguments, without its own name.
    pub args: Vec<OsString>,
    /// Variables added to the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its standard input.
    pub socket: OwnedFd,
}

impl Detached {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(as_path(&self.path));
        command
            .arg0(&self.path)
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(self.socket.try_clone()?);
        Ok(command)
    }

    /// Starts it in a session of its own, with its output going to `output`, if there is one.
    /// Returns its process id. Call it before starting threads.
    ///
    /// # Errors
    /// Errors of `fork` or `exec`; [`io::Error::raw_os_error`] is the code.
    pub fn start(&self, output: Option<&File>) -> io::Result<i32> {
        let mut command = self.command()?;
        if let Some(output) = output {
            command.stdout(output.try_clone()?).stderr(output.try_clone()?);
        }
        // SAFETY: between fork and exec only a system call is made, which touches no memory.
        unsafe {
            command.pre_exec(|| {
                // A process that was just forked does not lead a group, so this cannot fail.
                rustix::process::setsid()?;
                Ok(())
            });
        }
        let child = command.spawn()?;
        i32::try_from(child.id()).map_err(io::Error::other)
    }

    /// Replaces this process by the program, which inherits standard output and error output.
    /// Returns only if that fails.
    pub fn replace_us(&self) -> io::Error {
        match self.command() {
            Ok(mut command) => command.exec(),
            Err(error) => error,
        }
    }
}

/// `/dev/null`, for discarding output.
///
/// # Errors
/// It does not exist, as in a bare chroot.
pub fn nowhere() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Exit status of a program that [`Detached::start`] started; `None` as long as it runs.
///
/// # Errors
/// EINVAL for a number that is not a process id.
pub fn ended(pid: i32) -> io::Result<Option<Exit>> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    reap(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
}

/// `PATH` would be searched for a bare name.
fn as_path(name: &OsStr) -> PathBuf {
    match name.as_bytes().contains(&b'/') {
        true => PathBuf::from(name),
        false => Path::new(".").join(name),
    }
}
