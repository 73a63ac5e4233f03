//! Clients over connections in memory: their requests and their misbehaviour.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use lighty_core::settings::limits;
use tokio::time::{sleep, timeout};

use super::plan::{Plan, Want};
use super::reader::{End, Reader, Response};
use super::rng::Rng;
use super::scripts::SCRIPTS_S;
use super::sim::Sim;
use super::site::{IDLE_S, PATIENCE_S};
use super::verdict;
use super::wire::Wire;

/// A request of a client, framed, and how far it was sent.
pub(crate) struct ClientRequest {
    pub(crate) number: u64,
    pub(crate) want: Want,
    pub(crate) is_head: bool,
    pub(crate) is_http10: bool,
    /// It announces `Connection: close`; a server may rely on that.
    pub(crate) closes: bool,
    /// Length of its head.
    pub(crate) head_bytes: usize,
    /// Length of all of it.
    pub(crate) total_bytes: usize,
    /// Length of its body, without framing.
    pub(crate) body_bytes: u64,
    /// Number of bytes sent.
    pub(crate) sent: usize,
    /// Its body has no announced length, and is too long for a server to drain: an early response
    /// may be the last one.
    pub(crate) may_be_last: bool,
    /// The request as sent in HTTP/1.
    bytes: Vec<u8>,
}

impl ClientRequest {
    /// Returns true if the connection may close after its response: the client announces that, or
    /// speaks HTTP/1.0, where a response without a length ends with the connection.
    pub(crate) fn may_close(&self) -> bool {
        self.closes || self.is_http10
    }

    /// Returns the record of a request that HTTP/2 frames: its head counts as one byte.
    pub(crate) fn on_stream(plan: &Plan) -> ClientRequest {
        ClientRequest {
            number: plan.number,
            want: plan.want,
            is_head: plan.is_head(),
            is_http10: false,
            closes: false,
            head_bytes: 1,
            total_bytes: 1 + plan.body.len(),
            body_bytes: plan.body.len() as u64,
            sent: 0,
            may_be_last: false,
            bytes: Vec::new(),
        }
    }
}

/// Behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Sends a request, reads the response, sends the next one.
    InTurn,
    /// Sends all requests while it reads.
    Pipelines,
    /// Sends everything before it reads anything.
    SendsFirst,
    /// Ends its stream after the last request.
    HalfCloses,
    /// Disconnects in the middle.
    Leaves,
    Resets,
    /// Stops in the middle of a request.
    StopsSending,
    /// Stops reading.
    StopsReading,
    /// Waits for longer than the idle limit of a connection.
    Idles,
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) sim: Rc<Sim>,
    rng: Rng,
    wire: Wire,
    name: String,
    /// Address that its requests come from.
    origin: SocketAddr,
    manner: Manner,
    is_slow: bool,
}

impl Client {
    pub(crate) fn new(
        sim: &Rc<Sim>,
        rng: Rng,
        wire: Wire,
        (index, origin): (usize, SocketAddr),
    ) -> Client {
        use Manner::*;
        let polite = [InTurn, InTurn, Pipelines, SendsFirst, HalfCloses];
        let rude = [Leaves, Resets, StopsSending, StopsReading, Idles];
        let is_polite = sim.is_calm || rng.below(3) > 0;
        let manner = if is_polite { rng.pick(&polite) } else { rng.pick(&rude) };
        let is_slow = rng.once_in(4);
        let protocol = if wire.is_tls() { "https" } else { "http" };
        let name = format!("client {index} ({protocol})");
        Client { sim: Rc::clone(sim), rng, wire, name, origin, manner, is_slow }
    }

    /// Runs the connection, and judges the responses.
    pub(crate) async fn run(self) {
        // A client that reads nothing until all is sent must not request more than buffers hold.
        let is_deaf = self.sim.is_calm && self.manner == Manner::SendsFirst;
        let count = if is_deaf { 1 } else { self.rng.between(1, 5) };
        let mut requests: Vec<ClientRequest> = (0..count).map(|_| self.next_request()).collect();
        let list: Vec<_> =
            requests.iter().map(|one| (one.number, one.want, one.bytes.len())).collect();
        let tasks = self.sim.tasks.borrow().clone();
        let tasks: Vec<_> = requests.iter().filter_map(|one| tasks.get(&one.number)).collect();
        self.sim.event(format_args!("{} {:?}: {list:?} {tasks:?}", self.name, self.manner));
        let mut reader = Reader::new(&self.wire);
        let patience = Duration::from_secs(PATIENCE_S);
        let talking = self.talk(&mut requests, &mut reader);
        if timeout(patience * 4, talking).await.is_err() {
            let manner = self.manner;
            self.sim.wrong(format_args!("{} {manner:?}: waited without a limit", self.name));
        }
        if let Some(fault) = self.wire.take_fault() {
            self.sim.wrong(format_args!("{}: broken TLS: {fault}", self.name));
        }
        if reader.ended.is_some() {
            // A script goes on after its client was timed out; then the server tells of the end.
            sleep(Duration::from_secs(SCRIPTS_S)).await;
        }
        let is_left = matches!(self.manner, Manner::Leaves | Manner::Resets);
        for response in &reader.responses {
            self.sim.event(format_args!("{} read {response}", self.name));
        }
        verdict::judge(&self.sim, &self.name, &requests, &reader, is_left);
    }

    async fn talk(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        match self.manner {
            Manner::InTurn => self.in_turn(requests, reader).await,
            Manner::SendsFirst => {
                for one in requests.iter_mut() {
                    if !self.send(one).await {
                        break;
                    }
                }
                self.read_all(requests, reader).await;
            }
            Manner::Pipelines | Manner::HalfCloses => {
                let heads: Vec<bool> = requests.iter().map(|one| one.is_head).collect();
                let sending = async {
                    for one in requests.iter_mut() {
                        if !self.send(one).await {
                            return;
                        }
                    }
                    if self.manner == Manner::HalfCloses {
                        self.wire.shutdown_write().await;
                    }
                };
                let reading = async {
                    for is_head in heads {
                        if !self.read(reader, is_head).await {
                            return;
                        }
                    }
                };
                tokio::join!(biased; sending, reading);
            }
            Manner::Leaves | Manner::Resets => self.leave(requests, reader).await,
            Manner::StopsSending => self.stop_sending(requests, reader).await,
            Manner::StopsReading => self.stop_reading(requests, reader).await,
            Manner::Idles => self.idle(requests, reader).await,
        }
    }

    async fn in_turn(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        for one in requests {
            if self.rng.once_in(3) {
                sleep(self.rng.ms(0, 2_000)).await;
            }
            // A server may respond before it has read everything.
            let is_head = one.is_head;
            let (_, goes_on) = tokio::join!(biased; self.send(one), self.read(reader, is_head));
            if !goes_on {
                return;
            }
        }
    }

    async fn read_all(&self, requests: &[ClientRequest], reader: &mut Reader<'_>) {
        for one in requests {
            if !self.read(reader, one.is_head).await {
                return;
            }
        }
    }

    /// Sends a part, reads a part, and disconnects.
    async fn leave(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        let moment = self.rng.ms(0, 3_000);
        let _ = timeout(moment, self.in_turn(requests, reader)).await;
        self.sim.event(format_args!("{} leaves", self.name));
        if self.manner == Manner::Resets {
            self.wire.reset();
        }
    }

    async fn stop_sending(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        let Some((last, before)) = requests.split_last_mut() else { return };
        self.in_turn(before, reader).await;
        let part = self.rng.below(last.bytes.len() as u64) as usize;
        if self.write(&last.bytes[..part]).await {
            last.sent = part;
        }
        self.sim.event(format_args!("{} stops after {part} bytes", self.name));
        let is_known = last.is_head && last.sent >= last.head_bytes;
        self.read_to_end(reader, is_known).await;
    }

    async fn stop_reading(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        for one in requests.iter_mut() {
            let sent = timeout(Duration::from_secs(PATIENCE_S), self.send(one)).await;
            if !sent.unwrap_or(false) {
                break;
            }
        }
        self.wire.settle().await;
        // By then the server has given up, unless everything fitted into the buffers.
        sleep(Duration::from_secs(PATIENCE_S)).await;
        self.read_all(requests, reader).await;
    }

    async fn idle(&self, requests: &mut [ClientRequest], reader: &mut Reader<'_>) {
        let Some((last, before)) = requests.split_last_mut() else { return };
        self.in_turn(before, reader).await;
        sleep(Duration::from_secs(IDLE_S + 4)).await;
        if !self.wire.is_ended() {
            self.sim.wrong(format_args!("{}: an idle connection is still open", self.name));
        }
        last.sent = 0;
        self.read_to_end(reader, false).await;
    }

    /// Reads until the server closes.
    async fn read_to_end(&self, reader: &mut Reader<'_>, is_head: bool) {
        while self.read(reader, is_head).await {}
    }

    async fn read(&self, reader: &mut Reader<'_>, is_head: bool) -> bool {
        let pace = if self.is_slow { Some(&self.rng) } else { None };
        match reader.respond(is_head, pace).await {
            Some(end) => end == End::Whole,
            None => false,
        }
    }

    async fn send(&self, one: &mut ClientRequest) -> bool {
        if !self.is_slow && self.rng.once_in(2) {
            let done = self.write(&one.bytes).await;
            one.sent = if done { one.bytes.len() } else { 1 };
            return done;
        }
        while one.sent < one.bytes.len() {
            let rest = &one.bytes[one.sent..];
            let most = self.rng.pick(&[1, 20, 1_000, 20_000]);
            let step = rest.len().min(most.max(one.bytes.len() / 20));
            if !self.write(&rest[..step]).await {
                return false;
            }
            one.sent += step;
            if self.is_slow {
                sleep(self.rng.ms(0, 150)).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
        true
    }

    async fn write(&self, bytes: &[u8]) -> bool {
        let written = self.wire.write_all(bytes).await;
        self.sim.event(format_args!("{} wrote {} bytes", self.name, bytes.len()));
        if let Err(error) = &written {
            self.sim.event(format_args!("{} cannot write: {error}", self.name));
        }
        written.is_ok()
    }

    fn next_request(&self) -> ClientRequest {
        let rng = &self.rng;
        let is_http10 = rng.once_in(6);
        let closes = rng.once_in(8);
        let Plan { number, want, method, target, mut fields, body } =
            Plan::new(&self.sim, rng, true);
        self.sim.origins.borrow_mut().insert(number, self.origin);
        let has_body = matches!(method, "POST" | "PUT");
        if has_body && !is_http10 && rng.once_in(6) {
            fields.push(("Expect", "100-continue".to_owned()));
        }
        if closes {
            fields.push(("Connection", "close".to_owned()));
        } else if is_http10 {
            fields.push(("Connection", "keep-alive".to_owned()));
        }
        let version = if is_http10 { "1.0" } else { "1.1" };
        let fields: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{method} {target} HTTP/{version}\r\nHost: simulated\r\n{fields}");
        let body_bytes = body.len() as u64;
        let is_long = body_bytes > limits::DRAIN_BYTES_MAX;
        let (head, body) = self.frame(head, body, has_body, is_http10);
        let may_be_last = is_long && head.contains("chunked");
        let mut bytes = head.into_bytes();
        if want == Want::Garbage {
            bytes = b"\x01\x02 garbage\r\n\r\n".to_vec();
        }
        let head_bytes = bytes.len();
        bytes.extend(body);
        ClientRequest {
            number,
            want,
            is_head: method == "HEAD",
            is_http10,
            closes,
            head_bytes,
            total_bytes: bytes.len(),
            body_bytes,
            sent: 0,
            may_be_last,
            bytes,
        }
    }

    /// Ends the head with the fields that frame the body.
    fn frame(
        &self,
        mut head: String,
        body: Vec<u8>,
        has_body: bool,
        is_http10: bool,
    ) -> (String, Vec<u8>) {
        if !has_body {
            head.push_str("\r\n");
            return (head, body);
        }
        if is_http10 || self.rng.once_in(2) {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
            return (head, body);
        }
        head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        let mut framed = Vec::new();
        let mut rest = &body[..];
        while !rest.is_empty() {
            let step = (self.rng.between(1, 40_000) as usize).min(rest.len());
            framed.extend_from_slice(format!("{step:x}\r\n").as_bytes());
            framed.extend_from_slice(&rest[..step]);
            framed.extend_from_slice(b"\r\n");
            rest = &rest[step..];
        }
        framed.extend_from_slice(b"0\r\n\r\n");
        (head, framed)
    }
}

/// Formats the response for the trace.
impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (length, end) = (self.body.len(), self.end);
        write!(f, "{} with {length} bytes, {end:?}, closes: {}", self.status, self.closes())
    }
}
