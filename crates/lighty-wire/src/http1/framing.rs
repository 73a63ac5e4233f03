//! Framing of message bodies: RFC 9112 section 6, without the lenient branches.
//!
//! A message is rejected wherever two parsers could disagree about its end: such disagreement
//! enables request smuggling.

use lighty_http::fields::{list_items, trim};
use lighty_http::uri::ParseOpts;
use lighty_http::{Fields, Known, Method, Version};

use super::fault::RequestFault;

/// Framing of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyFraming {
    /// No body.
    #[default]
    None,
    /// This many bytes follow; may be 0.
    Length(u64),
    /// Chunks follow, to be read by [`super::chunked::ChunkedDecoder`].
    Chunked,
}

impl BodyFraming {
    /// True if the body has at least one byte.
    #[must_use]
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Length(1..) | Self::Chunked)
    }
}

/// Decides the framing of a request.
pub(super) fn body_framing(
    method: Option<Method>,
    version: Version,
    fields: &Fields,
    opts: &ParseOpts,
) -> Result<BodyFraming, RequestFault> {
    let framing = match announced(version, fields)? {
        None => BodyFraming::None,
        Some(Announced::Chunked) => BodyFraming::Chunked,
        // RFC 9112 section 6.3 allows merging equal repeated values. They are rejected here: no
        // client sends them, and a proxy in front may have counted differently.
        Some(Announced::Length { repeated: true, .. }) => {
            return Err(RequestFault::ContentLengthRepeated);
        }
        Some(Announced::Length { bytes, .. }) => BodyFraming::Length(bytes),
    };
    for_method(framing, method, opts)
}

/// Rejects content with a method that has none, and missing content where it is required.
pub(super) fn for_method(
    framing: BodyFraming,
    method: Option<Method>,
    opts: &ParseOpts,
) -> Result<BodyFraming, RequestFault> {
    match method {
        Some(Method::Get | Method::Head) if framing.has_body() && !opts.method_get_body => {
            Err(RequestFault::ContentInGet)
        }
        // RFC 9112 section 6.3: without either field there is no body.
        Some(Method::Post) if framing == BodyFraming::None && opts.post_needs_length => {
            Err(RequestFault::LengthRequired)
        }
        _ => Ok(framing),
    }
}

/// Body length announced by the fields of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    /// `Content-Length`, once or repeated with the same value.
    Length { bytes: u64, repeated: bool },
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Reason why the framing fields of a message, in either direction, are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramingFault {
    LengthMalformed,
    LengthConflict,
    LengthTooLarge,
    LengthAndCoding,
    CodingInHttp10,
    CodingMalformed,
    CodingUnknown,
}

impl From<FramingFault> for RequestFault {
    fn from(fault: FramingFault) -> Self {
        match fault {
            FramingFault::LengthMalformed => Self::ContentLengthMalformed,
            FramingFault::LengthConflict => Self::ContentLengthConflict,
            FramingFault::LengthTooLarge => Self::ContentLengthTooLarge,
            FramingFault::LengthAndCoding => Self::LengthAndCoding,
            FramingFault::CodingInHttp10 => Self::CodingInHttp10,
            FramingFault::CodingMalformed => Self::CodingMalformed,
            FramingFault::CodingUnknown => Self::CodingUnknown,
        }
    }
}

/// Reads `Transfer-Encoding` and `Content-Length`; `None` if there is neither.
pub(super) fn announced(
    version: Version,
    fields: &Fields,
) -> Result<Option<Announced>, FramingFault> {
    if fields.contains(Known::TransferEncoding) {
        transfer_coding(version, fields).map(|()| Some(Announced::Chunked))
    } else if fields.contains(Known::ContentLength) {
        content_length(fields).map(Some)
    } else {
        Ok(None)
    }
}

/// Checks `Transfer-Encoding`. RFC 9112 section 6.1: "A server MAY reject a request that contains
/// both Content-Length and Transfer-Encoding", "A server that receives a request message with a
/// transfer coding it does not understand SHOULD respond with 501". An HTTP/1.0 message with a
/// transfer coding must be treated "as if the framing is faulty".
fn transfer_coding(version: Version, fields: &Fields) -> Result<(), FramingFault> {
    if fields.contains(Known::ContentLength) {
        return Err(FramingFault::LengthAndCoding);
    }
    if version < Version::Http11 {
        return Err(FramingFault::CodingInHttp10);
    }
    let (mut chunked, mut unknown, mut after_chunked) = (0, 0, false);
    for coding in fields.get_all(Known::TransferEncoding).flat_map(list_items) {
        after_chunked |= chunked > 0;
        if coding.eq_ignore_ascii_case(b"chunked") { chunked += 1 } else { unknown += 1 }
    }
    match (chunked, unknown) {
        (0, 0) => Err(FramingFault::CodingMalformed),
        _ if after_chunked => Err(FramingFault::CodingMalformed),
        (_, 0) => Ok(()),
        _ => Err(FramingFault::CodingUnknown),
    }
}

fn content_length(fields: &Fields) -> Result<Announced, FramingFault> {
    let mut lines = fields.get_all(Known::ContentLength);
    if let (Some(only), None) = (lines.next(), lines.next()) {
        if let Some(bytes) = few_digits(only) {
            return Ok(Announced::Length { bytes, repeated: false });
        }
        if !only.contains(&b',') {
            let length = parse_length(trim(only));
            return length.map(|bytes| Announced::Length { bytes, repeated: false });
        }
    }
    let mut values =
        fields.get_all(Known::ContentLength).flat_map(|value| value.split(|&byte| byte == b','));
    let first = trim(values.next().unwrap_or_default());
    let mut repeated = false;
    for other in values {
        repeated = true;
        if trim(other) != first {
            return Err(FramingFault::LengthConflict);
        }
    }
    parse_length(first).map(|bytes| Announced::Length { bytes, repeated })
}

/// Parses a number of at most 18 digits, which cannot overflow. Nearly all lengths are such
/// numbers.
fn few_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, &digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        Some(sum.wrapping_mul(10).wrapping_add(u64::from(digit)))
    })
}

fn parse_length(digits: &[u8]) -> Result<u64, FramingFault> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(FramingFault::LengthMalformed);
    }
    digits
        .iter()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(FramingFault::LengthTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(version: Version, lines: &[(Known, &str)]) -> Result<BodyFraming, RequestFault> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push_known(*name, value);
        }
        body_framing(Some(Method::Put), version, &fields, &ParseOpts::default())
    }

    #[test]
    fn lengths() {
        let length = |value: &str| run(Version::Http11, &[(Known::ContentLength, value)]);
        assert_eq!(length("0"), Ok(BodyFraming::Length(0)));
        assert_eq!(length("0012"), Ok(BodyFraming::Length(12)));
        assert_eq!(length("18446744073709551615"), Ok(BodyFraming::Length(u64::MAX)));
        assert_eq!(length("18446744073709551616"), Err(RequestFault::ContentLengthTooLarge));
        for bad in ["", "+1", "-1", "1 1", "0x1", "1.0", "1_0", "١"] {
            assert_eq!(length(bad), Err(RequestFault::ContentLengthMalformed), "{bad}");
        }
        assert_eq!(length("5, 5"), Err(RequestFault::ContentLengthRepeated));
        assert_eq!(length("5,6"), Err(RequestFault::ContentLengthConflict));
        assert_eq!(length("5,5,6"), Err(RequestFault::ContentLengthConflict));
        let twice = [(Known::ContentLength, "5"), (Known::ContentLength, "5")];
        assert_eq!(run(Version::Http11, &twice), Err(RequestFault::ContentLengthRepeated));
    }

    #[test]
    fn codings() {
        let coding = |value: &str| run(Version::Http11, &[(Known::TransferEncoding, value)]);
        assert_eq!(coding("chunked"), Ok(BodyFraming::Chunked));
        assert_eq!(coding("CHUNKED ,"), Ok(BodyFraming::Chunked));
        for bad in ["", ",", "chunked, gzip", "chunked, chunked", "chunked,identity"] {
            assert_eq!(coding(bad), Err(RequestFault::CodingMalformed), "{bad}");
        }
        for bad in ["gzip", "gzip, chunked", "identity", "chunked;q=1", "xchunked", "\"chunked\""] {
            assert_eq!(coding(bad), Err(RequestFault::CodingUnknown), "{bad}");
        }
        let both = [(Known::TransferEncoding, "chunked"), (Known::ContentLength, "3")];
        assert_eq!(run(Version::Http11, &both), Err(RequestFault::LengthAndCoding));
        let old = run(Version::Http10, &[(Known::TransferEncoding, "chunked")]);
        assert_eq!(old, Err(RequestFault::CodingInHttp10));
    }

    #[test]
    fn methods() {
        let run = |method, lines: &[(Known, &str)], options| {
            let mut fields = Fields::new();
            for (name, value) in lines {
                fields.push_known(*name, value);
            }
            let opts = ParseOpts {
                method_get_body: options,
                post_needs_length: options,
                ..ParseOpts::default()
            };
            body_framing(method, Version::Http11, &fields, &opts)
        };
        let three = [(Known::ContentLength, "3")];
        let zero = [(Known::ContentLength, "0")];
        assert_eq!(run(Some(Method::Get), &three, false), Err(RequestFault::ContentInGet));
        assert_eq!(run(Some(Method::Head), &three, true), Ok(BodyFraming::Length(3)));
        assert_eq!(run(Some(Method::Get), &zero, false), Ok(BodyFraming::Length(0)));
        assert_eq!(run(Some(Method::Post), &[], true), Err(RequestFault::LengthRequired));
        assert_eq!(run(Some(Method::Post), &[], false), Ok(BodyFraming::None));
        assert_eq!(run(Some(Method::Post), &zero, true), Ok(BodyFraming::Length(0)));
        assert_eq!(run(None, &three, false), Ok(BodyFraming::Length(3)));
        assert_eq!(run(None, &[], false), Ok(BodyFraming::None));
    }
}
