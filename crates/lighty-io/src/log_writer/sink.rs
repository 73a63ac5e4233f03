//! A log's destination: opening, writing and repairing it. All of these may block, so only the
//! log's thread calls them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use super::LogTarget;
use super::descriptor;
use super::journal::Journal;
use super::rotation::{Rotation, RotationStep, Rotator, append_to};
use super::syslog::Syslog;
use crate::process::background;
use crate::sandbox;
use crate::sandbox::launcher::{self, LaunchedProcess};
use crate::threads;

/// "Informational": severity of journal lines without a severity of their own, as in an access log.
const JOURNAL_SEVERITY: u8 = 6;

/// Stack of a thread that waits for a command.
const REAPER_STACK_BYTES: usize = 64 << 10;

pub(super) struct Sink {
    target: LogTarget,
    far: Far,
    rotator: Rotator,
    /// The target is a file, and no descriptor that somebody else has named.
    has_own_file: bool,
}

/// Form of the lines that a destination takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineForm {
    /// The severity (RFC 5424, 6.2.1) of lines that come without one, if each line of this
    /// destination has to begin with its severity in angle brackets: the system's log, and the
    /// journal on a standard stream (sd-daemon(3)).
    pub(super) default_severity: Option<u8>,
    /// Fields follow the severity: the journal.
    pub(super) has_fields: bool,
}

enum Far {
    File(File),
    Pipe(LogCommand),
    Syslog(Syslog),
    /// The journal, and the stream that leads to it.
    Journal(Journal, File),
    Stderr,
}

impl Sink {
    pub(super) fn open(target: LogTarget) -> io::Result<Self> {
        let far = Far::open(&target)?;
        let has_own_file =
            matches!(&target, LogTarget::File(path) if descriptor::named(path).is_none());
        Ok(Sink { target, far, rotator: Rotator::default(), has_own_file })
    }

    /// The form of its lines.
    pub(super) fn line_form(&self) -> LineForm {
        let has_fields = matches!(self.far, Far::Journal(..));
        let default_severity = match &self.far {
            Far::File(file) => descriptor::is_journal(file).then_some(JOURNAL_SEVERITY),
            Far::Stderr => descriptor::is_journal(&io::stderr()).then_some(JOURNAL_SEVERITY),
            Far::Pipe(_) => None,
            Far::Journal(..) => Some(JOURNAL_SEVERITY),
            Far::Syslog(syslog) => Some(syslog.default_severity()),
        };
        LineForm { default_severity, has_fields }
    }

    /// Rotates the file from now on by these rules. Other destinations have no files.
    pub(super) fn set_rotation(&mut self, rotation: Option<Rotation>) {
        self.rotator.rotation = rotation.filter(|_| self.has_own_file);
    }

    /// Rotates the file, if that is due before the next lines. Returns the number of bytes to write
    /// next, in whole lines.
    ///
    /// # Errors
    /// The system's error. The present file goes on for a while then.
    pub(super) fn rotate_if_due(&mut self, lines: &[u8]) -> io::Result<usize> {
        let (Far::File(file), LogTarget::File(path)) = (&mut self.far, &self.target) else {
            return Ok(lines.len());
        };
        if self.rotator.step(file, lines) == RotationStep::Rotate {
            *file = self.rotator.rotate(path, file)?;
        }
        match self.rotator.step(file, lines) {
            RotationStep::Write(bytes) => Ok(bytes),
            // Another process has filled the file in the meantime.
            RotationStep::Rotate => Ok(lines.len()),
        }
    }

    /// Called on the log's thread once it has the sink: starts to wait for the end of a command.
    pub(super) fn attend(&mut self) {
        if let Far::Pipe(command) = &mut self.far {
            command.reap();
        }
    }

    /// Opens a file again by its name. Other destinations cannot be renamed.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if matches!(self.far, Far::File(_)) {
            self.far = Far::open(&self.target)?;
        }
        Ok(())
    }

    /// Restarts a command after an error. A file is left as it is, because the disk may have space
    /// again later.
    pub(super) fn repair(&mut self) {
        if matches!(self.far, Far::Pipe(_)) {
            // If this fails, the next write fails and calls this function again.
            if let Ok(far) = Far::open(&self.target) {
                self.far = far;
                self.attend();
            }
        }
    }

    /// Writes a part of the lines and returns its length in bytes.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let written = match &mut self.far {
            Far::File(file) => file.write(lines),
            Far::Pipe(command) => command.write(lines),
            Far::Syslog(syslog) => syslog.write(lines),
            Far::Journal(journal, stream) => journal.write(lines, JOURNAL_SEVERITY, stream),
            Far::Stderr => io::stderr().write(lines),
        };
        if let (Far::File(_), Ok(bytes)) = (&self.far, &written) {
            self.rotator.note(&lines[..*bytes]);
        }
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
            LogTarget::File(path) => open_file(path).map(Far::of_file),
            LogTarget::Pipe(command) => LogCommand::start(command).map(Far::Pipe),
            LogTarget::Syslog { priority, name } => Ok(Far::Syslog(Syslog::new(*priority, name))),
            LogTarget::Stderr => Ok(match stderr_to_journal() {
                Some((journal, stream)) => Far::Journal(journal, stream),
                None => Far::Stderr,
            }),
        }
    }

    fn of_file(file: File) -> Self {
        match descriptor::is_journal(&file).then(Journal::connect).flatten() {
            Some(journal) => Far::Journal(journal, file),
            None => Far::File(file),
        }
    }
}

/// The journal, if standard error leads to it and it listens.
fn stderr_to_journal() -> Option<(Journal, File)> {
    if !descriptor::is_journal(&io::stderr()) {
        return None;
    }
    let stream = descriptor::duplicate(libc::STDERR_FILENO).ok()?;
    Some((Journal::connect()?, stream))
}

fn open_file(path: &Path) -> io::Result<File> {
    if let Some(number) = descriptor::named(path) {
        return descriptor::duplicate(number);
    }
    let is_fifo = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    if is_fifo {
        return open_fifo(path);
    }
    append_to(path).map_err(|error| sandbox::explained_write(path, error))
}

/// Opens a named pipe. Without a reader, opening it for writing only would block. Opened for both
/// (fifo(7)), it buffers the lines for a later reader.
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
struct LogCommand {
    /// Closed on drop: the command ends when it has read the rest.
    input: Option<File>,
    /// Taken by the thread that waits for the command.
    process: Arc<Mutex<Option<LogProcess>>>,
}

/// The process of a command.
enum LogProcess {
    /// A child of this process.
    Own(Child),
    /// A child of the sandbox's launcher.
    Launched(LaunchedProcess),
}

impl LogProcess {
    /// True if it has ended. Frees its process id then.
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Own(child) => matches!(child.try_wait(), Ok(Some(_))),
            Self::Launched(process) => {
                let has_ended = matches!(process.look(), Ok(Some(_)));
                if has_ended {
                    process.reap();
                }
                has_ended
            }
        }
    }

    fn wait(self) {
        match self {
            Self::Own(mut child) => drop(child.wait()),
            Self::Launched(process) => drop(process.wait()),
        }
    }
}

impl LogCommand {
    fn start(command: &str) -> io::Result<Self> {
        let has_stderr = !background::is_detached();
        let (process, input) = match launcher::starts_programs() {
            true => {
                let (process, input) = launcher::start_log(command, has_stderr)?;
                (LogProcess::Launched(process), Some(input))
            }
            false => {
                let mut shell = std::process::Command::new("/bin/sh");
                shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::null());
                if !has_stderr {
                    shell.stderr(Stdio::null());
                }
                let mut child = shell.spawn()?;
                let input = child.stdin.take().map(|input| File::from(OwnedFd::from(input)));
                (LogProcess::Own(child), input)
            }
        };
        Ok(Self { input, process: Arc::new(Mutex::new(Some(process))) })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(lines),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits for the end of the command on a thread of its own. Otherwise a shell that exits while
    /// one of its programs still reads the log would stay a zombie. If no thread is available, the
    /// next call tries again.
    fn reap(&self) {
        {
            let mut held = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(waiting) = held.as_mut() else { return };
            if waiting.has_ended() {
                *held = None;
                return;
            }
        }
        let process = Arc::clone(&self.process);
        let _ = threads::start("log-command", Some(REAPER_STACK_BYTES), move || {
            let taken = process.lock().unwrap_or_else(PoisonError::into_inner).take();
            taken.map(LogProcess::wait)
        });
    }
}

impl Drop for LogCommand {
    fn drop(&mut self) {
        drop(self.input.take());
        self.reap();
    }
}
