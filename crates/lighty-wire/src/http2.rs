//! HTTP/2: RFC 9113, with HPACK (RFC 7541) and priorities (RFC 9218).
//!
//! [`Connection`] is both ends of a connection as one machine without a socket or a clock. Streams
//! are slots of a slab, content stays where the driver has it, and what waits to be written is one
//! buffer of heads: a warm request allocates nothing, and one turn of an event loop is one write
//! for all streams.
//!
//! Server push does not exist here: it is not announced, and PUSH_PROMISE is an error. The
//! priorities of RFC 7540 are ignored.
//!
//! Reading order: [`connection`] (the machine) with `connection/block.rs` (field blocks),
//! `connection/data.rs` and `connection/flow.rs` (content and windows), `connection/control.rs`
//! (everything else that is received), `connection/output.rs` (what is sent),
//! `connection/shutdown.rs` (the end, and time) · [`message`] (what a field block must be) ·
//! [`request`] (a request as the rest of the server knows it) · [`hpack`] · [`streams`] and
//! `schedule` · [`limits`] and [`fault`].

pub mod connection;
pub mod event;
pub mod fault;
pub mod frame;
pub mod hpack;
pub mod limits;
pub mod message;
pub mod priority;
pub mod request;
mod schedule;
pub mod settings;
pub mod streams;

pub use connection::{Connection, RequestParts, Role};
pub use event::{DataFrame, Event, Handled, SendFault};
pub use fault::{ConnFault, StreamFault};
pub use frame::ErrorCode;
pub use limits::{CONN_WINDOW_BYTES, Limits};
pub use message::MessageHead;
pub use priority::Priority;
pub use settings::PeerSettings;
pub use streams::StreamKey;
