//! Assembly: workers, their connections, the list of modules, and the way from a configuration file
//! to a running server.
//!
//! Read in this order: `boot` (startup), `listen` (sockets, new connections, failing listeners),
//! `worker` (one thread's state, its connections' timeouts and limits), `conn` (a connection's
//! life), `tls` (certificates and policies), `report` (statistics), `reload`, `modules` (the list
//! of modules), `absent` (features that a build may lack), `simulated` (a worker for simulations).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod absent;
#[cfg(feature = "acme")]
mod acme;
#[cfg(not(feature = "acme"))]
#[path = "acme/absent.rs"]
mod acme;
pub mod boot;
pub mod browser;
#[cfg(feature = "acme")]
pub mod certificates;
pub mod check;
mod conn;
pub mod libraries;
pub mod listen;
#[cfg(feature = "acme")]
pub mod local_tls;
#[cfg(not(feature = "acme"))]
#[path = "local_tls/absent.rs"]
pub mod local_tls;
pub mod manual;
pub mod modules;
pub mod passwords;
pub mod rehearse;
pub mod reload;
mod report;
#[cfg(feature = "scripts")]
pub mod scripts;
#[cfg(not(feature = "scripts"))]
#[path = "scripts/absent.rs"]
pub mod scripts;
pub mod simulated;
mod tls;
pub mod worker;

pub use lighty_io::process::background;
pub use lighty_io::process::capabilities::keep_from_programs as keep_capabilities_from_programs;
pub use lighty_io::process::privileges::look_users_up_in_files;
pub use lighty_io::threads::with_usual_stack;
pub use lighty_modules::deflate::optional_codings;

#[cfg(feature = "mimalloc")]
pub use lighty_io::allocator::Allocator;
