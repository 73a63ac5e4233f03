//! The faults, in two tables: invalid input, and output that cannot be encoded.

use lighty_http::fault_table;

fault_table! {
    /// Reason why a peer's input is rejected. The connection is unusable afterwards.
    AjpFault {
        Magic = "ajp-magic", "a packet does not begin with the mark of its direction";
        PacketEmpty = "ajp-packet-empty", "a packet without a message";
        PacketTooLarge = "ajp-packet-too-large", "a packet exceeds the packet size";
        Code = "ajp-code", "a message that is not known";
        Unrequested = "ajp-unasked", "a message while nothing was asked";
        HeadersMissing = "ajp-headers-missing", "a body or an end before the headers";
        HeadersRepeated = "ajp-headers-repeated", "headers for a second time";
        AfterEnd = "ajp-after-end", "bytes after the end of the response";
        Truncated = "ajp-truncated", "a message ends within one of its parts";
        Trailing = "ajp-trailing", "bytes behind the last part of a message";
        StringEnd = "ajp-string-end", "a string or chunk without the NUL behind it";
        StringNull = "ajp-string-null", "no string where one must be";
        Status = "ajp-status", "a status that ends no request";
        TooManyFields = "ajp-too-many-fields", "more header fields than the limit allows";
        FieldCode = "ajp-field-code", "a code that stands for no field name";
        FieldName = "ajp-field-name", "a field name that is not a token";
        FieldValue = "ajp-field-value", "a line end or NUL in a value";
        LengthMalformed = "ajp-length-malformed", "Content-Length is not a number";
        LengthConflict = "ajp-length-conflict", "two different Content-Length values";
        ChunkLength = "ajp-chunk-length", "a chunk reaches beyond its packet";
        BodyRequestEmpty = "ajp-body-request-empty", "a request for no bytes of body";
        BodyRequestedTwice = "ajp-body-asked-twice", "a request for body while one is being answered";
        Method = "ajp-method", "a code that stands for no method";
        Attribute = "ajp-attribute", "a code that stands for no attribute";
    }
}

fault_table! {
    /// Reason why a message cannot be sent. Nothing is appended then.
    EncodeFault {
        HeadTooLarge = "ajp-head-too-large", "the head does not fit into a packet";
        FieldName = "ajp-send-field-name", "a field name that is not a token";
        Value = "ajp-send-value", "a line end or NUL in a value";
        BodyNotDue = "ajp-body-not-due", "no body packet may be sent now";
        BodyTooLarge = "ajp-body-too-large", "more body than was asked for or announced";
        BodyTooShort = "ajp-body-too-short", "the body ends before its announced length";
    }
}
