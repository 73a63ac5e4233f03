//! The faults, in one table.

lighty_http::fault_table! {
    /// Reason why a gateway program's response is rejected, with status 502 for the client.
    CgiFault {
        HeadTooLarge = "cgi-head-too-large", "the backend's header exceeds its limit";
        TooManyFields = "cgi-too-many-fields", "the backend sent more header fields than the limit allows";
        Empty = "cgi-empty", "the backend's header has no fields";
        StatusLine = "cgi-status-line", "the backend's status line is not `HTTP/1.x code reason`";
        Status = "cgi-status", "the backend's Status is no code from 100 to 999";
        StatusConflict = "cgi-status-conflict", "the backend sent two different Status values";
        ObsoleteFolding = "cgi-obs-fold", "a header line of the backend begins with white space";
        NoColon = "cgi-no-colon", "a header line of the backend has no colon";
        FieldName = "cgi-field-name", "a header field of the backend has a character that no name may have";
        BareCr = "cgi-bare-cr", "a carriage return inside a header value of the backend";
        FieldValue = "cgi-field-value", "a control character in a header value of the backend";
        ContentLength = "cgi-content-length", "the backend's Content-Length is not a number";
        TransferCoding = "cgi-transfer-coding", "the backend's Transfer-Encoding is neither chunked nor identity";
        ContentLengthConflict = "cgi-content-length-conflict", "the backend sent two different Content-Length values";
    }
}
