//! Conversations as data: bytes to send, and the expected responses.
//!
//! A file of cases is plain text. Lines:
//!
//! ```text
//! # comment
//! case NAME IN WORDS          begins a case
//! > GET / HTTP/1.1            sent, with CRLF behind it
//! | raw                       sent as it is, without CRLF
//! < 200                       a response with this status comes (`400|501`: one of these)
//! < 200 head                  the same to a HEAD request: no body follows
//! < Field: value              it has this field
//! < !Field                    it has no such field
//! < body words                its body is this
//! keep                        afterwards the connection takes another request
//! close                       the last response says close, and the connection ends
//! end                         the connection ends, whether or not the response said so
//! ```
//!
//! In sent lines `\r \n \t \0 \\ \xHH` stand for bytes and `\{text*n}` for `n` times `text`.

use std::path::Path;
use std::time::Duration;

use crate::client::Client;
use crate::response::Response;

/// A conversation.
#[derive(Debug, Clone)]
pub struct Case {
    /// File and name, for messages.
    pub name: String,
    /// Bytes that the client sends.
    pub request: Vec<u8>,
    answers: Vec<CaseResponse>,
    fate: Fate,
}

#[derive(Debug, Clone, Default)]
struct CaseResponse {
    statuses: Vec<u16>,
    to_head: bool,
    fields: Vec<(String, String)>,
    absent: Vec<String>,
    body: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Close,
    End,
}

/// Reads every `*.case` file of a directory. Panics on a file with another format than described
/// above.
#[must_use]
pub fn read_all(directory: &Path) -> Vec<Case> {
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "case"))
        .collect();
    paths.sort();
    let cases: Vec<Case> = paths
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("a text file");
            parse(&path.file_name().unwrap_or_default().to_string_lossy(), &text)
        })
        .collect();
    assert!(!cases.is_empty(), "no cases in {}", directory.display());
    cases
}

/// Parses the text of a file of cases.
#[must_use]
pub fn parse(file: &str, text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("case ") {
            cases.push(Case {
                name: format!("{file}: {name}"),
                request: Vec::new(),
                answers: Vec::new(),
                fate: Fate::Keep,
            });
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("{place}: no case begun"));
        case.take_line(line).unwrap_or_else(|| panic!("{place}: not understood: {line}"));
    }
    cases
}

impl Case {
    fn take_line(&mut self, line: &str) -> Option<()> {
        let rest = line.get(2..).unwrap_or("");
        match line.as_bytes()[0] {
            b'>' => {
                unescape(rest, &mut self.request)?;
                self.request.extend_from_slice(b"\r\n");
            }
            b'|' => unescape(rest, &mut self.request)?,
            b'<' => self.take_expectation(rest)?,
            _ => {
                self.fate = match line {
                    "keep" => Fate::Keep,
                    "close" => Fate::Close,
                    "end" => Fate::End,
                    _ => return None,
                };
            }
        }
        Some(())
    }

    fn take_expectation(&mut self, text: &str) -> Option<()> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let (statuses, to_head) =
                text.strip_suffix(" head").map_or((text, false), |statuses| (statuses, true));
            let statuses: Result<Vec<u16>, _> = statuses.split('|').map(str::parse).collect();
            self.answers.push(CaseResponse {
                statuses: statuses.ok()?,
                to_head,
                ..CaseResponse::default()
            });
            return Some(());
        }
        let answer = self.answers.last_mut()?;
        if let Some(body) = text.strip_prefix("body") {
            let mut bytes = Vec::new();
            unescape(body.strip_prefix(' ').unwrap_or(body), &mut bytes)?;
            answer.body = Some(bytes);
        } else if let Some(name) = text.strip_prefix('!') {
            answer.absent.push(name.to_owned());
        } else {
            let (name, value) = text.split_once(": ")?;
            answer.fields.push((name.to_owned(), value.to_owned()));
        }
        Some(())
    }

    /// Runs the conversation over a fresh connection, sending `piece` bytes at a time.
    ///
    /// # Errors
    /// A description of the first difference from the expected responses.
    pub fn run(&self, mut client: Client, piece: usize) -> Result<(), String> {
        client.set_deadline(Duration::from_secs(10));
        client.send_in_pieces(&self.request, piece);
        let mut last = None;
        for (index, answer) in self.answers.iter().enumerate() {
            let response = client
                .try_response(answer.to_head)
                .map_err(|error| format!("answer {}: {error}", index + 1))?;
            answer.check(&response).map_err(|error| format!("answer {}: {error}", index + 1))?;
            last = Some(response);
        }
        self.check_fate(&mut client, last.as_ref())
    }

    fn check_fate(&self, client: &mut Client, last: Option<&Response>) -> Result<(), String> {
        let says_close = last.is_some_and(Response::says_close);
        match self.fate {
            Fate::Keep => {
                if says_close {
                    return Err("the response says close, the connection was to be kept".into());
                }
                client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let next = client.try_response(false).map_err(|e| format!("next request: {e}"))?;
                (next.status < 300)
                    .then_some(())
                    .ok_or(format!("the next request on the connection got {next:?}"))
            }
            Fate::Close if !says_close => Err("the response does not say close".into()),
            Fate::Close | Fate::End => {
                client.half_close_quietly();
                let (rest, _) = client.read_to_end();
                rest.is_empty().then_some(()).ok_or(format!(
                    "bytes behind the last response: {:?}",
                    String::from_utf8_lossy(&rest)
                ))
            }
        }
    }
}

impl CaseResponse {
    fn check(&self, response: &Response) -> Result<(), String> {
        if !self.statuses.contains(&response.status) {
            return Err(format!(
                "status {:?} was expected, this came: {response:?}",
                self.statuses
            ));
        }
        for (name, value) in &self.fields {
            if response.field(name) != Some(value) {
                return Err(format!("{name}: {value} was expected, this came: {response:?}"));
            }
        }
        if let Some(name) = self.absent.iter().find(|name| response.all(name).next().is_some()) {
            return Err(format!("{name} was not expected, this came: {response:?}"));
        }
        match &self.body {
            Some(body) if *body != response.body => {
                Err(format!("the body is not the expected one, this came: {response:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Resolves the escapes of a line; `None` if one is unknown.
pub fn unescape(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        let mut chars = escape.chars();
        match chars.next()? {
            'r' => out.push(b'\r'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            '0' => out.push(0),
            '\\' => out.push(b'\\'),
            'x' => {
                out.push(u8::from_str_radix(escape.get(1..3)?, 16).ok()?);
                chars = escape[3..].chars();
            }
            '{' => {
                let (repeated, behind) = escape[1..].split_once('}')?;
                let (what, times) = repeated.rsplit_once('*')?;
                let mut once = Vec::new();
                unescape(what, &mut once)?;
                for _ in 0..times.parse::<usize>().ok()? {
                    out.extend_from_slice(&once);
                }
                chars = behind.chars();
            }
            _ => return None,
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read() {
        let text = "# c\ncase one\n> GET / HTTP/1.1\n> A: \\{ab*3}\\x00\n>\n| x\\n\n\
                    < 200|206 head\n< Field: v\n< !Other\n< body y\\0\nclose\n";
        let cases = parse("f", text);
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].request, b"GET / HTTP/1.1\r\nA: ababab\0\r\n\r\nx\n");
        assert_eq!(cases[0].fate, Fate::Close);
        let answer = &cases[0].answers[0];
        assert_eq!(answer.statuses, [200, 206]);
        assert!(answer.to_head);
        assert_eq!(answer.body.as_deref(), Some(&b"y\0"[..]));
    }

    #[test]
    #[should_panic(expected = "f:2")]
    fn a_line_that_is_not_understood_is_named() {
        let _ = parse("f", "case one\nwhat is this\n");
    }
}
