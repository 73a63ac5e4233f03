//! What goes on while a response waits for its client to read: the client's own body is taken.
//!
//! A client that sends its whole body before it reads would wait for the server otherwise, and the
//! server for it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::{BodySource, BodyStream};

use super::input::Input;

/// Pieces of an unwanted body that are dropped before other connections get their turn.
const DROPPED_PIECES_MAX: u32 = 16;

/// Sends, while `source`, if there is one, takes the request's body. What no source takes is
/// dropped.
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

/// Drops what has come of a body that nothing reads.
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
