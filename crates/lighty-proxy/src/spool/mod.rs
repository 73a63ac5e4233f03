//! Requests' bodies that are held until a backend wants them: in memory, then on disk. Answers are
//! held by [`lighty_core::read_ahead`].

mod request;

pub(crate) use request::{StoreFault, StoredBody};
