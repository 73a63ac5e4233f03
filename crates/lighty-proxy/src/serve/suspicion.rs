//! Distinguishes a process that is busy after its response (`fastcgi_finish_request()` of PHP) from
//! a slow backend.
//!
//! Both leave a request on a pooled connection without a response, so the request goes to a new
//! connection. If that brings a response and the pooled connection stays silent long after it, the
//! process behind it is busy. A backend that got no processor time, or was paused, responds to the
//! older request as well: its connections are worth keeping.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::threads::keep;
use lighty_io::transport::Stream;
use tokio::task::AbortHandle;

use crate::connect::pool::Connection;
use crate::serve::upstream_call::PATIENCE_MS;
use crate::upstream::backend::Backend;

/// A pooled connection that was abandoned because it was silent. It stays open until the verdict,
/// or until its process responds after all: a process that serves one connection at a time accepts
/// the new one only when this one is closed.
pub(super) struct Suspicion {
    silent: Rc<RefCell<Option<Rc<Stream>>>>,
    backend: Arc<Backend>,
    watch: AbortHandle,
}

impl Drop for Suspicion {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Suspicion {
    pub(super) fn of(connection: &Connection) -> Self {
        let backend = connection.permit.address.backend();
        let silent = Rc::new(RefCell::new(Some(Rc::clone(&connection.stream))));
        let watched = Rc::clone(&silent);
        let watch = tokio::task::spawn_local(close_when_it_responds(watched)).abort_handle();
        Self { silent, backend, watch }
    }

    /// Judges the silence some time after a new connection has brought the response, which took
    /// `took_us` microseconds. A script that is slow there as well is no evidence, unless the
    /// kernel shows that the process has not even read the request.
    pub(super) fn judge_later(self, took_us: u64, clock: &Clock) {
        let tells_unread = self.silent.borrow().as_ref().is_some_and(|it| it.tells_unread());
        if took_us >= PATIENCE_MS * 1_000 && !tells_unread {
            return;
        }
        let (suspicion, clock) = (Rc::new(self), clock.clone());
        keep::keep("silence of a backend", move || {
            let (suspicion, clock) = (Rc::clone(&suspicion), clock.clone());
            async move {
                tokio::time::sleep(Duration::from_millis(PATIENCE_MS)).await;
                if suspicion.is_right() {
                    clock.refresh();
                    suspicion.backend.leave_busy(clock.mono_ms());
                }
            }
        });
    }

    /// Returns true if no bytes were received, and none were read by the process as far as known.
    fn is_right(&self) -> bool {
        let silent = self.silent.borrow();
        silent.as_ref().is_some_and(|it| it.is_idle_alive() && it.has_unread() != Some(false))
    }
}

async fn close_when_it_responds(silent: Rc<RefCell<Option<Rc<Stream>>>>) {
    let Some(stream) = silent.borrow().clone() else { return };
    // The readiness may be stale.
    while stream.readable().await.is_ok() && stream.is_idle_alive() {}
    silent.take();
}
