//! The engine: what happens to a request between its head and its response.
//!
//! This crate owns the life of a request: the [`Exchange`] that carries it, the hooks for features
//! ([`Module`]), the merged [`Settings`] that apply to it, the walk through the phases
//! ([`pipeline`]), and the table that assigns blame when something goes wrong ([`Fault`]). It
//! parses no bytes, opens no socket and knows no feature by name: codecs are in `lighty-wire`,
//! system calls in `lighty-io`, features in `lighty-modules`.
//!
//! Read in this order: `exchange`, `request_state`, `stage`, `extensions`, `request`, `response`,
//! `body`, `client`, `tunnel`, `filter`, `environment`, `phase`, `module`, `machine`, `generation`,
//! `pipeline`, then `settings` and `directives`, `fault`, `error_page`, `request_id`, `limits`,
//! `counters`, `log`, `error_output`, `trace`, `status_board`, `read_ahead`, `rules`, `cidr`,
//! `throttle`, `subrequest`, `rehearsal`, `sendfile`, `protected_files`, `variables`, `permits`,
//! `strftime`.
#![forbid(unsafe_code)]

pub mod backtracking;
pub mod body;
pub mod cidr;
pub mod client;
pub mod complaint;
pub mod counters;
pub mod directives;
pub mod environment;
pub mod error_output;
pub mod error_page;
pub mod exchange;
pub mod extensions;
pub mod fault;
pub mod file_part;
pub mod filter;
pub mod generation;
pub mod limits;
pub mod locate;
pub mod log;
pub mod machine;
pub mod module;
mod named_file;
pub mod permits;
pub mod phase;
pub mod physical;
pub mod pipeline;
mod program_rate;
pub mod protected_files;
pub mod read_ahead;
pub mod rehearsal;
pub mod request;
pub mod request_id;
pub mod request_state;
pub mod response;
pub mod rules;
pub mod sendfile;
pub mod settings;
pub mod stage;
pub mod status_board;
pub mod strftime;
pub mod subrequest;
pub mod throttle;
pub mod trace;
pub mod tunnel;
pub mod upstream_trace;
pub mod variables;

pub use body::{Body, BodyChunk, BodyMeter, BodySource, BodyStream, RequestBody, UnknownLength};
pub use client::Client;
pub use complaint::Complaint;
pub use counters::Counters;
pub use environment::Environment;
pub use error_output::ErrorOutput;
pub use exchange::Exchange;
pub use extensions::{Extension, Extensions};
pub use fault::{Blame, BodyFault, Fate, Fault, FaultReport};
pub use filter::{Filter, Source};
pub use generation::Generation;
pub use log::{Level, Log};
pub use machine::Machine;
pub use module::{Hooks, Module, ModuleList, Needs, Step};
pub use physical::Physical;
pub use program_rate::ProgramRate;
pub use request::Request;
pub use response::Response;
pub use settings::{ModuleSettings, Settings};
pub use tunnel::{FarEnd, Relay, Tunnel};
