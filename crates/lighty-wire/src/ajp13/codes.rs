//! The numeric codes of methods, field names, messages and attributes.

use lighty_http::Known;

pub(super) const FORWARD_REQUEST: u8 = 2;
pub(super) const SEND_BODY_CHUNK: u8 = 3;
pub(super) const SEND_HEADERS: u8 = 4;
pub(super) const END_RESPONSE: u8 = 5;
pub(super) const GET_BODY_CHUNK: u8 = 6;
pub(super) const CPONG: u8 = 9;
pub(super) const PING: u8 = 10;

pub(super) const REMOTE_USER: u8 = 0x03;
pub(super) const AUTH_TYPE: u8 = 0x04;
pub(super) const QUERY_STRING: u8 = 0x05;
pub(super) const JVM_ROUTE: u8 = 0x06;
pub(super) const TLS_CERTIFICATE: u8 = 0x07;
pub(super) const TLS_CIPHER: u8 = 0x08;
pub(super) const NAMED: u8 = 0x0A;
/// The only attribute with an integer value.
pub(super) const TLS_KEY_BITS: u8 = 0x0B;
pub(super) const SECRET: u8 = 0x0C;
pub(super) const STORED_METHOD: u8 = 0x0D;
pub(super) const ATTRIBUTES_END: u8 = 0xFF;

/// The method is in the attribute [`STORED_METHOD`].
pub(super) const METHOD_STORED: u8 = 0xFF;

/// The first half of a field name's code.
pub(super) const NAME_CODE: u8 = 0xA0;

/// Codes 1 to 27.
const METHODS: [&str; 27] = [
    "OPTIONS",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "TRACE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "ACL",
    "REPORT",
    "VERSION-CONTROL",
    "CHECKIN",
    "CHECKOUT",
    "UNCHECKOUT",
    "SEARCH",
    "MKWORKSPACE",
    "UPDATE",
    "LABEL",
    "MERGE",
    "BASELINE-CONTROL",
    "MKACTIVITY",
];

/// Codes 0xA001 to 0xA00E of a request.
const REQUEST_NAMES: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "cookie2",
    "host",
    "pragma",
    "referer",
    "user-agent",
];

/// Codes 0xA001 to 0xA00B of a response.
const RESPONSE_NAMES: [&str; 11] = [
    "Content-Type",
    "Content-Language",
    "Content-Length",
    "Date",
    "Last-Modified",
    "Location",
    "Set-Cookie",
    "Set-Cookie2",
    "Servlet-Engine",
    "Status",
    "WWW-Authenticate",
];

/// Selects the table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeTable {
    Request,
    Response,
}

impl CodeTable {
    const fn table(self) -> &'static [&'static str] {
        match self {
            Self::Request => &REQUEST_NAMES,
            Self::Response => &RESPONSE_NAMES,
        }
    }

    /// The name for the second half of a code.
    pub(super) fn name(self, index: u8) -> Option<&'static str> {
        self.table().get(usize::from(index).checked_sub(1)?).copied()
    }

    /// The whole code of a name, if it has one.
    pub(super) fn code(self, known: Option<Known>, name: &[u8]) -> Option<u16> {
        let same = |candidate: &&str| candidate.as_bytes().eq_ignore_ascii_case(name);
        let index = match (self, known) {
            (Self::Request, Some(known)) => request_index(known),
            _ => self.table().iter().position(same).map(|at| at as u8 + 1),
        };
        index.map(|index| u16::from_be_bytes([NAME_CODE, index]))
    }
}

const fn request_index(known: Known) -> Option<u8> {
    Some(match known {
        Known::Accept => 1,
        Known::AcceptCharset => 2,
        Known::AcceptEncoding => 3,
        Known::AcceptLanguage => 4,
        Known::Authorization => 5,
        Known::Connection => 6,
        Known::ContentType => 7,
        Known::ContentLength => 8,
        Known::Cookie => 9,
        Known::Host => 11,
        Known::Pragma => 12,
        Known::Referer => 13,
        Known::UserAgent => 14,
        _ => return None,
    })
}

/// The code of a method; names are case-sensitive.
pub(super) fn method_code(name: &[u8]) -> Option<u8> {
    METHODS.iter().position(|method| method.as_bytes() == name).map(|at| at as u8 + 1)
}

/// The method for a code.
pub(super) fn method_name(code: u8) -> Option<&'static str> {
    METHODS.get(usize::from(code).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_document() {
        assert_eq!(method_code(b"OPTIONS"), Some(1));
        assert_eq!(method_code(b"GET"), Some(2));
        assert_eq!(method_code(b"MKACTIVITY"), Some(27));
        assert_eq!((method_code(b"get"), method_code(b"PATCH")), (None, None));
        assert_eq!((method_name(0), method_name(4), method_name(28)), (None, Some("POST"), None));
        assert_eq!(CodeTable::Request.code(Some(Known::UserAgent), b"User-Agent"), Some(0xA00E));
        assert_eq!(CodeTable::Response.code(None, b"www-authenticate"), Some(0xA00B));
        assert_eq!((CodeTable::Response.name(0), CodeTable::Response.name(12)), (None, None));
    }

    #[test]
    fn known_names_agree_with_the_table() {
        for (at, name) in REQUEST_NAMES.iter().enumerate() {
            let code = CodeTable::Request.code(Known::from_bytes(name.as_bytes()), name.as_bytes());
            assert_eq!(code, Some(0xA001 + at as u16), "{name}");
        }
    }
}
