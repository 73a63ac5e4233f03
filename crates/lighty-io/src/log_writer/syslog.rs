//! Syslog. While nothing listens on its socket, as in most containers, lines go to standard error.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

/// Syslog's socket.
const SOCKET: &str = "/dev/log";

/// Longer lines are truncated: RFC 3164, 4.1 requires receivers to accept only 1024 bytes; today's
/// receivers accept this many.
const LINE_BYTES_MAX: usize = 8_192;

pub(super) struct Syslog {
    path: PathBuf,
    facility: u8,
    /// Severity of lines without one.
    severity: u8,
    /// Program name and process ID, which follow the priority in each line.
    head: String,
    /// `None` while syslog does not listen.
    socket: Option<UnixDatagram>,
    is_missed: bool,
}

impl Syslog {
    pub(super) fn new(priority: u8, name: &str) -> Self {
        Self::at(SOCKET.into(), priority, name)
    }

    fn at(path: PathBuf, priority: u8, name: &str) -> Self {
        let head = format!("{name}[{}]: ", std::process::id());
        // RFC 3164, 4.1.1.
        let (facility, severity) = (priority / 8, priority % 8);
        Self { path, facility, severity, head, socket: None, is_missed: false }
    }

    pub(super) fn default_severity(&self) -> u8 {
        self.severity
    }

    /// Writes the first line and returns its length in bytes.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.write_or(lines, &mut io::stderr())
    }

    fn write_or(&mut self, lines: &[u8], instead: &mut dyn Write) -> io::Result<usize> {
        let end = lines.iter().position(|byte| *byte == b'\n');
        let line = &lines[..end.unwrap_or(lines.len())];
        let length = line.len() + usize::from(end.is_some());
        let (severity, line) = split_severity(line).unwrap_or((self.severity, line));
        match self.send(severity, &line[..line.len().min(LINE_BYTES_MAX)]) {
            Ok(()) => self.is_missed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.is_missed, true) {
                    let path = self.path.display();
                    writeln!(instead, "syslog: {path}: {error}: lines go to standard error")?;
                }
                instead.write_all(line)?;
                if end.is_some() {
                    instead.write_all(b"\n")?;
                }
            }
        }
        Ok(length)
    }

    /// Sends a line as one datagram. Reconnects once, because a restarted listener has a new
    /// socket.
    fn send(&mut self, severity: u8, line: &[u8]) -> io::Result<()> {
        let priority = format!("<{}>", self.facility * 8 + severity);
        let message = [priority.as_bytes(), self.head.as_bytes(), line].concat();
        if self.socket.as_ref().is_some_and(|socket| socket.send(&message).is_ok()) {
            return Ok(());
        }
        self.socket = None;
        let socket = UnixDatagram::unbound()?;
        socket.connect(&self.path)?;
        socket.send(&message)?;
        self.socket = Some(socket);
        Ok(())
    }
}

/// Splits a severity such as `<4>` from the beginning of a line.
pub(super) fn split_severity(line: &[u8]) -> Option<(u8, &[u8])> {
    match line {
        [b'<', digit @ b'0'..=b'7', b'>', rest @ ..] => Some((digit - b'0', rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_standard_error_until_somebody_listens() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut syslog = Syslog::at(path.clone(), 29, "lighty");
        let mut instead = Vec::new();
        for _ in 0..2 {
            assert_eq!(syslog.write_or(b"one\ntwo\n", &mut instead).expect("written"), 4);
        }
        let text = String::from_utf8(std::mem::take(&mut instead)).expect("UTF-8");
        assert!(text.starts_with("syslog: ") && text.ends_with("\none\none\n"), "{text}");
        for round in 0..2 {
            let _ = std::fs::remove_file(&path);
            let listener = UnixDatagram::bind(&path).expect("bound");
            assert_eq!(syslog.write_or(b"three", &mut instead).expect("written"), 5);
            let mut message = [0; 64];
            let length = listener.recv(&mut message).expect("a line");
            assert!(message[..length].starts_with(b"<29>lighty["), "{round}");
            assert!(message[..length].ends_with(b"]: three"), "{round}");
        }
        assert!(instead.is_empty());
    }

    #[test]
    fn lines_have_their_own_severity() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let listener = UnixDatagram::bind(&path).expect("bound");
        let mut syslog = Syslog::at(path.clone(), 29, "lighty");
        for (line, expected) in
            [("<3>bad\n", "<27>"), ("<7>fine\n", "<31>"), ("<8>odd\n", "<29>"), ("x\n", "<29>")]
        {
            assert_eq!(syslog.write(line.as_bytes()).expect("written"), line.len());
            let mut message = [0; 64];
            let length = listener.recv(&mut message).expect("a line");
            assert!(message[..length].starts_with(expected.as_bytes()), "{line}");
        }
        drop(listener);
        std::fs::remove_file(&path).expect("removed");
        let mut instead = Vec::new();
        syslog.write_or(b"<3>bad\n", &mut instead).expect("written");
        let text = String::from_utf8(instead).expect("UTF-8");
        assert!(text.ends_with("\nbad\n"), "{text}");
    }
}
