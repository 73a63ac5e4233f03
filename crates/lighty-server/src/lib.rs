//! Assembly: workers, their connections, the list of modules, and the way from a configuration
//! file to a running server.
//!
//! Read in this order: `boot` (what happens at start), `worker` (one thread's loop), `mending` and
//! `hearing` (what becomes of a listener that fails), `conn` (a connection's life), `slots`
//! (time-outs and limits over all connections of a worker), `counts` and `report` (what a worker
//! tells of itself), `modules` (THE list).
#![forbid(unsafe_code)]

pub mod boot;
pub mod check;
mod clear_text;
mod conn;
mod counts;
pub mod hearing;
pub mod listeners;
pub mod manual;
mod mending;
pub mod modules;
pub mod passwords;
pub mod rehearse;
mod report;
mod slots;
mod thread;
mod upstreams;
pub mod worker;
