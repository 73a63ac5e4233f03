//! A parsed request head, without the parsing.

use alloc::vec::Vec;

use lighty_http::host::parse_host;
use lighty_http::uri::{Form, ParseOpts, Target, split_target};
use lighty_http::{Fields, Method, Version};

use super::fault::RequestFault;
use super::framing::BodyFraming;
use super::scan::HeadScan;

/// Which of the four forms the target had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path`.
    #[default]
    Origin,
    /// `http://host/path`, or `https` if secure.
    Absolute {
        /// Whether the scheme was `https`.
        secure: bool,
    },
    /// `host:port`, of CONNECT.
    Authority,
    /// `*`, of OPTIONS.
    Asterisk,
}

/// A parsed request head. Reusable: parsing clears it and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    pub(super) line: Vec<u8>,
    pub(super) method_len: usize,
    pub(super) raw_target_len: usize,
    pub(super) parts: Target,
    pub(super) scan: HeadScan,
    pub(super) last_host: LastHost,
    /// `None` for an unknown method: respond with 501.
    pub method: Option<Method>,
    /// 1.0 or 1.1, which stands for all later ones of HTTP/1.
    pub version: Version,
    /// The form in which the target came.
    pub form: TargetForm,
    /// Path and query, normalised; `*` or an authority for those two forms.
    pub target: Vec<u8>,
    /// Whether the last host is this request's.
    pub(super) has_host: bool,
    /// The port that the client named.
    pub port: Option<u16>,
    /// The header fields. `Host` is the target's authority when that names one (RFC 9112 section
    /// 3.2.2).
    pub fields: Fields,
    /// How the body is delimited.
    pub framing: BodyFraming,
    /// True if the client wants to keep the connection open.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Whether `Connection` names `upgrade` and there is an `Upgrade` field.
    pub upgrade: bool,
}

impl RequestHead {
    /// An empty head; allocates nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the request and the parse progress; keeps the memory.
    pub fn clear(&mut self) {
        self.scan = HeadScan::default();
        self.forget_message();
    }

    /// Clears the parse progress. The message stays until the next one is parsed.
    pub fn begin(&mut self) {
        self.scan = HeadScan::default();
    }

    /// The request line as it came, for the access log.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Exchanges the request line's bytes for another buffer: a caller that keeps the line gives
    /// an old one for it.
    pub fn swap_line(&mut self, line: &mut Vec<u8>) {
        core::mem::swap(&mut self.line, line);
        self.line.clear();
        (self.method_len, self.raw_target_len) = (0, 0);
    }

    /// The method as it came.
    #[must_use]
    pub fn method_raw(&self) -> &[u8] {
        &self.line[..self.method_len]
    }

    /// The target as it came.
    #[must_use]
    pub fn target_raw(&self) -> &[u8] {
        let start = self.line.len().min(self.method_len + 1);
        &self.line[start..start + self.raw_target_len]
    }

    /// Appends path and query as they came, without the scheme and the host of an absolute target.
    #[inline(always)]
    pub fn push_path_and_query_raw(&self, into: &mut Vec<u8>) {
        let raw = self.target_raw();
        match raw.first() {
            Some(b'/') => into.extend_from_slice(raw),
            _ => self.push_without_authority(raw, into),
        }
    }

    #[cold]
    fn push_without_authority(&self, raw: &[u8], into: &mut Vec<u8>) {
        let kept = match split_target(raw, false) {
            Ok(Form::Absolute { rest, .. }) if rest.starts_with(b"/") => rest,
            // RFC 3986 section 6.2.3: an empty path is that of the root.
            Ok(Form::Absolute { rest, .. }) if rest.starts_with(b"?") => {
                into.push(b'/');
                rest
            }
            Ok(Form::Absolute { .. }) if !self.target.is_empty() => &self.target,
            _ => raw,
        };
        into.extend_from_slice(kept);
    }

    /// The requested host, without its port; empty when an HTTP/1.0 client names none.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        if self.has_host { &self.last_host.host } else { &[] }
    }

    /// The host with the port that the client named, if any: `example.org:8080`.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        if self.host().is_empty() { &[] } else { &self.last_host.authority }
    }

    /// Whether the `Host` field is the authority as it is, without a change by the rules for hosts.
    #[must_use]
    pub fn is_host_as_sent(&self) -> bool {
        self.last_host.is_as_sent && !self.host().is_empty()
    }

    /// Whether the path stands for itself and need not be decoded.
    #[must_use]
    pub fn has_plain_path(&self) -> bool {
        self.parts.is_plain()
    }

    /// The normalised path, still percent-encoded.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.parts.path(&self.target)
    }

    /// The query, if there is a `?`.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.parts.query(&self.target)
    }

    /// Bytes of memory that it holds on to.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.line.capacity()
            + self.target.capacity()
            + self.last_host.capacity()
            + self.fields.capacity()
    }

    pub(super) fn forget_message(&mut self) {
        self.line.clear();
        (self.method_len, self.raw_target_len) = (0, 0);
        self.parts = Target::default();
        self.method = None;
        self.version = Version::Http11;
        self.form = TargetForm::Origin;
        self.target.clear();
        self.has_host = false;
        self.port = None;
        self.fields.clear();
        self.framing = BodyFraming::None;
        (self.keep_alive, self.expect_continue, self.upgrade) = (false, false, false);
    }
}

/// Cache of the last parsed host. The next request usually names the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct LastHost {
    raw: Vec<u8>,
    /// `host_strict` and `host_normalize`, which decide what becomes of it.
    opts_seen: (bool, bool),
    pub(super) host: Vec<u8>,
    pub(super) port: Option<u16>,
    pub(super) authority: Vec<u8>,
    /// `authority` is `raw`.
    pub(super) is_as_sent: bool,
}

impl LastHost {
    fn capacity(&self) -> usize {
        self.raw.capacity() + self.host.capacity() + self.authority.capacity()
    }

    pub(super) fn parse(&mut self, raw: &[u8], opts: &ParseOpts) -> Result<(), RequestFault> {
        let opts_seen = (opts.host_strict, opts.host_normalize);
        if raw.is_empty() || raw != self.raw || opts_seen != self.opts_seen {
            self.raw.clear();
            self.port =
                parse_host(raw, opts, &mut self.host).map_err(|_| RequestFault::HostMalformed)?;
            self.authority.clear();
            self.authority.extend_from_slice(&self.host);
            if let Some(port) = self.port {
                self.authority.push(b':');
                lighty_http::decimal::push(u64::from(port), &mut self.authority);
            }
            self.raw.extend_from_slice(raw);
            self.is_as_sent = self.raw == self.authority;
            self.opts_seen = opts_seen;
        }
        Ok(())
    }
}
