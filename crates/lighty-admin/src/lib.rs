//! Commands without a running server, and `ctl`, which talks with one.
//!
//! `check` (a configuration and the machine that it is for), `certificates`, `local_tls`
//! (certificates for this machine alone), `passwords`, `scripts` (trial runs), `manual` (generated
//! pages), `libraries`, `browser`, and `ctl` (a running server).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod browser;
#[cfg(feature = "acme")]
pub mod certificates;
pub mod check;
pub mod ctl;
pub mod libraries;
#[cfg(feature = "acme")]
pub mod local_tls;
#[cfg(not(feature = "acme"))]
#[path = "local_tls/absent.rs"]
pub mod local_tls;
pub mod manual;
pub mod passwords;
#[cfg(feature = "scripts")]
pub mod scripts;
#[cfg(not(feature = "scripts"))]
#[path = "scripts/absent.rs"]
pub mod scripts;
