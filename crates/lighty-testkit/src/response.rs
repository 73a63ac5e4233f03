//! A strict reader of HTTP/1 responses: rejects every response that a careful client would reject.
//!
//! Deliberately independent of the server's own codec: a mistake shared by both would go unnoticed.
//! RFC 9112 sections 4 to 7.

use std::fmt;

/// A response with its body decoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// Minor version: 0 or 1.
    pub minor: u8,
    /// Status code.
    pub status: u16,
    /// Fields in order, with names as sent.
    pub fields: Vec<(String, String)>,
    /// Body, decoded from its framing.
    pub body: Vec<u8>,
    /// Status codes of the interim responses (1xx) before this one.
    pub interim: Vec<u16>,
    /// True if the body ended with the connection.
    pub until_close: bool,
    /// Lines after the last chunk.
    pub trailers: Vec<String>,
}

impl Response {
    /// The value of the only field of this name; panics if there are several.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut found = self.all(name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} occurs more than once: {self:?}");
        first
    }

    /// The values of every field of this name.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.fields
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// The body as text; panics if it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// True if the response announces that the connection closes.
    #[must_use]
    pub fn says_close(&self) -> bool {
        let options = self.field("Connection").unwrap_or("");
        let has = |token: &str| options.split(',').any(|o| o.trim().eq_ignore_ascii_case(token));
        has("close") || (self.minor == 0 && !has("keep-alive"))
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "HTTP/1.{} {}", self.minor, self.status)?;
        for (name, value) in &self.fields {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(400)];
        write!(f, "[{} bytes] {}", self.body.len(), String::from_utf8_lossy(shown))
    }
}

/// Framing of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyFraming {
    Length(u64),
    Chunked,
    UntilClose,
}

/// A parsed head: the response without its body, and the body's framing.
pub(crate) struct Head {
    pub(crate) response: Response,
    pub(crate) framing: BodyFraming,
    pub(crate) length: usize,
}

/// Parses a head once it is complete in `bytes`. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// A description of the error in the server's output.
pub(crate) fn parse_head(bytes: &[u8], to_head: bool) -> Result<Option<Head>, String> {
    let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| "head is not UTF-8")?;
    let mut lines = text.split("\r\n");
    let (minor, status) = status_line(lines.next().unwrap_or(""))?;
    let fields = lines.map(field_line).collect::<Result<Vec<_>, _>>()?;
    let response = Response {
        minor,
        status,
        fields,
        body: Vec::new(),
        interim: Vec::new(),
        until_close: false,
        trailers: Vec::new(),
    };
    let framing = framing_of(&response, to_head)?;
    Ok(Some(Head { response, framing, length: end + 4 }))
}

fn status_line(line: &str) -> Result<(u8, u16), String> {
    let wrong = || format!("bad status line {line:?}");
    let rest = line.strip_prefix("HTTP/1.").ok_or_else(wrong)?;
    let (minor, rest) = rest.split_at_checked(1).ok_or_else(wrong)?;
    let minor = minor.parse().ok().filter(|m| *m <= 1).ok_or_else(wrong)?;
    let rest = rest.strip_prefix(' ').ok_or_else(wrong)?;
    let (code, reason) = rest.split_once(' ').ok_or_else(wrong)?;
    if code.len() != 3 || reason.chars().any(char::is_control) {
        return Err(wrong());
    }
    let code = code.parse().map_err(|_| wrong())?;
    if !(100..600).contains(&code) {
        return Err(wrong());
    }
    Ok((minor, code))
}

fn field_line(line: &str) -> Result<(String, String), String> {
    let wrong = || format!("bad field line {line:?}");
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(wrong());
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(wrong());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// Determines the framing. RFC 9112 section 6.3, with an error for everything that a lenient reader
/// accepts.
fn framing_of(response: &Response, to_head: bool) -> Result<BodyFraming, String> {
    let length = response.field("Content-Length");
    let coding = response.field("Transfer-Encoding");
    if length.is_some() && coding.is_some() {
        return Err("both Content-Length and Transfer-Encoding".into());
    }
    let status = response.status;
    if (status < 200 || status == 204) && (length.is_some() || coding.is_some()) {
        return Err(format!("{status} with a framing field"));
    }
    let length = length
        .map(|text| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten().ok_or(format!("Content-Length: {text}"))
        })
        .transpose()?;
    if to_head || status < 200 || status == 204 || status == 304 {
        return Ok(BodyFraming::Length(0));
    }
    match (length, coding) {
        (Some(length), _) => Ok(BodyFraming::Length(length)),
        (None, Some("chunked")) if response.minor == 1 => Ok(BodyFraming::Chunked),
        (None, Some(other)) => Err(format!("Transfer-Encoding: {other}")),
        (None, None) => Ok(BodyFraming::UntilClose),
    }
}

/// A chunked body during reception.
#[derive(Default)]
pub(crate) struct Chunks {
    /// Data of the complete chunks so far.
    pub(crate) body: Vec<u8>,
    /// Lines after the last chunk.
    pub(crate) trailers: Vec<String>,
}

impl Chunks {
    /// Takes complete chunks off the front of `bytes`; `true` after the last one.
    ///
    /// # Errors
    /// A description of the error in the server's output.
    pub(crate) fn take(&mut self, bytes: &mut Vec<u8>) -> Result<bool, String> {
        let mut at = 0;
        let ended = loop {
            match next_chunk(&bytes[at..])? {
                FramingStep::NeedMore => break false,
                FramingStep::Data { from, to, used } => {
                    self.body.extend_from_slice(&bytes[at + from..at + to]);
                    at += used;
                }
                FramingStep::End { used, trailers } => {
                    at += used;
                    self.trailers = trailers;
                    break true;
                }
            }
        };
        bytes.drain(..at);
        Ok(ended)
    }
}

enum FramingStep {
    NeedMore,
    Data { from: usize, to: usize, used: usize },
    End { used: usize, trailers: Vec<String> },
}

fn next_chunk(bytes: &[u8]) -> Result<FramingStep, String> {
    let Some(line) = bytes.windows(2).position(|w| w == b"\r\n") else {
        return Ok(FramingStep::NeedMore);
    };
    let text = std::str::from_utf8(&bytes[..line]).map_err(|_| "chunk size")?;
    let size = usize::from_str_radix(text, 16).map_err(|_| format!("bad chunk size {text:?}"))?;
    let from = line + 2;
    if size == 0 {
        return trailer_section(&bytes[from..], from);
    }
    let Some(end) = bytes.get(from + size..from + size + 2) else {
        return Ok(FramingStep::NeedMore);
    };
    match end {
        b"\r\n" => Ok(FramingStep::Data { from, to: from + size, used: from + size + 2 }),
        other => Err(format!("a chunk of {size} bytes ends in {other:?}")),
    }
}

/// Parses the lines after the last chunk, up to the empty one.
fn trailer_section(bytes: &[u8], before: usize) -> Result<FramingStep, String> {
    let (mut at, mut trailers) = (0, Vec::new());
    while let Some(length) = bytes[at..].windows(2).position(|w| w == b"\r\n") {
        let line = std::str::from_utf8(&bytes[at..at + length]).map_err(|_| "a trailer")?;
        at += length + 2;
        if line.is_empty() {
            return Ok(FramingStep::End { used: before + at, trailers });
        }
        field_line(line)?;
        trailers.push(line.to_owned());
    }
    Ok(FramingStep::NeedMore)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_and_its_framing_found() {
        let head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello", false)
            .unwrap()
            .unwrap();
        assert_eq!(head.response.status, 200);
        assert_eq!(head.response.field("x"), Some("y"));
        assert_eq!(head.framing, BodyFraming::Length(5));
    }

    #[test]
    fn sloppy_heads_are_refused() {
        for bad in [
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(parse_head(bad.as_bytes(), false).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn chunks_are_decoded_wherever_they_are_cut() {
        let whole = b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\nnext";
        for cut in 0..whole.len() - 4 {
            let mut chunks = Chunks::default();
            let mut pending = whole[..cut].to_vec();
            assert_eq!(chunks.take(&mut pending), Ok(false), "{cut}");
            pending.extend_from_slice(&whole[cut..]);
            assert_eq!(chunks.take(&mut pending), Ok(true), "{cut}");
            assert_eq!(
                (chunks.body.as_slice(), pending.as_slice()),
                (&b"hello!"[..], &b"next"[..])
            );
        }
        assert!(Chunks::default().take(&mut b"5\r\nhelloXX".to_vec()).is_err());
    }
}
