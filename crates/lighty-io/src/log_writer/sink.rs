//! The far end of a log: what is written to, how it is opened, and how it is mended. All of it
//! may block; only the thread of the log comes here.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::LogTarget;
use super::descriptor;
use super::syslog::Syslog;
use crate::process::background;
use crate::threads;

/// "Informational": of lines in the journal that say nothing of their own, as an access log's.
const JOURNAL_SEVERITY: u8 = 6;

/// Stack of a thread that waits for a command.
const REAPER_STACK_BYTES: usize = 64 << 10;

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

    /// The severity (RFC 5424, 6.2.1) of lines that come without one, if each line of this
    /// destination has to begin with its severity in angle brackets: the system's log, and the
    /// journal on a standard stream (sd-daemon(3)).
    pub(super) fn default_severity(&self) -> Option<u8> {
        let is_journal = match &self.far {
            Far::File(file) => descriptor::is_journal(file),
            Far::Stderr => descriptor::is_journal(&io::stderr()),
            Far::Pipe(_) => false,
            Far::Syslog(syslog) => return Some(syslog.default_severity()),
        };
        is_journal.then_some(JOURNAL_SEVERITY)
    }

    /// Called on the log's thread, once it has the sink: waits for the end of a command.
    pub(super) fn attend(&mut self) {
        if let Far::Pipe(command) = &mut self.far {
            command.reap();
        }
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
                self.attend();
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
    if let Some(number) = descriptor::named(path) {
        return descriptor::duplicate(number);
    }
    let is_fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    if is_fifo {
        return open_fifo(path);
    }
    // Never writable for others, whatever the umask is.
    OpenOptions::new().append(true).create(true).mode(0o644).open(path)
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
    /// Closed on drop: the command ends when it has read what there is.
    input: Option<ChildStdin>,
    /// Taken by the thread that waits for its end.
    child: Arc<Mutex<Option<Child>>>,
}

impl Command {
    fn start(command: &str) -> io::Result<Self> {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null());
        if background::is_detached() {
            shell.stderr(Stdio::null());
        }
        let mut child = shell.spawn()?;
        let input = child.stdin.take();
        Ok(Self { input, child: Arc::new(Mutex::new(Some(child))) })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(lines),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits for the end of the command on a thread of its own. Without that a shell that ends
    /// while a program of its goes on reading the log would stay a zombie. Where no thread is to be
    /// had, the next call tries again.
    fn reap(&self) {
        {
            let mut held = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(waiting) = held.as_mut() else { return };
            if matches!(waiting.try_wait(), Ok(Some(_))) {
                *held = None;
                return;
            }
        }
        let child = Arc::clone(&self.child);
        let _ = threads::start("log-command", Some(REAPER_STACK_BYTES), move || {
            let taken = child.lock().unwrap_or_else(PoisonError::into_inner).take();
            taken.map(|mut child| child.wait())
        });
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        drop(self.input.take());
        self.reap();
    }
}
