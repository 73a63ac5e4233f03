//! Reads the request body while a response waits for the client.
//!
//! Without this, a client that sends its whole body before reading would deadlock with the server.

use std::io;
use std::pin::Pin;
use std::task::Context;

use lighty_core::BodyStream;

/// Sends while `source`, if any, reads the request body. Where nobody reads it, `drop_body` is
/// polled to drop what arrives. `sending` is pinned by the caller: a future that takes another by
/// value keeps it twice.
pub(super) async fn meanwhile<T>(
    mut source: Option<&mut dyn BodyStream>,
    mut drop_body: impl FnMut(&mut Context<'_>),
    mut sending: Pin<&mut impl Future<Output = io::Result<T>>>,
) -> io::Result<T> {
    std::future::poll_fn(|cx| {
        let sent = sending.as_mut().poll(cx);
        if sent.is_pending() && !source.as_mut().is_some_and(|source| source.poll_meanwhile(cx)) {
            drop_body(cx);
        }
        sent
    })
    .await
}
