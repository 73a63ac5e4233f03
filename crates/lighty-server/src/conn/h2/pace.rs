//! How much of what is written may lie between the streams and the client's link: what is written
//! once is overtaken by nothing, however urgent (RFC 9218 section 9).
//!
//! A socket takes megabytes, which a slow link takes seconds to carry. So the kernel is asked to
//! take no more than a part of a second's worth beyond what is on its way, and a write has as much.

/// Bytes of one write to a socket whose link is fast or not known yet.
const FAST_BYTES: usize = 128 * 1024;

/// Of the slowest link: one frame.
const SLOW_BYTES: usize = 16 * 1024;

/// What the kernel takes beyond what is on its way, until a link is known to be slow.
const UNSENT_BYTES: u32 = 256 * 1024;

/// Writes beyond which a socket is bounded at all: most connections never have one.
const BOUNDED_FROM_BYTES: usize = 64 * 1024;

/// Milliseconds in which a link carries what a write has. The kernel asks for more when half of it
/// is left, which has to last until the worker comes to it.
const SPAN_MS: u64 = 25;

/// Milliseconds over which a link's rate is measured, at least.
const MEASURED_MS: u64 = 50;

/// How much is written at a time.
#[derive(Debug)]
pub(super) struct Pace {
    write_bytes: usize,
    /// The bound that the socket has.
    unsent_bytes: Option<u32>,
    /// When the socket was full, since when it was never short of something to send.
    since_ms: Option<u64>,
    /// What it has taken since.
    bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { write_bytes: FAST_BYTES, unsent_bytes: None, since_ms: None, bytes: 0 }
    }
}

impl Pace {
    /// Bytes of the next write, at most.
    pub(super) fn write_bytes(&self) -> usize {
        self.write_bytes
    }

    /// So much is to be written next. Returns the bound that the socket is to have from now on.
    pub(super) fn begin(&mut self, bytes: usize) -> Option<u32> {
        if bytes == 0 {
            self.since_ms = None;
        }
        if self.unsent_bytes.is_some() || bytes <= BOUNDED_FROM_BYTES {
            return None;
        }
        self.bound(UNSENT_BYTES)
    }

    /// The socket has taken so much.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The socket takes no more. Returns the bound that it is to have from now on.
    pub(super) fn block(&mut self, now_ms: u64) -> Option<u32> {
        let since_ms = *self.since_ms.get_or_insert_with(|| {
            self.bytes = 0;
            now_ms
        });
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

    /// A bound that is about the one that is there is not set anew.
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
