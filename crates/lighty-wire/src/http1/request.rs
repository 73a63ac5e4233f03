//! Parses the head of a request: RFC 9112 sections 2 to 6.
//!
//! `whole` splits the lines of a usual head, `httparse` the lines of any other; their meaning and
//! validity are decided here. The structure is filled in place and reused: after the first few
//! requests nothing is allocated.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use lighty_http::fields::list_items;
use lighty_http::uri::{Form, ParseOpts, RequestTarget, normalise, split_target};
use lighty_http::{Fields, Known, Method, Version};
use memchr::memchr;

use super::connection::ConnectionOptions;
use super::fault::RequestFault;
pub use super::framing::BodyFraming;
use super::framing::{body_framing, for_method};
pub use super::limits::{FIELDS_CAP, Http1Limits};
pub use super::request_head::{RequestHead, TargetForm};
pub use super::scan::{LEADING_LINES_MAX, METHOD_BYTES_MAX};
use super::whole;

/// Progress of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// More bytes are needed. Pass the same bytes again, with more after them.
    Partial,
    /// The head was `consumed` bytes long, empty lines before it included; the body follows.
    Complete {
        /// Bytes to take off the front of the buffer.
        consumed: usize,
    },
}

/// The parts of a request that another protocol has already split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRequest<'a> {
    pub(crate) version: Version,
    /// A token.
    pub(crate) method: &'a [u8],
    /// A path and query, `*`, or the authority for CONNECT; without blanks.
    pub(crate) target: &'a [u8],
    pub(crate) framing: BodyFraming,
}

impl RequestHead {
    /// Interprets a request received in frames. Swaps `fields` with the previous request's.
    ///
    /// # Errors
    /// [`RequestFault`]. The request line is then available for the log.
    pub(crate) fn read_parts(
        &mut self,
        parts: &SplitRequest<'_>,
        fields: &mut Fields,
        limits: &Http1Limits,
        opts: &ParseOpts,
    ) -> Result<(), RequestFault> {
        self.clear();
        for text in [parts.method, b" ", parts.target, b" ", parts.version.as_str().as_bytes()] {
            self.line.extend_from_slice(text);
        }
        self.method_len = parts.method.len();
        self.raw_target_len = parts.target.len();
        self.method = Method::from_bytes(parts.method);
        self.version = parts.version;
        core::mem::swap(&mut self.fields, fields);
        fields.clear();
        if parts.target.len() > limits.target_bytes_max {
            return Err(RequestFault::TargetTooLong);
        }
        check_singletons(&self.fields)?;
        self.framing = for_method(parts.framing, self.method, opts)?;
        read_rest(opts, self)
    }
}

/// Parses one head from the front of `buf`.
///
/// While it returns [`Head::Partial`], call it again with the same bytes and more, and the same
/// `out`, which holds the progress. After a fault, `out` holds the parts parsed so far (the request
/// line, for the log); [`RequestHead::clear`] resets it for another connection.
///
/// # Errors
/// [`RequestFault`], as soon as it is certain. The connection is unusable afterwards.
pub fn parse_request(
    buf: &[u8],
    limits: &Http1Limits,
    opts: &ParseOpts,
    out: &mut RequestHead,
) -> Result<Head, RequestFault> {
    if out.scan.is_fresh() {
        out.forget_message();
        if let Some(consumed) = whole::read(buf, limits, out) {
            understand(opts, out)?;
            return Ok(Head::Complete { consumed });
        }
    }
    let span = match out.scan.advance(buf, limits, opts.header_strict) {
        Ok(Some(span)) => span,
        Ok(None) => return Ok(Head::Partial),
        Err(fault) => {
            let start = out.scan.start();
            out.clear();
            read_request_line(&buf[start..], out);
            return Err(fault);
        }
    };
    out.clear();
    parse_lines(&buf[span.start..span.end], limits, opts, out)?;
    understand(opts, out)?;
    Ok(Head::Complete { consumed: span.end })
}

/// Interprets the split request line and fields.
fn understand(opts: &ParseOpts, out: &mut RequestHead) -> Result<(), RequestFault> {
    if out.fields.contains_any(&[Known::ContentType, Known::IfModifiedSince]) {
        check_singletons(&out.fields)?;
    }
    if is_bare(out) {
        out.keep_alive = out.version == Version::Http11;
        return read_target(opts, out);
    }
    out.framing = body_framing(out.method, out.version, &out.fields, opts)?;
    read_rest(opts, out)
}

fn read_rest(opts: &ParseOpts, out: &mut RequestHead) -> Result<(), RequestFault> {
    read_target(opts, out)?;
    read_connection(out);
    read_expectation(out)
}

/// Rejects repeated singleton fields with different values (RFC 9110 section 5.3): a proxy, a
/// program and this server might each use another one. Equal repetitions and empty lines are
/// harmless.
fn check_singletons(fields: &Fields) -> Result<(), RequestFault> {
    for (name, fault) in [
        (Known::ContentType, RequestFault::ContentTypeConflict),
        (Known::IfModifiedSince, RequestFault::IfModifiedSinceConflict),
    ] {
        let mut values = fields.get_all(name).filter(|value| !value.is_empty());
        if let Some(first) = values.next()
            && !values.all(|value| value.eq_ignore_ascii_case(first))
        {
            return Err(fault);
        }
    }
    Ok(())
}

/// True if no field concerns the body or the connection, and no body is expected.
fn is_bare(out: &RequestHead) -> bool {
    use Known as K;
    let telling = [K::ContentLength, K::TransferEncoding, K::Connection, K::Upgrade, K::Expect];
    out.method == Some(Method::Get) && !out.fields.contains_any(&telling)
}

fn parse_lines(
    head: &[u8],
    limits: &Http1Limits,
    opts: &ParseOpts,
    out: &mut RequestHead,
) -> Result<(), RequestFault> {
    read_request_line(head, out);
    let known = in_known_version(head);
    let head = known.as_deref().unwrap_or(head);
    let ascii = with_ascii_target(head, opts, out);
    let head = ascii.as_deref().unwrap_or(head);
    let mut table = [const { MaybeUninit::uninit() }; FIELDS_CAP];
    let fields_max = FIELDS_CAP.min(limits.fields_max as usize);
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut table[..fields_max]) {
        Ok(httparse::Status::Complete(len)) if len == head.len() => {}
        Ok(_) => return Err(RequestFault::RequestLine),
        Err(error) => return Err(explain(error, head)),
    }
    out.version = if request.version == Some(0) { Version::Http10 } else { Version::Http11 };
    for field in request.headers.iter() {
        out.fields.push(field.name.as_bytes(), field.value);
    }
    Ok(())
}

/// The same head as HTTP/1.1 if it has a higher minor version, otherwise `None`. RFC 9110 section
/// 2.5: such a request is processed as one of the highest known version.
fn in_known_version(head: &[u8]) -> Option<Vec<u8>> {
    let end = memchr(b'\n', head)?;
    let end = if head[..end].ends_with(b"\r") { end - 1 } else { end };
    let [.., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] = head[..end] else {
        return None;
    };
    let mut known = head.to_vec();
    known[end - 1] = b'1';
    Some(known)
}

/// The same head with an ASCII target, if its target is not UTF-8: `httparse` rejects such a
/// target, but `normalise` has rules for each of its bytes. `out` keeps the line as received.
fn with_ascii_target(head: &[u8], opts: &ParseOpts, out: &RequestHead) -> Option<Vec<u8>> {
    let is_judged = opts.url_normalize || !opts.url_invalid_utf8_reject;
    if !is_judged || core::str::from_utf8(out.target_raw()).is_ok() {
        return None;
    }
    let mut ascii = head.to_vec();
    let start = out.method_len + 1;
    for byte in &mut ascii[start..start + out.raw_target_len] {
        if !byte.is_ascii() {
            *byte = b'a';
        }
    }
    Some(ascii)
}

/// Keeps the line for the log, even if the request turns out to be invalid.
fn read_request_line(head: &[u8], out: &mut RequestHead) {
    // The line and its parts are short: plain loops finish before a vector search has started.
    let line = &head[..head.iter().position(|&byte| byte == b'\n').unwrap_or(head.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    debug_assert!(out.line.is_empty(), "a second request line");
    out.line.extend_from_slice(line);
    out.method_len = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let after = &line[line.len().min(out.method_len + 1)..];
    out.raw_target_len = after.iter().rposition(|&byte| byte == b' ').unwrap_or(after.len());
    out.method = Method::from_bytes(out.method_raw());
}

fn read_target(opts: &ParseOpts, out: &mut RequestHead) -> Result<(), RequestFault> {
    debug_assert!(out.target.is_empty() && !out.has_host, "a second target");
    let host_line = host_line(out.version, &out.fields)?;
    let start = out.method_len + 1;
    let raw = &out.line[start..start + out.raw_target_len];
    let form = split_target(raw, out.method == Some(Method::Connect))?;
    let host = match form {
        Form::Absolute { authority, .. } | Form::Authority(authority) => {
            out.fields.set(Known::Host, authority);
            Some(authority)
        }
        Form::Origin(_) | Form::Asterisk => host_line,
    };
    if let Some(host) = host {
        out.last_host.parse(host, opts)?;
        out.port = out.last_host.port;
        out.has_host = true;
    }
    let is_options = out.method == Some(Method::Options);
    (out.form, out.parts) = match form {
        Form::Origin(raw) => (TargetForm::Origin, normalise(raw, opts, &mut out.target)?),
        // RFC 9112 section 3.2.4: an OPTIONS target without a path stands for the asterisk.
        Form::Absolute { rest: [], .. } | Form::Asterisk if is_options => {
            (TargetForm::Asterisk, keep(b"*", &mut out.target))
        }
        Form::Absolute { secure, rest, .. } => {
            (TargetForm::Absolute { secure }, normalise(rest, opts, &mut out.target)?)
        }
        Form::Authority(authority) => (TargetForm::Authority, keep(authority, &mut out.target)),
        Form::Asterisk => return Err(lighty_http::uri::UriFault::Form.into()),
    };
    Ok(())
}

fn keep(text: &[u8], target: &mut Vec<u8>) -> RequestTarget {
    target.extend_from_slice(text);
    RequestTarget::of(target)
}

/// RFC 9112 section 3.2: "A server MUST respond with a 400 (Bad Request) status code to any
/// HTTP/1.1 request message that lacks a Host header field and to any request message that
/// contains more than one Host header field line or a Host header field with an invalid field
/// value."
fn host_line(version: Version, fields: &Fields) -> Result<Option<&[u8]>, RequestFault> {
    let mut lines = fields.get_all(Known::Host);
    match (lines.next(), lines.next()) {
        (None, _) if version >= Version::Http11 => Err(RequestFault::HostMissing),
        (line, None) => Ok(line),
        (_, Some(_)) => Err(RequestFault::HostRepeated),
    }
}

fn read_connection(out: &mut RequestHead) {
    let options = ConnectionOptions::of(&out.fields);
    out.keep_alive = options.keep_alive(out.version);
    out.upgrade =
        options.upgrade && out.version == Version::Http11 && out.fields.contains(Known::Upgrade);
}

/// Reads `Expect`: RFC 9110 section 10.1.1. An expectation in a 1.0 request is ignored.
fn read_expectation(out: &mut RequestHead) -> Result<(), RequestFault> {
    if out.version == Version::Http10 || !out.fields.contains(Known::Expect) {
        return Ok(());
    }
    let mut expected = false;
    for item in out.fields.get_all(Known::Expect).flat_map(list_items) {
        if !item.eq_ignore_ascii_case(b"100-continue") {
            return Err(RequestFault::Expectation);
        }
        expected = true;
    }
    out.expect_continue = expected && out.framing.has_body();
    Ok(())
}

/// Finds the fault for an error of `httparse`. Runs for rejected requests only, so it may be slow.
fn explain(error: httparse::Error, head: &[u8]) -> RequestFault {
    match error {
        httparse::Error::TooManyHeaders => RequestFault::TooManyFields,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => explain_fields(head),
        httparse::Error::NewLine if has_bare_cr(head) => RequestFault::BareCr,
        _ => explain_request_line(head),
    }
}

fn explain_request_line(head: &[u8]) -> RequestFault {
    let line = &head[..memchr(b'\n', head).unwrap_or(head.len())];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.contains(&b'\r') {
        return RequestFault::BareCr;
    }
    let version = line.rsplit(|&byte| byte == b' ').next().unwrap_or(line);
    match version {
        b"HTTP/1.0" | b"HTTP/1.1" => RequestFault::RequestLine,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => RequestFault::Version,
        _ => RequestFault::RequestLine,
    }
}

fn explain_fields(head: &[u8]) -> RequestFault {
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let name_len = memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(name_len);
        match name {
            [] if value.is_empty() => continue,
            [b' ' | b'\t', ..] => return RequestFault::ObsoleteFolding,
            _ if line.contains(&b'\r') => return RequestFault::BareCr,
            _ if value.is_empty() => return RequestFault::NoColon,
            [.., b' ' | b'\t'] => return RequestFault::SpaceBeforeColon,
            _ => {}
        }
        if name.is_empty() || !name.iter().all(|&byte| lighty_http::fields::is_token_byte(byte)) {
            return RequestFault::FieldName;
        }
        if value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
            return RequestFault::FieldValue;
        }
    }
    RequestFault::FieldName
}

fn has_bare_cr(head: &[u8]) -> bool {
    head.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n')
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
