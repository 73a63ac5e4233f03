//! The proxy core: one module for every gateway protocol.
//!
//! A proxied request is served by an *upstream*: backends and the addresses behind their names, a
//! balancer that chooses among them, a connection pool per address, a backlog for requests that
//! find every pool full, and the health of each address. A session over a codec of lighty-wire
//! speaks the protocol; this crate contains no protocol's bytes.
//!
//! Reading order: [`route`] (which requests go where, and how the configuration says so) ·
//! [`serve`] (one request, with its call to a backend) · `connect` (getting a connection) ·
//! `request` and `response` (what is changed on the way there and back) · [`upstream`] (what the
//! configuration asks for, and the state that workers share: addresses, balancers, health, the
//! tasks of the background) · `session` (protocols, one file each) · [`raw`] (connections without
//! HTTP) · [`websocket`] (WebSockets for backends that speak none).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod connect;
pub mod raw;
mod request;
mod response;
pub mod route;
pub mod serve;
mod session;
pub mod upstream;
pub mod websocket;
