//! The journal of systemd, by its native protocol: a datagram of fields for each line. While
//! nothing listens on its socket, lines go to the stream that leads to the journal.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use super::syslog::split_severity;

/// The journal's socket (systemd's "Native Journal Protocol").
const SOCKET: &str = "/run/systemd/journal/socket";

/// Environment variable with another path, for a journal elsewhere.
const SOCKET_VARIABLE: &str = "LIGHTY_JOURNAL_SOCKET";

/// Longer lines are truncated: a datagram has to fit into the socket's buffer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Separates fields within a line of a log's buffer. Logs have no control characters.
const SEPARATOR: u8 = 0x1f;

/// Fields of a line in the journal, besides its text and priority.
#[derive(Debug, Default)]
pub struct JournalFields(String);

impl JournalFields {
    /// Adds a field. The name has capital letters, digits and `_`; control characters of the value
    /// become spaces.
    pub fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(char::from(SEPARATOR));
        }
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }

    /// The fields as they are passed with a line.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Appends the fields of a line to a log's buffer, before its text. Empty fields are marked, too,
/// so that no text is taken for fields.
pub(super) fn push_fields(fields: &str, buffer: &mut Vec<u8>) {
    buffer.push(SEPARATOR);
    if !fields.is_empty() {
        buffer.extend_from_slice(fields.as_bytes());
        buffer.push(SEPARATOR);
    }
    buffer.push(SEPARATOR);
}

/// Splits the fields from the beginning of a line.
fn split_fields(line: &[u8]) -> (&[u8], &[u8]) {
    let Some(rest) = line.strip_prefix(&[SEPARATOR]) else { return (b"", line) };
    match rest.windows(2).position(|pair| pair == [SEPARATOR, SEPARATOR]) {
        _ if rest.first() == Some(&SEPARATOR) => (b"", &rest[1..]),
        Some(end) => (&rest[..end], &rest[end + 2..]),
        None => (b"", rest),
    }
}

pub(super) struct Journal {
    path: PathBuf,
    socket: Option<UnixDatagram>,
}

/// A line as it goes to the journal.
struct JournalLine<'a> {
    severity: u8,
    fields: &'a [u8],
    text: &'a [u8],
}

impl Journal {
    /// Connects to the journal; `None` if nothing listens.
    pub(super) fn connect() -> Option<Self> {
        let path = std::env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| SOCKET.into());
        Self::at(path.into())
    }

    fn at(path: PathBuf) -> Option<Self> {
        let mut journal = Self { path, socket: None };
        journal.open().ok()?;
        Some(journal)
    }

    fn open(&mut self) -> io::Result<&UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(&self.path)?;
        Ok(self.socket.insert(socket))
    }

    /// Sends the first line, or writes it to `stream` with its severity. Returns its length in
    /// bytes.
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        default_severity: u8,
        stream: &mut dyn io::Write,
    ) -> io::Result<usize> {
        let end = lines.iter().position(|byte| *byte == b'\n');
        let whole = &lines[..end.unwrap_or(lines.len())];
        let (severity, rest) = split_severity(whole).unwrap_or((default_severity, whole));
        let (fields, text) = split_fields(rest);
        let text = &text[..text.len().min(LINE_BYTES_MAX)];
        if self.send(&JournalLine { severity, fields, text }).is_err() {
            let head = format!("<{severity}>");
            stream.write_all(&[head.as_bytes(), text, b"\n"].concat())?;
        }
        Ok(whole.len() + usize::from(end.is_some()))
    }

    /// Sends a line. Reconnects once, because a restarted journal may have a new socket.
    fn send(&mut self, line: &JournalLine<'_>) -> io::Result<()> {
        let message = datagram(line);
        if self.socket.as_ref().is_some_and(|socket| socket.send(&message).is_ok()) {
            return Ok(());
        }
        self.socket = None;
        self.open()?.send(&message).map(drop)
    }
}

fn datagram(line: &JournalLine<'_>) -> Vec<u8> {
    let head = format!("PRIORITY={}\nSYSLOG_IDENTIFIER=lighty\n", line.severity);
    let mut message = Vec::with_capacity(head.len() + line.fields.len() + line.text.len() + 16);
    message.extend_from_slice(head.as_bytes());
    for field in line.fields.split(|byte| *byte == SEPARATOR).filter(|field| !field.is_empty()) {
        message.extend_from_slice(field);
        message.push(b'\n');
    }
    message.extend_from_slice(b"MESSAGE=");
    message.extend_from_slice(line.text);
    message.push(b'\n');
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(listener: &UnixDatagram) -> String {
        let mut message = vec![0; 128 << 10];
        let length = listener.recv(&mut message).expect("a datagram");
        String::from_utf8(message[..length].to_vec()).expect("UTF-8")
    }

    fn line_of(fields: &[(&str, &str)], text: &str) -> Vec<u8> {
        let mut all = JournalFields::default();
        fields.iter().for_each(|(name, value)| all.add(name, value));
        let mut line = b"<4>".to_vec();
        push_fields(&all.into_text(), &mut line);
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
        line
    }

    #[test]
    fn line_has_its_fields() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        assert!(Journal::at(path.clone()).is_none(), "nothing listens");
        let listener = UnixDatagram::bind(&path).expect("bound");
        let mut journal = Journal::at(path).expect("connected");
        let fields = [("CODE_FILE", "a.rs"), ("LIGHTY_CLIENT", "a\nMESSAGE=forged")];
        let mut stream = Vec::new();
        for (line, expected) in [
            (line_of(&fields, "[warning] x"), "CODE_FILE=a.rs\nLIGHTY_CLIENT=a MESSAGE=forged\n"),
            (line_of(&[], "[warning] x"), ""),
        ] {
            let two = [line.as_slice(), b"<5>\x1f\x1fnext\n"].concat();
            assert_eq!(journal.write(&two, 6, &mut stream).expect("written"), line.len());
            let expected =
                format!("PRIORITY=4\nSYSLOG_IDENTIFIER=lighty\n{expected}MESSAGE=[warning] x\n");
            assert_eq!(received(&listener), expected);
        }
        assert!(stream.is_empty());
    }

    #[test]
    fn text_of_a_client_is_no_field() {
        let mut line = Vec::new();
        push_fields("", &mut line);
        line.extend_from_slice(b"\x1fA=b\x1f\x1ftext");
        assert_eq!(split_fields(&line), (&b""[..], &b"\x1fA=b\x1f\x1ftext"[..]));
    }

    #[test]
    fn lines_go_to_the_stream_until_the_journal_is_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).expect("bound");
        let mut journal = Journal::at(path.clone()).expect("connected");
        drop(listener);
        let (line, mut stream) = (line_of(&[("A", "b")], "one"), Vec::new());
        assert_eq!(journal.write(&line, 6, &mut stream).expect("written"), line.len());
        assert_eq!(stream, b"<4>one\n");
        std::fs::remove_file(&path).expect("removed");
        let listener = UnixDatagram::bind(&path).expect("bound");
        journal.write(&line, 6, &mut stream).expect("written");
        assert!(received(&listener).ends_with("A=b\nMESSAGE=one\n"));
        assert_eq!(stream, b"<4>one\n");
    }

    #[test]
    fn line_is_cut_at_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).expect("bound");
        let mut journal = Journal::at(path).expect("connected");
        for (length, expected) in
            [(LINE_BYTES_MAX, LINE_BYTES_MAX), (LINE_BYTES_MAX + 1, LINE_BYTES_MAX)]
        {
            let line = [&b"<4>"[..], &vec![b'x'; length], b"\n"].concat();
            let written = journal.write(&line, 6, &mut io::sink()).expect("written");
            assert_eq!(written, line.len());
            let message = received(&listener);
            assert_eq!(message.bytes().filter(|byte| *byte == b'x').count(), expected);
        }
    }
}
