//! What tests are built from: ways to cut input, and to run a server against it.
#![forbid(unsafe_code)]

pub mod shredder;
