//! The range of a slice: the request for it, and the response that has it.

use lighty_cache::key::Key;
use lighty_cache::object::Object;
use lighty_cache::rules::{StorabilityScope, Unstorable};
use lighty_cache::store::SliceVersion;
use lighty_core::Exchange;
use lighty_http::range::parse_content_range;
use lighty_http::{Fields, Known};

/// A slice that is fetched.
#[derive(Clone)]
pub(super) struct SliceRange {
    /// The key of the whole.
    pub(super) key: Key,
    bytes: u64,
    index: u64,
    /// The version of the slices so far.
    pub(super) expected: Option<SliceVersion>,
}

/// A reason not to slice a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsliceable {
    #[error(transparent)]
    Unstorable(Unstorable),
    /// `Content-Range` is missing, malformed, or without the length of the whole.
    #[error("the response has no Content-Range with the length of the whole")]
    NoRange,
    /// Fewer bytes than requested, or others.
    #[error("the response has another range than the request")]
    OtherRange,
    /// A part of a coded response is useful only to clients that accept the coding.
    #[error("the response has a Content-Encoding")]
    Coded,
    #[error("the response is stale on arrival")]
    Stale,
}

impl Unsliceable {
    /// True if later responses are like this one.
    pub(super) fn is_lasting(self) -> bool {
        match self {
            Self::Unstorable(Unstorable::Cookie | Unstorable::Authorized | Unstorable::Partial) => {
                true
            }
            Self::Unstorable(reason) => reason.scope() == StorabilityScope::Key,
            _ => true,
        }
    }
}

impl SliceRange {
    /// True if the slice is all of the representation.
    pub(super) fn has_whole(&self, version: &SliceVersion) -> bool {
        version.total <= self.bytes
    }

    pub(super) fn new(key: Key, bytes: u64, index: u64, expected: Option<SliceVersion>) -> Self {
        Self { key, bytes, index, expected }
    }

    /// Offset of its first byte.
    pub(super) fn start(&self) -> u64 {
        self.index.saturating_mul(self.bytes)
    }

    /// Adds the range to a request to the backend, and for a stale slice the condition that it has
    /// changed. With `If-Range`, a response could lack `Content-Type` and other fields of the whole
    /// (RFC 9110 section 15.3.7); another version shows itself by its `ETag`.
    pub(super) fn add_fields(&self, stale: Option<&Object>, request: &mut Fields) {
        let last = self.start().saturating_add(self.bytes - 1);
        request.push_known(Known::Range, format!("bytes={}-{last}", self.start()));
        let stale = stale.and_then(|stale| stale.head.fields.get(Known::ETag));
        if let Some(etag) = stale {
            request.push_known(Known::IfNoneMatch, etag);
        }
    }

    /// The version that a 206 belongs to, if it has the bytes of the slice, and their number.
    pub(super) fn version(&self, part: &Exchange) -> Result<(SliceVersion, u64), Unsliceable> {
        let response = &part.response;
        let mut lines = response.fields.get_all(Known::ContentRange);
        let range = lines.next().filter(|_| lines.next().is_none()).and_then(parse_content_range);
        let Some((range, Some(total))) = range else { return Err(Unsliceable::NoRange) };
        let end = self.start().saturating_add(self.bytes).min(total);
        let length = response.declared_length.or_else(|| response.body.known_length());
        let is_it = (range.start, range.end) == (self.start(), end);
        if !is_it || length.is_some_and(|length| length != range.len()) {
            return Err(Unsliceable::OtherRange);
        }
        if response.fields.contains(Known::ContentEncoding) {
            return Err(Unsliceable::Coded);
        }
        let version = SliceVersion::of(&response.fields);
        let version = version.ok_or(Unsliceable::Unstorable(Unstorable::Partial))?;
        Ok((version, range.len()))
    }
}
