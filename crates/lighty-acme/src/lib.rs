//! Certificates that the server obtains by itself (ACME, RFC 8555).
//!
//! Reading order: `wanted` (requests of a configuration), `store` (the directory that holds all
//! files, and that processes and machines may share), `schedule` (time of an order: arithmetic, no
//! clock), `order` (one order, from the account to the certificate, with `challenge` and
//! `dns_hook` or a `standing_record` for the proofs and `client` for requests), `attempt` (work on
//! one certificate, under its lock, with a `progress_copy`), `demand` and `admission` (names that
//! clients request and that are not in the configuration), `plan` and `service` (the thread that
//! works on all certificates), `upkeep` (commands of the command line, with a `reason`). All code
//! here may block on a disk, and runs on that thread only; requests to authorities have threads of
//! their own.
#![forbid(unsafe_code)]

mod admission;
mod attempt;
mod challenge;
mod client;
mod demand;
mod dns_hook;
mod error;
mod order;
mod order_step;
mod plan;
mod progress_copy;
mod reason;
mod schedule;
mod service;
mod standing_record;
mod store;
mod upkeep;
mod wanted;

pub use attempt::Say;
pub use client::check_authorities;
pub use demand::{Demand, OnDemand};
pub use dns_hook::DnsHook;
pub use error::OrderError;
pub use plan::CertificatePlan;
pub use reason::Reason;
pub use schedule::{OrderProgress, Window, due_s};
pub use service::Service;
pub use store::{Store, file_name};
pub use upkeep::{forget, revoke, roll_over};
pub use wanted::{
    CertificateOptions, CertificateSpec, CertificateSpecError, ChallengeKind, ExternalAccount,
    Issuer, address, public_host, public_name,
};
