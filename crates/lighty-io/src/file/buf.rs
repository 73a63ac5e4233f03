//! Buffers that an engine may own while the kernel writes to them.

use std::ops::{Deref, DerefMut};

use lighty_buf::PooledBuf;

/// Memory lent to an engine for a read. If the future that waits for the read is dropped, the
/// memory stays with the engine until the kernel is done with it.
///
/// Both kinds keep their bytes on the heap, so that the address stays the same when the value
/// moves.
#[derive(Debug)]
pub enum OwnedBuf {
    /// Plain heap memory; its length is the maximum of a read.
    Heap(Vec<u8>),
    /// A buffer of a pool, returned to it on drop.
    Pooled(PooledBuf),
}

impl OwnedBuf {
    /// Heap memory of `length` zeroed bytes.
    pub fn zeroed(length: usize) -> OwnedBuf {
        OwnedBuf::Heap(vec![0; length])
    }
}

impl From<Vec<u8>> for OwnedBuf {
    fn from(bytes: Vec<u8>) -> OwnedBuf {
        OwnedBuf::Heap(bytes)
    }
}

impl From<PooledBuf> for OwnedBuf {
    fn from(buf: PooledBuf) -> OwnedBuf {
        OwnedBuf::Pooled(buf)
    }
}

impl Deref for OwnedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            OwnedBuf::Heap(bytes) => bytes,
            OwnedBuf::Pooled(buf) => buf,
        }
    }
}

impl DerefMut for OwnedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            OwnedBuf::Heap(bytes) => bytes,
            OwnedBuf::Pooled(buf) => buf,
        }
    }
}
