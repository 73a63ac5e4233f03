//! Timers of streams that wait for their turn.
//!
//! Streams share the client's link, so on a slow connection a stream waits for as long as the
//! others take (RFC 9218 section 10). That time is the server's choice: it excuses the stream from
//! its idle timer, and does not count for its minimum rates. The time that the stream's own content
//! takes does count, so that a client with one stream gets the rate that the limit demands, and so
//! does a client that divides its link between several.

use lighty_io::clock::Clock;
use lighty_wire::http2::StreamKey;

use super::stream_buffers::H2StreamBuffers;

/// Milliseconds between two looks at all streams.
const LOOK_MS: u64 = 1_000;

/// The connection's writes, as far as the timers depend on them.
#[derive(Default)]
pub(super) struct Turns {
    /// Number of collected writes.
    pub(super) writes: u64,
    /// Content in the last one, in bytes.
    pub(super) write_bytes: u64,
    /// Time since when every write has had content.
    busy_since_ms: u64,
    /// Time of the last look at all streams.
    looked_at_ms: u64,
}

impl Turns {
    /// Registers that a write is about to be collected.
    pub(super) fn begin_write(&mut self, now_ms: u64) {
        if self.write_bytes == 0 {
            self.busy_since_ms = now_ms;
        }
        // 0 is a stream of which nothing was written yet.
        self.writes += 1;
        self.write_bytes = 0;
    }

    /// Registers that the write contains `bytes` of a stream.
    pub(super) fn write(&mut self, buffers: &mut H2StreamBuffers, bytes: usize) {
        let known = if buffers.written_in == self.writes { buffers.write_bytes } else { 0 };
        buffers.written_in = self.writes;
        // A write is far smaller.
        buffers.write_bytes = known + bytes as u32;
        self.write_bytes += bytes as u64;
    }

    /// Returns the bytes of the stream in the last write.
    fn bytes_of(&self, buffers: &H2StreamBuffers) -> u64 {
        if buffers.written_in == self.writes { buffers.write_bytes.into() } else { 0 }
    }

    /// Excuses the streams that wait for their turn, once a second, after the client has taken a
    /// part of the last write. `has_window` returns true if the stream's own window has room.
    ///
    /// A stream without a window waits for the client, unless its content is still being written:
    /// the client cannot open the window before it has the content. In the other direction, a
    /// client sends nothing more before the WINDOW_UPDATE that waits behind content has reached it.
    pub(super) fn excuse_waiting(
        &mut self,
        streams: &mut [H2StreamBuffers],
        now_ms: u64,
        clock: &Clock,
        mut has_window: impl FnMut(StreamKey) -> bool,
    ) {
        if self.write_bytes == 0 || now_ms < self.looked_at_ms + LOOK_MS {
            return;
        }
        let since_ms = self.looked_at_ms.max(self.busy_since_ms);
        self.looked_at_ms = now_ms;
        let span_ms = now_ms.saturating_sub(since_ms);
        for buffers in streams {
            let (Some(key), Some(entry)) = (buffers.key, &buffers.progress) else { continue };
            let own_bytes = self.bytes_of(buffers);
            let excused_ms = if entry.is_writing() && (own_bytes > 0 || has_window(key)) {
                span_ms * (self.write_bytes - own_bytes) / self.write_bytes
            } else if entry.is_waiting_for_body() && buffers.window_in >= self.writes {
                // Of a response, the client may read what it has a window for meanwhile.
                if entry.is_writing() { 0 } else { span_ms }
            } else {
                continue;
            };
            let total_ms = u64::from(buffers.excused_ms) + excused_ms;
            buffers.excused_ms = (total_ms % 1000) as u16;
            entry.excuse((total_ms / 1000) as u32, clock);
        }
    }
}
