//! Reads the request body while a response waits for the client.
//!
//! Without this, a client that sends its whole body before reading would deadlock with the server.

use std::io;
use std::pin::Pin;
use std::task::Context;

use lighty_core::BodyStream;

/// Sends while `source`, if any, reads the request body. Without a source, polls `drop_body` to
/// drop the received bytes. The caller pins `sending`: a future that takes another by value stores
/// it twice.
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
