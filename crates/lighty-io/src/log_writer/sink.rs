//! The far end of a log: what is written to, how it is opened, and how it is mended. All of it
//! may block; only the thread of the log comes here.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Stdio};

use super::LogTarget;
use super::syslog::Syslog;
use crate::threads;

pub(super) struct Sink {
    target: LogTarget,
    far: Far,
}

enum Far {
    File(File),
    Pipe(Command),
    Syslog(Syslog),
    Stderr,
}

impl Sink {
    pub(super) fn open(target: LogTarget) -> io::Result<Self> {
        Ok(Sink { far: Far::open(&target)?, target })
    }

    /// Opens a file again under its name. The rest has no name that could be moved.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if matches!(self.far, Far::File(_)) {
            self.far = Far::open(&self.target)?;
        }
        Ok(())
    }

    /// After an error: makes a new pipe. A file is left as it is, for the
    /// disk may have room again later.
    pub(super) fn repair(&mut self) {
        if matches!(self.far, Far::Pipe(_)) {
            // If it fails, writing fails again, and this is the next to be tried.
            if let Ok(far) = Far::open(&self.target) {
                self.far = far;
            }
        }
    }

    /// Writes some of the lines, and says how many bytes.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let written = match &mut self.far {
            Far::File(file) => file.write(lines),
            Far::Pipe(command) => command.write(lines),
            Far::Syslog(syslog) => syslog.write(lines),
            Far::Stderr => io::stderr().write(lines),
        };
        match written {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            written => written,
        }
    }
}

impl Far {
    fn open(target: &LogTarget) -> io::Result<Self> {
        match target {
            LogTarget::File(path) => open_file(path).map(Far::File),
            LogTarget::Pipe(command) => Command::start(command).map(Far::Pipe),
            LogTarget::Syslog { priority, name } => Ok(Far::Syslog(Syslog::new(*priority, name))),
            LogTarget::Stderr => Ok(Far::Stderr),
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let is_fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    if is_fifo { open_fifo(path) } else { OpenOptions::new().append(true).create(true).open(path) }
}

/// A named pipe without a reader would block a caller that opens it for writing alone. Opened for
/// both (fifo(7)), it keeps what is written for a reader who comes later.
fn open_fifo(path: &Path) -> io::Result<File> {
    let without_waiting = libc::O_NONBLOCK;
    match OpenOptions::new().append(true).custom_flags(without_waiting).open(path) {
        Ok(read_by_somebody) => {
            rustix::fs::fcntl_setfl(&read_by_somebody, rustix::fs::OFlags::APPEND)?;
            Ok(read_by_somebody)
        }
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            OpenOptions::new().read(true).write(true).open(path)
        }
        Err(error) => Err(error),
    }
}

/// A command that reads a log from its standard input.
struct Command {
    /// Taken when it is dropped.
    child: Option<Child>,
}

impl Command {
    fn start(command: &str) -> io::Result<Self> {
        let child = std::process::Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child: Some(child) })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self.child.as_mut().and_then(|child| child.stdin.as_mut()) {
            Some(input) => input.write(lines),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Command {
    /// The command ends when it has read what there is. A thread waits for that, so that no zombie
    /// remains and no log is held up.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        drop(child.stdin.take());
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = threads::start("log-command", None, move || child.wait());
        }
    }
}
