//! AJP13, the protocol between a web server and a servlet container.
//!
//! Source: Apache Tomcat connectors, *AJPv13* (with the extensions that later servers send), and
//! the behaviour of Tomcat 10 where the document is silent. A connection carries one request at a
//! time:
//!
//! ```text
//!   server     0x1234 length  Forward Request │ body (no code) │ CPing
//!   container  "AB"   length  Send Headers │ Send Body Chunk │ Get Body Chunk │
//!                            End Response │ CPong
//! ```
//!
//! **Body flow control.** With a Content-Length above 0 the server sends the first body packet
//! right after the Forward Request, unrequested; every further one responds to a Get Body Chunk.
//! Without a Content-Length (a chunked request) even the first must be requested. Either way an
//! empty packet ends the body. [`RequestBody`] tracks this.
//!
//! The protocol's only authentication is the `secret`, and a container trusts all data sent to it
//! (CVE-2020-1938): [`AjpRequest::secret`].
//!
//! Reading order: [`request`] (requests) · [`body`] (flow control of request bodies) · [`response`]
//! (responses) · [`container`] (the other side, for scripted peers and fuzzing) · [`fault`] (the
//! fault tables); beneath them `packet` (integers and strings) and `codes`.

pub mod body;
mod codes;
pub mod container;
pub mod fault;
mod packet;
pub mod request;
pub mod response;

pub use body::{Body, RequestBody};
pub use fault::{AjpFault, EncodeFault};
pub use packet::PacketSize;
pub use request::{AjpRequest, encode_request, needed_bytes};
pub use response::{AjpEvent, AjpStep, ResponseDecoder};

/// Tests that a container is alive; it responds with [`AjpEvent::Pong`].
pub const CPING: [u8; 5] = [0x12, 0x34, 0, 1, 10];

/// Default limit on response fields.
pub const FIELDS_MAX: u16 = 256;
