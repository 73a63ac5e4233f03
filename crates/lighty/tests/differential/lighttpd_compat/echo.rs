//! Backends inside the test process: HTTP, FastCGI, SCGI, uwsgi and AJP13. Each responds with the
//! request that it saw, variable by variable, or with the text of `say=...` in the query.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;

use super::ajp;

/// Protocol of a backend.
#[derive(Clone, Copy)]
enum Speaks {
    Http,
    FastCgi,
    Scgi,
    Uwsgi,
    Ajp,
}

/// Received request: its variables and its body.
#[derive(Default)]
pub(crate) struct EchoedRequest {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

/// Ports of the backends: HTTP, FastCGI, SCGI, uwsgi, AJP13.
pub(crate) fn ports() -> [u16; 5] {
    static PORTS: OnceLock<[u16; 5]> = OnceLock::new();
    let all = [Speaks::Http, Speaks::FastCgi, Speaks::Scgi, Speaks::Uwsgi, Speaks::Ajp];
    *PORTS.get_or_init(|| all.map(listen))
}

fn listen(speaks: Speaks) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A peer that closes in the middle of a request is no error.
            thread::spawn(move || drop(converse(speaks, stream)));
        }
    });
    port
}

fn converse(speaks: Speaks, mut stream: TcpStream) -> std::io::Result<()> {
    match speaks {
        Speaks::Ajp => ajp::converse(&mut stream),
        Speaks::Http => {
            let seen = read_http(&mut stream)?;
            let (head, body) = seen.response(false);
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)
        }
        Speaks::Scgi | Speaks::Uwsgi => {
            let seen = match speaks {
                Speaks::Uwsgi => read_uwsgi(&mut stream)?,
                _ => read_scgi(&mut stream)?,
            };
            let (head, body) = seen.response(true);
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)
        }
        Speaks::FastCgi => loop {
            let (seen, id, keep) = read_fastcgi(&mut stream)?;
            let (head, body) = seen.response(true);
            let mut records = Vec::new();
            for part in [head.as_bytes(), &body].concat().chunks(60_000) {
                record(&mut records, 6, id, part);
            }
            record(&mut records, 6, id, &[]);
            record(&mut records, 3, id, &[0; 8]);
            stream.write_all(&records)?;
            if !keep {
                return Ok(());
            }
        },
    }
}

/// Variables that differ between servers or connections without any meaning.
const LEFT_OUT: [&str; 7] = [
    "REMOTE_PORT",
    "SERVER_SOFTWARE",
    "connection",
    "x-forwarded-server",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl EchoedRequest {
    /// Head and body; with `cgi` the status is a header field.
    pub(crate) fn response(&self, cgi: bool) -> (String, Vec<u8>) {
        if let Some((_, output)) = self.query.split_once("say=") {
            let output = decoded(output);
            let at =
                output.windows(2).position(|two| two == b"\n\n").map_or(output.len(), |at| at + 2);
            let head = String::from_utf8_lossy(&output[..at]).replace('\n', "\r\n");
            let body = output[at..].to_vec();
            if cgi {
                return (head, body);
            }
            let (status, rest) = head
                .strip_prefix("Status: ")
                .and_then(|head| head.split_once("\r\n"))
                .unwrap_or(("200 OK", &head));
            return (format!("HTTP/1.1 {status}\r\nConnection: close\r\n{rest}"), body);
        }
        let mut text = String::new();
        for (name, value) in &self.variables {
            if !LEFT_OUT.iter().any(|left| left.eq_ignore_ascii_case(name)) {
                text.push_str(&format!("{name}={value}\n"));
            }
        }
        let mut body = text.into_bytes();
        body.extend_from_slice(&self.body);
        let line = if cgi { "Status: 200 OK" } else { "HTTP/1.1 200 OK\r\nConnection: close" };
        let length = body.len();
        let fields = "Content-Type: text/plain\r\nX-Backend: echo";
        (format!("{line}\r\n{fields}\r\nContent-Length: {length}\r\n\r\n"), body)
    }
}

/// A text without percent-encoding, in which `|` ends a line and `^` ends one with CR: control
/// characters in a query are refused.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escape.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    let lines = |byte: u8| match byte {
        b'|' => b"\n".to_vec(),
        b'^' => b"\r\n".to_vec(),
        byte => vec![byte],
    };
    out.into_iter().flat_map(lines).collect()
}

fn read_until(stream: &mut TcpStream, end: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end) {
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    Ok(bytes)
}

fn read_http(stream: &mut TcpStream) -> std::io::Result<EchoedRequest> {
    let head = read_until(stream, b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap_or("");
    let mut seen = EchoedRequest::default();
    let requested = line.rsplit_once(' ').map_or(line, |(requested, _)| requested);
    seen.variables.insert("(asked)".to_owned(), requested.to_owned());
    seen.query = requested.split_once('?').map_or("", |(_, query)| query).to_owned();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let all = seen.variables.entry(name.to_ascii_lowercase()).or_default();
        let part = if all.is_empty() { "" } else { " + " };
        *all = format!("{all}{part}{}", value.trim());
    }
    let chunked = seen.variables.get("transfer-encoding").is_some_and(|v| v.contains("chunked"));
    if chunked {
        loop {
            let line = read_until(stream, b"\r\n")?;
            let size = String::from_utf8_lossy(&line).trim().to_owned();
            let size = usize::from_str_radix(size.split(';').next().unwrap_or(""), 16).unwrap_or(0);
            let mut piece = vec![0; size];
            stream.read_exact(&mut piece)?;
            seen.body.extend_from_slice(&piece);
            read_until(stream, b"\r\n")?;
            if size == 0 {
                // Only the length of a body is compared, not its framing.
                seen.variables.insert("content-length".to_owned(), seen.body.len().to_string());
                return Ok(seen);
            }
        }
    }
    let length = seen.variables.get("content-length").and_then(|text| text.parse().ok());
    seen.body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut seen.body)?;
    Ok(seen)
}

fn read_scgi(stream: &mut TcpStream) -> std::io::Result<EchoedRequest> {
    let length = read_until(stream, b":")?;
    let length = String::from_utf8_lossy(&length).trim_end_matches(':').parse();
    let mut head = vec![0; length.map_err(|_| ErrorKind::InvalidData)?];
    stream.read_exact(&mut head)?;
    read_until(stream, b",")?;
    let mut seen = EchoedRequest::default();
    let mut parts = head.split(|byte| *byte == 0);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        seen.variables.insert(text(name), text(value));
    }
    with_body(stream, seen)
}

fn read_uwsgi(stream: &mut TcpStream) -> std::io::Result<EchoedRequest> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut rest = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]]))];
    stream.read_exact(&mut rest)?;
    let mut rest = &rest[..];
    let mut text = || -> Option<String> {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (text, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        rest = behind;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let mut seen = EchoedRequest::default();
    while let (Some(name), Some(value)) = (text(), text()) {
        seen.variables.insert(name, value);
    }
    with_body(stream, seen)
}

/// Reads the body; the variables declare its length.
fn with_body(stream: &mut TcpStream, mut seen: EchoedRequest) -> std::io::Result<EchoedRequest> {
    seen.query = seen.variables.get("QUERY_STRING").cloned().unwrap_or_default();
    let length = seen.variables.get("CONTENT_LENGTH").and_then(|text| text.parse().ok());
    seen.body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut seen.body)?;
    Ok(seen)
}

fn record(out: &mut Vec<u8>, kind: u8, id: [u8; 2], content: &[u8]) {
    let length = u16::try_from(content.len()).expect("a record's length").to_be_bytes();
    out.extend_from_slice(&[1, kind, id[0], id[1], length[0], length[1], 0, 0]);
    out.extend_from_slice(content);
}

/// Returns the request, its id, and true if the connection is kept.
fn read_fastcgi(stream: &mut TcpStream) -> std::io::Result<(EchoedRequest, [u8; 2], bool)> {
    let mut parameters = Vec::new();
    let mut seen = EchoedRequest::default();
    let mut keep = false;
    loop {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let mut content = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        stream.read_exact(&mut content)?;
        stream.read_exact(&mut vec![0; usize::from(head[6])])?;
        match head[1] {
            1 => keep = content[2] & 1 == 1,
            4 => parameters.extend_from_slice(&content),
            5 if content.is_empty() => {
                let mut rest = &parameters[..];
                while let Some((name, value)) = pair(&mut rest) {
                    seen.variables.insert(name, value);
                }
                seen.query = seen.variables.get("QUERY_STRING").cloned().unwrap_or_default();
                return Ok((seen, [head[2], head[3]], keep));
            }
            5 => seen.body.extend_from_slice(&content),
            _ => {}
        }
    }
}

fn pair(rest: &mut &[u8]) -> Option<(String, String)> {
    fn length(rest: &mut &[u8]) -> Option<usize> {
        let first = *rest.first()?;
        if first < 128 {
            *rest = &rest[1..];
            return Some(usize::from(first));
        }
        let (four, behind) = rest.split_first_chunk::<4>()?;
        *rest = behind;
        Some((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
    }
    fn text(rest: &mut &[u8], length: usize) -> Option<String> {
        let (text, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    let name = length(rest)?;
    let value = length(rest)?;
    Some((text(rest, name)?, text(rest, value)?))
}
