//! Buffers for file data, sized to the read and bounded by a shared byte budget.

use lighty_buf::{BufPool, PooledBuf};

/// The smallest size; smaller reads are not worth a disk operation.
const SMALLEST_BYTES: usize = 16 << 10;

/// Buffers of several sizes, each half of the previous, that share one budget.
///
/// A single size would be simpler, but 100 KB files would be read into 512 KB buffers: a fifth of
/// the clients would exhaust the budget, and memory touched to its end is lost to the page cache.
pub(super) struct ReadBuffers {
    /// The largest first.
    sizes: Vec<BufPool>,
    bytes_max: usize,
}

impl ReadBuffers {
    /// Creates buffers of up to `largest_bytes`, as many as fit into `bytes_max`. Allocates nothing
    /// yet.
    pub(super) fn new(largest_bytes: usize, bytes_max: usize) -> Self {
        let halves = std::iter::successors(Some(largest_bytes), |bytes| Some(bytes / 2));
        let sizes = halves
            .take_while(|&bytes| bytes == largest_bytes || bytes >= SMALLEST_BYTES)
            .map(|bytes| BufPool::new(bytes, bytes_max / bytes))
            .collect();
        ReadBuffers { sizes, bytes_max }
    }

    /// A buffer limited to `want` bytes, or to the largest size if that is less. `None` if the
    /// budget is exhausted.
    pub(super) fn take(&self, want: u64) -> Option<PooledBuf> {
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let fits = |pool: &&BufPool| pool.buffer_bytes() >= want;
        let pool = self.sizes.iter().rev().find(fits).or(self.sizes.first())?;
        if pool.idle() == 0 && !self.make_room(pool.buffer_bytes()) {
            return None;
        }
        let mut buf = pool.take()?;
        buf.truncate(want);
        Some(buf)
    }

    /// True if more than half of the budget is in use.
    pub(super) fn are_scarce(&self) -> bool {
        let in_use = |pool: &BufPool| pool.in_use() * pool.buffer_bytes();
        self.sizes.iter().map(in_use).sum::<usize>() * 2 > self.bytes_max
    }

    /// Frees buffers not needed since the last call.
    pub(super) fn trim(&self) {
        self.sizes.iter().for_each(BufPool::trim);
    }

    /// Makes room to allocate `bytes` more, by freeing idle buffers of other sizes.
    fn make_room(&self, bytes: usize) -> bool {
        for pool in &self.sizes {
            if self.owned_bytes() + bytes <= self.bytes_max {
                return true;
            }
            pool.free_idle();
        }
        self.owned_bytes() + bytes <= self.bytes_max
    }

    fn owned_bytes(&self) -> usize {
        let owned = |pool: &BufPool| (pool.in_use() + pool.idle()) * pool.buffer_bytes();
        self.sizes.iter().map(owned).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1_024;
    const CHUNK: usize = 512 << 10;

    #[test]
    fn a_buffer_is_as_large_as_what_is_wanted() {
        let buffers = ReadBuffers::new(CHUNK, 8 * CHUNK);
        let mut held = Vec::new();
        for (want, shown, owned) in [
            (1, 1, 16 * K),
            (16 * K, 16 * K, 16 * K),
            (16 * K + 1, 16 * K + 1, 32 * K),
            (100 * K, 100 * K, 128 * K),
            (512 * K, 512 * K, 512 * K),
            (u64::MAX, 512 * K, 512 * K),
        ] {
            let before = buffers.owned_bytes() as u64;
            let buf = buffers.take(want).expect("plenty");
            assert_eq!(buf.len() as u64, shown, "{want}");
            assert_eq!(buffers.owned_bytes() as u64 - before, owned, "{want}");
            held.push(buf);
        }
    }

    #[test]
    fn the_budget_holds_at_n_and_n_plus_one() {
        let buffers = ReadBuffers::new(CHUNK, CHUNK);
        let four: Vec<_> = (0..4).map(|_| buffers.take(100 * K).expect("within")).collect();
        assert!(buffers.take(100 * K).is_none());
        assert!(buffers.take(1).is_none(), "no size is beside the budget");
        drop(four);
        assert_eq!(buffers.owned_bytes(), CHUNK);
        assert!(buffers.take(512 * K).is_some(), "what was kept of another size made room");
        assert_eq!(buffers.owned_bytes(), CHUNK);
    }

    #[test]
    fn no_budget_is_no_buffer() {
        assert!(ReadBuffers::new(CHUNK, 0).take(1).is_none());
        assert!(ReadBuffers::new(CHUNK, CHUNK - 1).take(512 * K).is_none());
    }

    #[test]
    fn a_chunk_below_the_smallest_size_is_the_only_size() {
        let buffers = ReadBuffers::new(4_096, 8_192);
        let two = (buffers.take(1), buffers.take(100 * K));
        assert_eq!(two.1.as_ref().map(|buf| buf.len()), Some(4_096));
        assert!(two.0.is_some() && buffers.take(1).is_none());
    }

    #[test]
    fn scarce_is_more_than_half() {
        let buffers = ReadBuffers::new(CHUNK, 2 * CHUNK);
        let _half = buffers.take(512 * K);
        assert!(!buffers.are_scarce());
        let _more = buffers.take(1);
        assert!(buffers.are_scarce());
    }

    #[test]
    fn trimmed_twice_nothing_is_kept() {
        let buffers = ReadBuffers::new(CHUNK, 8 * CHUNK);
        drop((buffers.take(512 * K), buffers.take(1)));
        buffers.trim();
        buffers.trim();
        assert_eq!(buffers.owned_bytes(), 0);
    }
}
