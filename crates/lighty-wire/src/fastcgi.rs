//! FastCGI 1.0, both sides: the web server's and the application's.
//!
//! A connection carries one request at a time, under the request id [`REQUEST_ID`]; an application
//! may be asked to keep the connection for the next one. All messages are records: a header of
//! eight bytes, content, padding.
//!
//! Reading order: [`record`] (headers, and the splitter of a byte stream into records) · [`pairs`]
//! (names and values) · [`encode`] (the server's output) · [`decode`] (the server's input) ·
//! [`app`] (the application's side, for programs and for scripted peers).

pub mod app;
pub mod decode;
pub mod encode;
mod fault;
pub mod pairs;
pub mod record;

pub use decode::{EndRequest, FastcgiDecoder, FastcgiEvent, FastcgiStep, ProtocolStatus, Values};
pub use encode::{ApplicationRole, Begin, ParamsWriter};
pub use fault::FastcgiFault;

/// The request id of every request that lighty sends: it does not multiplex (section 3.3).
pub const REQUEST_ID: u16 = 1;

/// The request id of management records: section 3.3.
pub const MANAGEMENT_ID: u16 = 0;

/// Variables that can be queried: section 4.1.
pub const VARIABLES: [&[u8]; 3] = [b"FCGI_MAX_CONNS", b"FCGI_MAX_REQS", b"FCGI_MPXS_CONNS"];
