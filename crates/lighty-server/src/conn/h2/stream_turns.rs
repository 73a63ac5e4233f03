//! A stream's part of the connection's writes, for [`Turns`](super::turns::Turns).

/// The writes of a stream.
#[derive(Default)]
pub(super) struct StreamTurns {
    /// Number of the last write with content of the stream.
    pub(super) written_in: u64,
    /// Bytes of content in that write.
    pub(super) write_bytes: u64,
    /// Bytes of content in earlier writes.
    pub(super) earlier_bytes: u64,
    /// Bytes of content that the socket had accepted at the last look.
    pub(super) seen_bytes: u64,
    /// Number of the last write with a WINDOW_UPDATE of the stream, which may be yet to come.
    pub(super) window_in: u64,
    /// Time when content was collected last, or when the exchange ended.
    pub(super) moved_at_ms: u64,
}
