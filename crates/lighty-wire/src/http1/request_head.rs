//! A parsed request head.

use alloc::vec::Vec;

use lighty_http::host::parse_host;
use lighty_http::uri::{Form, ParseOpts, RequestTarget, split_target};
use lighty_http::{Fields, Method, Version};

use super::fault::RequestFault;
use super::framing::BodyFraming;
use super::scan::HeadScan;

/// Form of the request target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path`.
    #[default]
    Origin,
    /// `http://host/path`, or `https` if secure.
    Absolute {
        /// True if the scheme was `https`.
        secure: bool,
    },
    /// `host:port`, for CONNECT.
    Authority,
    /// `*`, for OPTIONS.
    Asterisk,
}

/// A parsed request head. Reusable: parsing clears it and keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    pub(super) line: Vec<u8>,
    pub(super) method_len: usize,
    pub(super) raw_target_len: usize,
    pub(super) parts: RequestTarget,
    pub(super) scan: HeadScan,
    pub(super) last_host: LastHost,
    /// The method; `None` for an unknown one, to be answered with 501.
    pub method: Option<Method>,
    /// 1.0, or 1.1 for all later versions of HTTP/1.
    pub version: Version,
    /// The form of the target as received.
    pub form: TargetForm,
    /// Normalised path and query; or `*`, or an authority, according to `form`.
    pub target: Vec<u8>,
    /// True if `last_host` belongs to this request.
    pub(super) has_host: bool,
    /// The port that the client sent.
    pub port: Option<u16>,
    /// The header fields. `Host` is replaced by the target's authority if there is one (RFC 9112
    /// section 3.2.2).
    pub fields: Fields,
    /// Framing of the body.
    pub framing: BodyFraming,
    /// True if the client wants to keep the connection open.
    pub keep_alive: bool,
    /// True if the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// True if `Connection` names `upgrade` and there is an `Upgrade` field.
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

    /// The request line as received, for the access log.
    #[must_use]
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// Swaps the request line's buffer with another one, so that a caller can keep the line without
    /// a copy.
    pub fn swap_line(&mut self, line: &mut Vec<u8>) {
        core::mem::swap(&mut self.line, line);
        self.line.clear();
        (self.method_len, self.raw_target_len) = (0, 0);
    }

    /// The method as received.
    #[must_use]
    pub fn method_raw(&self) -> &[u8] {
        &self.line[..self.method_len]
    }

    /// The target as received.
    #[must_use]
    pub fn target_raw(&self) -> &[u8] {
        let start = self.line.len().min(self.method_len + 1);
        &self.line[start..start + self.raw_target_len]
    }

    /// Appends path and query as received, without the scheme and the host of an absolute target.
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
            // RFC 3986 section 6.2.3: an empty path equals `/`.
            Ok(Form::Absolute { rest, .. }) if rest.starts_with(b"?") => {
                into.push(b'/');
                rest
            }
            Ok(Form::Absolute { .. }) if !self.target.is_empty() => &self.target,
            _ => raw,
        };
        into.extend_from_slice(kept);
    }

    /// The requested host, without its port; empty if an HTTP/1.0 client sends none.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        if self.has_host { &self.last_host.host } else { &[] }
    }

    /// The host with the port that the client sent, if any: `example.org:8080`.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        if self.host().is_empty() { &[] } else { &self.last_host.authority }
    }

    /// True if the authority equals the `Host` field, unchanged by the rules for hosts.
    #[must_use]
    pub fn is_host_as_sent(&self) -> bool {
        self.last_host.is_as_sent && !self.host().is_empty()
    }

    /// True if the decoded path equals the encoded one.
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

    /// Bytes of memory held.
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
        self.parts = RequestTarget::default();
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
    /// `host_strict` and `host_normalize` at the time of parsing.
    opts_seen: (bool, bool),
    pub(super) host: Vec<u8>,
    pub(super) port: Option<u16>,
    pub(super) authority: Vec<u8>,
    /// `authority` equals `raw`.
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
