//! Control of the client's connection besides the response.

use std::net::IpAddr;
use std::task::{Context, Poll};

use lighty_http::{Fields, Status};

use crate::fault::Fault;

/// The client of one request, whatever protocol it speaks.
pub trait Client {
    /// Sends an interim response (1xx) if the client understands it and the output has room for it
    /// now. A slow client may miss it, which is allowed (RFC 9110 section 15.2).
    fn interim(&mut self, status: Status, fields: &Fields);

    /// Ready once the client has gone for good. A half-closed client still waits for its response.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Fault>;

    /// The local address the client connected to; none for a unix socket.
    fn local_ip(&self) -> Option<IpAddr>;

    /// Number of the request's HTTP/2 stream; 0 over HTTP/1.
    fn stream_id(&self) -> u32 {
        0
    }

    /// Suspends the time limits of the request's body: it has not ended, but the client is not
    /// expected to send now.
    fn pause_body_timer(&mut self);

    /// Ends the exchange so that the client cannot mistake its response for a complete one.
    fn cancel(&mut self);
}
