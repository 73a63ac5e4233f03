//! The command of a program: everything between `fork` and `exec`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::privileges::{self, Identity};
use super::program::{ChildInput, ChildOutput, Program};

/// The command of a program that leads a process group, inherits three descriptors, and gets TERM
/// when its parent dies.
///
/// # Errors
/// Descriptors or the identity cannot be had.
pub(crate) fn command(program: Program, parent: Pid) -> io::Result<Command> {
    let mut command = Command::new(&program.path);
    command.args(&program.args).env_clear().envs(program.environment).process_group(0);
    if let Some(dir) = &program.working_dir {
        command.current_dir(dir);
    }
    command.stdin(match program.stdin {
        ChildInput::Null => empty_input()?.into(),
        ChildInput::Pipe => Stdio::piped(),
        ChildInput::Fd(fd) => fd.into(),
    });
    command.stdout(output(program.stdout)).stderr(output(program.stderr));
    let become_it = program.identity.as_ref().map(Credentials::of).transpose()?;
    // SAFETY: between fork and exec only system calls are made: nothing is allocated, no lock is
    // taken, and the memory that is read was allocated before the fork.
    unsafe {
        command.pre_exec(move || {
            if let Some(credentials) = &become_it {
                credentials.assume()?;
            }
            close_the_rest();
            die_with(parent)
        });
    }
    Ok(command)
}

/// Empty standard input. Without `/dev/null` (a bare chroot), a pipe without a writer.
///
/// # Errors
/// No descriptor is free.
pub(crate) fn empty_input() -> io::Result<OwnedFd> {
    match File::open("/dev/null") {
        Ok(null) => Ok(null.into()),
        Err(_) => Ok(pipe_with(PipeFlags::CLOEXEC)?.0),
    }
}

fn output(output: ChildOutput) -> Stdio {
    match output {
        ChildOutput::Null => Stdio::null(),
        ChildOutput::Pipe => Stdio::piped(),
        ChildOutput::Fd(fd) => fd.into(),
    }
}

/// Identity of the child, looked up before the fork.
struct Credentials {
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Vec<libc::gid_t>,
}

impl Credentials {
    fn of(identity: &Identity) -> io::Result<Credentials> {
        let uid = identity.user.as_ref().map(|user| user.uid);
        Ok(Credentials { uid, gid: identity.gid, groups: privileges::groups_of(identity)? })
    }

    /// Sets supplementary groups, group and user, in this order: each step needs privileges that
    /// the next one drops.
    fn assume(&self) -> io::Result<()> {
        if self.gid.is_some() && privileges::is_root() {
            let groups = &self.groups;
            // SAFETY: the array has this many groups and outlives the call.
            check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
        }
        if let Some(gid) = self.gid {
            // SAFETY: takes a number, touches no memory of ours.
            check(unsafe { libc::setgid(gid) })?;
        }
        if let Some(uid) = self.uid {
            // SAFETY: takes a number, touches no memory of ours.
            check(unsafe { libc::setuid(uid) })?;
        }
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Marks all descriptors but the given three to be closed by exec. The server's own are marked
/// anyway; others, opened by libraries in this process, may not be.
pub(crate) fn close_the_rest() {
    // Fails before Linux 5.11; then only the marks of the server's own descriptors apply. SAFETY:
    // marks descriptors from 3 on, touches no memory.
    let _ = unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
}

/// Uses TERM, so that a backend's master may end its workers.
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // The parent may have died before this was set.
    if rustix::process::getppid() == Some(parent) {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::ESRCH))
}
