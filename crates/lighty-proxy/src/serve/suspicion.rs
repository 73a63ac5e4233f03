//! Tells a process that works on after its response (`fastcgi_finish_request()` of PHP) from a
//! backend that is slow.
//!
//! Both leave a request on a kept connection without a response. The request goes to a new
//! connection. If that brings a response and the kept connection stays silent long after it, the
//! process behind it is busy. A backend that did not get the processor, or was paused, answers the
//! older request as well: its connections are worth keeping.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lighty_io::clock::Clock;
use lighty_io::threads::keep;
use lighty_io::transport::Stream;

use crate::connect::pool::Connection;
use crate::serve::upstream_call::PATIENCE_MS;
use crate::upstream::backend::Backend;

/// A kept connection that was left for its silence. It stays open until the verdict.
pub(super) struct Suspicion {
    stream: Rc<Stream>,
    backend: Arc<Backend>,
}

impl Suspicion {
    pub(super) fn of(connection: &Connection) -> Self {
        let backend = connection.permit.address.backend();
        Self { stream: Rc::clone(&connection.stream), backend }
    }

    /// Judges the silence some time after a new connection has brought the response, which took so
    /// many microseconds. A script that is slow there as well says nothing, unless the kernel tells
    /// that the process has not even read the request.
    pub(super) fn judge_later(self, took_us: u64, clock: &Clock) {
        if took_us >= PATIENCE_MS * 1_000 && !self.stream.tells_unread() {
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

    /// True if nothing came, and nothing was read as far as that is known.
    fn is_right(&self) -> bool {
        self.stream.is_idle_alive() && self.stream.has_unread() != Some(false)
    }
}
