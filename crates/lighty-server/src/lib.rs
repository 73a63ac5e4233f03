//! Assembly: workers, their connections, the list of modules, and the way from a configuration file
//! to a running server.
//!
//! Read in this order: `boot` (startup), `worker` (one thread's loop), `listener_recovery` and
//! `live_listeners` (failing listeners), `conn` (a connection's life), `conn_table` (timeouts and
//! limits for all connections of a worker), `counts` and `report` (a worker's statistics),
//! `modules` (THE list), `simulated` (a worker for simulations).
#![forbid(unsafe_code)]

pub mod boot;
pub mod check;
mod clear_text;
mod conn;
mod conn_table;
mod counts;
mod listener_recovery;
pub mod listeners;
pub mod live_listeners;
pub mod manual;
pub mod modules;
pub mod passwords;
pub mod rehearse;
pub mod reload;
mod report;
pub mod simulated;
mod thread;
mod upstreams;
pub mod worker;
