//! Idle state and end of a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use lighty_wire::http2::{ConnFault, ErrorCode};
use tokio::time::Sleep;

use super::H2Conn;
use crate::conn::End;
use crate::conn_table::ConnLimits;

/// Milliseconds after which an idle connection frees the buffers of its streams.
const REST_MS: u64 = 2_000;

/// Phases of the end of a connection.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    #[default]
    No,
    /// The client has shut down its sending half: nothing more is read. It still gets its pending
    /// responses.
    HalfClosed,
    /// The server ends the connection: nothing more is read.
    Failed,
    /// Like `Failed`, for a fault of the client.
    Blamed,
    /// The client is gone.
    Lost,
}

impl Leave {
    /// Returns true if nothing more is read.
    pub(super) fn is_deaf(self) -> bool {
        self != Self::No
    }

    /// Returns true if nothing more is written either.
    pub(super) fn is_lost(self) -> bool {
        self == Self::Lost
    }

    /// Returns true if neither side has ended the connection; the client may be half-closed.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::No | Self::HalfClosed)
    }

    pub(super) fn fail(&mut self) {
        if self.is_open() {
            *self = Self::Failed;
        }
    }

    pub(super) fn blame(&mut self) {
        if self.is_open() {
            *self = Self::Blamed;
        }
    }
}

/// The connection's timer. It may fire early, so that it need not be reset for each request.
#[derive(Default)]
pub(super) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at_ms: u64,
}

impl Timer {
    /// Wakes the task at `at_ms`. Returns true if that time has come.
    fn poll(&mut self, at_ms: u64, now_ms: u64, cx: &mut Context<'_>) -> bool {
        if at_ms <= now_ms {
            return true;
        }
        let sleep = || tokio::time::sleep(Duration::from_millis(at_ms - now_ms));
        match &mut self.sleep {
            None => {
                self.sleep = Some(Box::pin(sleep()));
                self.at_ms = at_ms;
            }
            Some(known) if at_ms < self.at_ms || known.is_elapsed() => {
                known.set(sleep());
                self.at_ms = at_ms;
            }
            Some(_) => {}
        }
        self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready())
    }
}

impl H2Conn<'_> {
    /// Marks the connection as lost: nothing is read or written any more.
    pub(super) fn lose(&mut self) {
        self.leave = Leave::Lost;
        let mut shared = self.shared.borrow_mut();
        shared.machine.abort(ErrorCode::NO_ERROR);
        shared.lose_all();
    }

    /// Handles the end of the client's input. Over TCP, a client that shut down its sending half
    /// and one that has gone look alike. It gets its pending responses and a PING, which a client
    /// that has gone refuses by a reset.
    pub(super) fn half_close(&mut self) {
        self.partial_since_ms = None;
        let mut shared = self.shared.borrow_mut();
        let has_whole_request = shared.end_input();
        drop(shared);
        if !has_whole_request {
            return self.lose();
        }
        self.leave = Leave::HalfClosed;
        let stream = std::rc::Rc::clone(&self.conn.stream);
        self.broken = Some(Box::pin(async move {
            // An error means that the runtime is shutting down.
            let _ = stream.reset().await;
        }));
    }

    /// Ends the connection if a half-closed client has reset it.
    pub(super) fn lose_if_broken(&mut self, cx: &mut Context<'_>) {
        let is_broken =
            self.broken.as_mut().is_some_and(|broken| broken.as_mut().poll(cx).is_ready());
        if is_broken {
            self.broken = None;
            self.lose();
        }
    }

    /// Begins a graceful shutdown when the server stops or the connection was idle for too long.
    pub(super) fn leave_if_told(&mut self) {
        let entry = &self.conn.entry;
        if entry.shut_down_for().is_some() && self.leave.is_open() {
            self.shared.borrow_mut().machine.abort(ErrorCode::NO_ERROR);
            self.leave.fail();
        } else if entry.is_closing() {
            self.shared.borrow_mut().machine.shut_down(self.now_ms);
        }
    }

    /// Returns how the connection ends, or `None` if it goes on.
    pub(super) fn end(&self) -> Option<End> {
        if !self.tasks.is_empty() {
            return None;
        }
        if self.leave.is_lost() {
            return Some(End::Close);
        }
        let shared = self.shared.borrow();
        let is_finished = match self.leave {
            Leave::HalfClosed => shared.machine.streams_alive() == 0,
            _ => shared.machine.is_finished(),
        };
        let is_over = is_finished && shared.machine.output_bytes() == 0 && self.unsent_bytes() == 0;
        let end = if self.leave == Leave::Blamed { End::LingerBriefly } else { End::Linger };
        is_over.then_some(end)
    }

    /// Waits for progress, without buffers if no bytes are in flight. Returns true if a timer has
    /// made progress possible.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) -> bool {
        self.idle_if_quiet();
        let Some(at_ms) = self.deadline_ms() else { return false };
        if !self.timer.poll(at_ms, self.now_ms, cx) {
            return false;
        }
        self.conn.worker().machine.clock.refresh();
        self.now_ms = self.conn.worker().machine.clock.mono_ms();
        self.on_time();
        true
    }

    fn idle_if_quiet(&mut self) {
        if self.unsent_bytes() > 0 || self.partial_since_ms.is_some() {
            return;
        }
        let has_streams = self.shared.borrow().machine.streams_alive() > 0;
        let is_idle = !has_streams && self.tasks.is_empty();
        // A connection that sends much keeps its buffers between windows: the pool would shrink
        // them.
        if let Some(buffers) = self.buffers.take_if(|buffers| is_idle || buffers.is_pooled_whole())
        {
            self.conn.worker().give_back_h2_buffers(buffers);
        }
        if !is_idle {
            return;
        }
        if !std::mem::replace(&mut self.is_idle, true) {
            let worker = self.conn.worker();
            let idle_s = worker.global().core.max_keep_alive_idle_s;
            self.conn.entry.limit(ConnLimits { idle_s, ..self.conn.entry.limits() });
            worker.idle(&self.conn.entry);
            self.rest_at_ms = self.now_ms + REST_MS;
        }
    }

    /// Returns the time of the next timer, in monotonic milliseconds.
    fn deadline_ms(&mut self) -> Option<u64> {
        let machine = self.shared.borrow_mut().machine.deadline_ms();
        let lingering = self.shared.borrow().lingers_until_ms();
        let partial = self.partial_since_ms.map(|since| since + self.partial_ms);
        let rest = self.is_idle.then_some(self.rest_at_ms).filter(|&at| at != u64::MAX);
        [machine, lingering, partial, rest].into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let timed_out = self.shared.borrow_mut().machine.handle_timeout(self.now_ms);
        if let Err(fault) = timed_out {
            return self.fail(fault);
        }
        self.shared.borrow_mut().stop_lingering(self.now_ms);
        if self.partial_since_ms.is_some_and(|since| self.now_ms >= since + self.partial_ms) {
            self.partial_since_ms = None;
            self.shared.borrow_mut().machine.abort_for(ConnFault::BlockTimeout);
            return self.fail(ConnFault::BlockTimeout);
        }
        if self.is_idle && self.now_ms >= self.rest_at_ms {
            self.rest_at_ms = u64::MAX;
            self.shared.borrow_mut().rest();
            if self.deadline_ms().is_none() {
                self.timer = Timer::default();
            }
        }
    }
}
