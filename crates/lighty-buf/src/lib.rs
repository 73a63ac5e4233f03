//! The currency of the server: chunks of a body, queues of chunks, and pooled buffers.
//!
//! Everything that flows through lighty is a [`ChunkQueue`]: memory that is shared by reference
//! count, or a range of a file that is not read yet. Moving a chunk from one queue to another
//! moves a pointer; no byte is copied here.
//!
//! What this crate refuses to do: no I/O, no clock, no HTTP. What a "file" is it does not know:
//! the type is a parameter, and the machine room fills it in.
//!
//! Reading order: [`chunk`](Chunk), [`queue`](ChunkQueue), [`pool`](BufPool),
//! [`read_buf`](ReadBuf); [`append`] is for who has to copy.
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
pub use read_buf::ReadBuf;
