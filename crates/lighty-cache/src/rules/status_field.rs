//! The field `Cache-Status`: RFC 9211.

use lighty_http::fields::is_token_byte;
use lighty_http::{Fields, Status, decimal};

/// The reason for a request to the backend: RFC 9211 section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// The cache is configured not to handle the request.
    Bypass,
    /// The method requires it.
    Method,
    /// Nothing is stored for the target.
    UriMiss,
    /// Only other variants are stored.
    VaryMiss,
    /// Nothing is stored, without a closer reason.
    Miss,
    /// The client demands it.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only parts are stored.
    Partial,
}

impl ForwardReason {
    /// The token on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// A member of the field. The key is never part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// `cache.name`.
    pub name: &'a str,
    /// The response comes from the cache without a request to the backend.
    pub is_hit: bool,
    /// Remaining lifetime, negative if stale.
    pub ttl_s: Option<i64>,
    /// The reason for a request to the backend; left out for a hit.
    pub forwarded: Option<ForwardReason>,
    /// Status of the backend's response.
    pub forwarded_status: Option<Status>,
    /// The response was stored.
    pub is_stored: bool,
    /// The request was joined with another.
    pub is_collapsed: bool,
    /// Further information.
    pub detail: Option<&'a str>,
}

impl CacheStatus<'_> {
    /// The member as text.
    #[must_use]
    pub fn member(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        push_text(&mut out, self.name);
        if self.is_hit {
            out.extend_from_slice(b"; hit");
        } else if let Some(reason) = self.forwarded {
            out.extend_from_slice(b"; fwd=");
            out.extend_from_slice(reason.as_str().as_bytes());
        }
        if let Some(status) = self.forwarded_status {
            out.extend_from_slice(b"; fwd-status=");
            out.extend_from_slice(&status.digits());
        }
        if let Some(ttl_s) = self.ttl_s {
            out.extend_from_slice(if ttl_s < 0 { b"; ttl=-" } else { b"; ttl=" });
            decimal::push(ttl_s.unsigned_abs().min(INTEGER_MAX), &mut out);
        }
        if self.is_stored {
            out.extend_from_slice(b"; stored");
        }
        if self.is_collapsed {
            out.extend_from_slice(b"; collapsed");
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            push_text(&mut out, detail);
        }
        out
    }

    /// Appends the member after the members of caches nearer to the origin.
    pub fn append_to(&self, response: &mut Fields) {
        response.push(b"Cache-Status", &self.member());
    }
}

/// The largest integer of a structured field.
const INTEGER_MAX: u64 = 999_999_999_999_999;

/// Writes a token, or a string if the text is none; bytes that no string can have become `?`.
fn push_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let starts = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'*');
    let is_part = |byte: &u8| is_token_byte(*byte) || matches!(byte, b':' | b'/');
    if starts && bytes.iter().all(is_part) {
        return out.extend_from_slice(bytes);
    }
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => out.push(b'?'),
        }
    }
    out.push(b'"');
}
