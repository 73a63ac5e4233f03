//! A log of connections' secrets, with which debuggers such as Wireshark decrypt traffic.
//!
//! Lines have NSS's format, known by the variable `SSLKEYLOGFILE`.

use std::fmt::{self, Debug, Write as _};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::log_writer::{LogHandle, LogTarget, LogWriter};

/// A log of secrets.
#[derive(Clone)]
pub struct KeyLog(Arc<KeyLogInner>);

struct KeyLogInner {
    path: Box<Path>,
    writer: LogWriter,
}

impl Debug for KeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyLog").field(&self.path()).finish()
    }
}

impl KeyLog {
    /// Opens a file for appending; a new one is readable for its owner only.
    ///
    /// # Errors
    /// The system's error about the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        drop(append_to(path)?);
        let writer = LogWriter::open(LogTarget::File(path.to_owned()))?;
        Ok(Self(Arc::new(KeyLogInner { path: path.into(), writer })))
    }

    /// Checks that a file can be opened, and leaves nothing behind.
    ///
    /// # Errors
    /// The system's error about the file.
    pub fn try_place(path: &Path) -> io::Result<()> {
        let is_there = path.try_exists()?;
        drop(append_to(path)?);
        if is_there { Ok(()) } else { std::fs::remove_file(path) }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The log as used by one policy. It keeps the file open.
    pub(super) fn for_policy(&self) -> Arc<dyn rustls::KeyLog> {
        Arc::new(KeyLogLines { handle: self.0.writer.handle(), _file: self.clone() })
    }
}

/// A FIFO without a reader is refused rather than waited for.
fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK).open(path)
}

struct KeyLogLines {
    handle: LogHandle,
    _file: KeyLog,
}

impl Debug for KeyLogLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

impl rustls::KeyLog for KeyLogLines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = label.to_owned();
        for bytes in [client_random, secret] {
            line.push(' ');
            for byte in bytes {
                // Writing to a string cannot fail.
                let _ = write!(line, "{byte:02x}");
            }
        }
        self.handle.write_line(line.as_bytes());
    }
}
