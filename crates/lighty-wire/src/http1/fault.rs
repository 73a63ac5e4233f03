//! Faults of requests, in one table: description, status, name in logs.

use lighty_http::Status;
use lighty_http::uri::UriFault;

use lighty_http::fault_table;

fault_table! {
    /// Reason why a request is rejected before it is processed. The connection always closes after
    /// the response, because the start of the next request is uncertain.
    RequestFault,
    /// The response status.
    status: Status {
        LeadingLines = BAD_REQUEST, "leading-lines", "too many empty lines before the request line";
        RequestLine = BAD_REQUEST, "request-line", "the request line is not `method target version`";
        Version = HTTP_VERSION_NOT_SUPPORTED, "version", "a version other than HTTP/1.0 and HTTP/1.1";
        TargetTooLong = URI_TOO_LONG, "target-too-long", "the request target exceeds its limit";
        HeadTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large",
            "request line and header fields together exceed their limit";
        FieldsTooLarge = REQUEST_HEADER_FIELDS_TOO_LARGE, "fields-too-large",
            "the header fields exceed server.max-request-field-size";
        TooManyFields = REQUEST_HEADER_FIELDS_TOO_LARGE, "too-many-fields",
            "more header fields than the limit allows";
        BareLf = BAD_REQUEST, "bare-lf", "a line feed without a carriage return ends a line";
        BareCr = BAD_REQUEST, "bare-cr", "a carriage return without a line feed";
        ObsoleteFolding = BAD_REQUEST, "obs-fold", "a header line begins with white space";
        NoColon = BAD_REQUEST, "no-colon", "a header line has no colon";
        SpaceBeforeColon = BAD_REQUEST, "space-before-colon", "white space before the colon";
        FieldName = BAD_REQUEST, "field-name", "a character that no field name may have";
        FieldValue = BAD_REQUEST, "field-value", "a control character in a field value";
        HostMissing = BAD_REQUEST, "host-missing", "an HTTP/1.1 request without Host";
        HostRepeated = BAD_REQUEST, "host-repeated", "more than one Host";
        HostMalformed = BAD_REQUEST, "host-malformed", "Host is neither a name nor an address";
        ProtocolMalformed = BAD_REQUEST, "protocol-malformed", ":protocol is not one token";
        ContentTypeConflict = BAD_REQUEST, "content-type-conflict",
            "two different Content-Type values";
        IfModifiedSinceConflict = BAD_REQUEST, "if-modified-since-conflict",
            "two different If-Modified-Since values";
        ContentLengthMalformed = BAD_REQUEST, "content-length-malformed",
            "Content-Length is not a number";
        ContentLengthRepeated = BAD_REQUEST, "content-length-repeated",
            "more than one Content-Length value";
        ContentLengthConflict = BAD_REQUEST, "content-length-conflict",
            "two different Content-Length values";
        ContentLengthTooLarge = BAD_REQUEST, "content-length-too-large",
            "Content-Length exceeds what can be counted";
        LengthAndCoding = BAD_REQUEST, "length-and-coding",
            "both Content-Length and Transfer-Encoding";
        CodingInHttp10 = BAD_REQUEST, "coding-in-http10", "Transfer-Encoding in an HTTP/1.0 request";
        CodingMalformed = BAD_REQUEST, "coding-malformed",
            "Transfer-Encoding is empty, or chunked is not the last coding and there once";
        CodingUnknown = NOT_IMPLEMENTED, "coding-unknown", "a transfer coding other than chunked";
        LengthRequired = LENGTH_REQUIRED, "length-required",
            "a POST with neither Content-Length nor Transfer-Encoding";
        ContentInGet = BAD_REQUEST, "content-in-get",
            "GET or HEAD with content, and method-get-body is off";
        Expectation = EXPECTATION_FAILED, "expectation", "an expectation other than 100-continue";
        ..Target(UriFault) = BAD_REQUEST;
    }
}

impl From<UriFault> for RequestFault {
    fn from(fault: UriFault) -> Self {
        Self::Target(fault)
    }
}
