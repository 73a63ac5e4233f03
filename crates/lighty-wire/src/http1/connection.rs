//! The options of `Connection`: RFC 9110 section 7.6.1.

use lighty_http::fields::list_items;
use lighty_http::{Fields, Known, Version};

/// The connection options that this server interprets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

impl ConnectionOptions {
    /// Reads all lines of the field.
    pub(super) fn of(fields: &Fields) -> Self {
        let mut options = Self::default();
        if !fields.contains(Known::Connection) {
            return options;
        }
        for token in fields.get_all(Known::Connection).flat_map(list_items) {
            options.close |= token.eq_ignore_ascii_case(b"close");
            options.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            options.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
        options
    }

    /// True if the connection stays open (RFC 9112 section 9.3): `close` wins, HTTP/1.1 stays open
    /// by default, HTTP/1.0 on request.
    pub(super) fn keep_alive(self, version: Version) -> bool {
        !self.close && (version >= Version::Http11 || self.keep_alive)
    }
}
