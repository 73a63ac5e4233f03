//! Length of records. The receiver cannot use any data of a record before its last byte has
//! arrived. On a long path that costs a round trip each time the congestion window doubles. So the
//! first records after a pause fit into one segment each, and the records of a bulk transfer have
//! the maximum length.

use super::record::{HEADER_BYTES, PLAINTEXT_MAX};

/// Bytes sent in short records; by then the congestion window has this size.
const SHORT_BYTES: u32 = 64 << 10;

/// Minimum round trip for short records, in microseconds. They cost 0.2 us each.
const ROUND_TRIP_US_MIN: u32 = 20_000;

/// Milliseconds of silence after which the congestion window is small again.
const PAUSE_MS: u64 = 1_000;

/// Maximum overhead of a record: header, explicit nonce, and tag or type.
const RECORD_ADDS: usize = HEADER_BYTES + 8 + 16 + 1;

/// Minimum plaintext of a record: a link with shorter segments gets several segments per record.
const SHORT_RECORD_MIN: usize = 512;

/// Path characteristics of a connection, from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Smoothed round-trip time in microseconds.
    pub(crate) round_trip_us: u32,
    /// Maximum size of outgoing segments in bytes.
    pub(crate) segment_bytes: u32,
}

/// Chooses the length of a connection's records.
#[derive(Debug, Default)]
pub(crate) struct Ramp {
    /// Plaintext of a short record.
    short: u16,
    /// Bytes still to be sent in short records.
    left: u32,
    /// Time of the last write, in milliseconds.
    wrote_ms: Option<u64>,
}

impl Ramp {
    /// Announces a write of more than one segment. After a pause, records are short again.
    pub(crate) fn begin(&mut self, now_ms: u64, look: impl FnOnce() -> Option<Link>) {
        debug_assert!(self.wrote_ms.is_none_or(|then| then <= now_ms), "{now_ms} {self:?}");
        let since = self.wrote_ms.replace(now_ms).map(|then| now_ms.saturating_sub(then));
        if since.is_some_and(|since| since < PAUSE_MS) {
            return;
        }
        let link = look().filter(|link| link.round_trip_us >= ROUND_TRIP_US_MIN);
        let room = link.map(|link| (link.segment_bytes as usize).saturating_sub(RECORD_ADDS));
        self.left = if room.is_some() { SHORT_BYTES } else { 0 };
        self.short = room.unwrap_or_default().clamp(SHORT_RECORD_MIN, PLAINTEXT_MAX) as u16;
    }

    /// Maximum plaintext of the next record.
    pub(super) fn next_bytes(&mut self) -> usize {
        if self.left == 0 {
            return PLAINTEXT_MAX;
        }
        debug_assert!(usize::from(self.short) >= SHORT_RECORD_MIN, "{self:?}");
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
