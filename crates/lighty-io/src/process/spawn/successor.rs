//! The process that takes this server's place: the old process's end of an upgrade.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Exit, ExitWatch, reap};
use crate::process::capabilities::AmbientCapabilities;
use crate::process::own_program::OwnProgram;
use crate::process::service_manager::LEFT_OUT;
use crate::process::succession::{self, FrameHead, HEAD_BYTES, SuccessionFrame, SuccessionLink};
use crate::sandbox::launcher::{self, LaunchOrder};

/// Bytes of a new process's error output that are kept.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A new server that this process has started to take its place. It outlives this process.
#[derive(Debug)]
pub struct Successor {
    pid: Pid,
    /// False if the launcher has started it.
    is_child: bool,
    watch: ExitWatch,
    /// `None` once it was taken.
    link: Option<UnixStream>,
    output: Option<pipe::Receiver>,
    printed: Vec<u8>,
}

impl Successor {
    /// Starts the program, or another one, with this process's environment, working directory and
    /// standard output. Its error output is collected until it takes over. A process in a sandbox
    /// starts its own program by its launcher.
    ///
    /// # Errors
    /// The system's, such as `NotFound` or `PermissionDenied`; `Unsupported` for another program in
    /// a sandbox.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(program: &OwnProgram, other: Option<&Path>) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (output, errors) = pipe_with(PipeFlags::CLOEXEC)?;
        let (pid, is_child) = match (launcher::starts_programs(), other) {
            (true, Some(_)) => {
                let text = "the sandbox permits no program but the server's own (server.sandbox)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            (true, None) => (launch(theirs.into(), &errors)?, false),
            (false, other) => (spawn(program, other, theirs.into(), errors.try_clone()?)?, true),
        };
        drop(errors);
        let pid =
            Pid::from_raw(pid).ok_or_else(|| io::Error::other("a process without a number"))?;
        let started = || -> io::Result<Self> {
            Ok(Self {
                pid,
                is_child,
                watch: ExitWatch::of(pid)?,
                link: Some(UnixStream::from_std(ours)?),
                output: Some(pipe::Receiver::from_owned_fd(output)?),
                printed: Vec::new(),
            })
        };
        started().inspect_err(|_| end(pid, is_child))
    }

    /// Its process id.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a frame. Not safe to drop before it is ready, unless the process is killed then.
    ///
    /// # Errors
    /// The process has ended, or the frame is too long.
    pub async fn send(&mut self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let head = FrameHead { text_bytes: text.len(), descriptors: descriptors.len() };
        let link = self.link.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        link.write_all(&head.encode()?).await?;
        for batch in descriptors.chunks(succession::BATCH) {
            let link = &*link;
            link.async_io(Interest::WRITABLE, || succession::send_batch(link, batch)).await?;
        }
        link.write_all(text).await
    }

    /// Takes the link to it, for a task.
    pub fn take_link(&mut self) -> Option<SuccessionLink> {
        self.link.take().map(SuccessionLink::over)
    }

    /// Waits for its next frame, which has no descriptors. Meanwhile collects its error output.
    ///
    /// # Errors
    /// It has ended or closed the link; the frame is malformed.
    pub async fn receive(&mut self) -> io::Result<SuccessionFrame> {
        let (output, printed) = (&mut self.output, &mut self.printed);
        let link = self.link.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        tokio::select! {
            biased;
            frame = receive(link) => frame,
            never = collect_forever(output, printed) => match never {},
        }
    }

    /// Waits for its end. Meanwhile collects its error output.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn ended(&mut self) -> io::Result<Exit> {
        let (output, printed) = (&mut self.output, &mut self.printed);
        let (pid, is_child) = (self.pid, self.is_child);
        let ended = async {
            loop {
                if let Some(exit) = look(pid, is_child)? {
                    return Ok(exit);
                }
                self.watch.stirred().await?;
            }
        };
        tokio::select! {
            biased;
            exit = ended => exit,
            never = collect_forever(output, printed) => match never {},
        }
    }

    /// Its error output so far, at most 64 KB, without line ends at the end.
    pub async fn printed(&mut self) -> String {
        // It may be there already, and unread.
        let all = collect(&mut self.output, &mut self.printed);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), all).await;
        String::from_utf8_lossy(&self.printed).trim_end().to_owned()
    }

    /// Kills it, and reaps it.
    pub fn kill(&self) {
        end(self.pid, self.is_child);
    }
}

const WAITS_FOR_NOBODY: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG);

/// Starts a program as a child.
fn spawn(
    program: &OwnProgram,
    other: Option<&Path>,
    link: OwnedFd,
    errors: OwnedFd,
) -> io::Result<i32> {
    let mut command = Command::new(other.unwrap_or(&program.path));
    command
        .arg0(&program.name)
        .args(&program.args)
        .env(succession::VARIABLE, std::process::id().to_string())
        .stdin(link)
        .stderr(errors);
    for name in LEFT_OUT {
        command.env_remove(name);
    }
    // The ambient set belongs to this thread, and passes through `exec`.
    let ambient = AmbientCapabilities::raise();
    let child = command.spawn();
    drop(ambient);
    i32::try_from(child?.id()).map_err(io::Error::other)
}

/// Starts this program by the launcher.
fn launch(link: OwnedFd, errors: &OwnedFd) -> io::Result<i32> {
    let name = (succession::VARIABLE.to_owned(), std::process::id().to_string());
    launcher::launch(&LaunchOrder {
        variables: vec![name],
        descriptors: vec![(link.as_fd(), 0), (errors.as_fd(), 2)],
    })
}

/// Exit status of a process, if it has ended; that of another's child is unknown.
fn look(pid: Pid, is_child: bool) -> io::Result<Option<Exit>> {
    if is_child {
        return reap(pid, WAITS_FOR_NOBODY);
    }
    let is_there = rustix::process::pidfd_open(pid, PidfdFlags::empty()).is_ok_and(|pidfd| {
        // It becomes readable when the process ends, also as a zombie.
        let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
        rustix::event::poll(&mut watched, Some(&Timespec::default())) == Ok(0)
    });
    Ok((!is_there).then_some(Exit::Unseen))
}

/// Kills a process, and reaps a child. It does not lead a process group.
fn end(pid: Pid, is_child: bool) {
    if !is_child {
        let _ = launcher::kill(pid.as_raw_nonzero().get());
        return;
    }
    let _ = rustix::process::kill_process(pid, Signal::KILL);
    let started = crate::threads::start("reaper", Some(64 << 10), move || {
        let _ = reap(pid, WaitIdOptions::EXITED);
    });
    if started.is_err() {
        let _ = reap(pid, WAITS_FOR_NOBODY);
    }
}

async fn receive(link: &mut UnixStream) -> io::Result<SuccessionFrame> {
    let mut head = [0; HEAD_BYTES];
    link.read_exact(&mut head).await?;
    let head = FrameHead::decode(head)?;
    if head.descriptors > 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors of a new server"));
    }
    let mut text = vec![0; head.text_bytes];
    link.read_exact(&mut text).await?;
    Ok(SuccessionFrame { text, descriptors: Vec::new() })
}

async fn collect_forever(output: &mut Option<pipe::Receiver>, printed: &mut Vec<u8>) -> Infallible {
    collect(output, printed).await;
    std::future::pending().await
}

/// Reads error output to its end. Keeps its first part.
async fn collect(output: &mut Option<pipe::Receiver>, printed: &mut Vec<u8>) {
    let mut buffer = [0; 4 << 10];
    while let Some(pipe) = output {
        match pipe.read(&mut buffer).await {
            Ok(read) if read > 0 => {
                let room = OUTPUT_BYTES_MAX - printed.len();
                printed.extend_from_slice(&buffer[..read.min(room)]);
            }
            _ => *output = None,
        }
    }
}

/// A descriptor of this process's standard error output, for the new process.
///
/// # Errors
/// EMFILE and other errors of the system.
pub fn stderr() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}
