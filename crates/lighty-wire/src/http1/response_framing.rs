//! Framing of response bodies: RFC 9112 section 6.3, which depends on the request method.

use lighty_http::{Fields, Known, Method, Status, Version};

use super::connection::ConnectionOptions;
use super::framing::{Announced, announced};
use super::response_fault::ResponseFault;

/// Framing of a response body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body. The next response or a tunnel follows.
    #[default]
    None,
    /// This many bytes follow; may be 0.
    Length(u64),
    /// Chunks follow, to be read by [`super::chunked::ChunkedDecoder`].
    Chunked,
    /// All bytes until the backend closes. A truncated body cannot be detected.
    Close,
}

/// The connection's fate after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delimited {
    pub(super) framing: ResponseFraming,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

/// Decides framing and fate. A repeated `Content-Length` is merged into one.
pub(super) fn delimit(
    request_method: Option<Method>,
    version: Version,
    status: Status,
    fields: &mut Fields,
) -> Result<Delimited, ResponseFault> {
    // RFC 9110 section 9.3.6: "A client MUST ignore any Content-Length or Transfer-Encoding header
    // fields received in a successful response to CONNECT."
    if request_method == Some(Method::Connect) && status.is_success() {
        return Ok(Delimited { framing: ResponseFraming::None, keep_alive: false, upgrade: true });
    }
    let announced = announced(version, fields)?;
    if let Some(Announced::Length { repeated: true, .. }) = announced {
        keep_one_length(fields);
    }
    let options = ConnectionOptions::of(fields);
    if status.is_interim() {
        return interim(version, status, fields, announced, options);
    }
    let bodiless = request_method == Some(Method::Head) || !status.allows_content();
    let framing = match announced {
        _ if bodiless => ResponseFraming::None,
        Some(Announced::Length { bytes, .. }) => ResponseFraming::Length(bytes),
        Some(Announced::Chunked) => ResponseFraming::Chunked,
        None => ResponseFraming::Close,
    };
    let certain = framing != ResponseFraming::Close
        && !(status == Status::NO_CONTENT && announces_body(announced));
    Ok(Delimited { framing, keep_alive: certain && options.keep_alive(version), upgrade: false })
}

/// Handles an interim response. It has no body; one that announces a body may hide a second
/// response.
fn interim(
    version: Version,
    status: Status,
    fields: &Fields,
    announced: Option<Announced>,
    options: ConnectionOptions,
) -> Result<Delimited, ResponseFault> {
    if announces_body(announced) {
        return Err(ResponseFault::InterimBody);
    }
    let upgrade = status == Status::SWITCHING_PROTOCOLS;
    let named = options.upgrade && fields.contains(Known::Upgrade);
    if upgrade && !(named && version == Version::Http11) {
        return Err(ResponseFault::Upgrade);
    }
    let keep_alive = !upgrade && options.keep_alive(version);
    Ok(Delimited { framing: ResponseFraming::None, keep_alive, upgrade })
}

/// True if the fields announce content. RFC 9110 section 8.6 forbids `Content-Length` in 1xx and
/// 204, but a 0 there is harmless, while a backend that announces more may also send it.
fn announces_body(announced: Option<Announced>) -> bool {
    matches!(announced, Some(Announced::Chunked | Announced::Length { bytes: 1.., .. }))
}

/// Merges repeated lengths. RFC 9112 section 6.3: the invalid field values are replaced "with a
/// single valid Content-Length".
fn keep_one_length(fields: &mut Fields) {
    let value = fields.get(Known::ContentLength).unwrap_or_default();
    let first = value.split(|&byte| byte == b',').next().unwrap_or_default();
    let first = lighty_http::fields::trim(first).to_vec();
    fields.set(Known::ContentLength, first);
}
