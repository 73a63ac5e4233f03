//! The engine: handles a request between its parsed head and its response.
//!
//! This crate owns the life of a request: the [`Exchange`] that carries it, the hooks for features
//! ([`Module`]), the merged [`Settings`] that apply to it, the walk through the phases
//! ([`pipeline`]), and the table that assigns blame when something goes wrong ([`Fault`]). It
//! parses no bytes, opens no socket and knows no feature by name: codecs are in `lighty-wire`,
//! system calls in `lighty-io`, features in `lighty-modules`.
//!
//! Read in this order: `exchange` (a request, its response and their state), `module` (the hooks of
//! features), `pipeline` (the phases, and the ways a response is made and changed), `settings`
//! (directives, rules, limits), `machine` and `generation` (state with the lifetime of a worker,
//! and of a configuration), `fault` (blame and consequences), `log` (the error log and its rate
//! limits).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod exchange;
pub mod fault;
pub mod generation;
pub mod json;
pub mod log;
pub mod machine;
pub mod module;
pub mod pipeline;
pub mod settings;

pub use exchange::Exchange;
pub use exchange::body::{
    Body, BodyChunk, BodyMeter, BodySource, BodyStream, RequestBody, UnknownLength,
};
pub use exchange::client::Client;
pub use exchange::environment::Environment;
pub use exchange::extensions::{Extension, Extensions};
pub use exchange::request::Request;
pub use exchange::response::Response;
pub use exchange::tunnel::{FarEnd, Relay, Tunnel, TunnelRoute, TunnelSummary};
pub use fault::{Blame, BodyFault, CallEnd, Fate, Fault, FaultReport, HealthEffect};
pub use generation::Generation;
pub use log::error_output::ErrorOutput;
pub use log::program_rate::ProgramRate;
pub use log::throttle::LogThrottle;
pub use log::{Level, Log};
pub use machine::Machine;
pub use machine::counters::Counters;
pub use module::{Hooks, Module, ModuleList, Needs, Step};
pub use pipeline::filter::{Filter, Source};
pub use pipeline::physical::Physical;
pub use settings::{ModuleSettings, Settings};
