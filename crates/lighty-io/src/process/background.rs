//! Daemonization: the process started by the shell exits once the server is ready; the server has a
//! session of its own and no terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

static IS_DETACHED: AtomicBool = AtomicBool::new(false);

/// True in a daemonized process. A program that lives on and is started before
/// [`Starting::succeed`] must not inherit standard error: the caller may wait for the end of that
/// stream.
pub fn is_detached() -> bool {
    IS_DETACHED.load(Ordering::Relaxed)
}

/// The two processes after [`detach`].
#[derive(Debug)]
pub enum DetachedSide {
    /// The process that was started. It exits with the status that the server reported, 0 if it
    /// serves; `None` if the server ended without reporting one.
    Starter(Option<u8>),
    /// The process that becomes the server.
    Server(Starting),
}

/// A daemonized server during its start, while the starter waits. If dropped, the starter gets no
/// status.
#[derive(Debug)]
pub struct Starting {
    outcome: File,
    null: File,
}

/// Forks. In the starter, returns when the start of the server has succeeded or failed. Call it
/// before any other thread is active.
///
/// # Errors
/// The system's. After the first fork they are returned in the child, and the starter gets no
/// status.
pub fn detach() -> io::Result<DetachedSide> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let (outcome, sender) = pipe_with(PipeFlags::CLOEXEC)?;
    if fork()? {
        drop(sender);
        let mut status = [0];
        return Ok(DetachedSide::Starter(
            File::from(outcome).read_exact(&mut status).ok().map(|()| status[0]),
        ));
    }
    drop(outcome);
    rustix::process::setsid()?;
    // A session leader could acquire a terminal again.
    if fork()? {
        // SAFETY: ends the process at once, without the exit handlers that the child will run.
        unsafe { libc::_exit(0) };
    }
    IS_DETACHED.store(true, Ordering::Relaxed);
    Ok(DetachedSide::Server(Starting { outcome: sender.into(), null }))
}

/// True in the parent.
fn fork() -> io::Result<bool> {
    // SAFETY: any other thread only waits for this one and holds no lock
    // (`threads::with_usual_stack`), so the child can continue normally.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(false),
        _ => Ok(true),
    }
}

impl Starting {
    /// Reports success: detaches from the standard streams, and the starter exits with status 0.
    ///
    /// # Errors
    /// The system's, about the streams; the starter then gets no status.
    pub fn succeed(self) -> io::Result<()> {
        rustix::stdio::dup2_stdin(&self.null)?;
        rustix::stdio::dup2_stdout(&self.null)?;
        rustix::stdio::dup2_stderr(&self.null)?;
        self.end(0);
        Ok(())
    }

    /// Reports failure, after the error was printed: the starter exits with this status.
    pub fn fail(self, status: u8) {
        self.end(status);
    }

    fn end(mut self, status: u8) {
        // It does not matter if the starter is gone.
        let _ = self.outcome.write_all(&[status]);
    }
}
