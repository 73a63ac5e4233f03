//! Buffers of one size, limited in number and reused.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// A pool of buffers of one size. Clones are handles to the same pool.
///
/// A buffer is allocated when it is first needed and kept when it is returned, so a steady load
/// allocates nothing. [`trim`](Self::trim), called about once a second, frees the buffers that the
/// last period did not need. A buffer may be returned by another thread, hence the lock; it is
/// never held for longer than a push or a pop.
#[derive(Clone)]
pub struct BufPool {
    shared: Arc<SharedBufferPool>,
}

/// A buffer from a pool, returned to it on drop.
pub struct PooledBuf {
    /// `None` only while being dropped.
    memory: Option<Box<[u8]>>,
    /// Length of the visible part of the memory.
    length: usize,
    home: Arc<SharedBufferPool>,
}

struct SharedBufferPool {
    buffer_bytes: usize,
    buffers_max: usize,
    state: Mutex<BufferPoolState>,
}

#[derive(Default)]
struct BufferPoolState {
    free: Vec<Box<[u8]>>,
    in_use: usize,
    /// Maximum number of buffers in use at once since the last trim.
    high_water: usize,
}

impl BufPool {
    /// Creates a pool of at most `buffers_max` buffers of `buffer_bytes` bytes each. Allocates
    /// nothing yet.
    pub fn new(buffer_bytes: usize, buffers_max: usize) -> Self {
        let state = Mutex::new(BufferPoolState::default());
        BufPool { shared: Arc::new(SharedBufferPool { buffer_bytes, buffers_max, state }) }
    }

    /// Takes a buffer; `None` if all of them are in use. Its content is unspecified.
    pub fn take(&self) -> Option<PooledBuf> {
        let recycled = {
            let mut state = self.shared.lock();
            if state.in_use >= self.shared.buffers_max {
                return None;
            }
            state.in_use += 1;
            state.high_water = state.high_water.max(state.in_use);
            debug_assert!(state.in_use <= self.shared.buffers_max, "{}", state.in_use);
            state.free.pop()
        };
        let memory =
            recycled.unwrap_or_else(|| vec![0; self.shared.buffer_bytes].into_boxed_slice());
        debug_assert_eq!(memory.len(), self.shared.buffer_bytes, "buffers of one size");
        Some(PooledBuf {
            length: memory.len(),
            memory: Some(memory),
            home: Arc::clone(&self.shared),
        })
    }

    /// The size of each buffer, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// Maximum number of buffers.
    pub fn buffers_max(&self) -> usize {
        self.shared.buffers_max
    }

    /// Number of buffers in use.
    pub fn in_use(&self) -> usize {
        self.shared.lock().in_use
    }

    /// Number of idle buffers.
    pub fn idle(&self) -> usize {
        self.shared.lock().free.len()
    }

    /// Frees the idle buffers.
    pub fn free_idle(&self) {
        // Freed after the lock is released.
        let idle = std::mem::take(&mut self.shared.lock().free);
        drop(idle);
    }

    /// Frees the buffers that were not needed since the last call: afterwards the pool owns at most
    /// as many as were in use at once in that time.
    pub fn trim(&self) {
        let mut state = self.shared.lock();
        debug_assert!(state.in_use <= state.high_water, "{}", state.high_water);
        let keep = state.high_water - state.in_use;
        state.high_water = state.in_use;
        if state.free.len() > keep {
            debug_assert!(keep + state.in_use <= self.shared.buffers_max, "{keep}");
            let surplus = state.free.split_off(keep);
            state.free.shrink_to(keep);
            drop(state);
            drop(surplus);
        }
    }
}

impl SharedBufferPool {
    fn lock(&self) -> MutexGuard<'_, BufferPoolState> {
        // No code panics while holding the lock, so poisoned data is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledBuf {
    /// Limits the visible part to the first `length` bytes; the pool gets back the whole buffer.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Returns the first `length` bytes as shared memory, without copying. The buffer returns to
    /// its pool when the last reference is dropped.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn freeze(self, length: usize) -> Bytes {
        Bytes::from_owner(self).slice(..length)
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().and_then(|memory| memory.get(..self.length)).unwrap_or_default()
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        self.memory.as_deref_mut().and_then(|memory| memory.get_mut(..length)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PooledBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let mut state = self.home.lock();
            debug_assert!(state.in_use > 0, "a buffer that was not taken");
            state.in_use -= 1;
            state.free.push(memory);
            debug_assert!(state.free.len() + state.in_use <= self.home.buffers_max);
        }
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufPool")
            .field("buffer_bytes", &self.buffer_bytes())
            .field("buffers_max", &self.buffers_max())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_at_n_and_n_plus_one() {
        let pool = BufPool::new(16, 2);
        let first = pool.take();
        let second = pool.take();
        assert!(first.is_some() && second.is_some());
        assert!(pool.take().is_none());
        drop(first);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_buffer_is_used_again() {
        let pool = BufPool::new(64, 4);
        let first = pool.take().expect("first");
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.idle(), 1);
        assert_eq!(pool.take().expect("again").as_ptr(), address);
    }

    #[test]
    fn frozen_bytes_hold_their_buffer_until_the_last_reference() {
        let pool = BufPool::new(8, 1);
        let mut buffer = pool.take().expect("the only one");
        buffer[..3].copy_from_slice(b"abc");
        let address = buffer.as_ptr();
        let bytes = buffer.freeze(3);
        assert_eq!((&bytes[..], bytes.as_ptr()), (&b"abc"[..], address));
        let tail = bytes.slice(1..);
        drop(bytes);
        assert!(pool.take().is_none());
        drop(tail);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_truncated_buffer_is_whole_again_in_the_pool() {
        let pool = BufPool::new(8, 1);
        let mut buffer = pool.take().expect("the only one");
        buffer.truncate(3);
        buffer.truncate(5);
        assert_eq!(buffer.len(), 3);
        drop(buffer);
        assert_eq!(pool.take().expect("again").len(), 8);
    }

    #[test]
    fn a_buffer_comes_back_from_another_thread() {
        let pool = BufPool::new(8, 1);
        let buffer = pool.take().expect("the only one");
        std::thread::spawn(move || drop(buffer)).join().expect("thread");
        assert_eq!((pool.in_use(), pool.idle()), (0, 1));
    }

    #[test]
    fn trim_keeps_what_the_last_period_needed() {
        let pool = BufPool::new(8, 10);
        let out: Vec<_> = (0..6).filter_map(|_| pool.take()).collect();
        drop(out);
        pool.trim();
        assert_eq!(pool.idle(), 6, "six were needed at once in this period");
        let two = (pool.take(), pool.take());
        drop(two);
        pool.trim();
        assert_eq!(pool.idle(), 2, "two in the next");
        pool.trim();
        assert_eq!(pool.idle(), 0, "none in the last");
    }

    #[test]
    fn idle_buffers_can_be_freed_at_once() {
        let pool = BufPool::new(8, 4);
        let held = pool.take().expect("one");
        drop(pool.take());
        pool.free_idle();
        assert_eq!((pool.in_use(), pool.idle()), (1, 0));
        drop(held);
        assert_eq!((pool.in_use(), pool.idle()), (0, 1));
    }

    #[test]
    fn trim_never_touches_buffers_in_use() {
        let pool = BufPool::new(8, 4);
        let held = pool.take().expect("one");
        drop(pool.take());
        pool.trim();
        pool.trim();
        assert_eq!((pool.in_use(), pool.idle()), (1, 0));
        assert_eq!(held.len(), 8);
    }
}
