//! PROXY headers that clients send to a listener that expects one, and the judge of
//! headers that are refused.

use std::net::SocketAddr;
use std::time::Duration;

use lighty_io::transport::memory::MemoryEnd;
use lighty_wire::proxy_protocol::{Command, Endpoints, Header, Version, encode};
use tokio::time::{sleep, timeout};

use super::rng::Rng;
use super::sim::Sim;
use super::site::{HEAD_S, PATIENCE_S};

/// Ways to send a header. A server must accept the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderManner {
    Whole,
    Torn,
    /// It comes after a while, and in time.
    Late,
    /// A part of it, or nothing, and no more.
    Incomplete,
    /// A part of it, and the end of the stream.
    Cut,
    /// Bytes that are no header.
    Malformed,
}

/// Bytes that begin no valid header. Some begin as one does.
const MALFORMED: [&[u8]; 8] = [
    b"GET / HTTP/1.1\r\nHost: simulated\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\nGET / HTTP/1.1\r\n\r\n",
    b"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c\x01\x02\x03\x04\x05\x06\x07\x08\0\x50\0\x50",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
];

/// Seconds after `server.max-head-time` by which a connection has ended: a sweep is due by then.
const SWEEP_S: u64 = 2;

/// Sends a header from a trusted address. Returns the address that the server must then believe;
/// none if it must have closed the connection, which is judged.
pub(crate) async fn introduce(
    sim: &Sim,
    rng: &Rng,
    end: &MemoryEnd,
    (index, address): (usize, SocketAddr),
) -> Option<SocketAddr> {
    use HeaderManner::*;
    let manner = match !sim.is_calm && rng.once_in(3) {
        true => rng.pick(&[Incomplete, Cut, Malformed]),
        false => rng.pick(&[Whole, Torn, Late]),
    };
    let (bytes, origin) = header(rng, index);
    sim.event(format_args!("client {index} sends a header of {origin:?}: {manner:?}"));
    let part = rng.below(bytes.len() as u64) as usize;
    // An error means that the connection was closed for another.
    match manner {
        Whole => drop(end.write_all(&bytes).await),
        Torn => {
            for piece in bytes.chunks(bytes.len().div_ceil(6)) {
                let _ = end.write_all(piece).await;
                sleep(rng.ms(0, 500)).await;
            }
        }
        Late => {
            sleep(rng.ms(500, HEAD_S * 1_000 - 500)).await;
            let _ = end.write_all(&bytes).await;
        }
        Incomplete => drop(end.write_all(&bytes[..part]).await),
        Cut => {
            let _ = end.write_all(&bytes[..part]).await;
            sleep(rng.ms(0, 100)).await;
            let _ = end.shutdown_write();
        }
        Malformed => drop(end.write_all(rng.pick(&MALFORMED)).await),
    }
    if matches!(manner, Whole | Torn | Late) {
        return Some(origin.unwrap_or(address));
    }
    let limit_s = if manner == Incomplete { HEAD_S + SWEEP_S } else { SWEEP_S };
    expect_silence(sim, end, index, limit_s).await;
    None
}

/// Sends a whole header from an address that the server does not trust.
pub(crate) async fn pretend(sim: &Sim, rng: &Rng, end: &MemoryEnd, index: usize) {
    sim.event(format_args!("client {index} sends a header, and is not trusted"));
    // The server may have closed before.
    let _ = end.write_all(&header(rng, index).0).await;
    expect_silence(sim, end, index, SWEEP_S).await;
}

/// Expects the end of the connection, and nothing before it.
async fn expect_silence(sim: &Sim, end: &MemoryEnd, index: usize, limit_s: u64) {
    // A crowded server accepts when there is room.
    let limit_s = if sim.is_crowded { PATIENCE_S } else { limit_s };
    let mut piece = [0; 64];
    match timeout(Duration::from_secs(limit_s), end.read(&mut piece)).await {
        Ok(Ok(0) | Err(_)) => sim.event(format_args!("client {index} is refused")),
        Ok(Ok(_)) => {
            let text = String::from_utf8_lossy(&piece);
            sim.wrong(format_args!("client {index}: a response without a PROXY header: {text}"));
        }
        Err(_) => sim.wrong(format_args!("client {index}: kept without a PROXY header")),
    }
}

/// Returns a header, and the address in it; none if the connection's own one holds.
fn header(rng: &Rng, index: usize) -> (Vec<u8>, Option<SocketAddr>) {
    let version = rng.pick(&[Version::V1, Version::V2]);
    let port = 50_000 + index as u16;
    let [source, destination]: [SocketAddr; 2] = match rng.once_in(2) {
        true => [([192, 0, 2, 7], port).into(), ([198, 51, 100, 1], 80).into()],
        false => {
            let of = |last| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last];
            [(of(7), port).into(), (of(1), 80).into()]
        }
    };
    let (command, endpoints, origin) = match rng.below(6) {
        // `UNKNOWN` in version 1.
        0 => (Command::Local, Endpoints::Own, None),
        1 => (Command::Proxy, Endpoints::Own, None),
        _ => (Command::Proxy, Endpoints::Inet { source, destination }, Some(source)),
    };
    let mut bytes = Vec::new();
    let header = Header { version, command, endpoints, ..Header::default() };
    encode(&header, &mut bytes).expect("it fits");
    (bytes, origin)
}
