//! The features: one file (or folder) is one module, with its directives, its code and its tests.
//!
//! Modules never import each other (they meet in the types of `lighty-core`), write to no socket
//! and make no system call: whatever may block goes through the file engine. Their order is in
//! `lighty-server/src/modules.rs`.
#![forbid(unsafe_code)]

pub mod accesslog;
pub mod dirlisting;
pub mod indexfile;
pub mod staticfile;
