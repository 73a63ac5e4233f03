//! The loader for real files, commands and the real environment.
//!
//! This is the only code in the crate that does I/O, and only for a caller that opts in by creating
//! an [`FsLoader`]. It is in this crate because the server, the formatter and the checker all need
//! it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::glob;
use crate::limits::{COMMAND_SECONDS_MAX, FILE_BYTES_MAX};
use crate::loader::Loader;

/// Reads files, runs commands with `/bin/sh -c`, and reads the process's environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsLoader;

impl Loader for FsLoader {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        refuse_fifo(path)?;
        read_limited(File::open(path).map_err(|error| explained(path, error))?)
    }

    fn glob(&self, pattern: &str) -> io::Result<Vec<PathBuf>> {
        glob::expand(pattern)
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        run_command(command, Duration::from_secs(COMMAND_SECONDS_MAX))
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn cwd(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_default()
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
    }
}

/// Runs a command and returns its output. After `limit`, kills the command with all its child
/// processes: a start, a check or a reload is waiting for it.
fn run_command(command: &str, limit: Duration) -> io::Result<Vec<u8>> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let (child, running) = Running::start(&mut shell)?;
    let group = running.0;
    let (ended, end) = mpsc::channel();
    let wait = move || drop(ended.send(output_of(child)));
    if let Err(error) = thread::Builder::new().name("include_shell".into()).spawn(wait) {
        end_group(group);
        return Err(error);
    }
    end.recv_timeout(limit).unwrap_or_else(|_| {
        end_group(group);
        let text = format!("it was still running after {} s, which is the limit", limit.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

/// Process groups of running commands; `None` once the process is stopping.
static GROUPS: Mutex<Option<Vec<u32>>> = Mutex::new(Some(Vec::new()));

fn groups() -> MutexGuard<'static, Option<Vec<u32>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running command. Dropped when the command has ended.
struct Running(u32);

impl Running {
    /// Starts a command. Holds the lock meanwhile, so that a stopping process finds every command
    /// that has started.
    fn start(command: &mut Command) -> io::Result<(Child, Self)> {
        if let Some(reason) = REFUSAL.get() {
            SANDBOX_REFUSALS.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, *reason));
        }
        HAS_RUN.store(true, Ordering::Relaxed);
        let mut groups = groups();
        let Some(groups) = groups.as_mut() else {
            return Err(io::Error::other("the server is stopping"));
        };
        let child = command.spawn()?;
        let group = child.id();
        groups.push(group);
        Ok((child, Self(group)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(groups) = groups().as_mut() {
            groups.retain(|group| *group != self.0);
        }
    }
}

/// The error of opening a file with its cause, if that is the sandbox.
pub type Explain = fn(&Path, &io::Error) -> Option<io::Error>;

static EXPLANATION: OnceLock<Explain> = OnceLock::new();

/// Has errors of opening files explained, for a process in a sandbox that refuses files which its
/// user may read.
pub fn explain_errors(explain: Explain) {
    let _ = EXPLANATION.set(explain);
}

fn explained(path: &Path, error: io::Error) -> io::Error {
    let cause = EXPLANATION.get().and_then(|explain| explain(path, &error));
    if cause.is_some() {
        SANDBOX_REFUSALS.fetch_add(1, Ordering::Relaxed);
    }
    cause.unwrap_or(error)
}

/// Files and commands of configurations that the sandbox has refused.
static SANDBOX_REFUSALS: AtomicU64 = AtomicU64::new(0);

/// Number of files and commands of configurations that the sandbox of this process has refused.
pub fn sandbox_refusals() -> u64 {
    SANDBOX_REFUSALS.load(Ordering::Relaxed)
}

/// Reason why this process starts no commands any more.
static REFUSAL: OnceLock<&str> = OnceLock::new();

/// Refuses all commands of `include_shell` from now on, for a reason that the diagnostics give.
pub fn refuse_commands(reason: &'static str) {
    let _ = REFUSAL.set(reason);
}

/// True once a command was started.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// Returns true if this process has started a command of `include_shell`.
pub fn has_run_commands() -> bool {
    HAS_RUN.load(Ordering::Relaxed)
}

/// Kills the commands of `include_shell` that are still running, and prevents further ones. For a
/// process that stops while another thread reads a configuration.
pub fn end_commands() {
    groups().take().unwrap_or_default().into_iter().for_each(end_group);
}

/// The output of a child, once the child has exited.
fn output_of(mut child: Child) -> io::Result<Vec<u8>> {
    let output = child.stdout.take().map_or(Ok(Vec::new()), read_limited);
    if output.as_ref().map_or(true, |bytes| bytes.len() > FILE_BYTES_MAX) {
        // The command may never exit by itself, and its output is no longer needed.
        let _ = child.kill();
        let _ = child.wait();
        return output;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(io::Error::other(status.to_string()));
    }
    output
}

/// Kills a process group. Uses the shell, because the standard library only supports single
/// processes.
fn end_group(group: u32) {
    let _ = Command::new("/bin/sh").args(["-c", &format!("kill -KILL -{group}")]).status();
}

/// Refuses a named pipe: opening one blocks until another process writes to it. A pipe of this
/// process (`-f /dev/stdin`, or a shell's `<(command)`) already has its writer.
fn refuse_fifo(path: &Path) -> io::Result<()> {
    let is_own = path.starts_with("/dev") || path.starts_with("/proc");
    if !is_own && std::fs::metadata(path)?.file_type().is_fifo() {
        let text = "it is a named pipe (FIFO), not a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Reads one byte more than allowed, so that the caller detects an oversized input.
fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_give_their_output_or_the_reason() {
        assert_eq!(FsLoader.shell("echo 'a = 1'").unwrap(), b"a = 1\n");
        assert!(FsLoader.shell("exit 3").unwrap_err().to_string().contains('3'));
    }

    #[test]
    fn a_command_that_never_stops_is_stopped() {
        let bytes = FsLoader.shell("yes").unwrap();
        assert_eq!(bytes.len(), FILE_BYTES_MAX + 1);
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let begun = std::time::Instant::now();
        let limit = Duration::from_millis(300);
        let pid = std::env::temp_dir().join(format!("lighty-child-{}", std::process::id()));
        let command = format!("sleep 3600 & echo $! > {}; sleep 3600", pid.display());
        let error = run_command(&command, limit).unwrap_err();
        assert!(error.to_string().contains("still running after"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60), "it was waited for");
        let child = std::fs::read_to_string(&pid).unwrap();
        std::fs::remove_file(&pid).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // A zombie, if its new parent has not reaped it yet.
        while state().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "its child lives on");
            thread::sleep(Duration::from_millis(10));
        }
        // A command that has closed its output is killed as well.
        let error = run_command("exec >&-; sleep 3600", limit).unwrap_err();
        assert!(error.to_string().contains("still running after"), "{error}");
    }

    #[test]
    fn a_command_below_the_limit_is_waited_for() {
        let limit = Duration::from_secs(COMMAND_SECONDS_MAX);
        assert_eq!(run_command("sleep 0.2; echo b", limit).unwrap(), b"b\n");
    }

    #[test]
    fn a_named_pipe_is_refused_instead_of_waited_for() {
        let path = std::env::temp_dir().join(format!("lighty-fifo-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = FsLoader.read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("named pipe"), "{error}");
    }

    #[test]
    fn a_missing_file_says_so() {
        let error = FsLoader.read(Path::new("/nonexistent/x.conf")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
