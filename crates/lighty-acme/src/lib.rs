//! Certificates that the server gets by itself (ACME, RFC 8555).
//!
//! Reading order: `wanted` (what a configuration asks for), `store` (the directory that holds
//! everything, and that processes and machines may share), `schedule` (when a certificate is
//! ordered: arithmetic, no clock), `order` (one order, from the account to the certificate, with
//! `challenge` for the proofs and `client` for the way to the authority), `service` (the thread
//! that does it). Everything here may block, and runs on that thread alone.
#![forbid(unsafe_code)]

mod challenge;
mod client;
mod error;
mod order;
mod schedule;
mod service;
mod store;
mod wanted;

pub use schedule::{Progress, Window, due_s};
pub use service::{Plan, Say, Service};
pub use store::{Store, file_name};
pub use wanted::{
    ChallengeKind, ExternalAccount, Issuer, Options, Wanted, WantedError, public_name,
};
