//! Going to the background: the process that a shell started ends when the server serves, which has
//! a session of its own and no terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

static IS_DETACHED: AtomicBool = AtomicBool::new(false);

/// True in a process that goes to the background. Programs that it starts get no standard error
/// output, because the caller of the server may wait for the end of it.
pub fn is_detached() -> bool {
    IS_DETACHED.load(Ordering::Relaxed)
}

/// The two processes after [`detach`].
#[derive(Debug)]
pub enum Side {
    /// The one that was started. It ends with this exit status; `None` if the other one has ended
    /// without telling one.
    Starter(Option<u8>),
    /// The one that becomes the server.
    Server(Starting),
}

/// A server whose starter waits. Dropped, the starter is told nothing.
#[derive(Debug)]
pub struct Starting {
    outcome: File,
    null: File,
}

/// Splits the process in two. The starter's half returns when the start of the other has succeeded
/// or failed. Call before there is another thread that does anything.
///
/// # Errors
/// The system's, if there can be no other process or `/dev/null` is not there.
pub fn detach() -> io::Result<Side> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let (outcome, told) = pipe_with(PipeFlags::CLOEXEC)?;
    if fork()? {
        drop(told);
        let mut status = [0];
        return Ok(Side::Starter(
            File::from(outcome).read_exact(&mut status).ok().map(|()| status[0]),
        ));
    }
    drop(outcome);
    rustix::process::setsid()?;
    // The leader of a session could get a terminal again.
    if fork()? {
        // SAFETY: ends the process at once, without anything that the other half also does.
        unsafe { libc::_exit(0) };
    }
    IS_DETACHED.store(true, Ordering::Relaxed);
    Ok(Side::Server(Starting { outcome: told.into(), null }))
}

/// True in the parent.
fn fork() -> io::Result<bool> {
    // SAFETY: the only other thread there may be is one that waits for this one and holds no lock
    // (`threads::with_usual_stack`), so the child can go on with everything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(false),
        _ => Ok(true),
    }
}

impl Starting {
    /// The server serves: lets go of the standard streams, and the starter ends with status 0.
    ///
    /// # Errors
    /// The system's, about the streams.
    pub fn succeed(self) -> io::Result<()> {
        rustix::stdio::dup2_stdin(&self.null)?;
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        self.end(0);
        Ok(())
    }

    /// The server does not serve, and has said why: the starter ends with this status.
    pub fn fail(self, status: u8) {
        self.end(status);
    }

    fn end(mut self, status: u8) {
        // A starter that is gone does not matter.
        let _ = self.outcome.write_all(&[status]);
    }
}
