//! Chunks of a body, queues of chunks, and pooled buffers.
//!
//! All body data passes through lighty in a [`ChunkQueue`]: memory shared by reference count, or
//! file ranges that have not been read yet. Moving a chunk from one queue to another moves a
//! pointer; no byte is copied here.
//!
//! This crate performs no I/O, reads no clock and knows no HTTP. The type of a file is a parameter,
//! for which `lighty-io` provides the type.
//!
//! Reading order: [`chunk`](Chunk), [`queue`](ChunkQueue), [`pool`](BufPool),
//! [`read_buf`](ReadBuf); [`append`] is for unavoidable copies.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod append;
mod chunk;
mod pool;
mod queue;
mod read_buf;

pub use append::append;
pub use chunk::{Chunk, FileRange};
pub use pool::{BufPool, PooledBuf};
pub use queue::{ChunkQueue, QUEUE_BYTES_MAX};
pub use read_buf::{ReadBuf, ReadBufPool};
