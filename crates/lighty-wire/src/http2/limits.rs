//! Limits on a peer's requests and on unproductive frames.

use super::frame::WINDOW_BYTES_INITIAL;
use super::hpack::TABLE_BYTES_INITIAL;

/// Limits of one connection. Each one with a directive has a fault that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `http2.max-streams`: open and half-closed streams. Further ones are refused, as are streams
    /// beyond [`ALIVE_FACTOR`] times as many whose exchanges are not over.
    pub streams_max: u32,
    /// `http2.max-refused-streams`: streams refused on a connection, minus streams that completed.
    pub refusals_max: u32,
    /// `http2.max-requests`: streams of a connection until it is shut down gracefully; 0: no limit.
    pub requests_max: u32,
    /// Bytes that a stream may receive before its first byte is consumed.
    pub stream_window_bytes: u32,
    /// `http2.stream-window`: maximum to which that window grows as bytes are consumed.
    pub stream_window_bytes_max: u32,
    /// Server: initial limit on the growth of a stream's window, in bytes. Client: the connection's
    /// window.
    pub conn_window_bytes: u32,
    /// `http2.connection-window`, server only: the connection's window; limit on the growth of all
    /// streams' windows together; and limit of [`Self::conn_window_bytes`], which grows while
    /// windows rather than consumers slow the peer.
    pub conn_window_bytes_max: u32,
    /// Bytes of the decoder's table.
    pub decoder_table_bytes: u32,
    /// Maximum bytes of the encoder's table.
    pub encoder_table_bytes_max: u32,
    /// `http2.max-field-size`: bytes of all fields of a message, plus 32 for each. Up to twice as
    /// many are answered with 431; beyond, the connection ends.
    pub field_bytes_max: usize,
    /// `http2.max-held-fields`: bytes of fields that all streams of a connection together may hold,
    /// beyond [`FREE_FIELD_BYTES`] each. Further streams are refused.
    pub held_field_bytes_max: u32,
    /// `http2.max-fields`: fields of a message. Each crumb of a cookie counts.
    pub fields_max: usize,
    /// `http2.max-block-size`: bytes of an encoded field block.
    pub block_bytes_max: usize,
    /// `http2.max-continuations`: CONTINUATION frames of a field block. One of them may be empty.
    pub continuations_max: u32,
    /// `http2.max-resets`: premature resets, minus completed responses and ten per second. Resets
    /// that the peer made us send weigh [`OWN_RESET_WEIGHT`].
    pub resets_max: u32,
    /// `http2.max-unproductive-frames`: unproductive frames, minus one for each request and DATA
    /// frame completed, for each 16 KiB received, and ten per second.
    pub unproductive_max: u32,
    /// `http2.max-window-updates`: WINDOW_UPDATE frames, minus sixteen for each DATA frame sent.
    pub window_updates_max: u32,
    /// `http2.max-queued-replies`: unwritten replies to PING and SETTINGS.
    pub queued_replies_max: u32,
    /// `http2.settings-timeout`: milliseconds for the peer's SETTINGS, and for its acknowledgement
    /// of ours.
    pub settings_ms: u64,
    /// `http2.block-timeout`: milliseconds from the first frame of a field block to its last.
    pub block_ms: u64,
}

/// Weight of a reset that the peer's mistake made us send.
pub const OWN_RESET_WEIGHT: u32 = 5;

/// Streams in one burst of input, as a multiple of [`Limits::streams_max`].
pub const BURST_FACTOR: u32 = 2;

/// All streams, including closed ones that are not released yet, as a multiple of
/// [`Limits::streams_max`]. Further ones are refused.
pub const ALIVE_FACTOR: u32 = 2;

/// Default of [`Limits::conn_window_bytes`].
pub const CONN_WINDOW_BYTES: u32 = 1 << 20;

/// Bytes of fields that each stream may hold without counting towards
/// [`Limits::held_field_bytes_max`].
pub const FREE_FIELD_BYTES: usize = 4 * 1024;

/// A shorter frame is sent only if it ends the stream or has waited for [`DRIBBLE_MS`].
pub const DRIBBLE_BYTES: usize = 1024;

/// Milliseconds that a short frame waits for a larger window.
pub const DRIBBLE_MS: u64 = 100;

/// Milliseconds from the first GOAWAY of a graceful end to the second, unless the peer replies
/// before.
pub const DRAIN_MS: u64 = 1000;

/// Milliseconds for a peer that has reset a stream before its HEADERS to open its first one.
pub const EARLY_RESET_MS: u64 = 1000;

/// DATA is sent in turns of this many bytes.
pub const TURN_BYTES: usize = 16_384;

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams_max: 100,
            refusals_max: 100,
            requests_max: 10_000,
            stream_window_bytes: WINDOW_BYTES_INITIAL,
            stream_window_bytes_max: 4 << 20,
            conn_window_bytes: CONN_WINDOW_BYTES,
            conn_window_bytes_max: 4 << 20,
            decoder_table_bytes: TABLE_BYTES_INITIAL as u32,
            encoder_table_bytes_max: TABLE_BYTES_INITIAL as u32,
            field_bytes_max: 32 * 1024,
            held_field_bytes_max: 256 * 1024,
            fields_max: 256,
            block_bytes_max: 64 * 1024,
            continuations_max: 8,
            resets_max: 100,
            unproductive_max: 1000,
            window_updates_max: 1000,
            queued_replies_max: 100,
            settings_ms: 10_000,
            block_ms: 30_000,
        }
    }
}

const _: () = {
    assert!(WINDOW_BYTES_INITIAL <= 1 << 20, "a stream's window is raised, not lowered");
    assert!(64 * 1024 > super::frame::FRAME_BYTES_MAX, "a block has room for its first frame");
};

/// Counter of recent events, reduced by useful ones and by time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    level: u32,
    since_ms: u64,
}

/// One event is forgiven every so many milliseconds.
const REPAID_EVERY_MS: u64 = 100;

impl Budget {
    /// Adds `weight`; returns true if the sum exceeds `max`.
    pub(super) fn charge(&mut self, weight: u32, max: u32, now_ms: u64) -> bool {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms >= REPAID_EVERY_MS {
            self.repay(u32::try_from(elapsed_ms / REPAID_EVERY_MS).unwrap_or(u32::MAX));
            self.since_ms = now_ms - elapsed_ms % REPAID_EVERY_MS;
        }
        self.level = self.level.saturating_add(weight);
        self.level > max
    }

    #[inline]
    pub(super) fn repay(&mut self, count: u32) {
        self.level = self.level.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_repaid_by_use_and_by_time() {
        let mut budget = Budget::default();
        assert!(!(0..10).any(|_| budget.charge(1, 10, 0)));
        assert!(budget.charge(1, 10, 99));
        budget.repay(2);
        assert!(!budget.charge(1, 10, 99) && budget.charge(1, 10, 99));
        assert!(!budget.charge(0, 10, 199), "one was repaid");
        assert!(budget.charge(1, 10, 199) && !budget.charge(1, 10, 300 + 100));
        assert!(!budget.charge(10, 10, 1000 * 60) && budget.level == 10);
    }
}
