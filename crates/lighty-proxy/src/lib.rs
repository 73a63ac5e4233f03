//! The proxy core: one module for every gateway protocol.
//!
//! A proxied request is served by an *upstream*: backends and the addresses behind their names, a
//! balancer that chooses among them, a connection pool per address, a backlog for requests that
//! find every pool full, and the health of each address. A session over a codec of lighty-wire
//! speaks the protocol; this crate contains no protocol's bytes.
//!
//! Reading order: [`route`] (routes of requests, and their directives) · [`serve`] (one request,
//! with its call to a backend) · `connect` (getting a connection) · `request` and `response`
//! (changes on the way there and back) · [`upstream`] (configured upstreams, and the state that
//! workers share: addresses, balancers, health, background tasks) · `session` (protocols, one file
//! each) · [`raw`] (connections without HTTP) · [`websocket`] (WebSockets for backends that do not
//! speak them).
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
