//! Log destinations, as written in a configuration.

use std::fmt;
use std::path::PathBuf;

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// A file to append to.
    File(PathBuf),
    /// A shell command that reads the lines from its standard input.
    Pipe(String),
    /// Syslog.
    Syslog {
        /// Facility and severity as one number (RFC 3164, 4.1.1).
        priority: u8,
        /// Program name in the lines.
        name: String,
    },
    /// Standard error.
    Stderr,
}

/// Facilities of RFC 3164, 4.1.1, table 1, by their names in syslog.conf(5).
const FACILITIES: [(&str, u8); 20] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Severities of RFC 3164, 4.1.1, table 2, from 0 on.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

const DAEMON: u8 = 3;
const INFO: u8 = 6;

impl LogTarget {
    /// Parses `/path` or `|command`.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix('|') {
            Some(command) => LogTarget::Pipe(command.trim().to_owned()),
            None => LogTarget::File(PathBuf::from(text)),
        }
    }

    /// Syslog. An unknown facility counts as `daemon` (see [`facilities`](Self::facilities)), an
    /// unknown level as `info`.
    pub fn syslog(facility: &str, level: &str, name: &str) -> Self {
        let facility = facility_number(facility).unwrap_or(DAEMON);
        let level = LEVELS.iter().position(|known| *known == level);
        let level = level.map_or(INFO, |level| level as u8);
        LogTarget::Syslog { priority: facility * 8 + level, name: name.to_owned() }
    }

    /// Standard error.
    pub fn stderr() -> Self {
        LogTarget::Stderr
    }

    /// Names of the facilities of syslog.
    pub fn facilities() -> impl Iterator<Item = &'static str> {
        FACILITIES.iter().map(|(name, _)| *name)
    }
}

fn facility_number(name: &str) -> Option<u8> {
    FACILITIES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

impl fmt::Display for LogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogTarget::File(path) => write!(f, "\"{}\"", path.display()),
            LogTarget::Pipe(command) => write!(f, "\"|{command}\""),
            LogTarget::Syslog { .. } => f.write_str("syslog"),
            LogTarget::Stderr => f.write_str("stderr"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        assert_eq!(LogTarget::parse("/var/log/a"), LogTarget::File("/var/log/a".into()));
        assert_eq!(LogTarget::parse("| cat -n "), LogTarget::Pipe("cat -n".to_owned()));
        let syslog = |facility, level| match LogTarget::syslog(facility, level, "x") {
            LogTarget::Syslog { priority, .. } => priority,
            other => panic!("{other}"),
        };
        // RFC 3164, 5.4: local4.notice is 165.
        assert_eq!(syslog("local4", "notice"), 165);
        assert_eq!(syslog("daemon", "err"), 27);
        assert_eq!(syslog("nonsense", "nonsense"), 30);
    }
}
