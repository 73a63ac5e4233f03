//! Drops a request body that is not read while a response waits for the client.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use lighty_core::{BodySource, BodyStream};

use super::input::Input;

/// Pieces of an unwanted body to drop before yielding to other connections.
const DROPPED_PIECES_MAX: u32 = 16;

/// Sends while `source`, if any, reads the request body. Without a source, drops the body.
pub(super) async fn meanwhile(
    source: Option<&mut dyn BodyStream>,
    input: Rc<RefCell<Input>>,
    sending: Pin<&mut impl Future<Output = io::Result<()>>>,
) -> io::Result<()> {
    super::super::meanwhile::meanwhile(source, |cx| poll_drop_body(&input, cx), sending).await
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
