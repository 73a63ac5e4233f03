//! The helper: a guard, its helper proper, and a worker for each check.
//!
//! The guard starts the helper again if something kills it. The helper reads requests while fewer
//! than [`WORKERS_MAX`] workers run, and kills any that takes too long. A worker checks one
//! password, so that no state of a module outlives a check.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, set_parent_process_death_signal, waitpid,
};

use super::library::{PamLibrary, PamLibraryError};
use super::message::{PamFields, PamReply, REQUEST_BYTES_MAX};
use super::{CHECK_MAX, WORKERS_MAX};
use crate::clock::deadline::Deadline;
use crate::process::{descriptors, forked};

/// Pause before the helper is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Nanoseconds between two looks at running workers.
const LOOK_NS: i64 = 20_000_000;

/// Runs the helper, and runs it again if it is killed. Returns never.
pub(super) fn run(socket: OwnedFd) -> ! {
    // A service manager sends it to all processes, and the server may serve for a while yet.
    // SAFETY: the action runs no code of ours.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    loop {
        // SAFETY: this process has one thread.
        let helper = unsafe { libc::fork() };
        let Some(pid) = Pid::from_raw(helper).filter(|_| helper > 0) else {
            // The child, or no process can be created: this one does the work.
            serve(&socket)
        };
        let ended = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
        let has_served = ended
            .is_ok_and(|ended| ended.is_some_and(|(_, status)| status.exit_status() == Some(0)));
        if has_served {
            end();
        }
        std::thread::sleep(RESTART_PAUSE);
    }
}

/// Ends the process without destructors, which belong to the server.
fn end() -> ! {
    // SAFETY: no code of this process runs after it.
    unsafe { libc::_exit(0) }
}

/// A worker that runs.
struct Worker {
    pid: Pid,
    deadline: Deadline,
}

/// Serves until the server has ended. Returns never.
fn serve(socket: &OwnedFd) -> ! {
    let library = PamLibrary::load();
    let mut workers: Vec<Worker> = Vec::new();
    loop {
        workers.retain(|worker| !has_ended(worker));
        let has_room = workers.len() < WORKERS_MAX;
        let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        let wanted = if has_room { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = [PollFd::new(socket, wanted)];
        let limit = (!workers.is_empty()).then_some(&pause);
        if poll(&mut watched, limit).is_err() {
            continue;
        }
        let events = watched[0].revents();
        if has_room && events.intersects(PollFlags::IN) {
            if let Some(worker) = take(socket, library.as_ref()) {
                workers.push(worker);
            }
        } else if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            // Workers end with their parent.
            end();
        }
    }
}

/// Reaps a worker, and kills one that takes too long.
fn has_ended(worker: &Worker) -> bool {
    if worker.deadline.is_over() {
        let _ = kill_process_group(worker.pid, Signal::KILL);
    }
    !matches!(waitpid(Some(worker.pid), WaitOptions::NOHANG), Ok(None))
}

/// Reads a request, and starts its worker. Ends the helper if the server has ended.
fn take(socket: &OwnedFd, library: Result<&PamLibrary, &PamLibraryError>) -> Option<Worker> {
    let mut message = [0; REQUEST_BYTES_MAX];
    let mut received = Vec::new();
    let length =
        match descriptors::receive(socket, &mut message, &mut received, RecvFlags::DONTWAIT) {
            Ok(0) => end(),
            Ok(length) => length,
            Err(_) => return None,
        };
    let reply_to = received.pop()?;
    let fields = PamFields::decode(&message[..length])?;
    let parent = rustix::process::getpid();
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: the worker does not use the socket, which belongs to the helper.
            unsafe { libc::close(socket.as_raw_fd()) };
            prepare(parent);
            let reply = match library {
                Ok(library) => library.check(&fields),
                Err(why) => PamReply::NoLibrary(why.to_string()),
            };
            let flags = SendFlags::DONTWAIT;
            let _ = descriptors::send(&reply_to, &reply.encode(), &[], flags);
            end()
        }
        pid => {
            let pid = Pid::from_raw(pid).filter(|_| pid > 0)?;
            Some(Worker { pid, deadline: Deadline::after(CHECK_MAX) })
        }
    }
}

/// Makes the process one that ends with the helper, in a group of its own: modules start programs.
fn prepare(parent: Pid) {
    let _ = rustix::process::setpgid(None, None);
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        end();
    }
    forked::take_signals_back();
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGTERM, libc::SIG_DFL) };
}
