//! The proxy core: one module for every gateway protocol.
//!
//! A request that a proxy takes meets an *upstream*: backends and the addresses behind their names,
//! a balancer that chooses among them, a pool of connections per address, a backlog for requests
//! that find every pool full, and what is known of each address's health. What is spoken on a
//! connection is a session over a codec of lighty-wire; this crate holds no protocol's bytes.
//!
//! Reading order: [`spec`] (what the configuration asks for) · [`settings`] (how a request's
//! settings hold it) · [`proxy`] (which requests go where) · `serve` (one request) · `checkout` and
//! `backlog` (getting a connection) · `upstream`, `address`, `names`, `pool`,
//! `listen_queue`, `health` (what is shared) · [`registry`], `supervisor`, [`configured`] (who
//! cares for it) · `balance` (the choice, one file each) · `session` (what is spoken, one file each) ·
//! `upstream_call` (the way there and back) · `reply`, `mapping`, `upstream_body` (the answer) ·
//! `internal_redirect` (what an answer asks for in its place) · `sticky`, `proxy_header` ·
//! `spool` (bodies that wait on disk) · [`raw`] (connections that are no requests) · [`stats`] (what
//! all this came to).
#![forbid(unsafe_code)]

mod address;
mod backlog;
mod balance;
mod checkout;
pub mod configured;
mod deadline;
pub mod directives;
mod health;
mod internal_redirect;
mod listen_queue;
pub mod local;
mod mapping;
mod names;
mod pool;
pub mod proxy;
mod proxy_header;
pub mod raw;
pub mod registry;
mod replayable_body;
mod reply;
mod script;
mod serve;
mod session;
pub mod settings;
pub mod spec;
mod spool;
pub mod stats;
mod sticky;
mod supervisor;
mod upstream;
mod upstream_body;
mod upstream_call;
mod upstream_request;
