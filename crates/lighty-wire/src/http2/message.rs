//! Heads and trailers of messages: RFC 9113 section 8.
//!
//! A malformed message ends its stream. The fault is found while the block is decoded: after a
//! violation or an exceeded limit nothing more is stored, but the block is decoded to its end.

use alloc::vec::Vec;

use lighty_http::fields::{is_token_byte, trim};
use lighty_http::{Fields, Known, Status, decimal};

use super::fault::StreamFault;
use super::hpack::{FIELD_OVERHEAD, Field, FieldFault};
use super::limits::Limits;

/// Kind of a field block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Request,
    Response,
    Trailers,
}

/// Pseudo-header fields that are kept as text.
#[derive(Clone, Copy)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
}

const PSEUDO_COUNT: usize = 5;

/// The head of a received message, or its trailers. Reusable: reading the next one keeps its
/// memory.
#[derive(Clone, Debug, Default)]
pub struct MessageHead {
    text: Vec<u8>,
    pseudo: [Option<(u32, u32)>; PSEUDO_COUNT],
    cookie: Vec<u8>,
    /// The status of a response.
    pub status: Option<Status>,
    /// The fields. `Host` comes first and equals the authority, if the request has one; the crumbs
    /// of a cookie are joined into one field (RFC 9113 section 8.2.3).
    pub fields: Fields,
    /// The announced length of the content.
    pub content_length: Option<u64>,
    /// Bytes of all fields, pseudo-header fields included, as RFC 9113 section 6.5.2 counts them.
    pub bytes: usize,
}

impl MessageHead {
    /// `:method`.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.pseudo(Pseudo::Method).unwrap_or_default()
    }

    /// `:scheme`; empty for CONNECT.
    #[must_use]
    pub fn scheme(&self) -> &[u8] {
        self.pseudo(Pseudo::Scheme).unwrap_or_default()
    }

    /// `:authority`, if there is one.
    #[must_use]
    pub fn authority(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Authority)
    }

    /// `:path`; empty for CONNECT.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.pseudo(Pseudo::Path).unwrap_or_default()
    }

    /// `:protocol` of an extended CONNECT: RFC 8441.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.pseudo(Pseudo::Protocol)
    }

    /// Clears the message; keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.pseudo = [None; PSEUDO_COUNT];
        self.cookie.clear();
        self.status = None;
        self.fields.clear();
        self.content_length = None;
        self.bytes = 0;
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.text.capacity() + self.cookie.capacity() + self.fields.capacity()
    }

    fn pseudo(&self, which: Pseudo) -> Option<&[u8]> {
        self.pseudo[which as usize].map(|(start, end)| &self.text[start as usize..end as usize])
    }
}

/// Collects the fields of one block.
pub(super) struct Collector<'a> {
    head: &'a mut MessageHead,
    kind: BlockKind,
    limits: &'a Limits,
    /// True if `:protocol` is allowed.
    extended_connect: bool,
    count: usize,
    is_oversized: bool,
    /// True if a field other than a pseudo-header field was seen.
    is_past_pseudo: bool,
    fault: Option<StreamFault>,
}

/// A completely decoded block without violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collected {
    Whole,
    /// The limit on fields or on their bytes was exceeded.
    Oversized,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        head: &'a mut MessageHead,
        kind: BlockKind,
        limits: &'a Limits,
        extended_connect: bool,
    ) -> Self {
        head.clear();
        Self {
            head,
            kind,
            limits,
            extended_connect,
            count: 0,
            is_oversized: false,
            is_past_pseudo: false,
            fault: None,
        }
    }

    #[inline]
    pub(super) fn field(&mut self, field: Field<'_>) {
        self.head.bytes += field.name.len() + field.value.len() + FIELD_OVERHEAD;
        self.count += 1;
        self.is_oversized |=
            self.head.bytes > self.limits.field_bytes_max || self.count > self.limits.fields_max;
        if self.is_oversized || self.fault.is_some() {
            return;
        }
        let stored = match field.fault {
            None if field.name.first() == Some(&b':') => self.pseudo(field.name, field.value),
            None => self.regular(field),
            Some(FieldFault::Name) => Err(StreamFault::FieldName),
            Some(FieldFault::Value) => Err(StreamFault::FieldValue),
        };
        self.fault = stored.err();
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), StreamFault> {
        if self.is_past_pseudo {
            return Err(StreamFault::PseudoLate);
        }
        let which = match (self.kind, name) {
            (BlockKind::Request, b":method") => Pseudo::Method,
            (BlockKind::Request, b":scheme") => Pseudo::Scheme,
            (BlockKind::Request, b":authority") => Pseudo::Authority,
            (BlockKind::Request, b":path") => Pseudo::Path,
            (BlockKind::Request, b":protocol") if self.extended_connect => Pseudo::Protocol,
            (BlockKind::Response, b":status") => return self.status(value),
            _ => return Err(StreamFault::PseudoUnknown),
        };
        let place = &mut self.head.pseudo[which as usize];
        if place.is_some() {
            return Err(StreamFault::PseudoRepeated);
        }
        let start = self.head.text.len();
        self.head.text.extend_from_slice(value);
        // The limit on blocks is far below 4 GiB.
        *place = Some((start as u32, self.head.text.len() as u32));
        Ok(())
    }

    fn status(&mut self, value: &[u8]) -> Result<(), StreamFault> {
        if self.head.status.is_some() {
            return Err(StreamFault::PseudoRepeated);
        }
        let code = decimal::parse(value).filter(|_| value.len() == 3);
        let status = code.and_then(|code| Status::new(u16::try_from(code).ok()?));
        // RFC 9113 section 8.6: HTTP/2 has no 101.
        let status = status.filter(|status| status.code() != 101).ok_or(StreamFault::Status)?;
        self.head.status = Some(status);
        Ok(())
    }

    fn regular(&mut self, field: Field<'_>) -> Result<(), StreamFault> {
        use Known as K;
        if !self.is_past_pseudo {
            self.end_pseudo();
        }
        let fields = &mut self.head.fields;
        match field.known {
            None => fields.push_looked_up(None, field.name, field.value),
            Some(
                K::Connection
                | K::ProxyConnection
                | K::KeepAlive
                | K::TransferEncoding
                | K::Upgrade,
            ) => return Err(StreamFault::ConnectionField),
            Some(K::Te) if !field.value.eq_ignore_ascii_case(b"trailers") => {
                return Err(StreamFault::Te);
            }
            Some(K::Host) if self.kind == BlockKind::Request => return self.host(field.value),
            Some(K::Cookie) => {
                let cookie = &mut self.head.cookie;
                if !cookie.is_empty() {
                    cookie.extend_from_slice(b"; ");
                }
                cookie.extend_from_slice(field.value);
            }
            Some(known) => fields.push_known(known, field.value),
        }
        Ok(())
    }

    /// Adds `Host`: the authority stands for it (RFC 9113 section 8.3.1).
    fn end_pseudo(&mut self) {
        debug_assert!(self.head.fields.is_empty(), "fields before the pseudo-header fields");
        self.is_past_pseudo = true;
        let authority = self.head.pseudo[Pseudo::Authority as usize];
        if let Some((start, end)) = authority.filter(|(start, end)| start != end) {
            let authority = &self.head.text[start as usize..end as usize];
            self.head.fields.push_known(Known::Host, authority);
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), StreamFault> {
        match self.head.fields.get(Known::Host) {
            None => self.head.fields.push_known(Known::Host, value),
            // A `Host` equal to the authority is redundant.
            Some(host) if is_same_host(host, value, self.head.scheme()) => {}
            Some(_) => return Err(StreamFault::HostConflict),
        }
        Ok(())
    }

    /// Checks the complete block: RFC 9113 sections 8.1.1 and 8.3.
    pub(super) fn finish(mut self) -> Result<Collected, StreamFault> {
        if self.is_oversized {
            return Ok(Collected::Oversized);
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.is_past_pseudo {
            self.end_pseudo();
        }
        let head = self.head;
        if !head.cookie.is_empty() {
            head.fields.push_known(Known::Cookie, &head.cookie);
        }
        debug_assert!(head.fields.len() <= self.count, "{} fields", head.fields.len());
        match self.kind {
            BlockKind::Request => check_request(head)?,
            BlockKind::Response if head.status.is_none() => return Err(StreamFault::PseudoMissing),
            BlockKind::Response => {}
            BlockKind::Trailers => return Ok(Collected::Whole),
        }
        if matches!(self.kind, BlockKind::Request) && head.protocol().is_some() {
            // After an extended CONNECT the stream carries a tunnel: there is no content with a
            // length.
            head.fields.remove(Known::ContentLength);
        } else if head.fields.contains(Known::ContentLength) {
            head.content_length = Some(content_length(&mut head.fields)?);
        }
        Ok(Collected::Whole)
    }
}

fn check_request(head: &MessageHead) -> Result<(), StreamFault> {
    let has = |which: Pseudo| head.pseudo[which as usize].is_some();
    if !has(Pseudo::Method) {
        return Err(StreamFault::PseudoMissing);
    }
    let method = head.method();
    if method.is_empty() || !method.iter().all(|&byte| is_token_byte(byte)) {
        return Err(StreamFault::Method);
    }
    if let Some(authority) = head.authority()
        && authority.iter().any(|byte| matches!(byte, b'@' | b' ' | b'\t'))
    {
        return Err(StreamFault::Authority);
    }
    let is_connect = method == b"CONNECT";
    if is_connect && !has(Pseudo::Protocol) {
        // Section 8.5: only `:method` and `:authority` are allowed.
        let others = has(Pseudo::Scheme) || has(Pseudo::Path);
        return match head.authority() {
            _ if others => Err(StreamFault::PseudoUnknown),
            None | Some(b"") => Err(StreamFault::PseudoMissing),
            Some(_) => Ok(()),
        };
    }
    if !is_connect && has(Pseudo::Protocol) {
        return Err(StreamFault::PseudoUnknown);
    }
    if !has(Pseudo::Scheme) || !has(Pseudo::Path) {
        return Err(StreamFault::PseudoMissing);
    }
    if !is_scheme(head.scheme()) {
        return Err(StreamFault::Scheme);
    }
    match head.path() {
        b"*" if method == b"OPTIONS" => Ok(()),
        [b'/', rest @ ..] if !rest.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'#')) => Ok(()),
        _ => Err(StreamFault::Path),
    }
}

/// True for a scheme of RFC 3986 section 3.1.
fn is_scheme(text: &[u8]) -> bool {
    let is_next = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_next)
}

/// Compares after normalisation, as RFC 9113 section 8.3.1 requires: host names are
/// case-insensitive, and an empty port equals the scheme's (RFC 9110 section 4.2.3).
fn is_same_host(one: &[u8], other: &[u8], scheme: &[u8]) -> bool {
    let default: &[u8] = match scheme {
        _ if scheme.eq_ignore_ascii_case(b"http") => b":80",
        _ if scheme.eq_ignore_ascii_case(b"https") => b":443",
        _ => b":",
    };
    without_port(one, default).eq_ignore_ascii_case(without_port(other, default))
}

fn without_port<'h>(host: &'h [u8], port: &[u8]) -> &'h [u8] {
    // The colons of an IPv6 address are within brackets.
    host.strip_suffix(port).or_else(|| host.strip_suffix(b":")).unwrap_or(host)
}

/// Parses the length. Repeated equal values are merged into one field.
fn content_length(fields: &mut Fields) -> Result<u64, StreamFault> {
    let mut values = fields.get_all(Known::ContentLength).map(trim);
    let first = values.next().unwrap_or_default();
    let length = decimal::parse(first).ok_or(StreamFault::ContentLength)?;
    let mut is_repeated = false;
    for value in values {
        is_repeated = true;
        if decimal::parse(value) != Some(length) {
            return Err(StreamFault::ContentLength);
        }
    }
    if is_repeated {
        let mut digits = Vec::new();
        decimal::push(length, &mut digits);
        fields.set(Known::ContentLength, &digits);
    }
    Ok(length)
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
