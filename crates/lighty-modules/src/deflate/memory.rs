//! Estimates an encoder's memory: the libraries do not report it.

use super::coding::Coding;
use super::params::EncoderParams;

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// Base-2 logarithms of zstd's two tables at levels 1 to 22, for bodies of unknown length
/// (`ZSTD_defaultCParameters` of zstd 1.5).
const ZSTD_TABLES: [(u32, u32); 22] = [
    (13, 14),
    (15, 16),
    (16, 17),
    (18, 18),
    (18, 19),
    (18, 19),
    (19, 20),
    (19, 20),
    (20, 21),
    (21, 22),
    (21, 22),
    (22, 23),
    (22, 22),
    (22, 23),
    (23, 23),
    (22, 22),
    (23, 22),
    (23, 22),
    (24, 22),
    (25, 23),
    (26, 24),
    (27, 25),
];

impl EncoderParams {
    /// Maximum memory of an encoder for a body of this length, in bytes: windows, tables, blocks.
    pub(super) fn memory_bytes(&self, coding: Coding, length: Option<u64>) -> u64 {
        match coding {
            Coding::Gzip | Coding::Deflate => 512 * KB,
            Coding::Brotli => self.brotli_bytes(length),
            Coding::Zstd => self.zstd_bytes(length),
            Coding::Bzip2 => 400 * KB + 8 * 100_000 * u64::from(self.bzip2_block),
        }
    }

    /// Twice the window, commands and output for half a window, and the table of the search.
    fn brotli_bytes(&self, length: Option<u64>) -> u64 {
        let window = 1 << self.brotli_window_for(length);
        let common = 8 * window + MB / 2;
        match self.brotli_quality {
            0..=3 => common + MB,
            4 => common + 4 * MB,
            quality @ 5..=8 => common + ((2 * MB) << (quality - 5)),
            // Its blocks are longer.
            9 => common + 34 * MB,
            _ => 24 * window + 24 * MB,
        }
    }

    /// For a body known to be short, zstd makes no table longer than twice its length.
    fn zstd_bytes(&self, length: Option<u64>) -> u64 {
        const SHORT_LOG: u32 = 18;
        let fit = length.map_or(u64::BITS, bits).clamp(10, 40);
        let row = usize::try_from(self.zstd_level.clamp(1, 22)).unwrap_or(22) - 1;
        let (chains, hashes) = ZSTD_TABLES[row];
        let entries = |log: u32| 1u64 << if fit <= SHORT_LOG { fit + 1 } else { log.min(fit + 1) };
        let window = 1 << self.zstd_window.min(fit);
        4 * entries(chains) + 5 * entries(hashes) + window + 2 * MB
    }
}

/// The base-2 logarithm, rounded up.
fn bits(length: u64) -> u32 {
    u64::BITS - length.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kb(set: impl Fn(&mut EncoderParams), coding: Coding, length: Option<u64>) -> u64 {
        let mut params = EncoderParams::default();
        set(&mut params);
        params.memory_bytes(coding, length) / KB
    }

    /// Peak resident memory measured while encoding a body of 4 MB, for the worst of three kinds
    /// of content.
    #[test]
    fn brotli_holds_no_more_than_is_counted() {
        for (quality, window, measured_kb) in [
            (1, 19, 936),
            (2, 17, 1324),
            (2, 19, 2860),
            (2, 22, 8852),
            (4, 17, 5384),
            (4, 19, 7184),
            (4, 22, 16_584),
            (5, 17, 3060),
            (5, 19, 6000),
            (5, 22, 14_700),
            (6, 19, 7948),
            (7, 19, 12_144),
            (8, 19, 20_368),
            (9, 17, 34_872),
            (9, 19, 36_816),
            (9, 22, 42_732),
            (10, 19, 14_808),
            (11, 19, 24_112),
            (11, 22, 58_908),
        ] {
            let set =
                |p: &mut EncoderParams| (p.brotli_quality, p.brotli_window) = (quality, window);
            let counted_kb = kb(set, Coding::Brotli, None);
            assert!(measured_kb <= counted_kb, "{quality} {window}: {counted_kb}");
        }
    }

    #[test]
    fn zstd_holds_no_more_than_is_counted() {
        for (level, measured_kb) in [
            (1, 1772),
            (3, 2440),
            (5, 4460),
            (6, 4488),
            (9, 11_940),
            (12, 42_728),
            (15, 67_240),
            (16, 34_280),
            (19, 84_132),
        ] {
            let counted_kb = kb(|p| p.zstd_level = level, Coding::Zstd, None);
            let range = measured_kb..2 * measured_kb;
            assert!(range.contains(&counted_kb), "{level}: {counted_kb}");
        }
        let most = |p: &mut EncoderParams| p.zstd_level = 22;
        assert!(kb(most, Coding::Zstd, None) > 600 << 10);
        assert!(kb(most, Coding::Zstd, Some(100 << 10)) < 5 << 10);
        assert!(kb(most, Coding::Zstd, Some(u64::MAX)) > 600 << 10);
        assert!(kb(|p| p.zstd_level = -7, Coding::Zstd, None) < 4 << 10);
    }

    /// The figures in the manual.
    #[test]
    fn defaults() {
        let counted = |coding, length| kb(|_| (), coding, length);
        assert_eq!(counted(Coding::Gzip, None), 512);
        assert_eq!(counted(Coding::Brotli, None), 6656);
        assert_eq!(counted(Coding::Brotli, Some(100 << 10)), 3584);
        assert!((3 << 10..4 << 10).contains(&counted(Coding::Zstd, None)));
        assert!((7 << 10..8 << 10).contains(&counted(Coding::Bzip2, None)));
    }
}
