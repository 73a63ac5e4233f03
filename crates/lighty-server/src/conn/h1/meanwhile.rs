//! Reads the request body while a response waits for the client.
//!
//! Without this, a client that sends its whole body before reading would deadlock with the server.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::{BodySource, BodyStream};

use super::input::Input;

/// Pieces of an unwanted body to drop before yielding to other connections.
const DROPPED_PIECES_MAX: u32 = 16;

/// Sends while `source`, if any, reads the request body. Without a source the body is dropped.
pub(super) async fn meanwhile(
    mut source: Option<&mut dyn BodyStream>,
    input: Rc<RefCell<Input>>,
    sending: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let mut sending = std::pin::pin!(sending);
    std::future::poll_fn(|cx| {
        let sent = sending.as_mut().poll(cx);
        if sent.is_pending() && !source.as_mut().is_some_and(|source| source.poll_meanwhile(cx)) {
            poll_drop_body(&input, cx);
        }
        sent
    })
    .await
}

/// Drops the received part of a body that no one reads.
fn poll_drop_body(input: &RefCell<Input>, cx: &mut Context<'_>) {
    let mut input = input.borrow_mut();
    // A client that waits for `100 Continue` may send nothing.
    if !input.is_body_unread() || input.owes_continue() {
        return;
    }
    for _ in 0..DROPPED_PIECES_MAX {
        match input.poll_piece(cx) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) | Poll::Pending => return,
        }
    }
    cx.waker().wake_by_ref();
}
