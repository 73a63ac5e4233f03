//! The features. Each file or folder is one module with its directives, its code and its tests.
//!
//! Modules never import each other: they share only the types of `lighty-core`. They write to no
//! socket and make no system call; operations that may block go through the file engine.
//! `lighty-server/src/modules.rs` sets their order.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod accesslog;
#[cfg(feature = "acme")]
pub mod acme;
pub mod alias;
pub mod auth;
pub mod auth_forward;
pub mod cache;
pub mod cgi;
pub mod chunked;
pub mod cors;
pub mod deflate;
pub mod dirlisting;
pub mod evasive;
pub mod evhost;
pub mod expire;
pub mod extforward;
pub mod flv_streaming;
pub mod health;
pub mod https;
pub mod indexfile;
#[cfg(feature = "scripts")]
pub mod magnet;
#[cfg(not(feature = "scripts"))]
#[path = "magnet/absent.rs"]
pub mod magnet;
pub mod maintenance;
pub mod maxminddb;
pub mod redirect;
pub mod rewrite;
pub mod secdownload;
pub mod setenv;
pub mod simple_vhost;
pub mod ssi;
pub mod staticfile;
pub mod status;
pub mod timing;
#[cfg(feature = "tracing")]
pub mod tracing;
#[cfg(not(feature = "tracing"))]
#[path = "tracing/absent.rs"]
pub mod tracing;
pub mod trigger_b4_dl;
pub mod uploadprogress;
pub mod userdir;
pub mod usertrack;
#[cfg(feature = "vhostdb")]
pub mod vhostdb;
#[cfg(feature = "webdav")]
pub mod webdav;
#[cfg(not(feature = "webdav"))]
#[path = "webdav/absent.rs"]
pub mod webdav;
