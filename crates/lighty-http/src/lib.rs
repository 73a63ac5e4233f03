//! HTTP semantics, independent of the wire format.
//!
//! Header fields, methods, status codes, URIs, hosts, ranges, conditional requests, entity tags,
//! dates, media types, content negotiation, and the escaping of text into HTML, XML and JSON.
//! HTTP/1, HTTP/2 and HTTP/3 share all of it.
//!
//! This crate performs no I/O, reads no clock, logs nothing and reads no configuration; callers
//! pass the time in. Structures that live as long as a request are reusable: `clear` keeps their
//! memory, so a warm server allocates nothing here.
//!
//! Reading order: [`method`], [`version`], [`status`] (small closed sets) · [`fields`] (the header
//! section) · [`uri`] and [`host`] (the request target) · [`etag`], [`date`], [`conditional`],
//! [`if_header`], [`range`] (validators, conditions and ranges) · [`mime`] and [`accept`] (media
//! types and negotiation) · [`forwarded`] and [`hop_by_hop`] (proxies: client addresses, forwarded
//! fields) · [`quoted`] (strings in fields), [`structured`] (structured fields) and
//! [`cache_control`] (directives of caches) · [`html`], [`xml`] and [`json`] (escaping) · [`ssi`]
//! (commands in pages) · [`trace_parent`] (distributed traces) · [`base64`]. [`fault_table!`]
//! generates the tables of faults, here and in the crates that parse.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod accept;
mod appender;
pub mod base64;
pub mod cache_control;
pub mod conditional;
pub mod date;
pub mod decimal;
pub mod etag;
mod fault_table;
pub mod fields;
pub mod forwarded;
pub mod hop_by_hop;
pub mod host;
pub mod html;
pub mod if_header;
pub mod incremental;
pub mod json;
mod known;
pub mod method;
pub mod mime;
mod mime_table;
pub mod navigation;
pub mod quoted;
pub mod range;
pub mod ssi;
pub mod status;
pub mod structured;
pub mod trace_parent;
pub mod uri;
pub mod variable_name;
pub mod version;
pub mod xml;

pub use fields::{Fields, PackedFields};
pub use known::Known;
pub use method::Method;
pub use status::Status;
pub use version::Version;
