//! Raw connections (`sockproxy.server`): a client and a backend that send bytes both ways through
//! the server, and the judge of the bytes that arrived.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::backend::Witness;
use super::rng::{Rng, body_of};
use super::sim::Sim;
use super::site::PATIENCE_S;
use super::tunnel::Opening;
use super::wire::Wire;

/// Lengths of streams, without their beginning.
const STREAMS: &[u64] = &[0, 1, 300, 5_000, 66_000, 300_000];

/// A backend sends this at once, as mail servers do.
const GREETING: &[u8] = b"220\n";

/// Length of the number that a client sends first.
const NUMBER_BYTES: usize = 8;

/// Behaviour of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RawConduct {
    /// Sends while it reads, and half-closes after its last byte.
    Polite,
    /// Sends after the other end's last byte.
    ReadsFirst,
    /// Resets after a part.
    Resets,
    /// Closes after a part.
    Leaves,
    /// Sends and reads a part, then neither until the server has given up.
    Stalls,
}

/// One end of a raw connection: its plan, and the bytes that it got.
#[derive(Clone, Copy, Debug)]
struct RawEnd {
    conduct: RawConduct,
    /// Bytes to send, without the beginning.
    length: u64,
    is_slow: bool,
    /// Bytes received, with the other end's beginning.
    received: u64,
    /// The other end's stream has ended without an error.
    has_ended: bool,
    is_broken: bool,
    /// It does nothing more.
    is_over: bool,
}

impl RawEnd {
    fn new(sim: &Sim, rng: &Rng) -> RawEnd {
        use RawConduct::*;
        let conduct = match !sim.is_calm && rng.once_in(4) {
            true => rng.pick(&[Resets, Leaves, Stalls]),
            false => rng.pick(&[Polite, Polite, ReadsFirst]),
        };
        RawEnd { conduct, is_slow: rng.once_in(4), ..RawEnd::polite(rng.pick(STREAMS)) }
    }

    fn polite(length: u64) -> RawEnd {
        let (conduct, is_slow, received) = (RawConduct::Polite, false, 0);
        let (has_ended, is_broken, is_over) = (false, false, false);
        RawEnd { conduct, length, is_slow, received, has_ended, is_broken, is_over }
    }

    fn is_polite(&self) -> bool {
        matches!(self.conduct, RawConduct::Polite | RawConduct::ReadsFirst)
    }
}

/// Ways to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// A listener of raw connections.
    Listener,
    /// A request for a tunnel.
    Tunnel(Opening),
}

/// Both ends of a raw connection or a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawPair {
    via: Via,
    client: RawEnd,
    backend: RawEnd,
    /// A backend has read its number.
    is_met: bool,
    /// The client was refused, and that was judged.
    is_refused: bool,
}

impl RawPair {
    fn new(via: Via, client: RawEnd, backend: RawEnd) -> RawPair {
        RawPair { via, client, backend, is_met: false, is_refused: false }
    }
}

/// A stream of bytes by its sender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RawStream {
    Client,
    Backend,
}

impl RawStream {
    /// Returns bytes `from..from + length` of the stream.
    fn bytes(self, number: u64, from: u64, length: u64) -> Vec<u8> {
        let number_bytes = number.to_be_bytes();
        let (first, key) = match self {
            RawStream::Client => (&number_bytes[..], !number),
            RawStream::Backend => (GREETING, number),
        };
        let split = first.len() as u64;
        let mut bytes = first[from.min(split) as usize..].to_vec();
        bytes.truncate(length as usize);
        let rest = length - bytes.len() as u64;
        bytes.extend(body_of(key, from.max(split) - split, rest));
        bytes
    }

    fn first_bytes(self) -> u64 {
        match self {
            RawStream::Client => NUMBER_BYTES as u64,
            RawStream::Backend => GREETING.len() as u64,
        }
    }
}

/// Runs one end of a connection.
struct Speaker<'a> {
    sim: &'a Sim,
    rng: &'a Rng,
    wire: &'a Wire,
    name: &'a str,
    number: u64,
    sends: RawStream,
    reads: RawStream,
    end: &'a RefCell<RawEnd>,
}

impl Speaker<'_> {
    /// Runs the end, after its beginning was sent.
    async fn run(&self) {
        let conduct = self.end.borrow().conduct;
        let both = async { tokio::join!(biased; self.send(), self.read()) };
        match conduct {
            RawConduct::Polite => drop(both.await),
            RawConduct::ReadsFirst => {
                self.read().await;
                self.send().await;
            }
            _ => drop(timeout(self.rng.ms(0, 2_000), both).await),
        }
        self.sim.event(format_args!("{} {:?}", self.name, self.end.borrow()));
        match conduct {
            RawConduct::Resets => self.wire.reset(),
            RawConduct::Stalls => sleep(Duration::from_secs(PATIENCE_S)).await,
            _ => {}
        }
    }

    async fn send(&self) {
        let RawEnd { length, is_slow, .. } = *self.end.borrow();
        // An end that misbehaves has not sent everything by then.
        let until = length - u64::from(!self.end.borrow().is_polite() && length > 0);
        let mut at = 0;
        while at < until {
            let step = self.rng.pick(&[1, 100, 4_000, 30_000]).max(length / 30).min(until - at);
            let piece = self.sends.bytes(self.number, self.sends.first_bytes() + at, step);
            if self.wire.write_all(&piece).await.is_err() {
                self.end.borrow_mut().is_broken = true;
                return;
            }
            at += step;
            if is_slow {
                sleep(self.rng.ms(0, 400)).await;
            }
        }
        let is_polite = self.end.borrow().is_polite();
        match is_polite {
            true => self.wire.shutdown_write().await,
            false => std::future::pending().await,
        }
    }

    async fn read(&self) {
        let is_slow = self.end.borrow().is_slow;
        while self.read_piece(8_192).await {
            if is_slow {
                sleep(self.rng.ms(0, 150)).await;
            }
        }
    }

    /// Reads and checks some bytes. Returns false at the end.
    async fn read_piece(&self, most: usize) -> bool {
        let mut piece = vec![0; most];
        let read = self.wire.read(&mut piece).await;
        let mut end = self.end.borrow_mut();
        match read {
            Ok(count @ 1..) => {
                if piece[..count] != self.reads.bytes(self.number, end.received, count as u64) {
                    let (name, at) = (self.name, end.received);
                    self.sim.wrong(format_args!("{name}: other bytes than were sent after {at}"));
                }
                end.received += count as u64;
                true
            }
            Ok(_) if !self.wire.is_truncated() => {
                end.has_ended = true;
                false
            }
            _ => {
                end.is_broken = true;
                false
            }
        }
    }
}

/// Prepares a backend that sends this many bytes after its greeting. Returns the number that leads
/// to it.
pub(crate) fn prepare(sim: &Sim, backend_bytes: u64) -> u64 {
    let number = sim.number();
    let (client, backend) = (RawEnd::polite(0), RawEnd::polite(backend_bytes));
    sim.raw.borrow_mut().insert(number, RawPair::new(Via::Listener, client, backend));
    number
}

/// A client's end of a raw connection or a tunnel.
pub(crate) struct RawClient<'a> {
    pub(crate) sim: &'a Sim,
    rng: Rng,
    pub(crate) name: String,
    pub(crate) number: u64,
    end: RefCell<RawEnd>,
}

/// Plans both ends of a new connection.
pub(crate) fn begin<'a>(
    sim: &'a Sim,
    rng: &Rng,
    (index, protocol): (usize, &str),
    via: Via,
) -> RawClient<'a> {
    let number = sim.number();
    let (mut client, backend) = (RawEnd::new(sim, rng), RawEnd::new(sim, rng));
    if backend.conduct == RawConduct::ReadsFirst && client.conduct == RawConduct::ReadsFirst {
        client.conduct = RawConduct::Polite;
    }
    let pair = RawPair::new(via, client, backend);
    sim.raw.borrow_mut().insert(number, pair);
    let name = format!("client {index} ({protocol})");
    sim.event(format_args!("{name}: {number} is {pair:?}"));
    RawClient { sim, rng: rng.fork(), name, number, end: RefCell::new(client) }
}

impl RawClient<'_> {
    /// Speaks to the backend until both ends are done.
    pub(crate) async fn talk(&self, wire: &Wire) {
        let RawClient { sim, rng, name, number, end } = self;
        let (sends, reads, number) = (RawStream::Client, RawStream::Backend, *number);
        let speaker = Speaker { sim, rng, wire, name, number, sends, reads, end };
        let waits = rng.once_in(2);
        while waits && end.borrow().received < reads.first_bytes() {
            if !speaker.read_piece(1).await {
                return;
            }
        }
        if wire.write_all(&number.to_be_bytes()).await.is_ok() {
            speaker.run().await;
        }
    }

    /// Keeps the result for the judge.
    pub(crate) fn finish(&self) {
        let mut all = self.sim.raw.borrow_mut();
        let pair = all.get_mut(&self.number).expect("its pair");
        pair.client = *self.end.borrow();
        pair.client.is_over = true;
    }
}

/// Runs a client's connection to its end.
pub(crate) async fn run_client(sim: &Sim, rng: Rng, wire: Wire, index: usize) {
    let protocol = if wire.is_tls() { "raw TLS" } else { "raw" };
    let client = begin(sim, &rng, (index, protocol), Via::Listener);
    let talk = client.talk(&wire);
    if timeout(Duration::from_secs(PATIENCE_S * 4), talk).await.is_err() {
        sim.wrong(format_args!("{}: {} waited without a limit", client.name, client.number));
    }
    client.finish();
}

/// Returns a backend's reply to the request for the tunnel with this number.
pub(crate) fn opening_of(sim: &Sim, number: u64) -> Option<Opening> {
    match sim.raw.borrow().get(&number)?.via {
        Via::Tunnel(opening) => Some(opening),
        Via::Listener => None,
    }
}

/// Notes that a tunnel was refused.
pub(crate) fn note_refusal(sim: &Sim, number: u64) {
    sim.raw.borrow_mut().get_mut(&number).expect("its pair").is_refused = true;
}

/// Returns true if connections may have waited for too long: a pool holds three.
pub(crate) fn has_many(sim: &Sim) -> bool {
    sim.raw.borrow().len() > 3
}

/// Serves a connection, which must be that of `expected` if its request had a number.
pub(crate) async fn serve(witness: Witness, wire: Wire, expected: Option<u64>) {
    let Witness { sim, rng, name } = witness;
    let mut first = [0; NUMBER_BYTES];
    let _ = wire.write_all(GREETING).await;
    for byte in first.chunks_mut(1) {
        // A client may leave before it has sent its number.
        let Ok(1) = wire.read(byte).await else { return };
    }
    let number = u64::from_be_bytes(first);
    sim.event(format_args!("{name} got {number}"));
    if expected.is_some_and(|expected| expected != number) {
        return sim.wrong(format_args!("{name}: {number} in the tunnel of {expected:?}"));
    }
    let found = sim.raw.borrow_mut().get_mut(&number).map(|pair| {
        pair.is_met = true;
        pair.backend
    });
    let Some(backend) = found else {
        return sim.wrong(format_args!("{name}: a number that was never sent: {number}"));
    };
    let end = &RefCell::new(RawEnd { received: NUMBER_BYTES as u64, ..backend });
    let (sends, reads) = (RawStream::Backend, RawStream::Client);
    let (sim, name): (&Rc<Sim>, &String) = (&sim, &name);
    let speaker = Speaker { sim, rng: &rng, wire: &wire, name, number, sends, reads, end };
    speaker.run().await;
    let mut all = sim.raw.borrow_mut();
    let pair = all.get_mut(&number).expect("its pair");
    pair.backend = *end.borrow();
    pair.backend.is_over = true;
}

/// Judges all raw connections of a run at its end.
pub(crate) fn judge(sim: &Sim) {
    let pairs = sim.raw.borrow().clone();
    let may_be_refused = !sim.is_calm || sim.is_crowded || has_many(sim);
    for (number, pair) in pairs {
        let RawPair { via, client, backend, is_met, is_refused } = pair;
        let wrong = |text: &str| sim.wrong(format_args!("raw {number}: {text}: {pair:?}"));
        if !is_met {
            // The server may close a connection for room as its request arrives: it still serves
            // the request, and to the backend the tunnel's client has ended.
            let is_cut_for_room = sim.is_crowded && via != Via::Listener;
            let is_greeted = client.received > 0 && !is_cut_for_room;
            if client.is_polite() && !is_refused && (is_greeted || !may_be_refused) {
                wrong("no backend got its number");
            }
            continue;
        }
        if via != Via::Listener && sim.ending(number).is_none() {
            wrong("a tunnel, and the server tells nothing of its end");
        }
        if is_refused {
            wrong("a backend got its number, and its client a refusal");
        }
        if !backend.is_over && backend.conduct != RawConduct::Stalls {
            wrong("a backend that never ends");
        }
        let directions =
            [(client, RawStream::Client, backend), (backend, RawStream::Backend, client)];
        for (sender, stream, receiver) in directions {
            let is_whole = receiver.received == stream.first_bytes() + sender.length;
            if sender.is_polite() && receiver.is_polite() && !(is_whole && receiver.has_ended) {
                wrong("bytes or an end are lost");
            }
            if sender.conduct == RawConduct::Resets && receiver.has_ended {
                wrong("a reset looks like the end");
            }
        }
    }
}
