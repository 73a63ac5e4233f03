//! Assembly: workers, their connections, the list of modules, and the way from a configuration file
//! to a running server.
//!
//! Read in this order: `boot` (startup), `listen` (sockets, new connections, failing listeners),
//! `worker` (one thread's state, its connections' timeouts and limits), `conn` (a connection's
//! life), `tls` (certificates and policies), `sandbox` (rights that the process gives up), `report`
//! (statistics), `reload`, `control` (the socket for operators), `explain` (a request's way through
//! a configuration), `modules` (the list of modules), `absent` (features that a build may lack),
//! `simulated` (a worker for simulations).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod absent;
#[cfg(feature = "acme")]
pub mod acme;
#[cfg(not(feature = "acme"))]
#[path = "acme/absent.rs"]
pub mod acme;
pub mod boot;
mod conn;
pub mod control;
pub mod explain;
pub mod followed;
pub mod listen;
pub mod modules;
pub mod reload;
mod report;
pub mod sandbox;
pub mod simulated;
mod succession;
pub mod tls;
pub mod worker;

pub use lighty_io::process::background;
pub use lighty_io::process::capabilities::keep_from_programs as keep_capabilities_from_programs;
pub use lighty_io::process::predecessor::is_expected as takes_over;
pub use lighty_io::process::privileges::look_users_up_in_files;
pub use lighty_io::threads::with_usual_stack;
pub use lighty_modules::deflate::optional_codings;

#[cfg(feature = "mimalloc")]
pub use lighty_io::allocator::Allocator;
