//! A launcher for the next configuration of a reload, with its programs and ports. The one before
//! makes it: it cannot be made by the server, whose restrictions it would inherit. It reads the
//! configuration itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};

use super::launched::launcher_ended;
use super::process::LauncherProcess;
use super::{LAUNCHERS, LaunchPlan, NEXT, ServerEnd, pair, send};
use crate::process::{descriptors, forked};

/// Launchers in use, beside older ones with running programs: the present configuration's, and the
/// one before for its requests under way.
const IN_USE_MAX: usize = 2;

/// Seconds until a launcher must have read the configuration.
const READING_SECONDS_MAX: i64 = 60;

/// Bytes of its first message: a number for its plan.
const HELLO_BYTES: usize = 8;

/// A launcher for the next configuration. Dropping it ends it, unless it was kept.
#[derive(Debug)]
pub struct NextLauncher(Option<Arc<ServerEnd>>);

impl NextLauncher {
    /// Keeps it, and ends older ones once their programs have ended.
    pub fn keep(mut self) {
        self.0 = None;
        LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner).truncate(IN_USE_MAX);
    }
}

impl Drop for NextLauncher {
    fn drop(&mut self) {
        if let Some(dropped) = self.0.take() {
            let mut launchers = LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner);
            launchers.retain(|known| !Arc::ptr_eq(known, &dropped));
        }
    }
}

/// True if the newest launcher has this plan.
pub fn has_plan(plan: &LaunchPlan) -> bool {
    let launchers = LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner);
    launchers.first().is_some_and(|newest| newest.plan.number() == plan.number())
}

/// Has a launcher made that reads the configuration again, whose plan this is. Blocks until it has.
///
/// # Errors
/// There is no launcher, it cannot read the configuration, or the plan became another one.
pub fn read_again(plan: LaunchPlan) -> io::Result<NextLauncher> {
    let newest = {
        let launchers = LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner);
        launchers.first().cloned().ok_or(io::ErrorKind::NotFound)?
    };
    let (ours, theirs) = pair()?;
    send(newest.socket.as_fd(), &[NEXT], &[theirs.as_fd()])?;
    drop(theirs);
    let limit = Timespec { tv_sec: READING_SECONDS_MAX, tv_nsec: 0 };
    let mut watched = [PollFd::new(&ours, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut watched, Some(&limit)))?;
    let mut hello = [0; HELLO_BYTES];
    let flags = RecvFlags::DONTWAIT;
    match descriptors::receive(&ours, &mut hello, &mut Vec::new(), flags) {
        Ok(HELLO_BYTES) if u64::from_ne_bytes(hello) == plan.number() => {}
        Ok(HELLO_BYTES) => return Err(io::Error::other("the configuration changed meanwhile")),
        Ok(_) => return Err(io::Error::other("the configuration could not be read again")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Err(_) => return Err(launcher_ended()),
    }
    let next = Arc::new(ServerEnd { socket: ours, upgrading: Mutex::new(()), plan });
    LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner).insert(0, Arc::clone(&next));
    Ok(NextLauncher(Some(next)))
}

impl LaunchPlan {
    /// A number that two plans share if they permit the same programs and ports.
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self { programs, variables, ports, .. } = self;
        format!("{programs:?} {variables:?} {ports:?}").hash(&mut hasher);
        hasher.finish()
    }
}

impl LauncherProcess {
    /// Makes a launcher that reads the configuration again. This one need not wait for it: a
    /// command in the configuration, or a dead disk, may take long.
    pub(super) fn make_next(&mut self, fds: Vec<OwnedFd>) {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(fds) else { return };
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                // This launcher need not wait for a grandchild. SAFETY: as before.
                if unsafe { libc::fork() } == 0
                    && let Some(reader) = self.take_reader()
                {
                    forked::leave_server(&socket, c"lighty-launcher");
                    if let Ok(plan) = reader() {
                        let number = plan.number().to_ne_bytes();
                        let _ = descriptors::send(&socket, &number, &[], SendFlags::DONTWAIT);
                        LauncherProcess::run(socket, self.own_program(), plan, Some(reader));
                    }
                }
                // SAFETY: ends the process without destructors, which belong to the launcher.
                unsafe { libc::_exit(0) }
            }
            child => {
                let pid = rustix::process::Pid::from_raw(child).filter(|_| child > 0);
                let options = rustix::process::WaitOptions::empty();
                if pid.is_some() {
                    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(pid, options));
                }
            }
        }
    }
}
