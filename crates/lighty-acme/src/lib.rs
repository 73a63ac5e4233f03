//! Certificates that the server gets by itself (ACME, RFC 8555).
//!
//! Reading order: `wanted` (what a configuration asks for), `store` (the directory that holds
//! everything, and that processes and machines may share), `schedule` (when a certificate is
//! ordered: arithmetic, no clock), `order` (one order, from the account to the certificate, with
//! `challenge` and `dns_hook` for the proofs and `client` for the way to the authority), `attempt`
//! (what is done for one certificate, under its lock), `demand` and `admission` (names that
//! clients want and no configuration says), `plan` and `service` (the thread that does it for all
//! of them), `upkeep` (what the command line asks of an authority, for a `reason`). What is here
//! may block for as long as a disk does, and runs on that thread alone; requests to authorities
//! have threads of their own.
#![forbid(unsafe_code)]

mod admission;
mod attempt;
mod challenge;
mod client;
mod demand;
mod dns_hook;
mod error;
mod order;
mod plan;
mod reason;
mod schedule;
mod service;
mod store;
mod upkeep;
mod wanted;

pub use attempt::Say;
pub use client::check_authorities;
pub use demand::{Demand, OnDemand};
pub use dns_hook::DnsHook;
pub use error::OrderError;
pub use plan::Plan;
pub use reason::Reason;
pub use schedule::{Progress, Window, due_s};
pub use service::Service;
pub use store::{Store, file_name};
pub use upkeep::{forget, revoke, roll_over};
pub use wanted::{
    ChallengeKind, ExternalAccount, Issuer, Options, Wanted, WantedError, address, public_host,
    public_name,
};
