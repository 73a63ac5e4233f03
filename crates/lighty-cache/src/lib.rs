//! A store of responses, shared by all workers.
//!
//! `rules` decides by RFC 9111, without I/O and clocks, about storing and reusing responses.
//! Nothing here knows the server.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod rules;
