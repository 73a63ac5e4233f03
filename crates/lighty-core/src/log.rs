//! The error log: levels, and lines as text or JSON. Writing never blocks: lines go to a sink of
//! `lighty_io::log_writer`.

pub mod error_output;
pub mod levels;
pub(crate) mod program_rate;
pub(crate) mod recent;
mod repeats;
pub mod secrets;
pub mod strftime;
pub mod tap;
pub mod throttle;
pub mod trace;

use std::fmt::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lighty_io::log_writer::{JournalFields, LineHead, LogHandle};
use serde::Serialize;

use crate::exchange::request_id::RequestId;
use crate::json::{self, Text};
use crate::log::levels::{Levels, LogModule};
use crate::log::program_rate::ProgramRate;
use crate::log::recent::RecentLines;
use crate::log::repeats::Repeats;
use crate::log::tap::{LogRecord, LogTap};

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

/// A line of the error log.
#[derive(Clone, Copy)]
pub(crate) struct ErrorLine<'a> {
    pub(crate) level: Level,
    /// The wall clock in seconds.
    pub(crate) now_s: i64,
    pub(crate) message: &'a str,
    pub(crate) about: About<'a>,
}

/// Treatment of lines that repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeating {
    /// `server.errorlog-max-repeats` limits them.
    Limited,
    /// All are written: a directive asks for them.
    Free,
}

/// A worker's view of the error log.
#[derive(Clone)]
pub struct Log {
    sink: LogHandle,
    form: Arc<Form>,
    recent: Arc<RecentLines>,
    programs: ProgramRate,
}

/// A place in the source that writes lines.
pub(crate) type SourcePlace = &'static Location<'static>;

/// Levels and format. Clones share it, and a reload may change it.
struct Form {
    levels: Levels,
    json: AtomicBool,
    repeats: Repeats,
    /// True if `tap` is set.
    has_tap: AtomicBool,
    tap: Mutex<Option<Arc<dyn LogTap>>>,
}

impl Log {
    /// Writes lines of at least `level` to `sink`.
    pub fn new(sink: LogHandle, level: Level, json: bool) -> Self {
        let form = Form {
            levels: Levels::new(level),
            json: AtomicBool::new(json),
            repeats: Repeats::default(),
            has_tap: AtomicBool::new(false),
            tap: Mutex::default(),
        };
        let (form, recent) = (Arc::new(form), Arc::default());
        Self { sink, form, recent, programs: ProgramRate::default() }
    }

    /// Changes the format and the rate limit on programs' output, for all clones.
    pub fn change(&self, json: bool, program_kbytes_per_second: u64) {
        self.form.json.store(json, Ordering::Relaxed);
        self.programs.change(program_kbytes_per_second);
    }

    /// Copies all further lines to `tap`, too, for all clones. Output of programs is not copied.
    pub fn set_tap(&self, tap: Option<Arc<dyn LogTap>>) {
        self.form.has_tap.store(tap.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.tap(), tap);
        drop(before);
    }

    fn tap(&self) -> MutexGuard<'_, Option<Arc<dyn LogTap>>> {
        self.form.tap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the lines of a message that a minute has, for all clones; 0: no limit.
    pub fn limit_repeats(&self, lines_max: u32) {
        self.form.repeats.set_max(lines_max);
    }

    /// Writes the number of lines that were left out as repeats of others, once their minute is
    /// over. Call it once a second, and at the end of the process with `is_end`.
    pub fn settle_repeats(&self, now_s: i64, is_end: bool) {
        for repeated in self.form.repeats.settle(now_s, is_end) {
            let (times, message) = (repeated.omitted, &repeated.message);
            let message = format!("repeated {times} times more within a minute: {message}");
            let limit = format!("server.errorlog-max-repeats = {}", self.form.repeats.lines_max());
            let about = About { limit: &limit, ..About::default() };
            let line = ErrorLine { level: repeated.level, now_s, message: &message, about };
            self.write(repeated.place, &line, &self.render(repeated.place, &line));
        }
    }

    /// Writes lines of another level than the configured one, for all clones, until `until_s` by
    /// the wall clock. `None`: the configured level again. Modules with a level of their own keep
    /// it.
    pub fn order_level(&self, order: Option<(Level, i64)>) {
        self.form.levels.order(order);
    }

    /// Ends an ordered level whose time is over. Called once a second.
    pub fn expire(&self, now_s: i64) {
        self.form.levels.expire(now_s);
    }

    /// The level in effect, and the wall-clock second at which the configured one takes its place;
    /// `None` for the latter if it is the configured one.
    pub fn level(&self) -> (Level, Option<i64>) {
        (self.form.levels.common(), self.form.levels.ordered_until_s())
    }

    /// Shares a rate limit on programs' output.
    pub fn with_program_rate(self, programs: &ProgramRate) -> Self {
        Self { programs: programs.clone(), ..self }
    }

    /// The shared rate limit on programs' output.
    pub(crate) fn program_rate(&self) -> &ProgramRate {
        &self.programs
    }

    /// The levels of all modules. Clones share them.
    pub fn levels(&self) -> &Levels {
        &self.form.levels
    }

    /// True if lines of this level are written for the caller's module.
    #[track_caller]
    pub fn wants(&self, level: Level) -> bool {
        self.wants_at(Location::caller(), level)
    }

    pub(crate) fn wants_at(&self, place: SourcePlace, level: Level) -> bool {
        self.form.levels.admit(level, place)
    }

    /// Writes a line of the caller's module. `now_s` is the wall clock in seconds.
    #[track_caller]
    pub fn line(&self, level: Level, now_s: i64, message: &str, about: About<'_>) {
        let line = ErrorLine { level, now_s, message, about };
        self.line_at(Location::caller(), Repeating::Limited, &line);
    }

    /// Writes a line of the module at a place in the source.
    pub(crate) fn line_at(&self, place: SourcePlace, repeating: Repeating, line: &ErrorLine<'_>) {
        if self.wants_at(place, line.level) {
            self.add(place, repeating, line);
        }
    }

    /// Writes a line of the module at a place in the source, of any level.
    pub(crate) fn add(&self, place: SourcePlace, repeating: Repeating, line: &ErrorLine<'_>) {
        // Details for troubleshooting are wanted in full.
        let is_limited = repeating == Repeating::Limited && line.level > Level::Debug;
        if is_limited && !self.form.repeats.admit(place, line) {
            return;
        }
        if self.form.has_tap.load(Ordering::Relaxed)
            && let Some(tap) = &*self.tap()
        {
            tap.take(LogRecord::of(place, line));
        }
        self.write(place, line, &self.render(place, line));
    }

    /// Renders a line as it appears in the log.
    pub(crate) fn render(&self, place: SourcePlace, line: &ErrorLine<'_>) -> String {
        match self.form.json.load(Ordering::Relaxed) {
            true => json_line(place, line),
            false => text_line(line),
        }
    }

    /// Writes a rendered line.
    pub(crate) fn write(&self, place: SourcePlace, line: &ErrorLine<'_>, text: &str) {
        let stamp_bytes = match text.starts_with('{') {
            true => 0,
            false => text.find(' ').map_or(0, |space| space + 1),
        };
        let fields = match self.sink.has_fields() {
            true => journal_fields(place, &line.about),
            false => String::new(),
        };
        self.recent.add(text);
        let head = LineHead { severity: line.level.severity(), stamp_bytes, fields: &fields };
        self.sink.write_line_with(head, text.as_bytes());
    }

    /// Returns the latest lines, the oldest first.
    pub fn recent_lines(&self) -> Vec<String> {
        self.recent.list()
    }
}

/// Fields of a line in the journal, besides its text and priority.
fn journal_fields(place: SourcePlace, about: &About<'_>) -> String {
    let mut fields = JournalFields::default();
    fields.add("CODE_FILE", place.file());
    fields.add("CODE_LINE", &place.line().to_string());
    if let Some(module) = LogModule::of_place(place) {
        fields.add("LIGHTY_MODULE", module.name());
    }
    if !about.client.is_empty() {
        fields.add("LIGHTY_CLIENT", about.client);
    }
    if let Some(id) = about.id {
        fields.add("LIGHTY_REQUEST", &id.to_string());
    }
    fields.into_text()
}

fn text_line(line: &ErrorLine<'_>) -> String {
    let ErrorLine { level, now_s, message, about } = *line;
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

fn json_line(place: SourcePlace, line: &ErrorLine<'_>) -> String {
    let ErrorLine { level, now_s, message, about } = *line;
    let time = lighty_http::date::iso8601(now_s);
    let line = JsonLine {
        time: Text(&time),
        level: level.name(),
        module: LogModule::of_place(place).map_or("", LogModule::name),
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
    module: &'static str,
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
    use lighty_io::log_writer;

    use super::*;

    #[track_caller]
    fn here() -> SourcePlace {
        Location::caller()
    }

    #[test]
    fn a_path_cannot_forge_a_line() {
        let about = About { path: b"/a\n2026 [error] forged", ..About::default() };
        let line = ErrorLine { level: Level::Error, now_s: 0, message: "m", about };
        let text = text_line(&line);
        assert_eq!(text.matches('\n').count(), 1);
        let text = json_line(here(), &line);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.contains("\\n2026"));
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
        let json = |level, now_s, message, about| {
            json_line(here(), &ErrorLine { level, now_s, message, about })
        };
        assert_eq!(
            json(Level::Warning, 784_111_777, "no \"room\"", about),
            "{\"time\":\"1994-11-06T08:49:37Z\",\"level\":\"warning\",\"module\":\"core\",\"message\":\"no \\\"room\\\"\",\
             \"client\":\"192.0.2.1\",\"method\":\"GET\",\"target\":\"/\u{fffd}?\\u003c\",\
             \"path\":\"/srv/a\",\"limit\":\"server.max-fds\"}\n"
        );
        assert_eq!(
            json(Level::Error, 0, "", About::default()),
            "{\"time\":\"1970-01-01T00:00:00Z\",\"level\":\"error\",\"module\":\"core\"}\n"
        );
    }

    #[test]
    fn ordered_level_ends_by_itself_and_outlives_a_reload() {
        let errors = log_writer::LogWriter::open(log_writer::LogTarget::stderr()).expect("stderr");
        let log = Log::new(errors.handle(), Level::Notice, false);
        log.order_level(Some((Level::Debug, 100)));
        assert_eq!((log.wants(Level::Debug), log.level()), (true, (Level::Debug, Some(100))));
        log.change(false, 0);
        log.levels().replace(Level::Warning, &[]);
        log.expire(99);
        assert!(log.wants(Level::Debug));
        log.expire(100);
        assert_eq!((log.wants(Level::Notice), log.level()), (false, (Level::Warning, None)));
        log.order_level(Some((Level::Error, 200)));
        log.order_level(None);
        assert_eq!(log.level(), (Level::Warning, None));
    }

    #[test]
    fn names_and_levels_agree() {
        for name in Level::NAMES {
            assert_eq!(Level::of_name(name).map(Level::name), Some(*name));
        }
        assert_eq!(Level::of_name("loud"), None);
    }
}
