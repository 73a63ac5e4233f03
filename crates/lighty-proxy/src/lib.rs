//! The proxy core: one module for every gateway protocol.
//!
//! A request that a proxy takes meets an *upstream*: backends and the addresses behind their names,
//! a balancer that chooses among them, a pool of connections per address, a backlog for requests
//! that find every pool full, and what is known of each address's health. What is spoken on a
//! connection is a session over a codec of lighty-wire; this crate holds no protocol's bytes.
//!
//! Reading order: [`spec`] (what the configuration asks for) · [`settings`] (how a request's
//! settings hold it) · [`proxy`] (which requests go where) · `serve` (one request) · `seat` and
//! `backlog` (getting a connection) · `upstream`, `address`, `names`, `pool`,
//! `listen_queue`, `health` (what is shared) · [`registry`], `keeper`, [`configured`] (who cares for it) · `balance` (the
//! choice, one file each) · `session` (what is spoken, one file each) ·
//! `courier` (the way there and back) · `reply`, `mapping`, `download` (the answer) ·
//! `turn` (what an answer asks for in its place) · `sticky`, `greeting` ·
//! `spool` (bodies that wait on disk) · [`raw`] (connections that are no requests) · [`stats`] (what
//! all this came to).
#![forbid(unsafe_code)]

mod address;
mod backlog;
mod balance;
pub mod configured;
mod courier;
mod deadline;
pub mod directives;
mod download;
mod errand;
mod greeting;
mod health;
mod keeper;
mod listen_queue;
pub mod local;
mod mapping;
mod names;
mod pool;
pub mod proxy;
pub mod raw;
pub mod registry;
mod reply;
mod script;
mod seat;
mod serve;
mod session;
pub mod settings;
pub mod spec;
mod spool;
pub mod stats;
mod sticky;
mod turn;
mod upload;
mod upstream;
