//! Backends that speak HTTP/2: several requests at a time on one connection.

use std::time::Duration;

use lighty_http::{Fields, Status};
use lighty_wire::http2::{Connection, ErrorCode, Limits, StreamKey};

use super::backend::Witness;
use super::h2_end::{H2End, News};
use super::rng::body_of;
use super::sim::{BackendBehavior, BackendTask, now_ms, number_in};
use super::site::PATIENCE_S;
use super::wire::Wire;

/// A request on its stream.
struct BackendCall {
    key: StreamKey,
    number: u64,
    task: BackendTask,
    is_head: bool,
    /// Length of the request's body so far.
    read: u64,
    has_ended: bool,
    uncredited: usize,
    next_credit_ms: u64,
    /// Length of the response's body that was queued.
    queued: u64,
    has_head: bool,
    /// Offset in the response's body at which it is cut.
    cut_at: Option<u64>,
    next_ms: u64,
    is_over: bool,
}

/// A connection to a backend.
struct H2Backend {
    it: Witness,
    end: H2End,
    calls: Vec<BackendCall>,
    /// When the backend says GOAWAY.
    leaves_ms: u64,
    /// Requests that are refused before one is served.
    refusals: u64,
    /// The connection is closed at once.
    is_dead: bool,
}

/// Serves requests until the connection ends.
pub(crate) async fn serve(it: Witness, wire: Wire) {
    let now = now_ms();
    let (rng, is_calm) = (&it.rng, it.sim.is_calm);
    // With few streams or small windows, requests wait in the backlog for others: slow clients,
    // and uploads that need hundreds of round trips.
    let few: &[u32] = if is_calm { &[100] } else { &[1, 2, 100, 100] };
    let small = if is_calm { 16_000 } else { 1_000 };
    let limits = Limits {
        streams_max: rng.pick(few),
        stream_window_bytes: rng.pick(&[small, 16_000, 65_535, 65_535]),
        ..Limits::default()
    };
    let limits = Limits { stream_window_bytes_max: limits.stream_window_bytes, ..limits };
    let leaves_ms = match rng.below(4) {
        0 => now + rng.between(0, 3_000),
        _ => u64::MAX,
    };
    let refusals = if !is_calm && rng.once_in(6) { 1 } else { 0 };
    let machine = Connection::server(limits, now);
    let end = H2End::new(machine, wire);
    let mut backend = H2Backend { it, end, calls: Vec::new(), leaves_ms, refusals, is_dead: false };
    backend.run().await;
    backend.it.sim.event(format_args!("{} is over", backend.it.name));
}

impl H2Backend {
    async fn run(&mut self) {
        while self.end.ended.is_none() {
            let now = now_ms();
            if now >= self.leaves_ms {
                self.it.sim.event(format_args!("{} says GOAWAY", self.it.name));
                self.end.machine.shut_down(now);
                self.leaves_ms = u64::MAX;
            }
            for nth in 0..self.calls.len() {
                self.act(nth, now);
            }
            if self.is_dead {
                return self.end.flush().await;
            }
            self.calls.retain(|call| !call.is_over);
            if self.end.machine.is_finished() && self.calls.is_empty() {
                return self.end.close(Duration::from_secs(PATIENCE_S)).await;
            }
            let pause = Duration::from_millis(self.next_ms().saturating_sub(now_ms()));
            match self.end.turn(pause, false).await {
                Ok(news) => news.into_iter().for_each(|news| self.take(news)),
                Err(fault) => {
                    let message = fault.message();
                    self.it.sim.wrong(format_args!("{}: broken HTTP/2: {message}", self.it.name));
                    return;
                }
            }
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Head { key, head, ends } => {
                let number = number_in(head.path()).unwrap_or_default();
                if self.refusals > 0 {
                    self.refusals -= 1;
                    self.it.sim.event(format_args!("{} refuses {number}", self.it.name));
                    self.end.machine.reset(key, ErrorCode::REFUSED_STREAM);
                    return self.end.release(key);
                }
                let Some(task) = self.it.note_seen(number) else {
                    self.is_dead = true;
                    return;
                };
                let cut_at = match task.behavior {
                    BackendBehavior::DieInBody
                    | BackendBehavior::ResetInBody
                    | BackendBehavior::HangInBody => Some(self.it.rng.below(task.response_bytes)),
                    _ => None,
                };
                let is_head = head.method() == b"HEAD";
                let mut call = BackendCall {
                    key,
                    number,
                    task,
                    is_head,
                    read: 0,
                    has_ended: false,
                    uncredited: 0,
                    next_credit_ms: 0,
                    queued: 0,
                    has_head: false,
                    cut_at,
                    next_ms: 0,
                    is_over: false,
                };
                call.end_upload(&self.it, ends);
                self.calls.push(call);
            }
            News::Data { key, bytes, ends } => {
                let Some(call) = self.calls.iter_mut().find(|call| call.key == key) else {
                    return self.end.machine.credit(key, bytes.len());
                };
                call.uncredited += bytes.len();
                self.it.check_upload(&bytes, call.number, &mut call.read);
                call.end_upload(&self.it, ends);
            }
            News::Trailers { key } => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
                    call.end_upload(&self.it, true);
                }
            }
            News::Reset { key, mistake, .. } => {
                if let Some(message) = mistake {
                    let name = &self.it.name;
                    self.it.sim.wrong(format_args!("{name}: a malformed request: {message}"));
                }
                self.end.release(key);
                self.calls.retain(|call| call.key != key);
            }
            News::GoAway { .. } => {}
        }
    }

    /// Reads and answers a request, as far as it is time.
    fn act(&mut self, nth: usize, now: u64) {
        self.credit(nth, now);
        let (call, it) = (&mut self.calls[nth], &self.it);
        let behavior = call.task.behavior;
        let is_early = matches!(
            behavior,
            BackendBehavior::AnswerEarly | BackendBehavior::DieUnread | BackendBehavior::HangUnread
        );
        if now < call.next_ms || !(call.has_ended || is_early) {
            return;
        }
        match behavior {
            BackendBehavior::DieUnread
            | BackendBehavior::DieBeforeHead
            | BackendBehavior::DieInHead => self.is_dead = true,
            BackendBehavior::HangUnread | BackendBehavior::HangBeforeHead => {}
            BackendBehavior::Garbage => {
                self.end.push_raw(b"\x16\x03\x01 nonsense\r\n\r\n");
                self.is_dead = true;
            }
            _ if !call.has_head => {
                call.has_head = true;
                if it.rng.once_in(8) {
                    let _ = self.end.machine.send_head(
                        call.key,
                        Status::new(103).expect("a status"),
                        &Fields::new(),
                        false,
                    );
                }
                let fields = call.fields(it);
                let sent = self.end.machine.send_head(call.key, Status::OK, &fields, call.is_head);
                if sent.is_err() {
                    it.sim.wrong(format_args!("{}: a head that cannot be sent", it.name));
                }
                if call.is_head {
                    self.finish(nth);
                } else {
                    self.body(nth, now);
                }
            }
            _ => self.body(nth, now),
        }
    }

    /// Queues the next piece of a response's body.
    fn body(&mut self, nth: usize, now: u64) {
        let (call, it) = (&mut self.calls[nth], &self.it);
        let length = call.task.response_bytes;
        if call.cut_at.is_some_and(|cut| call.queued >= cut) {
            return self.cut(nth);
        }
        let room = self.end.machine.room(call.key) as u64;
        if room == 0 {
            return;
        }
        let most = match call.task.behavior {
            BackendBehavior::Trickle => {
                call.next_ms = now + it.rng.between(1, 900);
                (length / 12).max(1)
            }
            _ => {
                call.next_ms = now + it.rng.between(1, 2);
                it.rng.pick(&[100, 4_000, 30_000]).max(length / 100)
            }
        };
        let until = call.cut_at.unwrap_or(length);
        let step = (until - call.queued).min(most).min(room);
        let ends = call.queued + step == length;
        let bytes = body_of(call.number, call.queued, step);
        if !self.end.queue(call.key, &bytes, ends) {
            call.is_over = true;
            return;
        }
        call.queued += step;
        if ends {
            self.finish(nth);
        }
    }

    /// Ends a body early.
    fn cut(&mut self, nth: usize) {
        let (call, it) = (&mut self.calls[nth], &self.it);
        let behavior = call.task.behavior;
        match behavior {
            BackendBehavior::HangInBody => {
                call.next_ms = u64::MAX;
                return;
            }
            BackendBehavior::ResetInBody => {
                let codes = [ErrorCode::INTERNAL_ERROR, ErrorCode::CANCEL, ErrorCode::NO_ERROR];
                self.end.machine.reset(call.key, it.rng.pick(&codes));
                self.end.release(call.key);
                call.is_over = true;
            }
            _ => self.is_dead = true,
        }
        it.sim.event(format_args!("{} cuts: {behavior:?}", it.name));
    }

    /// Handles the end of a response. A request's body that goes on is read to its end.
    fn finish(&mut self, nth: usize) {
        self.calls[nth].next_ms = u64::MAX;
    }

    fn credit(&mut self, nth: usize, now: u64) {
        let call = &mut self.calls[nth];
        let withholds = call.task.behavior == BackendBehavior::HangUnread;
        if call.uncredited > 0 && now >= call.next_credit_ms && !withholds {
            self.end.machine.credit(call.key, call.uncredited);
            call.uncredited = 0;
            call.next_credit_ms = now + self.it.rng.below(3);
        }
        // Released when all of it is written.
        if call.has_ended && call.next_ms == u64::MAX && call.cut_at.is_none() {
            call.is_over = self.end.release_if_complete(call.key);
        }
    }

    /// Returns the time of the next action that does not depend on the server.
    fn next_ms(&self) -> u64 {
        let now = now_ms();
        let mut next = self.leaves_ms.max(now);
        for call in &self.calls {
            if call.uncredited > 0 && call.task.behavior != BackendBehavior::HangUnread {
                next = next.min(call.next_credit_ms.max(now));
            }
            if call.next_ms > now {
                next = next.min(call.next_ms);
            }
        }
        next.min(now + PATIENCE_S * 1_000)
    }
}

impl BackendCall {
    fn end_upload(&mut self, it: &Witness, ends: bool) {
        if ends && !std::mem::replace(&mut self.has_ended, true) {
            it.check_upload_length(self.number, &self.task, self.read);
        }
    }

    fn fields(&self, it: &Witness) -> Fields {
        let mut fields = Fields::new();
        fields.push(b"x-id", self.number.to_string().as_bytes());
        fields.push(b"content-type", b"text/plain");
        if it.rng.once_in(2) {
            fields.push(b"content-length", self.task.response_bytes.to_string().as_bytes());
        }
        fields
    }
}
