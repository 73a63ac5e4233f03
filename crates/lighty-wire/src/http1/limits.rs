//! Limits on the size of a request head.

/// Size limits of a request head. Input is rejected as soon as a byte exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1Limits {
    /// Bytes of request line and header fields together, without the final empty line: 431.
    pub head_bytes_max: usize,
    /// Bytes of all header lines together, line ends included: 431. Set by
    /// `server.max-request-field-size`, which limits the section, not one field, as in lighttpd
    /// 1.4.
    pub field_bytes_max: usize,
    /// Number of header lines, at most [`FIELDS_CAP`]: 431.
    pub fields_max: u32,
    /// Bytes of the request target: 414.
    pub target_bytes_max: usize,
}

/// Upper bound of [`Http1Limits::fields_max`]: the parser's table is on the stack.
pub const FIELDS_CAP: usize = 256;

impl Default for Http1Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            field_bytes_max: 8192,
            fields_max: 100,
            target_bytes_max: 8192,
        }
    }
}

const _: () = {
    const FIELD_AND_TARGET_BYTES: usize = 8192 + 8192;
    assert!(32 * 1024 > FIELD_AND_TARGET_BYTES, "the total must leave room for both parts");
    assert!(FIELDS_CAP >= 100, "the default number of fields must fit");
};
