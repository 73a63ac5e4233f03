//! The process that takes this server's place: the old process's end of an upgrade.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, WaitIdOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Exit, ExitWatch, reap};
use crate::process::capabilities::AmbientCapabilities;
use crate::process::succession::{self, FrameHead, HEAD_BYTES, SuccessionFrame};

/// Variables of the service manager that name this process and not the next one.
const OURS: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"];

/// Bytes of a new process's error output that are kept.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The program of a new server.
#[derive(Clone, Debug)]
pub struct SuccessorProgram {
    /// The file to execute.
    pub path: PathBuf,
    /// Its name in the process list, which may select the behaviour of the binary.
    pub name: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl SuccessorProgram {
    /// The program, name and arguments of this process. Its path leads to the same name as at the
    /// start, so that a package may put another file there. Call it before anything changes the
    /// working directory.
    ///
    /// # Errors
    /// Neither the command line nor `/proc` names the program.
    pub fn of_this_process() -> io::Result<Self> {
        let mut line = std::env::args_os();
        let name = line.next().unwrap_or_default();
        let path = match name.as_bytes() {
            [b'/', ..] => PathBuf::from(&name),
            called if called.contains(&b'/') => std::env::current_dir()?.join(&name),
            _ => in_search_path(&name).map_or_else(std::env::current_exe, Ok)?,
        };
        Ok(Self { path, name, args: line.collect() })
    }
}

/// The first executable of this name, as execvp(3) finds it.
fn in_search_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| path.is_absolute() && path.is_file() && is_program(path))
}

/// A new server that this process has started to take its place. It outlives this process.
#[derive(Debug)]
pub struct Successor {
    pid: Pid,
    watch: ExitWatch,
    link: UnixStream,
    output: Option<pipe::Receiver>,
    printed: Vec<u8>,
}

impl Successor {
    /// Starts the program, with this process's environment, working directory and standard output.
    /// Its error output is collected until it takes over.
    ///
    /// # Errors
    /// The system's, such as `NotFound` or `PermissionDenied`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(program: &SuccessorProgram) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(&program.path);
        command
            .arg0(&program.name)
            .args(&program.args)
            .env(succession::VARIABLE, std::process::id().to_string())
            .stdin(OwnedFd::from(theirs))
            .stderr(Stdio::piped());
        for name in OURS {
            command.env_remove(name);
        }
        // The ambient set belongs to this thread, and passes through `exec`.
        let ambient = AmbientCapabilities::raise();
        let child = command.spawn();
        drop(ambient);
        let mut child = child?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let output = child.stderr.take().map(OwnedFd::from);
        let started = || -> io::Result<Self> {
            Ok(Self {
                pid,
                watch: ExitWatch::of(pid)?,
                link: UnixStream::from_std(ours)?,
                output: output.map(pipe::Receiver::from_owned_fd).transpose()?,
                printed: Vec::new(),
            })
        };
        started().inspect_err(|_| kill(pid))
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
        self.link.write_all(&head.encode()?).await?;
        for batch in descriptors.chunks(succession::BATCH) {
            let link = &self.link;
            link.async_io(Interest::WRITABLE, || succession::send_batch(link, batch)).await?;
        }
        self.link.write_all(text).await
    }

    /// Waits for its next frame, which has no descriptors. Meanwhile collects its error output.
    ///
    /// # Errors
    /// It has ended or closed the link; the frame is malformed.
    pub async fn receive(&mut self) -> io::Result<SuccessionFrame> {
        let (link, output, printed) = (&mut self.link, &mut self.output, &mut self.printed);
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
        let ended = async {
            loop {
                if let Some(exit) = reap(self.pid, WAITS_FOR_NOBODY)? {
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
        kill(self.pid);
    }
}

const WAITS_FOR_NOBODY: WaitIdOptions = WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG);

/// It does not lead a process group.
fn kill(pid: Pid) {
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
