//! Request bodies held until a backend needs them: in memory, then on disk.
//! [`lighty_core::read_ahead`] holds response bodies.

mod request;

pub(crate) use request::{StoreFault, StoredBody};
