//! How long records are. Nothing of a record can be used before its last byte has come: on a long
//! way that is a round trip for each time that the congestion window doubles. So the first records
//! after a pause fit into one segment each, and those of a bulk transfer are as long as they may
//! be.

use super::record::{HEADER_BYTES, PLAINTEXT_MAX};

/// Bytes that go out in short records: the congestion window is as large by then.
const SHORT_BYTES: u32 = 64 << 10;

/// The round trip from which on it matters, in microseconds. Short records cost 0.2 us each.
const ROUND_TRIP_US_MIN: u32 = 20_000;

/// Milliseconds after which the congestion window is small again.
const PAUSE_MS: u64 = 1_000;

/// Bytes that a record adds to its plaintext at most: header, explicit nonce, and tag or type.
const RECORD_ADDS: usize = HEADER_BYTES + 8 + 16 + 1;

/// Plaintext of the shortest records: a link whose segments are shorter gets more of them.
const SHORT_RECORD_MIN: usize = 512;

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Smoothed, in microseconds.
    pub(crate) round_trip_us: u32,
    /// Bytes of a segment that it sends.
    pub(crate) segment_bytes: u32,
}

/// How long the records of a connection are now.
#[derive(Debug, Default)]
pub(crate) struct Ramp {
    /// Plaintext of a short record.
    short: u16,
    /// Bytes that still go out in short records.
    left: u32,
    /// When something was written last, in milliseconds.
    wrote_ms: Option<u64>,
}

impl Ramp {
    /// More than a short record is to be written.
    pub(crate) fn begin(&mut self, now_ms: u64, look: impl FnOnce() -> Option<Link>) {
        let since = self.wrote_ms.replace(now_ms).map(|then| now_ms.saturating_sub(then));
        if since.is_some_and(|since| since < PAUSE_MS) {
            return;
        }
        let link = look().filter(|link| link.round_trip_us >= ROUND_TRIP_US_MIN);
        let room = link.map(|link| (link.segment_bytes as usize).saturating_sub(RECORD_ADDS));
        self.left = if room.is_some() { SHORT_BYTES } else { 0 };
        self.short = room.unwrap_or_default().clamp(SHORT_RECORD_MIN, PLAINTEXT_MAX) as u16;
    }

    /// Plaintext of the next record, at most.
    pub(super) fn next_bytes(&mut self) -> usize {
        if self.left == 0 {
            return PLAINTEXT_MAX;
        }
        self.left = self.left.saturating_sub(self.short.into());
        self.short.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Link = Link { round_trip_us: 20_000, segment_bytes: 1_448 };

    fn records(ramp: &mut Ramp) -> usize {
        (0..).take_while(|_| ramp.next_bytes() < PLAINTEXT_MAX).count()
    }

    #[test]
    fn records_are_short_at_first_and_after_a_pause() {
        let mut ramp = Ramp::default();
        ramp.begin(5, || Some(LONG));
        assert_eq!(ramp.next_bytes(), 1_418);
        assert_eq!(records(&mut ramp), 46);
        ramp.begin(1_004, || unreachable!("no pause"));
        assert_eq!(ramp.next_bytes(), PLAINTEXT_MAX);
        ramp.begin(2_004, || Some(LONG));
        assert_eq!(records(&mut ramp), 47);
    }

    #[test]
    fn records_are_long_where_the_way_is_short_or_not_known() {
        for link in [None, Some(Link { round_trip_us: 19_999, ..LONG })] {
            let mut ramp = Ramp::default();
            ramp.begin(5, || link);
            assert_eq!(ramp.next_bytes(), PLAINTEXT_MAX, "{link:?}");
        }
        let mut ramp = Ramp::default();
        ramp.begin(5, || Some(Link { segment_bytes: 20, ..LONG }));
        assert_eq!(ramp.next_bytes(), SHORT_RECORD_MIN);
    }
}
