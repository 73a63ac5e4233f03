//! Timers of streams that wait for their turn.
//!
//! Streams share the client's link, so on a slow connection a stream waits for as long as the
//! others take (RFC 9218 section 10). Its idle timer starts anew meanwhile, and the bytes that the
//! client takes of the others count for its minimum rates: they are the server's choice. So a
//! client has to take as much of all streams together as the limit demands of one. More than that
//! does not count: a burst of one stream is no credit for the next minute of another.

use lighty_io::clock::Clock;
use lighty_wire::http2::StreamKey;

use super::stream_buffers::H2StreamBuffers;
use super::stream_state::StreamSend;
use super::stream_turns::StreamTurns;

/// Milliseconds between two looks at all streams.
const LOOK_MS: u64 = 1_000;

/// The writes of a connection, as far as timers depend on them.
#[derive(Default)]
pub(super) struct Turns {
    /// Number of collected writes.
    writes: u64,
    /// The last one has content.
    has_content: bool,
    /// Time when it was collected, in monotonic milliseconds.
    collected_at_ms: u64,
    /// Bytes that the socket has accepted since the last look at all streams.
    accepted_bytes: u64,
    /// Time of that look.
    looked_at_ms: u64,
}

/// A look at all streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) now_ms: u64,
    /// Seconds for which content of an ended exchange may wait for a window. 0: no limit.
    pub(super) idle_s: u32,
    /// Bytes of the last write.
    pub(super) write_bytes: usize,
    /// Bytes of it that the socket has accepted.
    pub(super) sent_bytes: usize,
}

impl Turns {
    /// Registers that a write is about to be collected.
    pub(super) fn begin_write(&mut self, now_ms: u64) {
        debug_assert!(now_ms >= self.collected_at_ms, "{now_ms} after {}", self.collected_at_ms);
        // 0 is a stream of which nothing was written yet.
        self.writes += 1;
        self.has_content = false;
        self.collected_at_ms = now_ms;
    }

    /// Registers that the write has `bytes` of a stream's content.
    pub(super) fn collect(&mut self, stream: &mut StreamTurns, bytes: usize) {
        debug_assert!(stream.written_in <= self.writes, "{} {}", stream.written_in, self.writes);
        if stream.written_in != self.writes {
            stream.earlier_bytes += std::mem::take(&mut stream.write_bytes);
            stream.written_in = self.writes;
        }
        stream.write_bytes += bytes as u64;
        self.has_content = true;
        self.moved(stream);
    }

    /// Starts the time for which content of an ended exchange may wait for a window.
    pub(super) fn moved(&self, stream: &mut StreamTurns) {
        stream.moved_at_ms = self.collected_at_ms;
    }

    /// Registers that the next write has a WINDOW_UPDATE of the stream.
    pub(super) fn open_window(&self, stream: &mut StreamTurns) {
        stream.window_in = self.writes + 1;
    }

    /// Registers that the socket has accepted `bytes` of a write. Returns whether it has content.
    pub(super) fn accept(&mut self, bytes: usize) -> bool {
        if self.has_content {
            self.accepted_bytes += bytes as u64;
        }
        self.has_content
    }

    /// Returns true if it is time for a look at all streams.
    pub(super) fn is_look_due(&self, now_ms: u64) -> bool {
        now_ms >= self.looked_at_ms + LOOK_MS
    }

    /// Excuses the streams that wait for their turn. `has_window` returns true if the stream's own
    /// window has room. Returns the streams whose exchanges have ended and whose content has waited
    /// for a window for too long: no task has a timer for them.
    ///
    /// A stream without a window waits for the client, unless its content is still being written:
    /// the client cannot open the window before it has the content. In the other direction, a
    /// client sends nothing more before the WINDOW_UPDATE that waits behind content has reached it.
    pub(super) fn look(
        &mut self,
        look: Look,
        streams: &mut [H2StreamBuffers],
        clock: &Clock,
        mut has_window: impl FnMut(StreamKey) -> bool,
    ) -> Vec<StreamKey> {
        debug_assert!(look.sent_bytes <= look.write_bytes, "{look:?}");
        debug_assert!(look.now_ms >= self.looked_at_ms, "{look:?} after {}", self.looked_at_ms);
        let mut stuck = Vec::new();
        let since_ms = std::mem::replace(&mut self.looked_at_ms, look.now_ms);
        let accepted_bytes = std::mem::take(&mut self.accepted_bytes);
        for buffers in streams {
            let Some(key) = buffers.key else { continue };
            let own_bytes = self.newly_accepted(&mut buffers.turns, look);
            let is_written = buffers.turns.written_in == self.writes;
            let may_be_written = is_written || has_window(key);
            let waits_ms = look.now_ms.saturating_sub(buffers.turns.moved_at_ms);
            let is_overdue = look.idle_s > 0 && waits_ms >= u64::from(look.idle_s) * 1000;
            if buffers.state.send == StreamSend::Draining && !may_be_written && is_overdue {
                stuck.push(key);
            }
            let Some(entry) = &buffers.progress else { continue };
            let awaits_window =
                entry.is_waiting_for_body() && buffers.turns.window_in >= self.writes;
            if awaits_window || (entry.is_writing() && may_be_written) {
                entry.excuse(accepted_bytes.saturating_sub(own_bytes), since_ms, clock);
            }
        }
        stuck
    }

    /// Returns the bytes of a stream's content that the socket has accepted since the last look. Of
    /// the write under way, all streams have the same part.
    fn newly_accepted(&self, stream: &mut StreamTurns, look: Look) -> u64 {
        let of_write = match look.write_bytes as u64 {
            bytes @ 1.. if stream.written_in == self.writes => {
                stream.write_bytes * look.sent_bytes as u64 / bytes
            }
            _ => stream.write_bytes,
        };
        let bytes = stream.earlier_bytes + of_write;
        bytes.saturating_sub(std::mem::replace(&mut stream.seen_bytes, bytes))
    }
}
