//! A store of responses, shared by all workers.
//!
//! Reading order: `rules` (RFC 9111: storing and reusing responses, without I/O and clocks) ·
//! `key` · `sums` · `object` (stored responses) · `store` (the index) · `flight` (requests to
//! backends that others wait for) · `eviction` · `purge` · `disk`. Nothing here knows the server.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod disk;
mod eviction;
pub mod flight;
pub mod key;
pub mod object;
pub mod purge;
pub mod rules;
mod spill;
pub mod store;
pub mod sums;
