//! The faults, in one table.

lighty_http::fault_table! {
    /// Reason why a FastCGI byte stream is rejected, or cannot be written. The connection is
    /// unusable afterwards.
    FastcgiFault {
        Version = "fastcgi-version", "a FastCGI record of a version other than 1";
        RequestId = "fastcgi-request-id", "a FastCGI record for a request that was not made";
        RecordType = "fastcgi-record-type", "a FastCGI record of a type that does not belong here";
        RecordLength = "fastcgi-record-length", "a FastCGI record of a length that its type cannot have";
        StreamEnded = "fastcgi-stream-ended", "FastCGI stream data after the end of that stream";
        ProtocolStatus = "fastcgi-protocol-status", "an unknown FastCGI protocol status";
        ManagementTooLarge = "fastcgi-management-too-large", "a FastCGI management record exceeds its limit";
        PairLength = "fastcgi-pair-length", "a FastCGI name or value is longer than its length field can say";
        PairTruncated = "fastcgi-pair-truncated", "a FastCGI name or value is longer than its stream";
        ParamsTooLarge = "fastcgi-params-too-large", "the FastCGI parameters exceed their limit";
        Order = "fastcgi-order", "a FastCGI record that its request does not expect yet";
    }
}
