//! Streams with a complete response and a client that still sends.

use std::collections::VecDeque;

use lighty_wire::http2::StreamKey;

/// Milliseconds for which a client may go on sending content after the response is complete. Then
/// its stream is reset (RFC 9113 section 8.1).
const LINGER_MS: u64 = 1_000;

/// Streams in the order in which their responses ended.
#[derive(Default)]
pub(super) struct Lingering(VecDeque<(StreamKey, u64)>);

impl Lingering {
    pub(super) fn push(&mut self, key: StreamKey, now_ms: u64) {
        let until_ms = now_ms + LINGER_MS;
        debug_assert!(self.0.back().is_none_or(|last| last.1 <= until_ms), "{key:?} {until_ms}");
        debug_assert!(!self.0.iter().any(|(known, _)| *known == key), "{key:?} lingers already");
        self.0.push_back((key, until_ms));
    }

    /// Removes a stream after its client has sent all content.
    pub(super) fn remove(&mut self, key: StreamKey) {
        self.0.retain(|(known, _)| *known != key);
    }

    /// Number of streams, for the checks of a debug build.
    #[cfg(debug_assertions)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes and returns the first stream if its time is over.
    pub(super) fn pop_overdue(&mut self, now_ms: u64) -> Option<StreamKey> {
        let is_over = self.until_ms().is_some_and(|until_ms| until_ms <= now_ms);
        if is_over { self.0.pop_front().map(|(key, _)| key) } else { None }
    }

    /// Returns the time at which the first stream is overdue.
    pub(super) fn until_ms(&self) -> Option<u64> {
        self.0.front().map(|(_, until_ms)| *until_ms)
    }
}
