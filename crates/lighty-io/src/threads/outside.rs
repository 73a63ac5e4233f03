//! Threads outside the sandbox: a thread that was started before serving threads were restricted
//! starts others on request, because a new thread has the restrictions of the one that starts it.

use std::io;
use std::sync::{OnceLock, mpsc};

type OutsideBody = Box<dyn FnOnce() + Send>;

/// A thread to start: its name, its body, and the channel for the outcome.
type StartOrder = (String, OutsideBody, mpsc::SyncSender<io::Result<()>>);

static ORDERS: OnceLock<mpsc::Sender<StartOrder>> = OnceLock::new();

/// Starts the thread that starts others. Further calls do nothing.
///
/// # Errors
/// As for [`super::start`].
pub(crate) fn begin() -> io::Result<()> {
    if ORDERS.get().is_some() {
        return Ok(());
    }
    let (orders, inbox) = mpsc::channel::<StartOrder>();
    super::start("outside", Some(STACK_BYTES), move || {
        for (name, body, outcome) in inbox {
            let started = super::start(&name, None, body).map(drop);
            // The caller waits for it, unless it panicked.
            let _ = outcome.send(started);
        }
    })?;
    let _ = ORDERS.set(orders);
    Ok(())
}

const STACK_BYTES: usize = 64 << 10;

/// Starts a thread that has none of the restrictions of the calling one. Without a sandbox of
/// serving threads, this is [`super::start`].
///
/// # Errors
/// As for [`super::start`].
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let Some(orders) = ORDERS.get() else { return super::start(name, None, body).map(drop) };
    let ended = || io::Error::other("the thread that starts threads has ended");
    let (send, outcome) = mpsc::sync_channel(1);
    orders.send((name.to_owned(), Box::new(body), send)).map_err(|_| ended())?;
    outcome.recv().map_err(|_| ended())?
}
