//! Bounds the bytes between the streams and the client's link: bytes once written cannot be
//! overtaken by more urgent ones (RFC 9218 section 9).
//!
//! A socket takes megabytes, which a slow link takes seconds to carry. So the kernel is limited to
//! a fraction of a second's worth beyond the bytes in flight, and one write has the same size.

/// Bytes of one write to a fast link, or to one that is not measured yet.
const FAST_BYTES: usize = 128 * 1024;

/// Bytes of one write to the slowest link: one frame.
const SLOW_BYTES: usize = 16 * 1024;

/// Bytes that the kernel takes beyond the bytes in flight, until a link is known to be slow.
const UNSENT_BYTES: u32 = 256 * 1024;

/// Bytes of a write from which a socket is bounded at all: most connections never reach it.
const BOUNDED_FROM_BYTES: usize = 64 * 1024;

/// Milliseconds in which a link carries one write. The kernel asks for more when half of it is
/// left, which has to last until the worker serves the socket.
const SPAN_MS: u64 = 25;

/// Minimum milliseconds over which a link's rate is measured.
const MEASURED_MS: u64 = 50;

/// Chooses the size of writes by the measured rate of the link.
#[derive(Debug)]
pub(super) struct Pace {
    write_bytes: usize,
    /// The bound set on the socket.
    unsent_bytes: Option<u32>,
    /// Time when the socket was full; the connection has had unsent bytes ever since.
    since_ms: Option<u64>,
    /// Bytes that the socket has taken since.
    bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { write_bytes: FAST_BYTES, unsent_bytes: None, since_ms: None, bytes: 0 }
    }
}

impl Pace {
    /// Returns the maximum size of the next write, in bytes.
    pub(super) fn write_bytes(&self) -> usize {
        self.write_bytes
    }

    /// Registers that `bytes` will be written next. Returns a new bound for the socket, if any.
    pub(super) fn begin(&mut self, bytes: usize) -> Option<u32> {
        if bytes == 0 {
            self.since_ms = None;
        }
        if self.unsent_bytes.is_some() || bytes <= BOUNDED_FROM_BYTES {
            return None;
        }
        self.bound(UNSENT_BYTES)
    }

    /// Registers that the socket has taken `bytes`.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Registers that the socket is full. Returns a new bound for the socket, if any.
    pub(super) fn block(&mut self, now_ms: u64) -> Option<u32> {
        let since_ms = *self.since_ms.get_or_insert_with(|| {
            self.bytes = 0;
            now_ms
        });
        debug_assert!(since_ms <= now_ms, "{now_ms} after {since_ms}");
        let span_ms = now_ms.saturating_sub(since_ms);
        if span_ms < MEASURED_MS {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.since_ms = Some(now_ms);
        let carried = (bytes * SPAN_MS / span_ms) as usize;
        self.write_bytes = carried.clamp(SLOW_BYTES, FAST_BYTES);
        match self.write_bytes {
            FAST_BYTES => self.bound(UNSENT_BYTES),
            bytes => self.bound(bytes as u32),
        }
    }

    /// Returns the bound for `bytes`, unless it is close to the current one.
    fn bound(&mut self, bytes: u32) -> Option<u32> {
        let is_near = |known: u32| known.abs_diff(bytes) <= known / 4;
        if self.unsent_bytes.is_some_and(is_near) {
            return None;
        }
        self.unsent_bytes = Some(bytes);
        self.unsent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_has_little_in_front_of_it() {
        let mut pace = Pace::default();
        assert_eq!(pace.begin(BOUNDED_FROM_BYTES), None);
        assert_eq!(pace.begin(FAST_BYTES), Some(UNSENT_BYTES));
        assert_eq!((pace.begin(FAST_BYTES), pace.block(1_000)), (None, None));
        // 5 Mbit/s.
        pace.wrote(62_500);
        assert_eq!(pace.block(1_100), Some(SLOW_BYTES as u32));
        assert_eq!(pace.write_bytes(), SLOW_BYTES);
        // 20 Mbit/s, then a little more.
        pace.wrote(250_000);
        assert_eq!(pace.block(1_200), Some(62_500));
        pace.wrote(290_000);
        assert_eq!((pace.block(1_300), pace.write_bytes()), (None, 72_500));
        pace.wrote(10 << 20);
        assert_eq!(pace.block(1_349), None, "too short to tell");
        assert_eq!(pace.block(1_350), Some(UNSENT_BYTES));
        assert_eq!(pace.write_bytes(), FAST_BYTES);
    }

    #[test]
    fn a_server_with_nothing_to_send_says_nothing_of_the_link() {
        let mut pace = Pace::default();
        assert_eq!(pace.block(1_000), None);
        pace.begin(0);
        pace.wrote(1_000);
        assert_eq!((pace.block(2_000), pace.write_bytes()), (None, FAST_BYTES));
    }
}
