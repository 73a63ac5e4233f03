//! Why a backend's response is rejected, in one table.

use super::framing::FramingFault;
use crate::fault_table::fault_table;

fault_table! {
    /// Why a backend's response head is rejected. The backend is to blame (502 for the client), and
    /// its connection is unusable: where the next response would begin is uncertain.
    AnswerFault {
        StatusLine = "answer-status-line", "the answer does not begin with an HTTP/1 status line";
        Version = "answer-version", "a version other than HTTP/1.0 and HTTP/1.1";
        StatusCode = "answer-status-code", "a status that is not three digits from 100 to 999";
        Reason = "answer-reason", "a control character in the reason phrase";
        HeadTooLarge = "answer-head-too-large",
            "status line and header fields together exceed their limit";
        TooManyFields = "answer-too-many-fields", "more header fields than the limit allows";
        BareLf = "answer-bare-lf", "a line feed without a carriage return ends a line";
        BareCr = "answer-bare-cr", "a carriage return without a line feed";
        ObsoleteFolding = "answer-obs-fold", "a header line begins with white space";
        NoColon = "answer-no-colon", "a header line has no colon";
        SpaceBeforeColon = "answer-space-before-colon", "white space before the colon";
        FieldName = "answer-field-name", "a character that no field name may have";
        FieldValue = "answer-field-value", "a control character in a field value";
        ContentLengthMalformed = "answer-content-length-malformed", "Content-Length is not a number";
        ContentLengthConflict = "answer-content-length-conflict",
            "two different Content-Length values";
        ContentLengthTooLarge = "answer-content-length-too-large",
            "Content-Length exceeds what can be counted";
        LengthAndCoding = "answer-length-and-coding", "both Content-Length and Transfer-Encoding";
        CodingInHttp10 = "answer-coding-in-http10", "Transfer-Encoding in an HTTP/1.0 answer";
        CodingMalformed = "answer-coding-malformed",
            "Transfer-Encoding is empty, or chunked is not the last coding and there once";
        CodingUnknown = "answer-coding-unknown", "a transfer coding other than chunked";
        InterimBody = "answer-interim-body", "an interim answer announces a body";
        Upgrade = "answer-upgrade",
            "101 without Upgrade and Connection: upgrade, or in an HTTP/1.0 answer";
    }
}

impl From<FramingFault> for AnswerFault {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique() {
        for (index, fault) in AnswerFault::ALL.iter().enumerate() {
            assert!(AnswerFault::ALL[..index].iter().all(|other| other.slug() != fault.slug()));
            assert!(fault.slug().starts_with("answer-") && !fault.words().is_empty());
        }
    }
}
