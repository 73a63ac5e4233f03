//! The response of a collector that rejected some data with status 200 (OTLP 1.x, section "Partial
//! Success").

use serde_json::Value;

/// Maximum size of a response that is parsed, in bytes; a longer one is not a partial success.
const BYTES_MAX: usize = 4096;

/// Maximum length of a message in the log, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// Names of the number of rejected items, for spans, metrics and log records.
const REJECTED: [&str; 3] = ["rejectedSpans", "rejectedDataPoints", "rejectedLogRecords"];

/// Number of rejected items and the reason. The other items of the request were accepted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PartialSuccess {
    pub(super) rejected: u64,
    /// Safe for a log: characters that could forge a line are escaped.
    pub(super) message: String,
}

impl PartialSuccess {
    /// Parses a response's body. A body that cannot be parsed rejects nothing: the status decides.
    pub(super) fn of(body: &[u8]) -> Self {
        let body = Some(body).filter(|body| body.len() <= BYTES_MAX);
        let parsed = body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
        let partial = &parsed.unwrap_or_default()["partialSuccess"];
        let rejected = REJECTED.iter().find_map(|name| match &partial[*name] {
            // Integers of 64 bits are strings in the JSON of protocol buffers, and may be numbers.
            Value::String(digits) => digits.parse().ok(),
            number => number.as_u64(),
        });
        let message = partial["errorMessage"].as_str().unwrap_or_default();
        let message = message.chars().take(MESSAGE_CHARS_MAX).flat_map(char::escape_debug);
        Self { rejected: rejected.unwrap_or(0), message: message.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> (u64, String) {
        let PartialSuccess { rejected, message } = PartialSuccess::of(body.as_bytes());
        (rejected, message)
    }

    #[test]
    fn rejected_spans_are_read_as_strings_and_as_numbers() {
        let body = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"no\n[error] x"}}"#;
        assert_eq!(of(body), (2, "no\\n[error] x".to_owned()), "one line");
        assert_eq!(of(r#"{"partialSuccess":{"rejectedSpans":7}}"#), (7, String::new()));
        assert_eq!(of(r#"{"partialSuccess":{"rejectedLogRecords":"3"}}"#), (3, String::new()));
        let warning = r#"{"partialSuccess":{"errorMessage":"too old"}}"#;
        assert_eq!(of(warning), (0, "too old".to_owned()));
        for success in ["", "{}", "OK", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":[1]}"#] {
            assert_eq!(of(success), (0, String::new()), "{success}");
        }
    }

    #[test]
    fn a_response_is_read_up_to_a_limit() {
        let padded = |length: usize| {
            let body = r#"{"partialSuccess":{"rejectedSpans":"1"}}"#;
            body.to_owned() + &" ".repeat(length - body.len())
        };
        assert_eq!(of(&padded(BYTES_MAX)).0, 1);
        assert_eq!(of(&padded(BYTES_MAX + 1)).0, 0);
        let long = "x".repeat(MESSAGE_CHARS_MAX + 1);
        let body = format!(r#"{{"partialSuccess":{{"errorMessage":"{long}"}}}}"#);
        assert_eq!(of(&body).1.len(), MESSAGE_CHARS_MAX);
    }
}
