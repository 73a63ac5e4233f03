//! AJP13, the protocol between a web server and a servlet container.
//!
//! Source: Apache Tomcat connectors, *AJPv13* (with the extensions that later servers send), and
//! what Tomcat 10 does where the document is silent. A connection carries one request at a time:
//!
//! ```text
//!   server     0x1234 length  Forward Request │ body (no code) │ CPing
//!   container  "AB"   length  Send Headers │ Send Body Chunk │ Get Body Chunk │ End Response │ CPong
//! ```
//!
//! **Who sends body when.** With a Content-Length above 0 the server sends the first body packet
//! right behind the Forward Request, unasked; every other one answers a Get Body Chunk. Without a
//! Content-Length (a chunked request) even the first is asked for. Either way an empty packet ends
//! the body. [`RequestBody`] keeps account of that.
//!
//! The protocol has no authentication but the `secret`, and a container believes all that it is
//! told (CVE-2020-1938): [`Request::secret`].
//!
//! Reading order: [`request`] (what is sent) · [`body`] (when its body may follow) · [`response`]
//! (what comes back) · [`container`] (the other side, for scripted peers and fuzzing) ·
//! [`fault`] (the tables of refusals); beneath them `packet` (integers and strings) and `codes`.

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
pub use request::{Request, encode_request, needed_bytes};
pub use response::{Event, ResponseDecoder, Step};

/// Asks a container whether it is alive: it answers [`Event::Pong`].
pub const CPING: [u8; 5] = [0x12, 0x34, 0, 1, 10];

/// Fields of an answer that are accepted unless the caller says otherwise.
pub const FIELDS_MAX: u16 = 256;
