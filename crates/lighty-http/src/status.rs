//! Status codes and their reason phrases: RFC 9110 section 15 and the registry.

/// A status code from 100 to 999. Codes without a name here are valid, because backends use some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(u16);

/// Generates the constants and the table of phrases.
macro_rules! statuses {
    ($($constant:ident = $code:literal, $reason:literal;)*) => {
        #[allow(missing_docs, reason = "each constant is documented by its name")]
        impl Status {
            $(pub const $constant: Self = Self($code);)*

            /// The registered phrase; empty for a code that the registry does not name.
            #[must_use]
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $reason,)*
                    _ => "",
                }
            }
        }
    };
}

impl Default for Status {
    /// 200: the default status.
    fn default() -> Self {
        Self::OK
    }
}

statuses! {
    CONTINUE = 100, "Continue";
    SWITCHING_PROTOCOLS = 101, "Switching Protocols";
    PROCESSING = 102, "Processing";
    EARLY_HINTS = 103, "Early Hints";
    OK = 200, "OK";
    CREATED = 201, "Created";
    ACCEPTED = 202, "Accepted";
    NON_AUTHORITATIVE_INFORMATION = 203, "Non-Authoritative Information";
    NO_CONTENT = 204, "No Content";
    RESET_CONTENT = 205, "Reset Content";
    PARTIAL_CONTENT = 206, "Partial Content";
    MULTI_STATUS = 207, "Multi-Status";
    ALREADY_REPORTED = 208, "Already Reported";
    IM_USED = 226, "IM Used";
    MULTIPLE_CHOICES = 300, "Multiple Choices";
    MOVED_PERMANENTLY = 301, "Moved Permanently";
    FOUND = 302, "Found";
    SEE_OTHER = 303, "See Other";
    NOT_MODIFIED = 304, "Not Modified";
    USE_PROXY = 305, "Use Proxy";
    TEMPORARY_REDIRECT = 307, "Temporary Redirect";
    PERMANENT_REDIRECT = 308, "Permanent Redirect";
    BAD_REQUEST = 400, "Bad Request";
    UNAUTHORIZED = 401, "Unauthorized";
    PAYMENT_REQUIRED = 402, "Payment Required";
    FORBIDDEN = 403, "Forbidden";
    NOT_FOUND = 404, "Not Found";
    METHOD_NOT_ALLOWED = 405, "Method Not Allowed";
    NOT_ACCEPTABLE = 406, "Not Acceptable";
    PROXY_AUTHENTICATION_REQUIRED = 407, "Proxy Authentication Required";
    REQUEST_TIMEOUT = 408, "Request Timeout";
    CONFLICT = 409, "Conflict";
    GONE = 410, "Gone";
    LENGTH_REQUIRED = 411, "Length Required";
    PRECONDITION_FAILED = 412, "Precondition Failed";
    CONTENT_TOO_LARGE = 413, "Content Too Large";
    URI_TOO_LONG = 414, "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415, "Unsupported Media Type";
    RANGE_NOT_SATISFIABLE = 416, "Range Not Satisfiable";
    EXPECTATION_FAILED = 417, "Expectation Failed";
    MISDIRECTED_REQUEST = 421, "Misdirected Request";
    UNPROCESSABLE_CONTENT = 422, "Unprocessable Content";
    LOCKED = 423, "Locked";
    FAILED_DEPENDENCY = 424, "Failed Dependency";
    TOO_EARLY = 425, "Too Early";
    UPGRADE_REQUIRED = 426, "Upgrade Required";
    PRECONDITION_REQUIRED = 428, "Precondition Required";
    TOO_MANY_REQUESTS = 429, "Too Many Requests";
    REQUEST_HEADER_FIELDS_TOO_LARGE = 431, "Request Header Fields Too Large";
    UNAVAILABLE_FOR_LEGAL_REASONS = 451, "Unavailable For Legal Reasons";
    INTERNAL_SERVER_ERROR = 500, "Internal Server Error";
    NOT_IMPLEMENTED = 501, "Not Implemented";
    BAD_GATEWAY = 502, "Bad Gateway";
    SERVICE_UNAVAILABLE = 503, "Service Unavailable";
    GATEWAY_TIMEOUT = 504, "Gateway Timeout";
    HTTP_VERSION_NOT_SUPPORTED = 505, "HTTP Version Not Supported";
    VARIANT_ALSO_NEGOTIATES = 506, "Variant Also Negotiates";
    INSUFFICIENT_STORAGE = 507, "Insufficient Storage";
    LOOP_DETECTED = 508, "Loop Detected";
    NETWORK_AUTHENTICATION_REQUIRED = 511, "Network Authentication Required";
}

impl Status {
    /// `None` outside 100 to 999.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= 100 && code <= 999 { Some(Self(code)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// The three digits.
    #[must_use]
    pub const fn digits(self) -> [u8; 3] {
        [b'0' + (self.0 / 100) as u8, b'0' + (self.0 / 10 % 10) as u8, b'0' + (self.0 % 10) as u8]
    }

    /// 1xx: another response follows.
    #[must_use]
    pub const fn is_interim(self) -> bool {
        self.0 < 200
    }

    /// 2xx.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 200 && self.0 < 300
    }

    /// 4xx and 5xx.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.0 >= 400 && self.0 < 600
    }

    /// True if a response may have content: RFC 9110 section 6.4.1.
    #[must_use]
    pub const fn allows_content(self) -> bool {
        !(self.is_interim() || self.0 == 204 || self.0 == 304)
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_three_digits() {
        assert_eq!(Status::new(99), None);
        assert_eq!(Status::new(1000), None);
        assert_eq!(Status::new(999).map(Status::reason), Some(""));
        assert_eq!(Status::new(404), Some(Status::NOT_FOUND));
        assert_eq!(Status::NOT_FOUND.digits(), *b"404");
        assert_eq!(Status::PARTIAL_CONTENT.reason(), "Partial Content");
    }

    #[test]
    fn some_answers_have_no_content() {
        assert!(!Status::CONTINUE.allows_content() && !Status::NO_CONTENT.allows_content());
        assert!(!Status::NOT_MODIFIED.allows_content() && Status::OK.allows_content());
    }
}
