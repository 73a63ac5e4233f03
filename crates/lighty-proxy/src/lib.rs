//! The proxy core: one module for every gateway protocol.
//!
//! A proxied request is served by an *upstream*: backends and the addresses behind their names, a
//! balancer that chooses among them, a connection pool per address, a backlog for requests that
//! find every pool full, and the health of each address. A session over a codec of lighty-wire
//! speaks the protocol; this crate contains no protocol's bytes.
//!
//! Reading order: [`spec`] (what the configuration asks for) · [`settings`] (how a request's
//! settings hold it) · [`proxy`] (which requests go where) · `serve` (one request) · `checkout` and
//! `backlog` (getting a connection) · `upstream`, `address`, `backend`, `names`, `pool`,
//! `listen_queue`, `health` (shared state) · [`registry`], `supervisor`, [`configured`] (background tasks) ·
//! `balance` (balancers, one file each) · `session` (protocols, one file each) · `upstream_call`
//! (one request on one connection) · `reply`, `mapping`, `upstream_body` (the response) ·
//! `internal_redirect` (X-Sendfile and the like) · `sticky`, `proxy_header` · `spool` (bodies that
//! wait on disk) · [`raw`] (connections without HTTP) · [`stats`] (statistics).
#![forbid(unsafe_code)]

mod address;
mod backend;
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
