//! HTTP/2: RFC 9113, with HPACK (RFC 7541) and priorities (RFC 9218).
//!
//! [`Connection`] is either end of a connection as one state machine without a socket or a clock.
//! Streams are slots of a slab, content stays in the driver's buffers, and pending heads are in one
//! output buffer: a warm request allocates nothing, and one turn of an event loop is one write for
//! all streams.
//!
//! Server push is not supported: it is not announced, and PUSH_PROMISE is an error. The priorities
//! of RFC 7540 are ignored.
//!
//! Reading order: [`connection`] (the state machine) with `connection/block.rs` (field blocks),
//! `connection/data.rs` and `connection/flow.rs` (content and windows), `connection/control.rs`
//! (all other input), `connection/output.rs` (output), `connection/shutdown.rs` (the end, and
//! timeouts) · [`message`] (rules for field blocks) · [`request`] (conversion to the server's
//! request type) · [`hpack`] · [`streams`] and `schedule` · [`limits`] and [`fault`].

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
