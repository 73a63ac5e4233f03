//! Clients that speak HTTP/2: several requests at a time on one connection.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lighty_http::Fields;
use lighty_wire::http2::frame::PREFACE;
use lighty_wire::http2::{
    ConnFault, Connection, ErrorCode, Limits, MessageHead, RequestParts, StreamKey,
};
use tokio::time::{sleep, timeout};

use super::client::ClientRequest;
use super::h2_end::{H2End, News};
use super::plan::Plan;
use super::reader::{End, Response};
use super::rng::Rng;
use super::scripts::SCRIPTS_S;
use super::sim::{Sim, now_ms};
use super::site::{IDLE_S, PATIENCE_S};
use super::verdict::{self, Conduct, StreamEnd};
use super::wire::Wire;

/// Behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Sends and reads everything, then closes.
    Polite,
    /// Is idle at the end, until the server closes.
    Idles,
    /// Ends its side of the connection after its last request. It opens no window then.
    HalfCloses,
    /// Cancels some of its requests.
    Cancels,
    /// Closes in the middle.
    Leaves,
    Resets,
    /// Stops in the middle of its uploads.
    StopsSending,
    /// Reads nothing from the connection.
    StopsReading,
    /// Reads, and opens no window.
    StopsCrediting,
    /// Breaks a rule of the protocol.
    Breaks,
}

/// A request on its stream.
struct ClientCall {
    plan: Plan,
    request: ClientRequest,
    /// When it begins.
    starts_ms: u64,
    key: Option<StreamKey>,
    /// Length of the body that was queued.
    queued: usize,
    next_send_ms: u64,
    response: Option<Response>,
    /// The response is whole, and the upload goes on.
    is_answered: bool,
    /// Received bytes that are not credited.
    uncredited: usize,
    next_credit_ms: u64,
    /// When the client cancels it.
    cancels_ms: Option<u64>,
    end: Option<StreamEnd>,
}

/// A client's connection.
pub(crate) struct H2Client {
    sim: Rc<Sim>,
    rng: Rng,
    end: H2End,
    name: String,
    /// Address that its requests come from.
    origin: SocketAddr,
    manner: Manner,
    is_slow: bool,
    calls: Vec<ClientCall>,
    /// When the client does what its manner is about.
    turns_ms: u64,
    next_read_ms: u64,
    /// The last stream that the server processes, from its GOAWAY.
    last_stream: Option<u32>,
    has_left: bool,
}

impl H2Client {
    pub(crate) fn new(
        sim: &Rc<Sim>,
        rng: Rng,
        wire: Wire,
        (index, origin): (usize, SocketAddr),
    ) -> H2Client {
        use Manner::*;
        let polite = [Polite, Polite, Polite, Idles];
        let rude = [
            HalfCloses,
            Cancels,
            Cancels,
            Leaves,
            Resets,
            StopsSending,
            StopsReading,
            StopsCrediting,
            Breaks,
        ];
        let is_polite = sim.is_calm || rng.below(3) > 0;
        let manner = if is_polite { rng.pick(&polite) } else { rng.pick(&rude) };
        let limits = Limits {
            stream_window_bytes: rng.pick(&[700, 3_000, 16_000, 65_535, 65_535, 300_000]),
            conn_window_bytes: rng.pick(&[65_535, 1 << 20]),
            ..Limits::default()
        };
        let limits = Limits { stream_window_bytes_max: limits.stream_window_bytes, ..limits };
        let protocol = if wire.is_tls() { "h2" } else { "h2c" };
        let name = format!("client {index} ({protocol})");
        let (of_stream, of_all) = (limits.stream_window_bytes, limits.conn_window_bytes);
        sim.event(format_args!("{name} has windows of {of_stream} and {of_all} bytes"));
        let now = now_ms();
        let turns_ms = now + rng.between(0, 3_000);
        H2Client {
            sim: Rc::clone(sim),
            is_slow: rng.once_in(4),
            end: H2End::new(Connection::client(limits, now), wire),
            rng,
            name,
            origin,
            manner,
            calls: Vec::new(),
            turns_ms,
            next_read_ms: 0,
            last_stream: None,
            has_left: false,
        }
    }

    /// Runs the connection, and judges the responses.
    pub(crate) async fn run(mut self) {
        let count = self.rng.between(1, 5);
        self.calls = (0..count).map(|_| self.next_request()).collect();
        let summary = |call: &ClientCall| (call.request.number, call.request.want);
        let list: Vec<_> = self.calls.iter().map(summary).collect();
        let tasks = self.sim.tasks.borrow().clone();
        let task_of = |call: &ClientCall| tasks.get(&call.request.number);
        let tasks: Vec<_> = self.calls.iter().filter_map(task_of).collect();
        self.sim.event(format_args!("{} {:?}: {list:?} {tasks:?}", self.name, self.manner));
        let limit = Duration::from_secs(PATIENCE_S * 4);
        match timeout(limit, self.talk()).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => {
                self.sim.wrong(format_args!("{}: broken HTTP/2: {}", self.name, fault.message()));
            }
            Err(_) => {
                let manner = self.manner;
                self.sim.wrong(format_args!("{} {manner:?}: waited without a limit", self.name));
            }
        }
        if let Some(fault) = self.end.wire.take_fault() {
            self.sim.wrong(format_args!("{}: broken TLS: {fault}", self.name));
        }
        self.judge().await;
    }

    fn next_request(&self) -> ClientCall {
        let rng = &self.rng;
        let plan = Plan::new(&self.sim, rng, false);
        self.sim.origins.borrow_mut().insert(plan.number, self.origin);
        let starts_ms = now_ms() + rng.pick(&[0, 0, 1, rng.between(0, 2_000)]);
        let cancels = self.manner == Manner::Cancels && rng.once_in(2);
        ClientCall {
            request: ClientRequest::on_stream(&plan),
            plan,
            starts_ms,
            key: None,
            queued: 0,
            next_send_ms: 0,
            response: None,
            is_answered: false,
            uncredited: 0,
            next_credit_ms: 0,
            cancels_ms: cancels.then(|| starts_ms + rng.pick(&[0, 1, 20, rng.between(0, 2_500)])),
            end: None,
        }
    }

    async fn talk(&mut self) -> Result<(), ConnFault> {
        loop {
            let now = now_ms();
            if self.end.ended.is_some() || self.do_manner(now).await {
                return Ok(());
            }
            self.act(now);
            if self.is_done() {
                break;
            }
            let is_deaf = self.is_deaf(now);
            let pause = Duration::from_millis(self.next_ms().saturating_sub(now_ms()));
            let news = self.end.turn(pause, is_deaf).await?;
            if !news.is_empty() && self.is_slow {
                self.next_read_ms = now_ms() + self.rng.between(0, 150);
            }
            news.into_iter().for_each(|news| self.take(news));
        }
        match self.manner {
            Manner::Idles => self.idle().await,
            _ if self.rng.once_in(2) => {
                self.end.machine.abort(ErrorCode::NO_ERROR);
                self.end.flush().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Does what the client's manner is about, when its time has come. Returns true if the client
    /// has left.
    async fn do_manner(&mut self, now: u64) -> bool {
        if now < self.turns_ms {
            return false;
        }
        match self.manner {
            Manner::Leaves | Manner::Resets => {
                self.sim.event(format_args!("{} leaves", self.name));
                if self.manner == Manner::Resets {
                    self.end.wire.reset();
                }
                self.has_left = true;
            }
            Manner::Breaks => {
                self.sim.event(format_args!("{} breaks the protocol", self.name));
                let bytes = self.broken_frame();
                self.end.push_raw(bytes);
                self.end.flush().await;
                // Reads on: the server says GOAWAY, and closes.
                let over = async {
                    while self.end.ended.is_none()
                        && self.end.turn(Duration::MAX, false).await.is_ok()
                    {}
                };
                if timeout(Duration::from_secs(PATIENCE_S), over).await.is_err() {
                    self.sim.wrong(format_args!("{}: kept after a violation", self.name));
                }
                self.has_left = true;
            }
            Manner::HalfCloses if self.has_sent_all() => {
                self.sim.event(format_args!("{} half-closes", self.name));
                self.end.flush().await;
                self.end.wire.shutdown_write().await;
                self.turns_ms = u64::MAX / 2;
            }
            _ => {}
        }
        self.has_left
    }

    /// Returns a frame that ends the connection: its length, type, flags, stream and payload.
    fn broken_frame(&self) -> &'static [u8] {
        self.rng.pick(&[
            // A PING that is too short.
            b"\0\0\x01\x06\0\0\0\0\0x",
            // DATA and HEADERS on streams that cannot have them.
            b"\0\0\x01\x00\0\0\0\0\0x",
            b"\0\0\x01\x01\x04\0\0\0\x02\x82",
            // CONTINUATION without HEADERS.
            b"\0\0\x01\x09\x04\0\0\0\x01\x82",
            PREFACE,
        ])
    }

    fn is_deaf(&self, now: u64) -> bool {
        let has_stopped = now >= self.turns_ms && now < self.turns_ms + PATIENCE_S * 1_000;
        let is_stopped = self.manner == Manner::StopsReading && has_stopped;
        is_stopped || now < self.next_read_ms
    }

    /// Begins requests, sends, credits and cancels, as far as it is time.
    fn act(&mut self, now: u64) {
        for nth in 0..self.calls.len() {
            let call = &mut self.calls[nth];
            if call.end.is_some() {
                continue;
            }
            if call.key.is_none() && now >= call.starts_ms {
                self.open(nth);
            } else if call.cancels_ms.is_some_and(|at| now >= at) {
                self.cancel(nth);
            }
            self.upload(nth, now);
            self.credit(nth, now);
        }
    }

    /// Returns true if all requests are queued to their last byte.
    fn has_sent_all(&self) -> bool {
        let is_sent = |call: &ClientCall| {
            call.end.is_some() || (call.key.is_some() && call.queued == call.plan.body.len())
        };
        self.calls.iter().all(is_sent)
    }

    fn open(&mut self, nth: usize) {
        let scheme: &[u8] = if self.end.wire.is_tls() { b"https" } else { b"http" };
        let call = &mut self.calls[nth];
        let mut fields = Fields::new();
        for (name, value) in &call.plan.fields {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        if call.plan.has_body() && self.rng.once_in(2) {
            fields.push(b"content-length", call.plan.body.len().to_string().as_bytes());
        }
        if call.plan.has_body() && self.rng.once_in(6) {
            fields.push(b"expect", b"100-continue");
        }
        let parts = RequestParts {
            method: call.plan.method.as_bytes(),
            scheme,
            authority: b"simulated",
            path: call.plan.target.as_bytes(),
            protocol: None,
        };
        // An empty body may end in a frame of its own.
        let ends = call.plan.body.is_empty() && !(call.plan.has_body() && self.rng.once_in(2));
        match self.end.machine.open(&parts, &fields, ends) {
            Ok(key) => {
                self.sim.event(format_args!(
                    "{} opens {} for {}",
                    self.name,
                    key.id(),
                    call.request.number
                ));
                call.key = Some(key);
                call.request.sent = 1;
                if !ends && call.plan.body.is_empty() {
                    self.end.queue(key, &[], true);
                }
            }
            // The server has sent GOAWAY.
            Err(_) => call.end = Some(StreamEnd::Unsent),
        }
    }

    fn cancel(&mut self, nth: usize) {
        let call = &mut self.calls[nth];
        let Some(key) = call.key else { return };
        self.sim.event(format_args!("{} cancels {}", self.name, call.request.number));
        self.end.machine.reset(key, ErrorCode::CANCEL);
        self.end.wire.note_reset();
        self.end.release(key);
        call.end = Some(StreamEnd::Cancelled);
    }

    fn upload(&mut self, nth: usize, now: u64) {
        let (is_slow, manner) = (self.is_slow, self.manner);
        let call = &mut self.calls[nth];
        let Some(key) = call.key.filter(|_| call.end.is_none()) else { return };
        let length = call.plan.body.len();
        if manner == Manner::StopsSending && call.queued >= length / 2 && length > 0 {
            return;
        }
        while call.queued < length && now >= call.next_send_ms {
            let room = self.end.machine.room(key);
            if room == 0 {
                return;
            }
            let most = self.rng.pick(&[1, 500, 8_000, 40_000]).max(length / 20);
            let step = (length - call.queued).min(most).min(room);
            let ends = call.queued + step == length;
            let bytes = &call.plan.body[call.queued..call.queued + step];
            if !self.end.queue(key, bytes, ends) {
                return;
            }
            call.queued += step;
            let (number, queued) = (call.request.number, call.queued);
            self.sim.event(format_args!("{} queued {queued} bytes of {number}", self.name));
            call.request.sent = 1 + call.queued;
            if ends && call.is_answered {
                call.end = Some(StreamEnd::Whole);
            }
            if is_slow {
                call.next_send_ms = now + self.rng.between(1, 150);
            }
        }
    }

    fn credit(&mut self, nth: usize, now: u64) {
        let call = &mut self.calls[nth];
        let Some(key) = call.key.filter(|_| call.end.is_none()) else { return };
        let withholds = self.manner == Manner::StopsCrediting && now >= self.turns_ms;
        if call.uncredited == 0 || now < call.next_credit_ms || withholds {
            return;
        }
        let part = match self.rng.below(3) {
            0 => call.uncredited.div_ceil(2),
            _ => call.uncredited,
        };
        self.end.machine.credit(key, part);
        call.uncredited -= part;
        call.next_credit_ms = now + if self.is_slow { self.rng.between(0, 100) } else { 1 };
    }

    /// Returns the time of the next action that does not depend on the server.
    fn next_ms(&self) -> u64 {
        let now = now_ms();
        let mut next = u64::MAX;
        let mut at = |ms: u64| next = next.min(ms.max(now));
        let withholds = self.manner == Manner::StopsCrediting && now >= self.turns_ms;
        for call in self.calls.iter().filter(|call| call.end.is_none()) {
            if call.key.is_none() {
                at(call.starts_ms);
                continue;
            }
            call.cancels_ms.into_iter().for_each(&mut at);
            if call.uncredited > 0 && !withholds {
                at(call.next_credit_ms);
            }
            if call.next_send_ms > now {
                at(call.next_send_ms);
            }
        }
        for ms in [self.turns_ms, self.turns_ms + PATIENCE_S * 1_000, self.next_read_ms] {
            if ms > now {
                at(ms);
            }
        }
        next.min(now + PATIENCE_S * 4_000)
    }

    fn take(&mut self, news: News) {
        let find = |key: StreamKey| move |call: &&mut ClientCall| call.key == Some(key);
        match news {
            News::Head { key, head, ends } => {
                let Some(call) = self.calls.iter_mut().find(find(key)) else { return };
                call.response = Some(response_of(&head));
                if ends {
                    self.finish(key);
                }
            }
            News::Data { key, bytes, ends } => {
                let Some(call) = self.calls.iter_mut().find(find(key)) else { return };
                let (number, length) = (call.request.number, bytes.len());
                self.sim.event(format_args!("{} got {length} bytes of {number}", self.name));
                call.uncredited += length;
                if let Some(response) = &mut call.response {
                    response.body.extend_from_slice(&bytes);
                }
                if ends {
                    self.finish(key);
                }
            }
            News::Trailers { key } => self.finish(key),
            News::Reset { key, code, mistake } => {
                if let Some(message) = mistake {
                    self.sim.wrong(format_args!("{}: a malformed response: {message}", self.name));
                }
                let (name, id) = (&self.name, key.id());
                self.sim.event(format_args!("{name} got a reset of {id}: {}", code.name()));
                let Some(call) = self.calls.iter_mut().find(find(key)) else { return };
                self.end.release(key);
                let is_refused = code == ErrorCode::REFUSED_STREAM;
                let end = match call.is_answered {
                    true => StreamEnd::Whole,
                    false if is_refused => StreamEnd::Refused,
                    false => StreamEnd::Cut,
                };
                call.end.get_or_insert(end);
            }
            News::GoAway { last_stream } => {
                self.sim.event(format_args!("{} is told to go after {last_stream}", self.name));
                self.last_stream = Some(last_stream);
                for call in &mut self.calls {
                    if let Some(key) = call.key.filter(|key| key.id() > last_stream) {
                        call.end.get_or_insert(StreamEnd::Refused);
                        self.end.release(key);
                    }
                }
            }
        }
    }

    /// Handles the end of a response. The client may stop an upload that is still under way, or go
    /// on with it.
    fn finish(&mut self, key: StreamKey) {
        let Some(call) = self.calls.iter_mut().find(|call| call.key == Some(key)) else { return };
        if call.queued < call.plan.body.len() && self.rng.once_in(2) {
            call.is_answered = true;
            return;
        }
        call.end.get_or_insert(StreamEnd::Whole);
        self.end.release(key);
    }

    fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.end.is_some())
    }

    /// Waits until the server closes the idle connection.
    async fn idle(&mut self) -> Result<(), ConnFault> {
        let limit = now_ms() + (IDLE_S + 10) * 1_000;
        while self.end.ended.is_none() && now_ms() < limit {
            let news = self.end.turn(Duration::from_secs(1), false).await?;
            news.into_iter().for_each(|news| self.take(news));
        }
        if self.end.ended.is_none() {
            self.sim.wrong(format_args!("{}: an idle connection is still open", self.name));
        }
        Ok(())
    }

    async fn judge(self) {
        let H2Client { sim, end, calls, manner, has_left, name, .. } = self;
        let ended = end.ended;
        drop(end);
        // The server notices, and tells how the requests ended, some after their scripts.
        sleep(Duration::from_secs(SCRIPTS_S)).await;
        use Manner::*;
        let conduct = match manner {
            _ if has_left => Conduct::Left,
            HalfCloses | StopsSending | StopsCrediting => Conduct::Stalls,
            StopsReading => Conduct::Deaf,
            _ => Conduct::Polite,
        };
        for mut call in calls {
            let end = match (call.end, call.key) {
                (Some(end), _) => end,
                (None, None) => StreamEnd::Unsent,
                (None, Some(_)) if call.is_answered => StreamEnd::Whole,
                (None, Some(_)) => StreamEnd::Cut,
            };
            let number = call.request.number;
            sim.event(format_args!("{name} {number}: {end:?}, then {ended:?}"));
            let mut response = call.response.take();
            if let Some(response) = &mut response {
                response.end = if end == StreamEnd::Whole { End::Whole } else { End::Reset };
            }
            verdict::judge_stream(&sim, &call.request, end, response.as_ref(), conduct)
                .unwrap_or_else(|text| sim.wrong(format_args!("{name}: {text}")));
        }
    }
}

fn response_of(head: &MessageHead) -> Response {
    let mut lines = String::new();
    for (name, value) in head.fields.iter() {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        lines.push_str(&format!("{name}: {value}\r\n"));
    }
    Response {
        status: head.status.map_or(0, |status| status.code()),
        head: lines,
        body: Vec::new(),
        end: End::Reset,
        ends_with_connection: false,
    }
}
