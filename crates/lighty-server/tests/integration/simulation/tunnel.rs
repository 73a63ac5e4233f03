//! Tunnels over HTTP: clients that upgrade a connection of HTTP/1.1 (WebSocket) or open a stream of
//! HTTP/2 with an extended CONNECT, and backends that accept. Their ends are those of raw
//! connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lighty_core::{Blame, Fault};
use lighty_http::Fields;
use lighty_io::transport::memory::{self, MemoryEnd};
use lighty_wire::http2::{ConnFault, Connection, ErrorCode, Limits, RequestParts, StreamKey};
use tokio::time::{sleep, timeout};

use super::backend::Witness;
use super::h2_end::{H2End, News};
use super::raw::{self, RawClient, Via};
use super::rng::Rng;
use super::sim::{Sim, now_ms, number_in};
use super::site::PATIENCE_S;
use super::wire::Wire;

/// Longest head of a request or a response.
const HEAD_BYTES_MAX: usize = 4_096;

/// Paths that lead to a backend in clear text and over TLS.
const PATHS: [&str; 2] = ["/t/x", "/v/x"];

/// Reply of a backend to the request for a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Accepts,
    /// Responds with a 403, and keeps the connection.
    Refuses,
    Dies,
    Resets,
    Hangs,
}

impl Opening {
    pub(crate) fn new(sim: &Sim, rng: &Rng) -> Opening {
        match rng.below(12) {
            0 => Opening::Refuses,
            1 | 2 if !sim.is_calm => rng.pick(&[Opening::Dies, Opening::Resets, Opening::Hangs]),
            _ => Opening::Accepts,
        }
    }
}

/// Runs a client's connection to its end.
pub(crate) async fn run_client(
    sim: &Sim,
    rng: Rng,
    wire: Wire,
    (index, origin): (usize, SocketAddr),
    is_h2: bool,
) {
    let opening = Opening::new(sim, &rng);
    let protocol = if is_h2 { "h2 tunnel" } else { "tunnel" };
    let client = raw::begin(sim, &rng, (index, protocol), Via::Tunnel(opening));
    sim.origins.borrow_mut().insert(client.number, origin);
    let talk = async {
        let refused = match is_h2 {
            true => over_stream(&client, &rng, wire).await,
            false => over_connection(&client, &rng, wire).await,
        };
        if let Err(status) = refused {
            // The server notices, and tells how the request ended.
            sleep(Duration::from_secs(1)).await;
            judge_refusal(sim, client.number, opening, status);
        }
    };
    if timeout(Duration::from_secs(PATIENCE_S * 4), talk).await.is_err() {
        sim.wrong(format_args!("{}: {} waited without a limit", client.name, client.number));
    }
    client.finish();
}

/// Asks for a WebSocket, and speaks through it. A refusal has a status if it is a response.
async fn over_connection(client: &RawClient<'_>, rng: &Rng, wire: Wire) -> Result<(), Option<u16>> {
    let (path, number) = (rng.pick(&PATHS), client.number);
    let head = format!(
        "GET {path}?id={number} HTTP/1.1\r\nHost: simulated\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    wire.write_all(head.as_bytes()).await.map_err(|_| None)?;
    let Some(head) = head_from(&wire).await else { return Err(None) };
    let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
    client.sim.event(format_args!("{} got {status}", client.name));
    if status != 101 {
        let mut piece = [0; 4_096];
        // Its body, which no framing ends here.
        let reading = async { while let Ok(1..) = wire.read(&mut piece).await {} };
        let _ = timeout(Duration::from_secs(1), reading).await;
        return Err(Some(status));
    }
    client.talk(&wire).await;
    Ok(())
}

/// Reads a head, and nothing behind it.
async fn head_from(wire: &Wire) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        let mut byte = [0];
        let Ok(1) = wire.read(&mut byte).await else { return None };
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Opens a stream, and speaks through it. A refusal has a status if it is a response.
async fn over_stream(client: &RawClient<'_>, rng: &Rng, wire: Wire) -> Result<(), Option<u16>> {
    let limits = Limits {
        stream_window_bytes: rng.pick(&[700, 16_000, 65_535, 300_000]),
        ..Limits::default()
    };
    let limits = Limits { stream_window_bytes_max: limits.stream_window_bytes, ..limits };
    let scheme: &[u8] = if wire.is_tls() { b"https" } else { b"http" };
    let mut end = H2End::new(Connection::client(limits, now_ms()), wire);
    while !end.machine.peer_settings().connect_protocol && end.ended.is_none() {
        end.turn(Duration::MAX, false).await.map_err(|_| None)?;
    }
    let target = format!("{}?id={}", rng.pick(&PATHS), client.number);
    let parts = RequestParts {
        method: b"CONNECT",
        scheme,
        authority: b"simulated",
        path: target.as_bytes(),
        protocol: Some(b"websocket"),
    };
    let mut fields = Fields::new();
    fields.push(b"sec-websocket-version", b"13");
    let key = end.machine.open(&parts, &fields, false).map_err(|_| None)?;
    let address = ([127, 0, 0, 1], 1).into();
    let (inner, outer) = memory::pair(address, address, rng.pick(&[16_384, 100_000]));
    let mut bridge = Bridge::new(end, key, inner);
    while bridge.status.is_none() && !bridge.is_gone {
        let news = bridge.end.turn(Duration::MAX, false).await;
        bridge.take(client.sim, news);
    }
    client.sim.event(format_args!("{} got {:?}", client.name, bridge.status));
    if bridge.status != Some(200) {
        let _ = timeout(Duration::from_secs(1), bridge.read_response(client.sim)).await;
        return Err(bridge.status);
    }
    let speaking = async {
        let wire = Wire::plain(outer);
        client.talk(&wire).await;
    };
    tokio::join!(biased; speaking, bridge.run(client.sim));
    Ok(())
}

/// Moves bytes between a stream and a connection in memory, with their ends and resets.
struct Bridge {
    end: H2End,
    key: StreamKey,
    inner: MemoryEnd,
    /// Received bytes that the connection has not taken.
    received: Vec<u8>,
    /// Status of the response.
    status: Option<u16>,
    /// The stream's end has arrived, and was passed on.
    has_ended: bool,
    has_passed_end: bool,
    /// The end of the speaker's bytes is queued.
    has_queued_end: bool,
    /// The stream was reset, or ended with its connection.
    is_gone: bool,
}

impl Bridge {
    fn new(end: H2End, key: StreamKey, inner: MemoryEnd) -> Bridge {
        Bridge {
            end,
            key,
            inner,
            received: Vec::new(),
            status: None,
            has_ended: false,
            has_passed_end: false,
            has_queued_end: false,
            is_gone: false,
        }
    }

    async fn run(&mut self, sim: &Sim) {
        while !self.is_gone {
            self.pass_on();
            let is_over = self.has_queued_end && self.has_passed_end;
            if self.is_gone || (is_over && self.end.release_if_complete(self.key)) {
                break;
            }
            let room = if self.has_queued_end { 0 } else { self.end.machine.room(self.key) };
            let mut piece = vec![0; room.min(16_384)];
            let Bridge { end, inner, received, .. } = self;
            tokio::select! {
                biased;
                news = end.turn(Duration::MAX, false) => self.take(sim, news),
                read = inner.read(&mut piece), if room > 0 => self.send(&piece, read),
                _ = poll_fn(|cx| inner.poll_writable(cx)), if !received.is_empty() => {}
            }
        }
        if self.is_gone && self.has_ended {
            // The connection may close before its client has read everything.
            let _ = self.inner.write_all(&std::mem::take(&mut self.received)).await;
            let _ = self.inner.shutdown_write();
            // Nobody gets the speaker's further bytes.
            let mut piece = [0; 4_096];
            while let Ok(1..) = self.inner.read(&mut piece).await {}
        } else if self.is_gone {
            self.inner.reset();
        }
        self.end.close(Duration::from_secs(PATIENCE_S)).await;
    }

    /// Reads a response that opens no tunnel.
    async fn read_response(&mut self, sim: &Sim) {
        while !self.is_gone && !self.has_ended {
            let news = self.end.turn(Duration::MAX, false).await;
            self.take(sim, news);
            self.end.machine.credit(self.key, self.received.len());
            self.received.clear();
        }
    }

    /// Gives the speaker the bytes that have arrived for it, as far as it takes them.
    fn pass_on(&mut self) {
        while !self.received.is_empty() {
            match self.inner.try_write(&self.received) {
                Ok(count) => {
                    self.received.drain(..count);
                    self.end.machine.credit(self.key, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.give_up(),
            }
        }
        if self.has_ended && !self.has_passed_end {
            // An error means that the speaker has left.
            let _ = self.inner.shutdown_write();
            self.has_passed_end = true;
        }
    }

    /// Queues the bytes that the speaker has sent.
    fn send(&mut self, piece: &[u8], read: io::Result<usize>) {
        let Ok(count) = read else { return self.give_up() };
        self.has_queued_end = count == 0;
        if !self.end.queue(self.key, &piece[..count], count == 0) {
            self.is_gone = true;
        }
    }

    /// Resets the stream, as the speaker has reset its connection.
    fn give_up(&mut self) {
        self.end.machine.reset(self.key, ErrorCode::CANCEL);
        self.end.release(self.key);
        self.is_gone = true;
    }

    fn take(&mut self, sim: &Sim, news: Result<Vec<News>, ConnFault>) {
        let news = news.unwrap_or_else(|fault| {
            sim.wrong(format_args!("a tunnel: broken HTTP/2: {}", fault.message()));
            self.is_gone = true;
            Vec::new()
        });
        for one in news {
            match one {
                News::Head { head, ends, .. } => {
                    self.status = head.status.map(|status| status.code());
                    self.has_ended |= ends;
                }
                News::Data { bytes, ends, .. } => {
                    self.received.extend(bytes);
                    self.has_ended |= ends;
                }
                News::Trailers { .. } => self.has_ended = true,
                News::Reset { code, .. } => {
                    sim.event(format_args!("a tunnel got a reset: {}", code.name()));
                    self.end.release(self.key);
                    self.is_gone = true;
                }
                News::GoAway { last_stream } => self.is_gone |= self.key.id() > last_stream,
            }
        }
        self.is_gone |= self.end.ended.is_some();
    }
}

/// Judges a tunnel that was not opened.
fn judge_refusal(sim: &Sim, number: u64, opening: Opening, status: Option<u16>) {
    let done = sim.ending(number);
    let fault = done.and_then(|done| done.fault);
    let is_right = match (status, fault) {
        (Some(403), None) => opening == Opening::Refuses && done.is_some(),
        // The client leaves after the error's page, with its side of the stream open.
        (Some(500..), Some(Fault::ClientGone)) => !sim.is_calm,
        (Some(status), Some(fault)) => {
            let verdict = fault.verdict();
            let may_fail = !sim.is_calm || raw::has_many(sim);
            let is_ours = verdict.blame == Blame::Us || verdict.blame == Blame::Client;
            may_fail && !is_ours && verdict.status.map(|own| own.code()) == Some(status)
        }
        (None, Some(_)) => !sim.is_calm,
        // The connection was closed for another before the request arrived.
        (None, None) => done.is_none() && sim.is_crowded,
        (Some(_), None) => false,
    };
    if !is_right {
        sim.wrong(format_args!("tunnel {number}: {opening:?}, but {status:?}: {done:?}"));
    }
    raw::note_refusal(sim, number);
}

/// Serves requests for tunnels until one is open.
pub(crate) async fn serve(it: Witness, wire: Wire) {
    while let Some(head) = head_from(&wire).await {
        let number = number_in(head.as_bytes()).unwrap_or_default();
        it.sim.event(format_args!("{} got {number}", it.name));
        let Some(opening) = raw::opening_of(&it.sim, number) else {
            return it.sim.wrong(format_args!("{}: nobody asked for {number}", it.name));
        };
        if !head.to_ascii_lowercase().contains("\r\nupgrade: websocket\r\n") {
            return it.sim.wrong(format_args!("{}: no upgrade: {head}", it.name));
        }
        match opening {
            Opening::Accepts => {
                let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                             Upgrade: websocket\r\n\r\n";
                let _ = wire.write_all(head).await;
                return raw::serve(it, wire, Some(number)).await;
            }
            Opening::Refuses => {
                let head = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
                let _ = wire.write_all(head).await;
            }
            Opening::Dies => return,
            Opening::Resets => return wire.reset(),
            Opening::Hangs => return sleep(Duration::from_secs(PATIENCE_S)).await,
        }
    }
}
