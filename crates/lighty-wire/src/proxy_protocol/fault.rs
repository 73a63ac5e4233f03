//! The faults.

use lighty_http::fault_table;

fault_table! {
    /// Reason why the start of a connection is not an acceptable header. The connection is closed
    /// without a response.
    ProxyFault {
        Signature = "proxy-signature", "the connection does not begin with a PROXY header";
        LineEnd = "proxy-line-end", "a version 1 line does not end with carriage return and line feed";
        LineTooLong = "proxy-line-too-long", "a version 1 line exceeds 107 bytes";
        Family = "proxy-family", "an address family or transport that is not assigned";
        Address = "proxy-address", "an address that is none, or not of the family that was named";
        Port = "proxy-port", "a port that is no number up to 65535";
        Version = "proxy-version", "a binary header of a version other than 2";
        Command = "proxy-command", "a command other than LOCAL and PROXY";
        TooLong = "proxy-header-too-long", "a version 2 header exceeds its limit";
        AddressesMissing = "proxy-addresses-missing", "a version 2 header ends within its addresses";
        Tlv = "proxy-tlv", "an extension ends outside of the header";
        TlvLength = "proxy-tlv-length", "an extension has a length that its type cannot have";
        ChecksumRepeated = "proxy-checksum-repeated", "more than one checksum";
        Checksum = "proxy-checksum", "the checksum is wrong";
    }
}

fault_table! {
    /// Reason why a header cannot be written.
    EncodeFault {
        PathTooLong = "proxy-path-too-long", "the name of a local socket exceeds 108 bytes";
        UniqueIdTooLong = "proxy-unique-id-too-long", "a unique id exceeds 128 bytes";
        TooLong = "proxy-too-long", "a header exceeds 65535 bytes of addresses and extensions";
    }
}
