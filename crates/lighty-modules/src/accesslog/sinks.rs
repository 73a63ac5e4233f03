//! Destinations of log lines: every log of a configuration, opened once for all workers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use lighty_config::Config;
use lighty_core::Settings;
use lighty_io::clock::deadline::Deadline;
use lighty_io::clock::local_time::LocalTime;
use lighty_io::log_writer::{LogHandle, LogTarget, LogWriter, Reopening, Rotation};
use lighty_io::threads;

use super::settings::AccessLogSettings;

/// Name under which lines appear in syslog.
const SYSLOG_NAME: &str = "lighty";

/// All access logs of a configuration. Clones share them.
#[derive(Clone)]
pub struct Sinks(Arc<Logs>);

struct Logs {
    files: Vec<(Arc<str>, Arc<SinkWriter>)>,
    /// The facility of syslog, and a writer for each level.
    facility: Arc<str>,
    syslog: Vec<(&'static str, Arc<SinkWriter>)>,
}

/// An open log. Dropping it flushes and closes the log on a separate thread, because the last
/// owner may be a worker.
struct SinkWriter(Option<LogWriter>);

impl SinkWriter {
    fn open(target: LogTarget) -> io::Result<Arc<Self>> {
        LogWriter::open(target).map(|writer| Arc::new(Self(Some(writer))))
    }
}

impl Drop for SinkWriter {
    fn drop(&mut self) {
        let writer = self.0.take();
        // Without a thread it is closed here.
        let _ = threads::start("log end", None, move || drop(writer));
    }
}

impl Sinks {
    /// Opens every file and starts every command that `accesslog.filename` names anywhere in the
    /// configuration, and syslog where it is used. Called before privileges are dropped and before
    /// `chroot`.
    ///
    /// # Errors
    /// The system's error, with the name of the log.
    pub fn open(config: &Config<Settings>) -> io::Result<Sinks> {
        // Loads the time zone rules before `chroot` hides their file.
        LocalTime::at(0);
        Self::none().open_next(config)
    }

    /// Opens the logs of another configuration. Logs that both configurations name stay open.
    ///
    /// # Errors
    /// The system's error, with the name of the log.
    pub fn open_next(&self, config: &Config<Settings>) -> io::Result<Sinks> {
        let facility = Arc::clone(&config.global().server.syslog_facility);
        let mut logs = Logs { files: Vec::new(), facility, syslog: Vec::new() };
        let wanted = wanted(config);
        for name in wanted.files {
            let known = self.0.files.iter().find(|(known, _)| *known == name);
            let writer = match known {
                Some((_, writer)) => Arc::clone(writer),
                None => SinkWriter::open(LogTarget::parse(&name)).map_err(|error| {
                    io::Error::new(error.kind(), format!("\"{name}\": {error}"))
                })?,
            };
            logs.files.push((name, writer));
        }
        let same_facility = self.0.facility == logs.facility;
        for level in wanted.levels {
            let mut open = self.0.syslog.iter().filter(|_| same_facility);
            let known = open.find(|(known, _)| *known == level);
            let writer = match known {
                Some((_, writer)) => Arc::clone(writer),
                None => SinkWriter::open(LogTarget::syslog(&logs.facility, level, SYSLOG_NAME))
                    .map_err(|error| io::Error::new(error.kind(), format!("syslog: {error}")))?,
            };
            logs.syslog.push((level, writer));
        }
        Ok(Sinks(Arc::new(logs)))
    }

    /// None: nothing is logged.
    pub fn none() -> Sinks {
        let (files, syslog) = (Vec::new(), Vec::new());
        Sinks(Arc::new(Logs { files, facility: "".into(), syslog }))
    }

    /// Starts the threads that write, once privileges are dropped.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(&self) -> io::Result<()> {
        self.writers().try_for_each(LogWriter::start)
    }

    /// Reopens the files after log rotation (SIGHUP).
    pub fn reopen(&self, reopening: &Arc<Reopening>) {
        self.writers().for_each(|writer| writer.reopen(reopening));
    }

    /// Rotates the files by these rules from now on; `None`: never.
    pub fn set_rotation(&self, rotation: Option<Rotation>) {
        self.writers().for_each(|writer| writer.set_rotation(rotation));
    }

    /// Waits until all logged lines are written, at most `patience` for all logs together. Returns
    /// the names of the logs that did not finish in time.
    pub fn flush(&self, patience: Duration) -> Vec<String> {
        let deadline = Deadline::after(patience);
        let is_late = |writer: &&LogWriter| !writer.flush(deadline.left());
        self.writers().filter(is_late).map(LogWriter::name).collect()
    }

    fn writers(&self) -> impl Iterator<Item = &LogWriter> {
        let files = self.0.files.iter().map(|(_, writer)| writer);
        let all = files.chain(self.0.syslog.iter().map(|(_, writer)| writer));
        all.filter_map(|writer| writer.0.as_ref())
    }

    /// Handles for one worker.
    pub(super) fn handles(&self) -> Handles {
        let handle = |writer: &Arc<SinkWriter>| writer.0.as_ref().map(LogWriter::handle);
        let files = self.0.files.iter();
        let levels = self.0.syslog.iter();
        Handles {
            files: files.filter_map(|(name, w)| Some((Arc::clone(name), handle(w)?))).collect(),
            syslog: levels.filter_map(|(level, w)| Some((*level, handle(w)?))).collect(),
            _open: self.clone(),
        }
    }
}

/// Log handles of a worker. They keep the logs open.
pub(super) struct Handles {
    files: HashMap<Arc<str>, LogHandle, RandomState>,
    syslog: Vec<(&'static str, LogHandle)>,
    _open: Sinks,
}

impl Handles {
    /// The log that a request's settings name, if any.
    pub(super) fn of(&self, settings: &AccessLogSettings) -> Option<&LogHandle> {
        if settings.use_syslog {
            let found = self.syslog.iter().find(|(level, _)| *level == settings.syslog_level);
            return found.map(|(_, handle)| handle);
        }
        if settings.filename.is_empty() { None } else { self.files.get(&settings.filename) }
    }
}

/// Returns the names of all access logs of a configuration.
pub fn log_names(config: &Config<Settings>) -> Vec<Arc<str>> {
    let UsedSinks { mut files, levels } = wanted(config);
    files.extend(levels.into_iter().map(|level| Arc::from(format!("syslog ({level})"))));
    files
}

/// The log files and syslog levels that a configuration uses, without duplicates.
#[derive(Debug, Default, PartialEq, Eq)]
struct UsedSinks {
    files: Vec<Arc<str>>,
    levels: Vec<&'static str>,
}

/// Collects the logs of each block separately. Only a request determines which blocks apply
/// together, so every level that is set anywhere is opened if syslog is used anywhere.
fn wanted(config: &Config<Settings>) -> UsedSinks {
    let mut wanted = UsedSinks::default();
    let mut levels = vec![AccessLogSettings::default().syslog_level];
    let mut use_syslog = false;
    let names = ["accesslog.filename", "accesslog.use-syslog", "accesslog.syslog-level"];
    let all = config.blocks().iter().flat_map(|block| &block.settings);
    for setting in all.filter(|setting| names.contains(&setting.name)) {
        let mut settings = Settings::default();
        setting.apply(&mut settings);
        let access = settings.module::<AccessLogSettings>();
        use_syslog |= access.use_syslog;
        if !access.filename.is_empty() && !wanted.files.contains(&access.filename) {
            wanted.files.push(Arc::clone(&access.filename));
        }
        if !levels.contains(&access.syslog_level) {
            levels.push(access.syslog_level);
        }
    }
    if use_syslog {
        wanted.levels = levels;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use lighty_config::{LoadOptions, Main, MemoryLoader, Style, Table, load};
    use lighty_core::module::Module;

    use super::super::AccessLog;
    use super::*;

    fn loaded(text: &str) -> Result<Config<Settings>, String> {
        let table = Table::new().rows(AccessLog::directives());
        let main = Main::Text { name: "test.conf", text: text.as_bytes() };
        let (config, findings, sources) =
            load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
        config.ok_or_else(|| findings.render(&sources, Style { color: false }))
    }

    #[test]
    fn every_file_of_the_configuration_is_wanted_once() {
        let text = r#"
            accesslog.filename = "/a.log"
            $HTTP["host"] == "b" { accesslog.filename = "|/bin/rotate /b.log" }
            $HTTP["host"] == "c" {
                accesslog.filename = "/a.log"
                $HTTP["url"] =^ "/x/" { accesslog.filename = "" }
            }
        "#;
        let files = vec!["/a.log".into(), "|/bin/rotate /b.log".into()];
        assert_eq!(wanted(&loaded(text).expect("good")), UsedSinks { files, levels: vec![] });
    }

    #[test]
    fn syslog_is_wanted_in_every_level_that_may_apply() {
        let text = r#"
            accesslog.syslog-level = "notice"
            $HTTP["host"] == "b" {
                accesslog.use-syslog = "enable"
                accesslog.syslog-level = 7
            }
        "#;
        let levels = vec!["info", "notice", "debug"];
        assert_eq!(wanted(&loaded(text).expect("good")), UsedSinks { files: vec![], levels });
        assert_eq!(wanted(&loaded("").expect("good")), UsedSinks::default());
    }

    #[test]
    fn a_faulty_format_is_shown_at_its_caret() {
        let error_text =
            loaded("accesslog.format = \"%h \\\"%r\\\" %Y %b\"\n").err().expect("an error");
        assert!(error_text.contains("unknown letter `Y`"), "{error_text}");
        let lines: Vec<&str> = error_text.lines().collect();
        let source = lines.iter().position(|line| line.contains("%Y %b")).expect("the line");
        let caret = lines[source + 1];
        assert_eq!(caret.find('^'), lines[source].find("%Y"), "{error_text}");
        assert_eq!(caret.matches('^').count(), 2, "{error_text}");
    }

    #[test]
    fn a_level_is_a_name_or_a_number() {
        assert!(loaded("accesslog.syslog-level = 7").is_ok());
        assert!(loaded("accesslog.syslog-level = 8").is_ok(), "it is clamped");
        assert!(loaded("accesslog.syslog-level = \"debug\"").is_ok());
        assert!(loaded("accesslog.syslog-level = \"loud\"").is_err());
    }
}
