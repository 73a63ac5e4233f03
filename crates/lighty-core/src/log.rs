//! The error log: levels, and lines as text or JSON. Writing never blocks: lines go to a sink of
//! `lighty_io::log_writer`.

pub mod error_output;
pub(crate) mod program_rate;
pub mod strftime;
pub mod throttle;
pub mod trace;

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use lighty_io::log_writer::{LineHead, LogHandle};
use serde::Serialize;

use crate::exchange::request_id::RequestId;
use crate::json::{self, Text};
use crate::log::program_rate::ProgramRate;

/// A line's importance; `server.errorlog-level` is the lowest level written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Details for troubleshooting.
    Debug,
    /// Events of normal operation.
    Info,
    /// Normal events of interest to an operator.
    Notice,
    /// Something that works, but not as it should.
    Warning,
    /// Something that does not work.
    Error,
}

impl Level {
    /// Names from least to most important, as used by the directive.
    pub const NAMES: &'static [&'static str] = &["debug", "info", "notice", "warning", "error"];

    /// All levels, in the order of their names.
    pub const ALL: [Level; 5] =
        [Level::Debug, Level::Info, Level::Notice, Level::Warning, Level::Error];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The severity of RFC 5424 section 6.2.1, for the system log.
    fn severity(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Notice => 5,
            Level::Info => 6,
            Level::Debug => 7,
        }
    }

    /// The level with a given name.
    pub fn of_name(name: &str) -> Option<Level> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// Context of a line, besides its message.
#[derive(Default, Clone, Copy)]
pub struct About<'a> {
    /// The client's address. Here and below, an empty text is left out.
    pub client: &'a str,
    /// The request's method.
    pub method: &'a str,
    /// The request's target, as received.
    pub target: &'a [u8],
    /// The file or directory.
    pub path: &'a [u8],
    /// The directive that set the limit that was reached.
    pub limit: &'a str,
    /// The request's id, which is also in the access log.
    pub id: Option<RequestId>,
}

/// A worker's view of the error log.
#[derive(Clone)]
pub struct Log {
    sink: LogHandle,
    form: Arc<Form>,
    programs: ProgramRate,
}

/// Level and format. Clones share it, and a reload may change it.
struct Form {
    level: AtomicU8,
    json: AtomicBool,
}

impl Log {
    /// Writes lines of at least `level` to `sink`.
    pub fn new(sink: LogHandle, level: Level, json: bool) -> Self {
        let form = Form { level: AtomicU8::new(level as u8), json: AtomicBool::new(json) };
        Self { sink, form: Arc::new(form), programs: ProgramRate::default() }
    }

    /// Changes level, format and the rate limit on programs' output, for all clones.
    pub fn change(&self, level: Level, json: bool, program_kbytes_per_second: u64) {
        self.form.level.store(level as u8, Ordering::Relaxed);
        self.form.json.store(json, Ordering::Relaxed);
        self.programs.change(program_kbytes_per_second);
    }

    /// Shares a rate limit on programs' output.
    pub fn with_program_rate(self, programs: &ProgramRate) -> Self {
        Self { programs: programs.clone(), ..self }
    }

    /// The shared rate limit on programs' output.
    pub(crate) fn program_rate(&self) -> &ProgramRate {
        &self.programs
    }

    /// True if lines of this level are written.
    pub fn wants(&self, level: Level) -> bool {
        level as u8 >= self.form.level.load(Ordering::Relaxed)
    }

    /// Writes a line. `now_s` is the wall clock in seconds.
    pub fn line(&self, level: Level, now_s: i64, message: &str, about: About<'_>) {
        if self.wants(level) {
            self.write(level, &self.render(level, now_s, message, about));
        }
    }

    /// Renders a line as it appears in the log.
    pub(crate) fn render(
        &self,
        level: Level,
        now_s: i64,
        message: &str,
        about: About<'_>,
    ) -> String {
        match self.form.json.load(Ordering::Relaxed) {
            true => json_line(level, now_s, message, about),
            false => text_line(level, now_s, message, about),
        }
    }

    /// Writes a rendered line.
    pub(crate) fn write(&self, level: Level, line: &str) {
        let stamp_bytes = match line.starts_with('{') {
            true => 0,
            false => line.find(' ').map_or(0, |space| space + 1),
        };
        let head = LineHead { severity: level.severity(), stamp_bytes };
        self.sink.write_line_with(head, line.as_bytes());
    }
}

fn text_line(level: Level, now_s: i64, message: &str, about: About<'_>) -> String {
    let mut line = String::with_capacity(128);
    line.push_str(&String::from_utf8_lossy(&lighty_http::date::iso8601(now_s)));
    let _ = write!(line, " [{}] ", level.name());
    if !about.client.is_empty() {
        let _ = write!(line, "{}: ", about.client);
    }
    line.push_str(message);
    if !about.limit.is_empty() {
        let _ = write!(line, " (limit: {})", about.limit);
    }
    if !about.target.is_empty() {
        let _ = write!(line, ", request: \"{} {}\"", about.method, about.target.escape_ascii());
    }
    if !about.path.is_empty() {
        let _ = write!(line, ", path: \"{}\"", printable(about.path));
    }
    if let Some(id) = about.id {
        let _ = write!(line, ", id: {id}");
    }
    line.push('\n');
    line
}

/// A path as log text: UTF-8 is kept, control characters and stray bytes are escaped, so that no
/// file name can forge a line.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '"') => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

fn json_line(level: Level, now_s: i64, message: &str, about: About<'_>) -> String {
    let time = lighty_http::date::iso8601(now_s);
    let line = JsonLine {
        time: Text(&time),
        level: level.name(),
        message,
        client: about.client,
        method: about.method,
        target: Text(about.target),
        path: Text(about.path),
        limit: about.limit,
        id: about.id.map(|id| id.to_string()),
    };
    let mut out = Vec::with_capacity(192);
    json::push(&line, &mut out);
    out.push(b'\n');
    String::from_utf8_lossy(&out).into_owned()
}

/// A line as JSON. Empty texts are left out.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: Text<'a>,
    level: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    client: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "Text::is_empty")]
    target: Text<'a>,
    #[serde(skip_serializing_if = "Text::is_empty")]
    path: Text<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    limit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_cannot_forge_a_line() {
        let about = About { path: b"/a\n2026 [error] forged", ..About::default() };
        let line = text_line(Level::Error, 0, "m", about);
        assert_eq!(line.matches('\n').count(), 1);
        let line = json_line(Level::Error, 0, "m", about);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains("\\n2026"));
    }

    #[test]
    fn json_lines_have_the_context_that_there_is() {
        let about = About {
            client: "192.0.2.1",
            method: "GET",
            target: b"/\xff?<",
            path: b"/srv/a",
            limit: "server.max-fds",
            id: None,
        };
        assert_eq!(
            json_line(Level::Warning, 784_111_777, "no \"room\"", about),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"level\":\"warning\",\"message\":\"no \\\"room\\\"\",\
             \"client\":\"192.0.2.1\",\"method\":\"GET\",\"target\":\"/\u{fffd}?\\u003c\",\
             \"path\":\"/srv/a\",\"limit\":\"server.max-fds\"}\n"
        );
        assert_eq!(
            json_line(Level::Error, 0, "", About::default()),
            "{\"time\":\"1970-01-01T00:00:00Z\",\"level\":\"error\"}\n"
        );
    }

    #[test]
    fn names_and_levels_agree() {
        for name in Level::NAMES {
            assert_eq!(Level::of_name(name).map(Level::name), Some(*name));
        }
        assert_eq!(Level::of_name("loud"), None);
    }
}
