//! Copies of the error log's lines for another destination.

use crate::log::{ErrorLine, Level, LogModule, SourcePlace};

/// Destination of copies. It must not block.
pub trait LogTap: Send + Sync {
    /// Takes a line.
    fn take(&self, record: LogRecord);
}

/// A line of the error log, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The wall clock in seconds.
    pub unix_s: i64,
    /// Its importance.
    pub level: Level,
    /// The module that wrote it; empty for libraries.
    pub module: &'static str,
    /// The source file that wrote it, and the line in it.
    pub place: (&'static str, u32),
    /// The message.
    pub message: String,
    /// The client's address. Here and below, an empty text is left out.
    pub client: String,
    /// The request's method.
    pub method: String,
    /// The path of the request's URL, without the query, which may hold secrets.
    pub url_path: String,
    /// The file or directory.
    pub file_path: String,
    /// The request's id.
    pub request_id: String,
}

impl LogRecord {
    pub(super) fn of(place: SourcePlace, line: &ErrorLine<'_>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let about = &line.about;
        let path = about.target.split(|byte| matches!(byte, b'?' | b'#')).next();
        Self {
            unix_s: line.now_s,
            level: line.level,
            module: LogModule::of_place(place).map_or("", LogModule::name),
            place: (place.file(), place.line()),
            message: line.message.to_owned(),
            client: about.client.to_owned(),
            method: about.method.to_owned(),
            url_path: text(path.unwrap_or_default()),
            file_path: text(about.path),
            request_id: about.id.map(|id| id.to_string()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::log::About;

    #[test]
    fn record_has_no_query() {
        let about = About { client: "::1", target: b"/a?key=secret", ..About::default() };
        let line = ErrorLine { level: Level::Error, now_s: 7, message: "m", about };
        let record = LogRecord::of(Location::caller(), &line);
        assert_eq!((record.url_path.as_str(), record.module), ("/a", "core"));
        assert!(record.place.0.ends_with("log/tap.rs"), "{:?}", record.place);
    }
}
