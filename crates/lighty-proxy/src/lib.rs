//! The proxy core: one module for every gateway protocol.
//!
//! A request that a proxy takes meets an *upstream*: backends and the addresses behind their names,
//! a balancer that chooses among them, a pool of connections per address, a backlog for requests
//! that find every pool full, and what is known of each address's health. What is spoken on a
//! connection is a session over a codec of lighty-wire; this crate holds no protocol's bytes.
//!
//! Reading order: [`spec`] (what the configuration asks for) · [`settings`] (how a request's
//! settings hold it) · [`directives`] (how it is written) · [`balance`] (the choice, one file each).
#![forbid(unsafe_code)]

pub mod balance;
pub mod directives;
pub mod settings;
pub mod spec;
