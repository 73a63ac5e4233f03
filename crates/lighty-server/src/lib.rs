//! Assembly: workers, their connections, the list of modules, and the way from a configuration file
//! to a running server.
//!
//! Read in this order: `boot` (startup), `worker` (one thread's state), `accept` (new connections),
//! `listener_recovery` and `live_listeners` (failing listeners), `conn` (a connection's life),
//! `tls` (certificates and policies), `conn_table` (timeouts and limits for all connections of a
//! worker), `counts`, `paces` and `report` (a worker's statistics), `modules` (the list of
//! modules), `absent` (features that a build may lack), `simulated` (a worker for simulations).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod absent;
mod accept;
#[cfg(feature = "acme")]
mod acme;
#[cfg(not(feature = "acme"))]
#[path = "acme/absent.rs"]
mod acme;
mod block_settings;
pub mod boot;
pub mod boot_error;
pub mod browser;
#[cfg(feature = "acme")]
pub mod certificates;
pub mod check;
mod config_figures;
mod conn;
mod conn_table;
mod counts;
mod database_directories;
mod document_root;
mod error_log;
mod idle;
mod lateness;
pub mod libraries;
pub mod listener_info;
mod listener_recovery;
pub mod listeners;
pub mod live_listeners;
#[cfg(feature = "acme")]
pub mod local_tls;
#[cfg(not(feature = "acme"))]
#[path = "local_tls/absent.rs"]
pub mod local_tls;
pub mod manual;
pub mod modules;
mod paces;
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
mod thread;
mod tls;
mod upstreams;
pub mod worker;

pub use lighty_io::process::background;
pub use lighty_io::process::capabilities::keep_from_programs as keep_capabilities_from_programs;
pub use lighty_io::process::privileges::look_users_up_in_files;
pub use lighty_io::threads::with_usual_stack;
pub use lighty_modules::deflate::optional_codings;

#[cfg(feature = "mimalloc")]
pub use lighty_io::allocator::Allocator;
