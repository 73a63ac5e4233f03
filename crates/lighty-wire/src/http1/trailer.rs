//! Fields allowed after a body: RFC 9110 section 6.5.1.

use alloc::vec::Vec;

use lighty_http::Known;

/// True if a field of this name may be a trailer field, in either direction.
///
/// Excluded are fields that frame, route, authenticate, cache or condition a message, fields that
/// describe its content, and fields that a handler has already used: merging them into the header
/// would change a decision after the fact.
#[must_use]
pub fn is_allowed(name: &[u8]) -> bool {
    // Gateways and many frameworks treat `_` and `-` alike.
    let hyphened = || name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect::<Vec<_>>();
    if name.contains(&b'_') {
        return is_allowed(&hyphened());
    }
    match Known::from_bytes(name) {
        Some(known) => !is_forbidden(known),
        // RFC 9530 section 6.5 makes an exception for the digest of the content just sent.
        None if has_prefix(name, b"content-") => name.eq_ignore_ascii_case(b"content-digest"),
        None => !CLAIMS.iter().any(|prefix| has_prefix(name, prefix)),
    }
}

/// Prefixes of fields by which a proxy describes its client to a backend. A client must not add
/// fields that the proxy has set or removed.
const CLAIMS: [&[u8]; 7] =
    [b"remote-", b"ssl-", b"x-client-", b"x-forwarded-", b"x-host", b"x-remote-", b"x-ssl-"];

fn has_prefix(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

const fn is_forbidden(name: Known) -> bool {
    use Known as K;
    matches!(name, K::TransferEncoding | K::ContentLength | K::Connection | K::KeepAlive | K::Te)
        || matches!(name, K::Trailer | K::Upgrade | K::Host | K::Forwarded | K::Via | K::Proxy)
        || matches!(name, K::XForwardedFor | K::XForwardedHost | K::XForwardedProto | K::XRealIp)
        || matches!(name, K::Authorization | K::ProxyAuthorization | K::ProxyConnection)
        || matches!(name, K::WwwAuthenticate | K::ProxyAuthenticate | K::Cookie | K::SetCookie)
        || matches!(name, K::IfMatch | K::IfNoneMatch | K::IfModifiedSince | K::IfRange | K::If)
        || matches!(name, K::IfUnmodifiedSince | K::Range | K::Expect | K::MaxForwards)
        || matches!(name, K::ContentType | K::ContentEncoding | K::ContentRange | K::CacheControl)
        || matches!(name, K::ContentDisposition | K::ContentLanguage | K::ContentLocation)
        || matches!(name, K::ContentSecurityPolicy | K::XContentTypeOptions | K::AltSvc)
        || matches!(name, K::StrictTransportSecurity | K::AccessControlAllowOrigin | K::Refresh)
        || matches!(name, K::Destination | K::Depth | K::Overwrite | K::LockToken | K::Timeout)
        || matches!(name, K::XSendfile | K::XAccelRedirect | K::XLighttpdSendFile | K::Status)
        || matches!(name, K::Location | K::Age | K::Expires | K::Date | K::Vary | K::RetryAfter)
        || matches!(name, K::Http2Settings | K::Origin | K::Pragma | K::Priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_steer_a_message_are_refused_as_trailers() {
        for name in [
            "Content-Length",
            "transfer-encoding",
            "HOST",
            "Connection",
            "Authorization",
            "Set-Cookie",
            "Content-Type",
            "content-disposition",
            "Content-MD5",
            "content-",
            "Content-Security-Policy",
            "Location",
            "X-Forwarded-For",
            "Trailer",
            "Content_Length",
            "X-Host",
            "X-Remote-User",
            "X_Remote_User",
            "x-forwarded-prefix",
        ] {
            assert!(!is_allowed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn fields_known_only_at_the_end_are_allowed_as_trailers() {
        for name in ["ETag", "Server-Timing", "grpc-status", "Content-Digest", "Repr-Digest", "c"] {
            assert!(is_allowed(name.as_bytes()), "{name}");
        }
    }
}
