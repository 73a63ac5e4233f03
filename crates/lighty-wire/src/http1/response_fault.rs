//! Faults of backends' responses, in one table.

use super::framing::FramingFault;
use lighty_http::fault_table;

fault_table! {
    /// Reason why a backend's response head is rejected. The backend is to blame (502 for the
    /// client), and its connection is unusable: the start of the next response is uncertain.
    ResponseFault {
        StatusLine = "response-status-line", "the response does not begin with an HTTP/1 status line";
        Version = "response-version", "a version other than HTTP/1.0 and HTTP/1.1";
        StatusCode = "response-status-code", "a status that is not three digits from 100 to 999";
        Reason = "response-reason", "a control character in the reason phrase";
        HeadTooLarge = "response-head-too-large",
            "status line and header fields together exceed their limit";
        TooManyFields = "response-too-many-fields", "more header fields than the limit allows";
        BareLf = "response-bare-lf", "a line feed without a carriage return ends a line";
        BareCr = "response-bare-cr", "a carriage return without a line feed";
        ObsoleteFolding = "response-obs-fold", "a header line begins with white space";
        NoColon = "response-no-colon", "a header line has no colon";
        FieldName = "response-field-name", "a character that no field name may have";
        FieldValue = "response-field-value", "a control character in a field value";
        ContentLengthMalformed = "response-content-length-malformed", "Content-Length is not a number";
        ContentLengthConflict = "response-content-length-conflict",
            "two different Content-Length values";
        ContentLengthTooLarge = "response-content-length-too-large",
            "Content-Length exceeds what can be counted";
        LengthAndCoding = "response-length-and-coding", "both Content-Length and Transfer-Encoding";
        CodingInHttp10 = "response-coding-in-http10", "Transfer-Encoding in an HTTP/1.0 response";
        CodingMalformed = "response-coding-malformed",
            "Transfer-Encoding is empty, or chunked is not the last coding and there once";
        CodingUnknown = "response-coding-unknown", "a transfer coding other than chunked";
        InterimBody = "response-interim-body", "an interim response announces a body";
        Upgrade = "response-upgrade",
            "101 without Upgrade and Connection: upgrade, or in an HTTP/1.0 response";
    }
}

impl From<FramingFault> for ResponseFault {
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
