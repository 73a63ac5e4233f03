//! Idle state and end of a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use lighty_wire::http2::{ConnFault, ErrorCode};
use tokio::time::Sleep;

use super::H2Conn;
use super::write_state::WriteEvent;
use crate::conn::End;
use crate::worker::conn_table::ConnLimits;

/// Milliseconds after which an idle connection frees the buffers of its streams.
const FREE_AFTER_MS: u64 = 2_000;

// The end of a connection (`ClosePhase`):
//
//             InputEnds
//       Open ------------> HalfClosed
//         |                   |
//         | Fail, Blame       | Fail, Blame
//         v                   v
//       Failed, Blamed <------+
//
// `Lose` leads from every phase to `Lost`.

/// Phases of the end of a connection.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) enum ClosePhase {
    #[default]
    Open,
    /// The client has shut down its sending half: nothing more is read. It still gets its pending
    /// responses.
    HalfClosed,
    /// The server ends the connection: nothing more is read.
    Failed,
    /// Like `Failed`, for a fault of the client.
    Blamed,
    /// The client is gone: nothing more is written either.
    Lost,
}

/// An event that ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseEvent {
    /// The client's input has ended, and a response is pending or is being written.
    InputEnds,
    /// The server shuts the connection down.
    Fail,
    /// The client has broken a rule or exceeded a limit.
    Blame,
    /// The client is gone.
    Lose,
}

impl ClosePhase {
    /// Handles an event.
    pub(super) fn handle(&mut self, event: CloseEvent) {
        match self.next(event) {
            Some(next) => *self = next,
            None => debug_assert!(false, "{event:?} of a connection that is {self:?}"),
        }
    }

    /// Returns the next phase; `None` if this one does not permit the event.
    const fn next(self, event: CloseEvent) -> Option<Self> {
        Some(match (self, event) {
            (Self::Open, CloseEvent::InputEnds) => Self::HalfClosed,
            // Nothing is read after the end.
            (_, CloseEvent::InputEnds) => return None,
            (Self::Open | Self::HalfClosed, CloseEvent::Fail) => Self::Failed,
            (Self::Open | Self::HalfClosed, CloseEvent::Blame) => Self::Blamed,
            (Self::Failed | Self::Blamed | Self::Lost, CloseEvent::Fail | CloseEvent::Blame) => {
                self
            }
            (_, CloseEvent::Lose) => Self::Lost,
        })
    }

    /// Returns true while input is read.
    pub(super) fn reads(self) -> bool {
        self == Self::Open
    }

    /// Returns true while output is written.
    pub(super) fn writes(self) -> bool {
        self != Self::Lost
    }

    /// Returns true if neither side has ended the connection; the client may be half-closed.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosed)
    }
}

// The memory of a connection without streams (`ConnIdle`):
//
//             no streams           after 2 s
//       Busy ------------> Idle ------------> Freed
//         ^                 |                   |
//         +-----------------+-------------------+
//                       a request

/// Idle state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnIdle {
    /// It has streams.
    Busy,
    /// It has none, and frees their buffers at this time.
    Idle { free_at_ms: u64 },
    /// Their buffers are free.
    Freed,
}

/// The connection's timer. It may fire early, so that it need not be reset for each request.
#[derive(Default)]
pub(super) struct H2Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    at_ms: u64,
}

impl H2Timer {
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
        self.close.handle(CloseEvent::Lose);
        self.note_write(WriteEvent::Ended);
        let mut shared = self.shared.borrow_mut();
        shared.machine.abort(ErrorCode::NO_ERROR);
        shared.lose_all();
    }

    /// Handles the end of the client's input. Over TCP, a client that shut down its sending half
    /// and one that has gone look alike. It gets its pending responses and a PING, which a client
    /// that has gone refuses by a reset.
    pub(super) fn half_close(&mut self) {
        self.partial_since_ms = None;
        let has_output = self.unsent_bytes() + self.shared.borrow().machine.output_bytes() > 0;
        let has_whole_request = self.shared.borrow_mut().end_input();
        if !has_whole_request && !has_output {
            return self.lose();
        }
        self.close.handle(CloseEvent::InputEnds);
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
    pub(super) fn shut_down_if_requested(&mut self) {
        let entry = &self.conn.entry;
        if entry.shut_down_for().is_some() && self.close.is_open() {
            self.shared.borrow_mut().machine.abort(ErrorCode::NO_ERROR);
            self.close.handle(CloseEvent::Fail);
        } else if entry.is_closing() {
            self.shared.borrow_mut().machine.shut_down(self.now_ms);
        }
    }

    /// Returns how the connection ends, or `None` if it goes on.
    pub(super) fn end(&self) -> Option<End> {
        if !self.tasks.is_empty() {
            return None;
        }
        if !self.close.writes() {
            return Some(End::Close);
        }
        let shared = self.shared.borrow();
        let is_finished = match self.close {
            ClosePhase::HalfClosed => shared.machine.streams_alive() == 0,
            _ => shared.machine.is_finished(),
        };
        let is_over = is_finished && shared.machine.output_bytes() == 0 && self.unsent_bytes() == 0;
        let end = if self.close == ClosePhase::Blamed { End::LingerBriefly } else { End::Linger };
        is_over.then_some(end)
    }

    /// Waits for progress, without buffers if no bytes are in flight. Returns true if a timer has
    /// made progress possible.
    pub(super) fn await_progress(&mut self, cx: &mut Context<'_>) -> bool {
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
        if self.idle == ConnIdle::Busy {
            let worker = self.conn.worker();
            let idle_s = worker.global().core.max_keep_alive_idle_s;
            self.conn.entry.limit(ConnLimits { idle_s, ..self.conn.entry.limits() });
            worker.idle(&self.conn.entry);
            self.idle = ConnIdle::Idle { free_at_ms: self.now_ms + FREE_AFTER_MS };
        }
    }

    /// Returns the time of the next timer, in monotonic milliseconds.
    fn deadline_ms(&mut self) -> Option<u64> {
        let machine = self.shared.borrow_mut().machine.deadline_ms();
        let lingering = self.shared.borrow().lingers_until_ms();
        let partial = self.partial_since_ms.map(|since| since + self.partial_ms);
        let free = match self.idle {
            ConnIdle::Idle { free_at_ms } => Some(free_at_ms),
            ConnIdle::Busy | ConnIdle::Freed => None,
        };
        [machine, lingering, partial, free].into_iter().flatten().min()
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
        if let ConnIdle::Idle { free_at_ms } = self.idle
            && self.now_ms >= free_at_ms
        {
            debug_assert_eq!(self.shared.borrow().machine.streams_alive(), 0, "it is busy");
            self.idle = ConnIdle::Freed;
            self.shared.borrow_mut().release_buffers();
            if self.deadline_ms().is_none() {
                self.timer = H2Timer::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lighty_testkit::matrix::assert_next_states;

    use super::*;

    const MATRIX: &str = "
              InputEnds  Fail  Blame  Lose
0 Open        1          2     3      4
1 HalfClosed  -          2     3      4
2 Failed      -          2     2      4
3 Blamed      -          3     3      4
4 Lost        -          4     4      4
";

    #[test]
    fn every_event_has_a_defined_effect_in_every_phase() {
        use CloseEvent as E;
        let events = [E::InputEnds, E::Fail, E::Blame, E::Lose];
        assert_next_states(ClosePhase::default(), &events, ClosePhase::next, MATRIX);
    }
}
