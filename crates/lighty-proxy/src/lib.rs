//! The proxy core: one module for every gateway protocol.
//!
//! A request that a proxy takes meets an *upstream*: backends and the addresses behind their names,
//! a balancer that chooses among them, a pool of connections per address, a backlog for requests
//! that find every pool full, and what is known of each address's health. What is spoken on a
//! connection is a session over a codec of lighty-wire; this crate holds no protocol's bytes.
//!
//! Reading order: [`spec`] (what the configuration asks for) · [`settings`] (how a request's
//! settings hold it) · [`proxy`] (which requests go where) · [`serve`] (one request) · [`seat`] and
//! [`backlog`] (getting a connection) · [`upstream`], [`address`], [`names`], [`pool`], [`health`]
//! (what is shared) · [`registry`], `keeper`, [`configured`] (who cares for it) · [`balance`] (the
//! choice, one file each) · [`session`] (what is spoken, one file each) ·
//! [`courier`] (the way there and back) · [`reply`], [`mapping`], [`download`] (the answer) ·
//! [`turn`] (what an answer asks for in its place) · [`sticky`], [`greeting`] ·
//! [`spool`] (bodies that wait on disk) · [`raw`] (connections that are no requests) · [`stats`] (what
//! all this came to).
#![forbid(unsafe_code)]

pub mod address;
pub mod backlog;
pub mod balance;
pub mod configured;
pub mod courier;
pub mod deadline;
pub mod directives;
pub mod download;
pub mod errand;
pub mod greeting;
pub mod health;
mod keeper;
pub mod local;
pub mod mapping;
pub mod names;
pub mod pool;
pub mod proxy;
pub mod raw;
pub mod registry;
pub mod reply;
pub mod script;
pub mod seat;
pub mod serve;
pub mod session;
pub mod settings;
pub mod spec;
pub mod spool;
pub mod stats;
pub mod sticky;
pub mod turn;
pub mod upload;
pub mod upstream;
